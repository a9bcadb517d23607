/* Evaluation: every sample of a split exactly once on any number of ranks. */
#ifndef VITTRAIN_TRAIN_EVALUATE_H
#define VITTRAIN_TRAIN_EVALUATE_H

#include "runlog/metrics.h"
#include "train/control.h"
#include "train/feed.h"
#include "train/session.h"

/* Sees each batch of this rank after its forward pass: for predictions. probabilities:
 * [batch->count, classes]. Collective: called on all ranks for every batch, after an error too. May
 * set the error. */
struct evaluation_visitor {
    void (*visit)(void *self, const struct batch *batch, const int32_t *predicted,
                  const float *probabilities, struct error *error);
    void *self;
};

/* Collective. Runs the model over a feed that was started without training; the weights' compute
 * copies are fresh. visitor may be NULL. Loses what activations held, and leaves session->io.sums
 * at zero. control: gives the evaluation up at a batch where a signal asks for the end; NULL:
 * signals wait. The caller frees. */
MUST_CHECK bool evaluation_run(struct session *session, struct data_feed *feed,
                               const struct evaluation_visitor *visitor, struct control *control,
                               struct evaluation *evaluation, struct error *error);

#endif
