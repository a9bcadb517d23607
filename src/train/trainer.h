// SPDX-License-Identifier: BSD-3-Clause
/* A training run from a deck to a run folder: set-up, resume, epochs of steps and evaluations,
 * checkpoints, receipts, results. */
#ifndef VITTRAIN_TRAIN_TRAINER_H
#define VITTRAIN_TRAIN_TRAINER_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/memory_checkpoint.h"
#include "checkpoint/run_folder.h"
#include "record/metrics.h"
#include "record/monitor.h"
#include "train/evaluate.h"
#include "train/step.h"
#include "train/straggler.h"

/* Sums since the last log line. */
struct interval {
    double begin; /* clock */
    int64_t steps;
    struct step_times times;
    struct loss_sums
        earlier; /* of this rank: sums that were taken from the device before the end */
};

/* The current epoch, without earlier attempts. */
struct epoch_clock {
    double begin, data, training; /* clock; seconds */
    int64_t images, steps;
};

/* State of the log lines and table rows (progress.c). */
struct progress {
    struct interval interval;
    struct rank_times *ranks; /* [ranks] of the interval */
    struct straggler straggler;
    struct epoch_clock epoch;
    /* The newest row of an epoch, which this attempt has written; else empty. */
    struct metrics_row last_epoch;
    double plain_line_at;   /* clock: the newest progress line without a terminal */
    double rate, norm;      /* of the newest step */
    int64_t skipped_logged; /* skipped updates that were logged */
    bool data_wait_logged, missing_targets_logged;
};

/* Rank 0's outputs. */
struct run_output {
    struct metrics *log;
    struct json_t *record;      /* result.json (run_record.c); NULL: not begun */
    struct error log_error;     /* the first row that could not be written */
    struct monitor *monitor;    /* on all ranks; NULL: output.monitor=0 */
    struct remote_copy *upload; /* NULL: no output.upload */
};

/* An attempt is one execution of the program; a resumed run has several. */
struct attempt {
    double opened_at; /* clock: start of the set-up */
    char started[32]; /* the same in UTC */
    int64_t number;   /* from 1, as in result.json (rank 0); 0: not recorded yet */
    double begin;     /* clock: start of the first step */
    double evaluation_seconds;
    struct step_times times; /* of this rank */
    int64_t steps, images;
    double step_seconds;
    struct training_state earlier; /* that of the earlier attempts */
};

struct run_checkpoints {
    struct checkpoint_target target;
    struct checkpoint_writer *writer;
    char resume_path[OPTION_TEXT + 64]; /* the checkpoint to resume from; "": none */
    double written_at;                  /* clock */
    double seconds;                     /* for which this attempt waited for checkpoints */
    int64_t count;                      /* of this attempt */
    bool overdue;                       /* by checkpoint.every_seconds */
    struct memory_checkpoint *memory;
    bool memory_overdue;       /* a checkpoint in memory is due */
    bool memory_failed;        /* a write failed: there will be no others */
    struct memory_found found; /* path "": resume_path is not in memory */
    int64_t memory_count;      /* checkpoints in memory of this attempt */
    double memory_seconds;     /* for them */
};

/* The best evaluation so far, as reported. training_state, which decides what the run does, ignores
 * an evaluation that was made only because the run ended: a resumed run would not make it. */
struct best_evaluation {
    double metric; /* checkpoint.monitor */
    int64_t step;
    double top1; /* the highest accuracy, whatever checkpoint.monitor is; NAN: none */
};

struct run_stop {
    const char *reason; /* NULL: the run continues */
    bool out_of_time;   /* by train.max_seconds */
    bool signalled;     /* by a signal: without an evaluation */
    bool early;         /* by a signal before the first step */
    bool succeeded;     /* trainer_run returned true */
};

/* The evaluation of the test split at the end of the run (train.test). */
struct test_evaluation {
    struct evaluation evaluation; /* without a confusion matrix: not done */
    struct split_loader feed;     /* unless the validation split is the test split */
    const char *weights;          /* "best" or "last" */
    int64_t step;                 /* of these weights */
};

