// SPDX-License-Identifier: BSD-3-Clause
/* Convert a checkpoint to safetensors and back on one rank, in blocks of 4 MiB. Files are complete
 * or do not exist. Nothing here is collective. */
#ifndef VITTRAIN_CHECKPOINT_CONVERT_H
#define VITTRAIN_CHECKPOINT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "mesh/unit.h"

/* Write the parameters of a checkpoint to a safetensors file, bit for bit; or its EMA, if it has
 * one. Checksums are verified. The file equals that of safetensors_write. */
MUST_CHECK bool convert_to_weights(const char *checkpoint, const char *weights,
                                   struct error *error);

/* Contents of a checkpoint at step 0 besides the weights. */
struct convert_start {
    const char *model; /* model.name */
    const struct unit *units;
    int unit_count;
    int moments;   /* of the optimizer; they are zero */
    bool averaged; /* with an EMA, which equals the parameters */
    uint64_t seed; /* of the initialisation of a head that the weights do not fit */
    const char *deck;
    const char *metadata; /* for weights without metadata (model_metadata.h) */
};

/* Write a checkpoint at step 0. Tensors are checked, resized or initialised as by
 * safetensors_read. */
MUST_CHECK bool convert_to_checkpoint(const char *weights, const char *checkpoint,
                                      const struct convert_start *start, struct error *error);

/* Return the number of classes of the head (head.weight) in a safetensors file; 0 if it has no head
 * or on error. */
int64_t convert_classes(const char *weights, struct error *error);

#endif
