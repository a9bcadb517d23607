// SPDX-License-Identifier: BSD-3-Clause
/* Arithmetic of integers that are not negative. */
#ifndef VITTRAIN_CORE_INTEGER_H
#define VITTRAIN_CORE_INTEGER_H

#include <stdint.h>

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t integer_clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static inline int64_t round_up_division(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t round_up(int64_t count, int64_t multiple)
{
    return round_up_division(count, multiple) * multiple;
}

/* Set begin and length of piece `part` of `count` elements cut into `parts` contiguous pieces. The
 * first count % parts pieces have one element more. */
static inline void cut_evenly(int64_t count, int64_t parts, int64_t part, int64_t *begin,
                              int64_t *length)
{
    int64_t size = count / parts, larger_pieces = count % parts;
    *begin = part * size + smaller(part, larger_pieces);
    *length = size + (part < larger_pieces);
}

/* Compare two uint32_t, for qsort. */
static inline int compare_uint32(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

#endif
