// SPDX-License-Identifier: BSD-3-Clause
/* Blocks of the matrix products of linear layers (cpu_linear.c, cpu_linear_grains.c). */
#ifndef VITTRAIN_DEVICE_CPU_LINEAR_H
#define VITTRAIN_DEVICE_CPU_LINEAR_H

#include "device/cpu.h"

/* `total` rows or columns in `count` blocks of `size`; the last one may be shorter. */
struct cut {
    int64_t total, size, count;
};

static inline struct cut cut_by_size(int64_t total, int64_t count, int64_t multiple)
{
    const int64_t size = round_up(round_up_division(total, count), multiple);

    return (struct cut){total, size, round_up_division(total, size)};
}

static inline int64_t part_size(const struct cut *cut, int64_t part)
{
    return smaller(cut->size, cut->total - part * cut->size);
}

enum { GRAINS_LEVEL = 3 };
/* Write dweight and dbias, summed over 1 to 2^GRAINS_LEVEL grains of args->grain_rows rows. x and
 * dy must need no conversion or copy. out, in: blocks of dweight. Blocks of `out` are cut further
 * if the stack exceeds the workspace. */
void cpu_linear_gradient_of_grains(struct cpu_device *cpu, const struct linear_backward *args,
                                   struct cut out, const struct cut *in);

#endif
