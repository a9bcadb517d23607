// SPDX-License-Identifier: BSD-3-Clause
/* Search for hardware that computes wrongly (train.check_every). A check has two or three rounds in
 * which ranks compute grains of other ranks again. Correct hardware gives the same bits, so the
 * hashes of the gradients are compared. Round 1: rank r's grain is computed by rank r + shift,
 * where the shift changes from check to check. Round 2, if any hash differs: by another rank, which
 * decides. With two ranks it is rank r itself, which finds only faults that do not repeat. */
#ifndef VITTRAIN_TRAIN_GRAIN_CHECK_H
#define VITTRAIN_TRAIN_GRAIN_CHECK_H

#include "train/session.h"

struct grain_check {
    struct session *session;
    size_t bytes;                  /* of the input of a grain */
    unsigned char *own, *received; /* [bytes] */
    int64_t *table;                /* [CHECK_FIELDS][ranks] */
    int64_t number;                /* of the check, from 0 */
    /* Samples of this rank's checked grain in the global batch, and in the input; count 0: none. */
    int64_t position, count, offset;
};

/* Compute the gradients of `count` samples in the session's input, from sample `position` of the
 * global batch, and return their hash. Collective; count may be 0. */
typedef uint64_t grain_compute(void *context, int64_t position, int64_t count);

/* Does nothing without train.check_every. */
void grain_check_open(struct grain_check *check, struct session *session);
void grain_check_close(struct grain_check *check);

/* True if update `number` (from 0) is checked. */
bool grain_check_due(const struct grain_check *check, int64_t number);

/* Choose the grain to be checked of a pass of `count` samples from `position`. Call it between
 * grains_begin and the forward pass; debug.flip takes effect in this pass. */
void grain_check_begin(struct grain_check *check, int64_t position, int64_t count);

/* Collective, after the pass, when all reductions have ended. Returns false and an error, the same
 * on all ranks, if a result was wrong and train.check_action=stop. Changes the session's input. */
MUST_CHECK bool grain_check_end(struct grain_check *check, int64_t number, grain_compute *compute,
                                void *context, struct error *error);

#endif
