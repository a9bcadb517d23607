// SPDX-License-Identifier: BSD-3-Clause
#include "core/median.h"

#include <stdlib.h>

static int values_compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void values_sort(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, values_compare);
}

double values_median(double *values, int64_t count)
{
    values_sort(values, count);
    return count > 0 ? values[count / 2] : 0;
}
