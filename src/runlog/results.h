// SPDX-License-Identifier: BSD-3-Clause
/* Results of a run as JSON (result.json): model, quality and times. */
#ifndef VITTRAIN_RUNLOG_RESULTS_H
#define VITTRAIN_RUNLOG_RESULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "data/dataset.h"
#include "runlog/evaluation.h"
#include "runlog/monitor.h"

struct json_t;

/* NULL, NAN and negative counts are unknown: null in the JSON. */
struct results {
    const char *name, *model, *backend, *precision;
    const char *stop_reason; /* text for the user */
    bool unfinished;         /* ended by a signal or train.max_seconds: can be resumed */
    int64_t parameters, seed, global_batch;
    int ranks, nodes, threads;
    int64_t steps, epochs;                     /* completed */
    double train_loss, train_top1, train_top5; /* of the last epoch */
    const char *split;                         /* of the last evaluation: "val", "test" */
    const struct evaluation *evaluation;       /* of that split, or NULL */
    const struct evaluation *test;             /* of the test split at the end, or NULL */
    const char *test_weights;                  /* "best" or "last", from test_step */
    int64_t test_step;
    double target, target_seconds; /* output.target, time to it; NAN: none, not reached */
    char monitor[16];              /* checkpoint.monitor: metric of `best`, or "none" */
    double best;
    int64_t best_step;
    /* Over all attempts: all time; excluding set-up; also excluding evaluations and checkpoints. */
    double total_seconds, without_setup_seconds, training_seconds;
    double images_per_second;              /* of training_seconds */
    const struct monitor_summary *sensors; /* NULL: not monitored */
};

/* Add to result.json what is known when an attempt begins. */
void results_put_setup(struct json_t *object, const struct results *results);

/* Add everything else. dataset: names of the classes; NULL: no names. */
void results_put(struct json_t *object, const struct results *results,
                 const struct dataset *dataset);

/* Return the JSON text of one evaluation, for commands without a run; the caller frees it. */
char *evaluation_to_text(const struct evaluation *evaluation, const char *split,
                         const struct dataset *dataset);

#endif
