// SPDX-License-Identifier: BSD-3-Clause
/* Attribute of functions whose loops the compiler vectorises at any level of optimization. */
#ifndef VITTRAIN_CORE_VECTORISED_H
#define VITTRAIN_CORE_VECTORISED_H

/* At -O2, GCC vectorises few loops. */
#if defined(__GNUC__) && !defined(__clang__)
#define VECTORISED __attribute__((optimize("O3")))
#else
#define VECTORISED
#endif

#endif
