// SPDX-License-Identifier: BSD-3-Clause
/* One training step: the forward and backward passes of its micro-batches, the gradients' reduction
 * overlapped with the backward pass, clipping, update. On a GPU the host queues the step and does
 * not wait for it. */
#ifndef VITTRAIN_TRAIN_STEP_H
#define VITTRAIN_TRAIN_STEP_H

#include "train/feed.h"
#include "train/grain_check.h"
#include "train/grain_hashes.h"
#include "train/optimizer.h"
#include "train/session.h"

struct step_context {
    struct session *session;
    struct loader *loader;
    const struct sampler *sampler; /* the loader's */
    struct image_source source;
    const struct optimizer *optimizer;
    int first_trainable; /* the lowest unit with trainable tensors: the backward pass ends there */
    bool records;        /* steps are recorded as a graph and replayed */
    struct graph *graph; /* the recorded step, or NULL */
    int64_t regular_steps;
    struct grain_check check;
    /* The step in progress, for the passes of a check. */
    bool checked; /* train.check_every checks this step */
    int64_t number;
    struct step_params params;
    struct grain_hashes *hashes; /* passes add the hashes of their grains; NULL: no receipt */
    struct error wrong;          /* the error that a check found */
    struct error unread; /* a queued step has an unreadable record: reported with its result */
};

/* Seconds of this rank, summed over steps; doubles only. */
struct step_times {
    double data, forward, backward, reduce, update;
    double communication; /* busy time of the communication thread, overlapped with the others */
    double exposed;       /* the part of forward to update spent waiting for communication */
};

void step_open(struct step_context *step, struct session *session, struct data_feed *feed,
               const struct optimizer *optimizer);

void step_close(struct step_context *step);

/* Collective. Queues update `number` (from 0) with this learning rate on the next train.accumulate
 * batches of the loader, and adds to the session's loss sums. Then reads the results that are due:
 * on a CPU that of this step, on a GPU that of the step RESULTS_AHEAD before. Returns false and an
 * error, the same on all ranks, if a record of a read step was unreadable or its gradient was not
 * finite; the update then changed nothing. The error names the step, and the tensor where NaN or
 * infinity began if no later step was queued. In fp16 a gradient that is not finite skips the
 * update without an error while a smaller loss scale is possible. */
MUST_CHECK bool step_run(struct step_context *step, int64_t number, double rate,
                         struct step_times *times, struct error *error);

/* Collective. Waits for all queued steps and reads their results. Returns as step_run. Call it
 * before the host reads or writes weights. */
MUST_CHECK bool step_finish(struct step_context *step, struct step_times *times,
                            struct error *error);

/* Queues the device operations of a step with full batches, without a loader: for a device and a
 * mesh that only record them (plan/step_script.h). */
void step_rehearse(struct step_context *step);

/* The norm of the gradient of the newest step whose result was read, before clipping and without
 * the loss scale; NAN if it was not finite. */
double step_norm(const struct session *session);

/* Queues the forward pass of all units. Gathers each unit ahead and frees it after use. */
void step_forward(struct session *session, const struct model_pass *pass);

/* Queues the loss of `count` samples after their forward pass and adds it to the loss sums. With
 * `gradient`, the logits are replaced by the loss gradient times `scale`; without, the predicted
 * classes and, unless NULL, the probabilities [count, classes] are written. */
void step_loss(struct session *session, int64_t count, double scale, bool gradient,
               float *probabilities);

#endif
