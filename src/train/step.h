/* One step of training: the micro-batches' forward and backward passes, the gradients' reduction
 * under the backward pass, clipping, update. The host waits for nothing in it that it does not
 * need. */
#ifndef VITTRAIN_TRAIN_STEP_H
#define VITTRAIN_TRAIN_STEP_H

#include "train/feed.h"
#include "train/optimizer.h"
#include "train/session.h"

struct step_context {
    struct session *session;
    struct loader *loader;
    const struct sampler *sampler; /* the loader's */
    struct image_source source;
    const struct optimizer *optimizer;
    int first_trainable; /* lowest unit with something to train: backward ends there */
    bool records;        /* steps are recorded and run again */
    struct graph *graph; /* the recorded step, or NULL */
    int64_t regular_steps;
    struct error unread; /* a record of a queued step: the error when its outcome is looked at */
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

void step_open(struct step_context *step, struct session *session, struct data_feed *feed,
               const struct optimizer *optimizer);

void step_close(struct step_context *step);

/* Collective. Queues update number `number` (from 0) with this learning rate on the next
 * train.accumulate batches of the loader, and looks at what came of the newest step that is known:
 * this one where the device runs at once, else the one OUTCOMES_AHEAD before (session->outcome,
 * step_norm). Adds to session->sums. False: a record could not be read, or the gradient was not
 * finite (nothing was changed then): the error says in which step, and where it began if no later
 * step was queued; it is agreed on by all ranks. In fp16 a gradient that is not finite only skips
 * the update, as long as a smaller scale of the loss may help. */
MUST_CHECK bool step_run(struct step_context *step, int64_t number, double rate,
                         struct step_times *times, struct error *error);

/* Queues all that a step with full batches puts on the stream behind the batches' uploads, without
 * a loader: for a device and a mesh that only take note of it (step_script.h). */
void step_rehearse(struct step_context *step);

/* Collective. Waits for all steps and looks at what came of them: before anything that the host
 * reads or writes besides steps. Returns as step_run. */
MUST_CHECK bool step_finish(struct step_context *step, struct step_times *times,
                            struct error *error);

#endif
