// SPDX-License-Identifier: BSD-3-Clause
/* Conversion of an array's stored numbers to values. */
#ifndef VITTRAIN_DATA_ARRAY_VALUE_H
#define VITTRAIN_DATA_ARRAY_VALUE_H

#include "data/array.h"

/* Where values go; one pointer is NULL. */
struct array_target {
    float *floats;
    double *doubles;
};

/* Convert `count` consecutive elements to values [first, first + stride, ...] of the target. `from`
 * NULL: the fill value. */
void array_values_convert(const struct array *array, const uint8_t *from, int64_t count,
                          struct array_target to, int64_t first, int64_t stride);

#endif
