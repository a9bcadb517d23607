// SPDX-License-Identifier: BSD-3-Clause
/* Receipts of steps: a run writes them to receipt.csv (runlog/receipt.h), a replay compares them
 * with those of the run. */
#ifndef VITTRAIN_TRAIN_RECEIPTS_H
#define VITTRAIN_TRAIN_RECEIPTS_H

#include "train/trainer_state.h"

/* True if the step, counted from 1, has a receipt. */
bool receipts_due(const struct trainer *trainer, int64_t step);

/* Reset the sums of losses and the hashes of grains. Call it before a step with a receipt. */
void receipts_begin(struct trainer *trainer);

/* Collective. Call it after a step with a receipt. Waits for the device. A run writes the row. A
 * replay fails with ERROR_DIFFERENT, the same on all ranks, if a value differs; the error names the
 * step, the unit, both values, and the first grain whose hash differs. */
MUST_CHECK bool receipts_take(struct trainer *trainer, struct error *error);

#endif
