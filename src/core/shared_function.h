// SPDX-License-Identifier: BSD-3-Clause
/* SHARED_FUNCTION declares a function that is compiled for the CPU and the GPU. */
#ifndef VITTRAIN_CORE_SHARED_FUNCTION_H
#define VITTRAIN_CORE_SHARED_FUNCTION_H

#ifdef __device__
#define SHARED_FUNCTION __device__ static inline
#else
#define SHARED_FUNCTION static inline __attribute__((always_inline, unused))
#endif

#endif
