// SPDX-License-Identifier: BSD-3-Clause
/* Checks for hardware that computes wrongly (train.check_every). Each rank chooses one of its
 * grains, which other ranks compute again. Correct hardware gives the same bits, so the hashes of
 * the gradients are compared.
 * Round 1: rank r + shift computes the grain of rank r. The shift changes from check to check.
 * Round 2, only if hashes differ: a third rank computes each grain again, and the minority is
 * wrong. With two ranks, rank r itself computes its grain again; then only a fault of rank r that
 * does not repeat can be attributed. */
#ifndef VITTRAIN_TRAIN_GRAIN_CHECK_H
#define VITTRAIN_TRAIN_GRAIN_CHECK_H

#include "train/session.h"

struct grain_check {
    struct session *session;
    size_t bytes;                  /* of the input of a grain */
    unsigned char *own, *received; /* [bytes] */
    int64_t *table;                /* [CHECK_FIELDS][ranks] */
    int64_t number;                /* of the check, from 0 */
    /* This rank's checked grain: its first sample in the global batch and in the session's input,
     * and its number of samples, 0 for none. */
    int64_t position, offset, count;
    uint64_t hash; /* of its gradients */
};

/* Compute the gradients of `count` samples in the session's input, from sample `position` of the
 * global batch, and return their hash. Collective; count may be 0. */
typedef uint64_t grain_compute(void *context, int64_t position, int64_t count);

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

/* Compare the grains of all ranks with those that other ranks compute. Collective; call it after
 * the last pass of the step, when all reductions have ended. Overwrites the session's input. If
 * gradients differ, log a warning (train.check_action=continue), or return false and an error, the
 * same on all ranks.
 */
MUST_CHECK bool grain_check_end(struct grain_check *check, int64_t number, grain_compute *compute,
                                void *context, struct error *error);

#endif
