// SPDX-License-Identifier: BSD-3-Clause
/* result.json: the run's set-up, its attempts, memory and time by unit and by rank, and its
 * results. It is written after set-up and at the end of each attempt. An attempt is one start of
 * the run; resuming begins a new one. */
#ifndef VITTRAIN_TRAIN_RUN_RECORD_H
#define VITTRAIN_TRAIN_RUN_RECORD_H

#include "train/progress.h"

/* True if the results of earlier attempts have an evaluation of the test split after this step.
 * Local. */
bool run_record_is_tested(const struct trainer *trainer);

/* Append this attempt to result.json and save the deck, after set-up. Sets trainer->attempt.number
 * on rank 0. Results of earlier attempts stay. Collective. */
MUST_CHECK bool run_record_begin(struct trainer *trainer, struct error *error);

/* Write result.json with the results. For an attempt that ended without an error, after
 * monitor_stop. sensors: NULL: not monitored. Collective. */
MUST_CHECK bool run_record_end(struct trainer *trainer, const struct results *results,
                               const struct monitor_summary *sensors, struct error *error);

/* Record the error of a failed attempt. A failure to write is logged. Local; only rank 0 writes. */
void run_record_fail(struct trainer *trainer, const struct error *why);

/* Write how this process differs from the attempt of the run in the trainer's folder that made this
 * step: "threads 2, here 1; ..."; "" if nothing is known to differ. Layout and device of earlier
 * attempts are not recorded: those of the newest count. Local. */
void run_record_compare(const struct trainer *trainer, int64_t step, char *text, size_t size);

#endif
