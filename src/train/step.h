/* One step of training: the micro-batches' forward and backward passes, the gradients' reduction
 * under the backward pass, clipping, update. The host waits for nothing in it that it does not
 * need. */
#ifndef VITTRAIN_TRAIN_STEP_H
#define VITTRAIN_TRAIN_STEP_H

#include "train/optimizer.h"
#include "train/session.h"

struct step_context {
    struct session *session;
    struct loader *loader;
    struct image_source source;
    const struct optimizer *optimizer;
    int first_trainable; /* lowest unit with something to train: backward ends there */
};

/* The norm of the newest step's gradient, before clipping and without the scale of the loss; NAN
 * where it was not finite. */
double step_norm(const struct session *session);

/* Which step, and where its time went (seconds, added up). */
struct step_times {
    double data, forward, backward, reduce, update;
    double communication; /* of the communication thread, beside all that */
    double exposed;       /* of forward to update: waiting for it */
};

void step_open(struct step_context *step, struct session *session, struct loader *loader,
               const struct image_source *source, const struct optimizer *optimizer);

/* Collective. Runs update number `number` (from 0) with this learning rate on the next
 * train.accumulate batches of the loader. Adds to session->sums; session->outcome says what came of
 * it. False: a record could not be read, or the gradient is not finite (nothing was changed then):
 * the error says in which tensor it began, and is agreed on by all ranks. In fp16 a gradient that
 * is not finite only skips the update, as long as a smaller scale of the loss may help. */
bool step_run(struct step_context *step, int64_t number, double rate, struct step_times *times,
              struct error *error);

#endif
