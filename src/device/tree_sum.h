// SPDX-License-Identifier: BSD-3-Clause
/* A sum in the order of base/sum_tree.h, compiled for the CPU and the GPU. */
#ifndef VITTRAIN_DEVICE_TREE_SUM_H
#define VITTRAIN_DEVICE_TREE_SUM_H

#include <stdint.h>

#include "base/base.h"
#include "base/sum_tree.h"

/* Return the sum of values[0], values[stride], ..., values[(count - 1) * stride]. count > 0. Before
 * value i is added, the stack holds the sum of one subtree for each bit that is set in i. */
SHARED_FUNCTION double tree_sum(const double *values, int64_t count, int64_t stride)
{
    double stack[TREE_LEVELS + 1] = {0};
    int top = 0;
    for (int64_t i = 0; i < count; i++) {
        stack[top] = values[i * stride];
        for (int64_t bits = i; top > 0 && (bits & 1 || i == count - 1); bits >>= 1, top--)
            stack[top - 1] += stack[top];
        top++;
    }
    return stack[0];
}

#endif
