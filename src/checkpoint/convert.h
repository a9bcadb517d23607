/* Weights from a checkpoint into safetensors and back, on one rank and without a mesh: the model
 * passes through in blocks of 4 MiB, however large it is. What is written is whole or not there.
 * One rank calls these. */
#ifndef VITTRAIN_CHECKPOINT_CONVERT_H
#define VITTRAIN_CHECKPOINT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "mesh/unit.h"

/* Writes the masters of a checkpoint, or where it has one and `average` says so the moving average,
 * bit for bit, to the file that safetensors_write would make. Sums are compared. */
bool convert_to_weights(const char *checkpoint, const char *weights, bool average,
                        struct error *error);

/* What a checkpoint at step 0 needs besides weights. */
struct convert_start {
    const char *model; /* registry name */
    const struct unit *units;
    int unit_count;
    int moments;   /* of the optimizer: zeros */
    bool averaged; /* a moving average: it starts at the weights */
    uint64_t seed; /* of the random start of a head that the weights do not fit */
    const char *deck;
};

/* Writes a checkpoint of a run that has done nothing yet. What fits the model, and what is resized
 * or keeps its random start: as in safetensors_read. */
bool convert_to_checkpoint(const char *weights, const char *checkpoint,
                           const struct convert_start *start, struct error *error);

/* The classes of the head in a safetensors file; 0: it has none, or `error`. */
int64_t convert_classes(const char *weights, struct error *error);

#endif
