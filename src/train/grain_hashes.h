// SPDX-License-Identifier: BSD-3-Clause
/* Hashes, per grain, of the gradient of the loss with respect to the logits, for receipts with
 * train.exact=layout. A different hash shows a different forward pass. */
#ifndef VITTRAIN_TRAIN_GRAIN_HASHES_H
#define VITTRAIN_TRAIN_GRAIN_HASHES_H

#include "config/option_types.h"
#include "train/session.h"

/* Hashes of a step. Those of the grains of other ranks are 0. */
struct grain_hashes {
    int64_t count; /* grains of the global batch */
    uint64_t hash[GRAINS_MOST];
};

/* Add the hashes of a pass. Call it between the loss and the backward pass of `count` samples from
 * sample `position` of a global batch of `global_count`. Waits for the stream. */
void grain_hashes_add(struct grain_hashes *hashes, struct session *session, int64_t position,
                      int64_t count, int64_t global_count);

#endif
