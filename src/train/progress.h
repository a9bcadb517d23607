// SPDX-License-Identifier: BSD-3-Clause
/* Progress of a run: reduces counts and times over the ranks and writes console lines, CSV rows and
 * TensorBoard points (progress.c). Its record, result.json, and its row of the log book
 * (run_record.c). */
#ifndef VITTRAIN_TRAIN_PROGRESS_H
#define VITTRAIN_TRAIN_PROGRESS_H

#include "train/trainer.h"

/* Return the time of a rank's steps without waiting. */
static inline double compute_seconds(const struct step_times *times)
{
    return times->forward + times->backward + times->reduce + times->update - times->exposed;
}

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

/* ---- result.json: the run's set-up, its attempts, memory and time by unit and by rank, and its
 * results. It is written after set-up and at the end of each attempt. An attempt is one start of
 * the run; resuming begins a new one. */

/* True if the results of earlier attempts have an evaluation of the test split after this step.
 * Local. */
bool run_record_is_tested(const struct trainer *trainer);

/* Append this attempt to result.json and save the deck, after set-up. Sets trainer->attempt.number
 * on rank 0. Results of earlier attempts stay. Collective. */
MUST_CHECK bool run_record_begin(struct trainer *trainer, struct error *error);

/* Stop the monitor and write result.json with the results, for an attempt that ended without an
 * error. Collective. */
MUST_CHECK bool run_record_end(struct trainer *trainer, const struct results *results,
                               struct error *error);

/* Record the error of a failed attempt. A failure to write is logged. Local; only rank 0 writes. */
void run_record_fail(struct trainer *trainer, const struct error *why);

/* Write how this process differs from the attempt of the run in the trainer's folder that made this
 * step: "threads 2, here 1; ..."; "" if nothing is known to differ. Layout and device of earlier
 * attempts are not recorded: those of the newest count. Local. */
void run_record_compare(const struct trainer *trainer, int64_t step, char *text, size_t size);

#endif
