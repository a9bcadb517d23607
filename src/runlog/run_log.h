/* What a run writes while it goes: metrics.csv, epochs.csv and TensorBoard events. First columns
 * say where in the run a row is, the others what was measured there. docs/outputs.md explains each.
 */
#ifndef VITTRAIN_RUNLOG_RUN_LOG_H
#define VITTRAIN_RUNLOG_RUN_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/run_folder.h"
#include "core/error.h"

struct options;

/* One row of metrics.csv: training over a log interval, or an evaluation. NAN: empty cell. */
struct metrics_row {
    int64_t epoch, step; /* step: optimizer steps done */
    const char *split;   /* "train", "val", "test" */
    double loss, top1, top5;
    double rate, gradient_norm;
    double images_per_second, step_seconds;
    double data_seconds, compute_seconds, comm_seconds, exposed_comm_seconds; /* mean of a step */
    double peak_share;                /* of the machine's peak FLOP/s */
    double elapsed_seconds;           /* since the start of the run, all parts */
    double loss_scale, skipped_steps; /* of fp16, after the last step; NAN in other types */
    /* Of compute_seconds and exposed_comm_seconds, by phases; NAN where the host does not see them
     * (GPUs). */
    double forward_seconds, backward_seconds, reduce_seconds, update_seconds;

    /* For TensorBoard's tags alone. */
    bool due;                      /* not a row between those that the style has lines for */
    double epoch_top1, epoch_top5; /* training: of the epoch so far */
    double best_top1;              /* evaluations: of all so far */
    double epoch_number;           /* epoch */
};

/* One row of epochs.csv, at the end of an epoch. NAN: empty cell. */
struct epoch_row {
    int64_t epoch, steps; /* steps: optimizer steps done at its end */
    double train_loss, train_top1, train_top5, val_loss, val_top1, val_top5;
    double rate, seconds, eval_seconds, images_per_second;
    double data_share; /* of the epoch's training time, spent waiting for data */

    /* For TensorBoard's tags alone. */
    double next_rate;    /* of the step that follows */
    double epoch_number; /* epoch */
};

struct run_log; /* the writers of one run: rank 0 has one; for the others NULL does nothing */

/* Opens CSVs and TensorBoard as output.csv and output.tensorboard say. Whatever an earlier part of
 * the run wrote beyond `step` (optimizer steps done; 0: the run begins) is cut off, so that the
 * output of the parts reads as one run. inside: that step is none that ends an epoch: a row of
 * epochs.csv that told of a part of it goes, too. NULL: error. */
struct run_log *run_log_open(const struct run_folder *folder, const struct options *options,
                             int64_t step, bool inside, struct error *error);

/* Rows are buffered, but none for long (people look at them while the run goes): a failure (full
 * disk) is seen at the latest by run_log_flush. */
MUST_CHECK bool run_log_metrics(struct run_log *log, const struct metrics_row *row,
                                struct error *error);
MUST_CHECK bool run_log_epoch(struct run_log *log, const struct epoch_row *row,
                              struct error *error);

/* One point in TensorBoard alone; nothing where there is none. Other threads, too, may call it
 * while rows are written: an event goes out in one call of stdio, which locks. */
MUST_CHECK bool run_log_point(struct run_log *log, const char *tag, int64_t step, double value,
                              struct error *error);
MUST_CHECK bool run_log_flush(struct run_log *log, struct error *error);
void run_log_close(struct run_log *log);

#endif
