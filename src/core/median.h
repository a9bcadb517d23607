// SPDX-License-Identifier: BSD-3-Clause
/* Order of measured values. */
#ifndef VITTRAIN_CORE_MEDIAN_H
#define VITTRAIN_CORE_MEDIAN_H

#include <stdint.h>

/* Sort in ascending order. */
void values_sort(double *values, int64_t count);

/* Sort, and return the upper median; 0 without values. */
double values_median(double *values, int64_t count);

#endif
