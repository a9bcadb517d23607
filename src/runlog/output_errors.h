// SPDX-License-Identifier: BSD-3-Clause
/* Errors of one output of a regression: root mean square, absolute, mean and relative to the
 * variance. The sums depend neither on the order nor on the number of ranks (device/exact_sum.h).
 */
#ifndef VITTRAIN_RUNLOG_OUTPUT_ERRORS_H
#define VITTRAIN_RUNLOG_OUTPUT_ERRORS_H

#include <stdint.h>

#include "core/columns.h"
#include "device/operations.h"

/* Columns of metrics.csv and keys of result.json: root of the mean squared error, mean absolute
 * error, mean of prediction - target, 1 - squared error / variance of the target, and the errors of
 * the input as the prediction. */
#define OUTPUT_ERRORS(ERROR)                                                                       \
    ERROR(rmse) ERROR(mae) ERROR(bias) ERROR(r2) ERROR(persistence_rmse) ERROR(persistence_mae)

/* In the units of the target; r2 has none. NAN: not known. */
struct output_errors {
    OUTPUT_ERRORS(COLUMN_MEMBER)
};

/* Weighted sums over the elements whose target is not missing. A quantity of both signs has two
 * sums: one of the planes whose sum is positive, one of those whose sum is negative. */
enum output_sum {
    SUM_WEIGHT,
    SUM_ERROR_ABOVE,
    SUM_ERROR_BELOW,
    SUM_ABSOLUTE,
    SUM_SQUARE,
    SUM_TARGET_ABOVE, /* target - output_plane.mean */
    SUM_TARGET_BELOW,
    SUM_TARGET_SQUARE,
    SUM_PERSISTENCE_WEIGHT,
    SUM_PERSISTENCE_ABSOLUTE,
    SUM_PERSISTENCE_SQUARE,
    OUTPUT_SUMS
};

/* One output of one sample. */
struct output_plane {
    int64_t height, width;
    double mean;              /* near the mean of the target, for less rounding */
    const float *predictions; /* [height, width] */
    const float *targets;     /* [height, width]; NaN: missing */
    const float *persistence; /* [height, width]: the same variable in the input; or NULL */
    const float *row_weights; /* [height]; or NULL: 1 */
};

/* Thread-safe. */
void output_sums_add(struct exact_sum sums[OUTPUT_SUMS], const struct output_plane *plane);
struct output_errors output_errors_of(const struct exact_sum sums[OUTPUT_SUMS]);

#endif