/* The rows of receipt.csv, by ascending step: exact loss and norm of a step, and hashes of the
 * model's state after it (docs/outputs.md). */
struct receipt_table {
    char *header; /* the first line; owns the text of all lines */
    char **line;  /* [count] */
    int64_t count;
};

/* A run writes receipts. A replay compares its own with those of the run; it has no run folder and
 * writes no files. */
struct run_receipts {
    const struct receipt_table *expected; /* of a replay; NULL: a run */
    int64_t next;                         /* row of `expected` */
    struct grain_hashes hashes;           /* of a step with a receipt */
};

struct trainer {
    struct session session;
    char *data; /* rank 0: description of both splits, for checkpoints (trainer_checkpoint.c) */
    double peak_flops; /* of a rank (train/hardware.h); NAN: unknown, and on other ranks than 0 */
    int64_t steps_per_epoch, total_steps;
    struct schedule schedule;
    struct control control;
    struct training_state state;
    struct run_folder folder;
    struct run_checkpoints checkpoints;
    struct attempt attempt;
    struct evaluation evaluation; /* the newest */
    struct best_evaluation best;
    struct test_evaluation test;
    struct pictures pictures; /* of the newest evaluation */
    struct run_stop stop;
    struct progress progress;
    struct run_output output;
    struct run_receipts receipts;
};

/* Collective. On an error everything is closed again. expected: NULL, or the receipts of a run
 * whose steps are replayed, from a checkpoint or, if that is "", from the start; must stay valid.
 */
MUST_CHECK bool trainer_open(struct trainer *trainer, const struct options *options,
                             const struct receipt_table *expected, const char *checkpoint,
                             struct comm *world, struct error *error);

/* Collective. Train to the end of the run (epochs, steps, time or early stopping). */
MUST_CHECK bool trainer_run(struct trainer *trainer, struct error *error);
void trainer_close(struct trainer *trainer);

/* Collective. Run the training, record its end and close everything. Return false and an error,
 * also after an attempt that was recorded as failed. */
MUST_CHECK bool trainer_train(struct trainer *trainer, struct error *error);

/* Collective. Replay the steps up to `last`, or fewer if a signal requests the end. Epochs are
 * evaluated only if the schedule depends on it. Fail if the receipts are of another model. */
MUST_CHECK bool trainer_replay(struct trainer *trainer, int64_t last, struct error *error);

/* Read the text of receipt.csv; `path` is for messages. An incomplete last line is ignored. */
MUST_CHECK bool receipt_table_read(struct receipt_table *table, const char *text, const char *path,
                                   struct error *error);
int64_t receipt_table_step(const struct receipt_table *table, int64_t row);
/* Return the number of receipts up to a step. */
int64_t receipts_until(const struct receipt_table *table, int64_t step);
void receipt_table_free(struct receipt_table *table);

/* The rest is private to src/train. */

/* Return the time of a rank's steps without waiting. */
static inline double compute_seconds(const struct step_times *times)
{
    return times->forward + times->backward + times->reduce + times->update - times->exposed;
}

/* True if the state lacks the evaluation of its epoch: an earlier attempt ended between the last
 * step of the epoch and the end of the evaluation. */
bool trainer_epoch_is_unfinished(const struct trainer *trainer);

/* True if no step is left: all are done, or train.early_stop ended the run. */
bool trainer_is_over(const struct trainer *trainer);

/* Update the seconds in the training state. */
void trainer_update_seconds(struct trainer *trainer);

/* True if several evaluations on the test set decide which checkpoint is the best one. */
bool trainer_chooses_on_test(const struct trainer *trainer);

/* Return the metadata of the run's weights (model_metadata.h); the caller frees it. */
char *trainer_metadata(const struct trainer *trainer);

/* Collective. Set resume_path to the checkpoint of checkpoint.resume, or to "". */
MUST_CHECK bool trainer_find_checkpoint(struct trainer *trainer, struct error *error);

/* Collective. With mesh.elastic, set the global batch to that of the checkpoint. */
MUST_CHECK bool trainer_decide_batch(struct trainer *trainer, struct error *error);

