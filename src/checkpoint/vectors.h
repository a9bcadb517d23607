// SPDX-License-Identifier: BSD-3-Clause
/* The state of a model as files store it: for each unit and each kind of state (parameters,
 * moments, EMA) one vector of fp32, of which each rank holds a shard. Vectors are moved in blocks
 * through host memory, so that no rank holds a whole model. */
#ifndef VITTRAIN_CHECKPOINT_VECTORS_H
#define VITTRAIN_CHECKPOINT_VECTORS_H

#include "mesh/flat.h"

/* Elements of the largest block that is read, written or sent at once: 4 MiB. */
enum { VECTOR_BLOCK = 1 << 20 };

/* Write "[2, 3]" to text. */
void vector_shape_text(const int64_t *shape, int dimensions, char *text, size_t size);

/* Collective. Return the world rank of each mesh position, at [shard * replicas + replica]. The
 * caller frees it. */
int *vector_ranks(const struct mesh *mesh);

/* Copy from `block`, which holds elements [begin, begin + count) of unit u, to this rank's shard;
 * elements of other shards are skipped. Blocks until done. */
void vector_store(const struct flat_model *flat, int u, enum flat_vector kind, int64_t begin,
                  int64_t count, const float *block);

/* Copy elements [begin, begin + count) of unit u to `block`. This rank must hold all of them.
 * vector_copy blocks until done; vector_copy_start queues the copy on the model's stream. */
void vector_copy(const struct flat_model *flat, int u, enum flat_vector kind, int64_t begin,
                 int64_t count, float *block);
void vector_copy_start(const struct flat_model *flat, int u, enum flat_vector kind, int64_t begin,
                       int64_t count, float *block);

/* Zero the padding after the unit's last element. */
void vector_clear_padding(const struct flat_model *flat, int u, enum flat_vector kind);

/* Set the EMA, if there is one, to the parameters. */
void vector_reset_ema(const struct flat_model *flat);

/* Collective. Gather parameters [begin, begin + count) of unit u into rank 0's `block`, from the
 * first replica of each shard. `ranks` is the result of vector_ranks. */
void vector_gather(const struct flat_model *flat, const int *ranks, int u, int64_t begin,
                   int64_t count, float *block);

#endif
