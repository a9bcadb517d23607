// SPDX-License-Identifier: BSD-3-Clause
/* Mean and standard deviation of each channel, and of each target, of float32 records. */
#ifndef VITTRAIN_DATA_STATISTICS_H
#define VITTRAIN_DATA_STATISTICS_H

#include "comm/comm.h"
#include "data/dataset.h"

/* Collective. Compute and log the statistics. Each rank reads its share of the samples with
 * `threads` threads. The sums are exact, so the result does not depend on the number of ranks and
 * threads. Missing values are ignored. The mean of a channel without values is 0; the standard
 * deviation of a channel without variance is 1. An infinite or too large value is an error, else
 * records->is_finite is set. Targets are measured if dataset->target_normalised is set. */
MUST_CHECK bool statistics_compute(struct dataset *records, struct comm *world, int threads,
                                   struct value_statistics *statistics, struct error *error);

#endif
