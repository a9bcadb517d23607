// SPDX-License-Identifier: BSD-3-Clause
/* Conversion of the stored numbers of an array to values. */
#ifndef VITTRAIN_DATA_ARRAY_VALUE_H
#define VITTRAIN_DATA_ARRAY_VALUE_H

#include "data/array.h"

/* Destination of values; one of the pointers is NULL. */
struct array_target {
    float *floats;
    double *doubles;
};

/* Convert `count` consecutive elements to the values first, first + stride, ... of the target. If
 * `from` is NULL, the elements are the fill value. */
void array_values_convert(const struct array *array, const uint8_t *from, int64_t count,
                          struct array_target to, int64_t first, int64_t stride);

/* Convert a matrix [rows, columns] to its transpose, whose rows are `stride` apart. */
void array_values_transpose(const struct array *array, const uint8_t *from, int64_t rows,
                            int64_t columns, float *to, int64_t stride);

#endif
