// SPDX-License-Identifier: BSD-3-Clause
/* The output of a running run: its tables, metrics.csv, receipt.csv and TensorBoard events; the log
 * book; copies of its folder. docs/outputs.md explains the columns. Local; rank 0 has a log, on
 * other ranks it is NULL and calls do nothing. */
#ifndef VITTRAIN_RECORD_METRICS_H
#define VITTRAIN_RECORD_METRICS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "checkpoint/run_folder.h"
#include "record/scores.h"

struct dataset;
struct evaluation;
struct options;
struct output_options;

/* Columns of metrics.csv, and their tags in TensorBoard: "/NAME" has a point for each split
 * (train/NAME, val/NAME, test/NAME), "NAME" for training only; NULL: none. docs/outputs.md explains
 * them. */
#define STEP_METRICS(METRIC)                                                                       \
    METRIC(loss, "/loss")                                                                          \
    METRIC(top1, "/acc")                                                                           \
    METRIC(top5, "/acc_top5")                                                                      \
    METRIC(lr, "lr")                                                                               \
    METRIC(grad_norm, "grad_norm")                                                                 \
    METRIC(images_per_second, "images_per_second")                                                 \
    METRIC(step_seconds, NULL)                                                                     \
    METRIC(data_seconds, "time/data") /* mean per step, as the next ones */                        \
    METRIC(compute_seconds, "time/compute")                                                        \
    METRIC(comm_seconds, "time/comm")                                                              \
    METRIC(exposed_comm_seconds, "time/exposed_comm")                                              \
    METRIC(peak_share, "peak_share")                                                               \
    METRIC(elapsed_seconds, NULL) /* since the start of the run, over all attempts */              \
    METRIC(loss_scale, "loss_scale")                                                               \
    METRIC(skipped_steps, "skipped_steps")                                                         \
    METRIC(forward_seconds, NULL) /* NAN on GPUs without debug.profile, as the next ones */        \
    METRIC(backward_seconds, NULL)                                                                 \
    METRIC(reduce_seconds, NULL)                                                                   \
    METRIC(update_seconds, NULL)                                                                   \
    METRIC(miou, NULL)                                                                             \
    METRIC(map, NULL)
#define EPOCH_METRICS(METRIC)                                                                      \
    METRIC(seconds, NULL)                                                                          \
    METRIC(eval_seconds, NULL)                                                                     \
    METRIC(data_share, NULL)

/* One row of metrics.csv: training over a log interval or an epoch, or an evaluation. NAN: empty
 * cell. */
struct metrics_row {
    int64_t epoch, step; /* step: completed optimizer steps */
    const char *split;   /* "train", "val", "test", "epoch" */
    const char *output;  /* name of the output of a regression for `errors`; or NULL */
#define METRIC_MEMBER(name, tag) double name;
    STEP_METRICS(METRIC_MEMBER)
    struct output_errors errors;
    EPOCH_METRICS(METRIC_MEMBER)
    double next_lr;

    /* For TensorBoard only. */
    bool due;                      /* the interval ended by output.log_every */
    double epoch_top1, epoch_top5; /* training: of the epoch so far */
    double best_top1;              /* evaluations: the best so far */
};

/* Return a row whose columns are all empty. */
struct metrics_row metrics_row_empty(const char *split, int64_t epoch, int64_t step);

/* True if a log interval ends after this step; both count completed steps. */
bool metrics_is_due(const struct output_options *options, int64_t step, int64_t epoch_step);

struct metrics;

/* The position at which a run continues its tables. All zero: a new run. */
struct metrics_position {
    int64_t step; /* completed optimizer steps; rows after it are removed; 0: all rows */
    /* Rows at the step itself that are removed, because this attempt writes them again: */
    bool mid_epoch;   /* "epoch": the step is not the last of an epoch */
    bool unevaluated; /* "val": the evaluation was not complete at the checkpoint */
    bool untested;    /* "test": result.json has no results of this step */
};

/* Open metrics.csv and, with output.tensorboard, the events. Output of earlier
 * attempts after the position is removed; TensorBoard keeps all points at the step itself. NULL:
 * error. */
struct metrics *metrics_open(const struct run_folder *folder, const struct output_options *options,
                             const struct metrics_position *position, struct error *error);

/* Open receipt.csv with this header if the run writes receipts, or if an earlier attempt has: rows
 * after `step` are removed. */
MUST_CHECK bool metrics_open_receipts(struct metrics *log, const struct run_folder *folder,
                                      const char *header, int64_t step, bool writes,
                                      struct error *error);

/* Rows are buffered for a few seconds; a write error (full disk) is reported by a later call, at
 * the latest by metrics_flush. */
MUST_CHECK bool metrics_write_row(struct metrics *log, const struct metrics_row *row,
                                  struct error *error);
/* Write one row for each output of a regression, and the TensorBoard points of an evaluation's
 * targets. row: the evaluation's row. */
MUST_CHECK bool metrics_write_targets(struct metrics *log, const struct metrics_row *row,
                                      const struct evaluation *evaluation,
                                      const struct dataset *dataset, struct error *error);

/* Write a line of receipt.csv. */
MUST_CHECK bool metrics_write_receipt(struct metrics *log, const char *line, struct error *error);

/* Write one TensorBoard point. Thread-safe, also while rows are written. log must not be NULL. */
MUST_CHECK bool metrics_write_point(struct metrics *log, const char *tag, int64_t step,
                                    double value, struct error *error);

/* Write the run's options and the tags of its evaluations for TensorBoard's HPARAMS tab, and later
 * that the run is complete. */
MUST_CHECK bool metrics_write_options(struct metrics *log, const struct options *options,
                                      struct error *error);
MUST_CHECK bool metrics_finish(struct metrics *log, struct error *error);
MUST_CHECK bool metrics_flush(struct metrics *log, struct error *error);
void metrics_close(struct metrics *log);

/* ---- The log book (logbook.c): a folder with the index README.md, one row per run, newest first.
 * tools/report.py adds a page per run. Of the index only the text between the marks `vittrain:
 * begin` and `vittrain: end` is changed. */

/* Write a cell of a row, shortened and escaped for Markdown. */
void logbook_cell(FILE *row, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Add a row of cells, of which the first is the run's folder, to the index. again: the row of an
 * earlier attempt in this folder is removed. An index with other columns is renamed to
 * README.md.old. ERROR_FILE: the index cannot be written. */
MUST_CHECK bool logbook_add(const char *logbook, const char *row, bool again, struct error *error);

/* ---- Copies of the run's folder to a remote during the run: output.upload (remote_copy.c).
 * Failures are warnings. */

/* If `remote` ends in '/' or ':', the name of the folder, which must exist, is appended. */
struct remote_copy *remote_copy_open(const char *folder, const char *remote);

/* Start a copy in the background if none is in progress and the newest began before the first step
 * or before the last of `checkpoints` complete checkpoints. Called in each step; does not block,
 * and checks the copy in progress once per second. */
void remote_copy_follow(struct remote_copy *upload, int64_t checkpoints);

/* Copy the final files, for at most `seconds`, and log the result. NULL is allowed. */
void remote_copy_close(struct remote_copy *upload, double seconds);

#endif
