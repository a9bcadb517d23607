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

#endif
