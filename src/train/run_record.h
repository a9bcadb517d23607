// SPDX-License-Identifier: BSD-3-Clause
/* The run's description of itself: run.json (setup, written once per attempt), units.csv (memory
 * and time by unit) and ranks.csv (memory and time by rank), written at the end of an attempt. An
 * attempt is one start of the run; resuming begins a new one ("parts" in run.json, `part` in
 * ranks.csv). `vittrain report` reads these files. */
#ifndef VITTRAIN_TRAIN_RUN_RECORD_H
#define VITTRAIN_TRAIN_RUN_RECORD_H

#include "train/trainer_state.h"

/* Append this attempt to run.json, after set-up. Sets trainer->part on rank 0. Collective. */
MUST_CHECK bool run_record_begin(struct trainer *trainer, struct error *error);

/* Complete the attempt in run.json, write units.csv and ranks.csv and log the processor time of the
 * ranks. For an attempt that ended without an error, after monitor_stop. Collective. */
MUST_CHECK bool run_record_end(struct trainer *trainer, struct error *error);

/* Record the error of a failed attempt in run.json. A failure to write is a warning. Local; only
 * rank 0 writes. */
void run_record_fail(struct trainer *trainer, const struct error *why);

/* Write how this process differs from the attempt of the run in the trainer's folder that made this
 * step: "threads 2, here 1; ..."; "" if nothing is known to differ. Layout and device of earlier
 * attempts are not recorded: those of the newest count. Local. */
void run_record_compare(const struct trainer *trainer, int64_t step, char *text, size_t size);

#endif
