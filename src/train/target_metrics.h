// SPDX-License-Identifier: BSD-3-Clause
/* Metrics of an evaluation whose samples have targets: errors of a regression, pixels of a
 * segmentation, labels that do not exclude each other. They are integers and exact sums, so they do
 * not depend on the number of ranks. */
#ifndef VITTRAIN_TRAIN_TARGET_METRICS_H
#define VITTRAIN_TRAIN_TARGET_METRICS_H

#include "runlog/evaluation.h"
#include "train/feed.h"
#include "train/session.h"

struct target_metrics {
    const struct session *session;
    const struct dataset *dataset;
    struct exact_sum *sums;       /* regression: [outputs, OUTPUT_SUMS]; else NULL */
    int64_t *confusion;           /* segmentation: [threads, classes, classes]; else NULL */
    struct sample_counts samples; /* of labels */
    float *scores;                /* labels: [classes, most], by label_score; else NULL */
    int64_t most;                 /* largest number of samples of a rank */
    int64_t count;                /* samples added so far */
};

/* Allocate the counts and set the evaluation's classes or outputs. The records of the feed must
 * have targets. Not collective. */
MUST_CHECK bool target_metrics_open(struct target_metrics *metrics, const struct session *session,
                                    const struct data_feed *feed, struct evaluation *evaluation,
                                    struct error *error);

/* Add a batch. predictions: [batch->count, outputs, height, width]; those of a regression are in
 * the units of the targets. */
void target_metrics_add(struct target_metrics *metrics, struct evaluation *evaluation,
                        const struct batch *batch, const float *predictions);

/* Set the metrics of the evaluation. Collective. */
void target_metrics_reduce(struct target_metrics *metrics, struct evaluation *evaluation);

void target_metrics_close(struct target_metrics *metrics);

#endif
