// SPDX-License-Identifier: BSD-3-Clause
/* One training step: the forward and backward passes of its micro-batches, the gradients' reduction
 * overlapped with the backward pass, clipping, update. On a GPU the host queues the step and does
 * not wait for it. */
#ifndef VITTRAIN_TRAIN_STEP_H
#define VITTRAIN_TRAIN_STEP_H

#include "train/session.h"

/* Seconds of this rank, summed over steps; doubles only. */
struct step_times {
    double data, forward, backward, reduce, update;
    double communication; /* busy time of the communication thread, overlapped with the others */
    double exposed;       /* the part of forward to update spent waiting for communication */
};

/* Open the optimizer and the step of a session for training. */
void step_open(struct session *session);
void step_close(struct session *session);

/* Collective. Queues update `number` (from 0) with this learning rate on the next train.accumulate
 * batches of the training data, and adds to the session's loss sums. Then reads the results that
 * are due: on a CPU that of this step, on a GPU that of the step RESULTS_AHEAD before. Returns
 * false and an error, the same on all ranks, if a record of a read step was unreadable or its
 * gradient was not finite; the update then changed nothing. The error names the step, and the
 * tensor where NaN or infinity began if no later step was queued. In fp16 a gradient that is not
 * finite skips the update without an error while a smaller loss scale is possible. */
MUST_CHECK bool step_run(struct session *session, int64_t number, double rate,
                         struct step_times *times, struct error *error);

/* Collective. Waits for all queued steps and reads their results. Returns as step_run. Call it
 * before the host reads or writes weights. */
MUST_CHECK bool step_finish(struct session *session, struct step_times *times, struct error *error);

/* For a check of grains: computes the gradients of the grain of `count` samples in the session's
 * input, from sample `position` of the step's global batch, and returns their hash. Restores the
 * sums of losses. Collective; count may be 0. */
uint64_t step_recompute(struct session *session, int64_t position, int64_t count);

/* Queues the device operations of a step with full batches, without a loader: for a device and a
 * mesh that only record them (plan/plan.h). */
void step_rehearse(struct session *session);

/* The norm of the gradient of the newest step whose result was read, before clipping and without
 * the loss scale; NAN if it was not finite. */
double step_norm(const struct session *session);

/* Queues the forward pass of all units. Gathers each unit ahead and frees it after use. With
 * train.exact=layout the samples of an evaluation are whole grains; their numbers start at 0,
 * because no gradients are added. */
void step_forward(struct session *session, const struct model_pass *pass);

/* Queues the loss of `count` samples after their forward pass and adds it to the loss sums. With
 * `gradient`, the logits are replaced by the loss gradient times `scale`; without, the predicted
 * classes and, unless NULL, the probabilities [count, classes] are written. */
void step_loss(struct session *session, int64_t count, double scale, bool gradient,
               float *probabilities);

/* ---- Hashes of gradients of grains, for checks and for receipts (grain_check.c).
 *
 * Checks find hardware that computes wrongly (train.check_every). Each rank chooses one of its
 * grains, which other ranks compute again. Correct hardware gives the same bits, so the hashes of
 * the gradients are compared.
 * Round 1: rank r + shift computes the grain of rank r. The shift changes from check to check.
 * Round 2, only if hashes differ: a third rank computes each grain again, and the minority is
 * wrong. With two ranks, rank r itself computes its grain again; then only a fault of rank r that
 * does not repeat can be attributed. */

/* What a rank contributes to a check. */
struct grain_record {
    /* Its checked grain: the first sample in the global batch, the number of samples (0: none), and
     * the hash of the gradients. */
    int64_t position, count;
    uint64_t hash;
    uint64_t computed[2]; /* in rounds 1 and 2: hash of the grain of another rank */
};

/* Allocate host memory for checks. Does nothing without train.check_every. */
void grain_check_open(struct session *session);
void grain_check_close(struct grain_check *check);

/* Choose a grain of a pass of `count` samples from sample `position` of the global batch. Call it
 * between grains_begin and the forward pass. debug.flip applies to this pass. */
void grain_check_begin(struct session *session, int64_t position, int64_t count);

/* Keep the input and the hash of the grain. Call it after that pass. */
void grain_check_take(struct session *session);

/* Compare the grains of all ranks with those that other ranks compute (step_recompute). Collective;
 * call it after the last pass of the step, when all reductions have ended. Overwrites the session's
 * input. If gradients differ, log a warning (train.check_action=continue), or return false and an
 * error, the same on all ranks. */
MUST_CHECK bool grain_check_end(struct session *session, struct error *error);

/* Add the hashes of a pass. Call it between the loss and the backward pass of `count` samples from
 * sample `position` of a global batch of `global_count`. Waits for the stream. */
void grain_hashes_add(struct session *session, int64_t position, int64_t count,
                      int64_t global_count);

/* ---- Control flags: events that one rank sees but on which all ranks must act at the same step. A
 * signal, rank 0's clock or an unfinished checkpoint sets a flag. An all-reduce of the flags starts
 * at the begin of each step and is waited for at its end, so it overlaps with the step. */

/* 0 or 1 each, of one rank; after the all-reduce 1 if any rank has set the flag. */
struct control_flags {
    int64_t stop;       /* a signal requests the end of the run */
    int64_t time_over;  /* train.max_seconds have passed */
    int64_t checkpoint; /* a checkpoint is due by checkpoint.every_seconds */
    int64_t writing;    /* this rank still writes its part of a background checkpoint */
};

/* Initially zero, except `world`. */
struct control {
    struct comm *world;
    struct comm_request *request;
    bool started;
    struct control_flags flags; /* the buffer of the all-reduce */
};

/* Collective. Starts the all-reduce. Each start is followed by one control_wait. */
void control_start(struct control *control, const struct control_flags *flags);

/* Collective. Waits for the all-reduce and returns the maximum of each flag over all ranks. */
struct control_flags control_wait(struct control *control);

/* Collective if an all-reduce was started and not waited for, as after a failed step. Does nothing
 * on a zeroed struct. */
void control_close(struct control *control);

#endif
