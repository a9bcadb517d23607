/* The outcome of a run as JSON (result.json): what was trained, how good it became and how long it
 * took. It lies in this room and not in io, since it knows evaluations. */
#ifndef VITTRAIN_RUNLOG_RESULTS_H
#define VITTRAIN_RUNLOG_RESULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/run_folder.h"
#include "core/error.h"
#include "data/dataset.h"
#include "runlog/metrics.h"
#include "runlog/monitor.h"

/* NULL, NAN and negative counts: unknown, null in the JSON. */
struct results {
    const char *name, *model, *backend, *precision;
    const char *stop_reason; /* a few words for people */
    bool unfinished;         /* a signal, or train.max_seconds, ended it: to be gone on with */
    int64_t parameters, seed, global_batch;
    int ranks, nodes, threads;
    int64_t steps, epochs;                     /* done */
    double train_loss, train_top1, train_top5; /* of the last epoch */
    const char *split;                         /* what was evaluated last: "val", "test" */
    const struct evaluation *evaluation;       /* of that split, or NULL */
    const struct evaluation *test;             /* of the test split at the end, or NULL */
    const char *test_weights;                  /* "best" or "last", of step: */
    int64_t test_step;
    double target, target_seconds; /* output.target, time to it; NAN: none, not reached */
    const char *monitor;           /* what `best` is of: "top1" or "loss" */
    double best;
    int64_t best_step;
    /* Of all parts of the run: everything; without set-up; without set-up, evaluations and
     * checkpoints. */
    double total_seconds, without_setup_seconds, training_seconds;
    double images_per_second;              /* of training_seconds */
    int64_t run_images;                    /* trained on while the sensors were read */
    const struct monitor_summary *sensors; /* NULL: none were read */
};

/* The caller frees the text. dataset names the classes, or NULL. */
char *results_to_text(const struct results *results, const struct dataset *dataset);

/* One split's evaluation alone, for the commands that make no run; the caller frees the text. */
char *evaluation_to_text(const struct evaluation *evaluation, const char *split,
                         const struct dataset *dataset);

/* FOLDER/result.json, old or new but never half. Rank 0. */
MUST_CHECK bool results_write(const struct run_folder *folder, const struct results *results,
                              const struct dataset *dataset, struct error *error);

#endif
