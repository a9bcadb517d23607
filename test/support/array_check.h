// SPDX-License-Identifier: BSD-3-Clause
/* Comparison of an array's values with expected ones. */
#ifndef VITTRAIN_TEST_ARRAY_CHECK_H
#define VITTRAIN_TEST_ARRAY_CHECK_H

#include "arrays/array.h"

enum { ARRAY_CHECK_ELEMENTS = 4096 }; /* at most */

/* Return the box of all elements, in row-major order in memory. */
struct array_box array_whole(const struct array *array);

/* Read the array at once as doubles, and, with a cache, in random boxes as floats, also with the
 * dimensions in reverse order in memory. */
void array_check(struct array *array, const double *expected);

#endif
