// SPDX-License-Identifier: BSD-3-Clause
/* Mean and standard deviation of each channel, and of each target, of float32 records. */
#ifndef VITTRAIN_DATA_STATISTICS_H
#define VITTRAIN_DATA_STATISTICS_H

#include "comm/comm.h"
#include "data/dataset.h"

/* Collective. Compute and log the statistics; statistics->mean.count is 0 if a signal requested the
 * end before they were complete. If float32 does not show the variance of a channel (dataset.h),
 * the records are read again and keep its origin. Each rank reads its share of the samples with
 * `threads` threads. The sums are exact, so the result does not depend on the number of ranks and
 * threads. Missing values are ignored. The mean of a channel without values is 0; the standard
 * deviation of a channel without variance is 1. An infinite or too large value is an error, else
 * records->is_finite is set. Targets are measured if dataset->target_normalised is set. */
MUST_CHECK bool statistics_compute(struct dataset *records, struct comm *world, int threads,
                                   struct value_statistics *statistics, struct error *error);

/* True if the rounding of values near the mean to float32, up to 2^-24 of the mean, may exceed
 * 2^-12 of the standard deviation. */
static inline bool statistics_mean_is_far(double mean, double std)
{
    return mean > 0x1p12 * std || mean < -0x1p12 * std;
}

#endif
