// SPDX-License-Identifier: BSD-3-Clause
/* Hashes of gradients of grains, for checks and for receipts.
 *
 * Checks find hardware that computes wrongly (train.check_every). Each rank chooses one of its
 * grains, which other ranks compute again. Correct hardware gives the same bits, so the hashes of
 * the gradients are compared.
 * Round 1: rank r + shift computes the grain of rank r. The shift changes from check to check.
 * Round 2, only if hashes differ: a third rank computes each grain again, and the minority is
 * wrong. With two ranks, rank r itself computes its grain again; then only a fault of rank r that
 * does not repeat can be attributed. */
#ifndef VITTRAIN_TRAIN_GRAIN_CHECK_H
#define VITTRAIN_TRAIN_GRAIN_CHECK_H

#include "config/option_types.h"
#include "train/session.h"

struct step_context;

/* What a rank contributes to a check. */
struct grain_record {
    /* Its checked grain: the first sample in the global batch, the number of samples (0: none), and
     * the hash of the gradients. */
    int64_t position, count;
    uint64_t hash;
    uint64_t computed[2]; /* in rounds 1 and 2: hash of the grain of another rank */
};

struct grain_check {
    struct session *session;
    size_t bytes;                  /* of the input of a grain */
    unsigned char *own, *received; /* [bytes] */
    struct grain_record *table;    /* [ranks] */
    int64_t number;                /* of the check, from 0 */
    int64_t offset;                /* of this rank's grain in the session's input */
};

/* Allocate host memory for checks. Does nothing without train.check_every. */
void grain_check_open(struct grain_check *check, struct session *session);
void grain_check_close(struct grain_check *check);

/* True if step `number`, from 0, is checked. */
bool grain_check_due(const struct grain_check *check, int64_t number);

/* Choose a grain of a pass of `count` samples from sample `position` of the global batch. Call it
 * between grains_begin and the forward pass. debug.flip applies to this pass. */
void grain_check_begin(struct grain_check *check, int64_t position, int64_t count);

/* Keep the input and the hash of the grain. Call it after that pass. */
void grain_check_take(struct grain_check *check);

/* Compare the grains of all ranks with those that other ranks compute (step_recompute). Collective;
 * call it after the last pass of the step, when all reductions have ended. Overwrites the session's
 * input. If gradients differ, log a warning (train.check_action=continue), or return false and an
 * error, the same on all ranks. */
MUST_CHECK bool grain_check_end(struct grain_check *check, struct step_context *step,
                                struct error *error);

/* Hashes of the gradient of the loss with respect to the logits, for receipts with
 * train.exact=layout. A different hash shows a different forward pass. */
struct grain_hashes {
    int64_t count;              /* grains of the step's global batch */
    uint64_t hash[GRAINS_MOST]; /* 0: a grain of another rank */
};

/* Add the hashes of a pass. Call it between the loss and the backward pass of `count` samples from
 * sample `position` of a global batch of `global_count`. Waits for the stream. */
void grain_hashes_add(struct grain_hashes *hashes, struct session *session, int64_t position,
                      int64_t count, int64_t global_count);

#endif