/* Collective. Read the checkpoint resume_path. */
MUST_CHECK bool trainer_resume(struct trainer *trainer, struct error *error);

/* Collective. Write a checkpoint with its links, or start to write it in the background. */
MUST_CHECK bool trainer_checkpoint(struct trainer *trainer, bool best, struct error *error);

/* Collective. Wait for the checkpoint in the background. */
MUST_CHECK bool trainer_checkpoint_finish(struct trainer *trainer, struct error *error);

/* Collective. Write a checkpoint in memory. After a failure, for example if /dev/shm is full, a
 * warning is logged and the run continues without checkpoints in memory. */
void trainer_memory_write(struct trainer *trainer);

/* Rank 0: add this attempt to the log book, if it was recorded. failure: NULL if it succeeded. An
 * error is a warning. */
void trainer_logbook_add(struct trainer *trainer, const char *failure);

/* Return the header line of receipt.csv, without its end; the caller frees it. */
char *receipts_header(const struct model *model);

/* True if the step, counted from 1, has a receipt. */
bool receipts_due(const struct trainer *trainer, int64_t step);

/* Reset the sums of losses and the hashes of grains. Call it before a step with a receipt. */
void receipts_begin(struct trainer *trainer);

/* Collective. Call it after a step with a receipt. Waits for the device. A run writes the row. A
 * replay fails with ERROR_DIFFERENT, the same on all ranks, if a value differs. */
MUST_CHECK bool receipts_take(struct trainer *trainer, struct error *error);

/* Rank 0, after session_start. Set trainer->data to a description of the data in JSON, which is
 * saved in checkpoints: names of classes, samples per class of each split, checksums of the lists
 * of samples and of the first image of up to 256 classes, and the size of the model's images. */
MUST_CHECK bool resume_describe_data(struct trainer *trainer, struct error *error);

/* ---- progress.c: reduces counts and times over the ranks, and writes console lines, CSV rows and
 * TensorBoard points. */

void progress_begin(struct trainer *trainer);
/* Free the memory of progress_begin, also if it was never called. */
void progress_end(struct trainer *trainer);

/* End a log interval: add its sums to the epoch's, write a row and a line. Does nothing without a
 * step since the last call. progress_epoch reports write errors. Collective. */
void progress_interval(struct trainer *trainer);

/* Return a row with loss and accuracies of the epoch so far. */
struct metrics_row progress_epoch_row(const struct trainer *trainer);

/* Exclude the last `seconds` from the time of the interval and the epoch. */
void progress_pause(struct trainer *trainer, double seconds);

/* Write the row and line of an epoch. evaluated: trainer->evaluation is of this epoch. Collective.
 */
MUST_CHECK bool progress_epoch(struct trainer *trainer, bool evaluated, struct error *error);

/* Write the rows of an evaluation. */
void progress_evaluation(struct trainer *trainer, const char *split,
                         const struct evaluation *evaluation);

/* ---- run_record.c: result.json, that is, the run's set-up, its attempts, memory and time by unit
 * and by rank, and its results. It is written after set-up and at the end of each attempt. */

/* True if the results of earlier attempts have an evaluation of the test split after this step.
 * Local. */
bool run_record_is_tested(const struct trainer *trainer);

/* Append this attempt to result.json and save the deck, after set-up. Sets trainer->attempt.number
 * on rank 0. Results of earlier attempts stay. Collective. */
MUST_CHECK bool run_record_begin(struct trainer *trainer, struct error *error);

/* For an attempt that ended without an error: write the pictures, stop the monitor, write
 * result.json with the results, and log their summary. Collective. */
MUST_CHECK bool run_record_end(struct trainer *trainer, struct error *error);

/* Record the error of a failed attempt. A failure to write is logged. Local; only rank 0 writes. */
void run_record_fail(struct trainer *trainer, const struct error *why);

/* Rank 0, in a replay. Write the conditions on which the bits of a step may depend (instructions,
 * threads, layout, version) and that differ from those of the run: "; the run had other conditions:
 * ranks 1, here 3", or "". Local. */
void run_record_compare(const struct trainer *trainer, char *text, size_t size);

#endif
