// SPDX-License-Identifier: BSD-3-Clause
/* The state of a model as files store it: for each unit and each kind of state (parameters,
 * moments, EMA) one vector of fp32, of which each rank holds a shard. Vectors are moved in blocks
 * through host memory, so that no rank holds a whole model. */
#ifndef VITTRAIN_CHECKPOINT_STATE_H
#define VITTRAIN_CHECKPOINT_STATE_H

#include "mesh/flat.h"

enum state_kind { STATE_PARAMETER, STATE_MOMENT1, STATE_MOMENT2, STATE_EMA, STATE_KINDS };

/* Names of the kinds, which are data sets of a checkpoint: "master", "moment1", ... */
extern const char *const state_name[STATE_KINDS];

/* Elements of the largest block that is read, written or sent at once: 4 MiB. */
enum { STATE_BLOCK = 1 << 20 };

/* Write "[2, 3]" to text. */
void state_shape_text(const int64_t *shape, int dimensions, char *text, size_t size);

/* This rank's shard in device memory; NULL if the model keeps no such state. */
float *state_memory(const struct flat_buffer *buffer, enum state_kind kind);

/* Collective. Return the world rank of each mesh position, at [shard * replicas + replica]. The
 * caller frees it. */
int *state_ranks(const struct mesh *mesh);

/* Copy from `block`, which holds elements [begin, begin + count) of unit u, to this rank's shard;
 * elements of other shards are skipped. Blocks until done. */
void state_store(const struct flat_model *flat, int u, enum state_kind kind, int64_t begin,
                 int64_t count, const float *block);

/* Copy elements [begin, begin + count) of unit u to `block`. This rank must hold all of them.
 * state_copy blocks until done; state_copy_start queues the copy on the model's stream. */
void state_copy(const struct flat_model *flat, int u, enum state_kind kind, int64_t begin,
                int64_t count, float *block);
void state_copy_start(const struct flat_model *flat, int u, enum state_kind kind, int64_t begin,
                      int64_t count, float *block);

/* Zero the padding after the unit's last element. */
void state_clear_padding(const struct flat_model *flat, int u, enum state_kind kind);

/* Set the EMA, if there is one, to the parameters. */
void state_reset_ema(const struct flat_model *flat);

/* Collective. Gather parameters [begin, begin + count) of unit u into rank 0's `block`, from the
 * first replica of each shard. `ranks` is the result of state_ranks. */
void state_gather(const struct flat_model *flat, const int *ranks, int u, int64_t begin,
                  int64_t count, float *block);

#endif
