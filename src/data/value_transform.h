// SPDX-License-Identifier: BSD-3-Clause
/* Functions of data.transform, which are applied to values when they are read. */
#ifndef VITTRAIN_DATA_VALUE_TRANSFORM_H
#define VITTRAIN_DATA_VALUE_TRANSFORM_H

#include <stddef.h>
#include <stdint.h>

enum value_transform { TRANSFORM_NONE, TRANSFORM_LOG1P, TRANSFORM_LOG10, TRANSFORM_SQRT };

/* Return the transform with a name of `length` bytes, or TRANSFORM_NONE. */
enum value_transform value_transform_find(const char *name, size_t length);

/* Transform values in place. A finite value whose result is not finite becomes NaN; infinite values
 * are unchanged. */
void value_transform_apply(enum value_transform transform, float *values, int64_t count);

/* Apply the inverse function in place. That of sqrt returns 0 for negative values. */
void value_transform_undo(enum value_transform transform, float *values, int64_t count);

#endif
