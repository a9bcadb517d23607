// SPDX-License-Identifier: BSD-3-Clause
/* Mean and standard deviation of each channel of float32 records. */
#ifndef VITTRAIN_DATA_STATISTICS_H
#define VITTRAIN_DATA_STATISTICS_H

#include "comm/comm.h"
#include "data/dataset.h"

/* Collective. Each rank reads its share of the samples with `threads` threads. The sums are exact,
 * so the result does not depend on the number of ranks and threads. Missing values are left out. A
 * channel without values has mean 0, one without variance a standard deviation of 1. Logs the
 * result. An infinite value is an error. */
MUST_CHECK bool statistics_compute(struct dataset *dataset, struct comm *world, int threads,
                                   struct channel_values *mean, struct channel_values *std,
                                   struct error *error);

#endif
