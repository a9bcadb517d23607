// SPDX-License-Identifier: BSD-3-Clause
/* Evaluation: every sample of a split exactly once on any number of ranks. */
#ifndef VITTRAIN_TRAIN_EVALUATE_H
#define VITTRAIN_TRAIN_EVALUATE_H

#include "runlog/evaluation.h"
#include "train/feed.h"
#include "train/session.h"
#include "train/step.h"

/* Called with each batch of this rank after its forward pass, for predictions. probabilities:
 * [batch->count, classes]; with targets, the outputs [batch->count, classes, height, width] in the
 * units of the data, or before the softmax or sigmoid. Collective: called on all ranks for each
 * batch, also after an error. May set the error. */
struct evaluation_visitor {
    void (*visit)(void *self, const struct batch *batch, const int32_t *predicted,
                  const float *probabilities, struct error *error);
    void *self;
    bool counts; /* the evaluation has accuracies and a confusion matrix, too */
};

/* Collective. Evaluates the model on a feed that was started without training. The weights' compute
 * copies must be up to date. visitor: or NULL; with one that does not count, the evaluation has the
 * loss only. control: stops at the batch where a signal requests it; NULL: signals have no effect.
 * Overwrites activations and sets the loss sums to zero. The caller calls evaluation_free. */
MUST_CHECK bool evaluation_run(struct session *session, struct data_feed *feed,
                               const struct evaluation_visitor *visitor, struct control *control,
                               struct evaluation *evaluation, struct error *error);

/* ---- Private to the evaluation: metrics of samples that have targets, that is, errors of a
 * regression, pixels of a segmentation, labels that do not exclude each other. They are integers
 * and exact sums, so they do not depend on the number of ranks. */

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
