// SPDX-License-Identifier: BSD-3-Clause
/* The table of one instruction set's kernels; compiled once per instruction set like all
 * kernels_*.c. */
#include "cpu/kernels.h"

#define KERNEL_STRING(name) #name
#define KERNEL_NAME(name) KERNEL_STRING(name)
#define KERNEL_ENTRY(subject, member) .member = &KERNEL(subject##_kernels),

/* clang-format off */
const struct cpu_kernels KERNEL(cpu_kernels) = {
    KERNEL_SUBJECTS(KERNEL_ENTRY)
    .name = KERNEL_NAME(KERNELS),
};
/* clang-format on */
