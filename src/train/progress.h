// SPDX-License-Identifier: BSD-3-Clause
/* Progress of a run: reduces counts and times over the ranks and writes console lines, CSV rows and
 * TensorBoard points. */
#ifndef VITTRAIN_TRAIN_PROGRESS_H
#define VITTRAIN_TRAIN_PROGRESS_H

#include "train/trainer.h"

void progress_begin(struct trainer *trainer);
/* Free the memory of progress_begin, also if it was never called. */
void progress_end(struct trainer *trainer);

/* Wait for the device and return this rank's sums since the last call or the start of the interval.
 * They still count in the interval. */
struct loss_sums progress_take_sums(struct trainer *trainer);

/* End a log interval: add its sums to the epoch's, write a row and a line. Does nothing without a
 * step since the last call. progress_epoch reports write errors. Collective. */
void progress_interval(struct trainer *trainer);

/* Set the training metrics of the last epoch to those of the checkpoint, for an attempt that only
 * writes the results. */
void progress_restore(struct trainer *trainer);

/* Exclude the last `seconds` from the time of the interval and the epoch. */
void progress_pause(struct trainer *trainer, double seconds);

/* Write the row and line of an epoch. evaluated: trainer->evaluation is of this epoch. Collective.
 */
MUST_CHECK bool progress_epoch(struct trainer *trainer, bool evaluated, struct error *error);

/* Write the row and line of the test split. */
void progress_test(struct trainer *trainer);

/* Results of a run so far. */
struct results {
    const struct evaluation *evaluation, *test; /* the last one; of the test split; NULL: none */
    double images_per_second;                   /* of training in this attempt; NAN: unknown */
    bool unfinished;         /* ended by a signal or train.max_seconds: can be resumed */
    const char *stop_reason; /* text for the user */
};
struct results progress_results(const struct trainer *trainer);

/* Log the summary of the run and write result.json. Collective. */
MUST_CHECK bool progress_result(struct trainer *trainer, struct error *error);

#endif
