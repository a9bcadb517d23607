// SPDX-License-Identifier: BSD-3-Clause
/* Partial sums of gradients: the gradient has the same bits on every mesh (train.exact=layout). The
 * global batch is cut into grains. The ranks, numbered node by node, take contiguous ranges of
 * grains, and each pass takes a part of its rank's range. A pass writes one partial sum of the
 * whole gradient for each subtree of its grains (core/tree.h). The owner of a part of the gradient
 * receives that part of the partial sums of all ranks by an all-to-all, in the shard group and then
 * in the replica group, and adds them in the order of the tree. */
#ifndef VITTRAIN_MESH_FLAT_PARTIAL_H
#define VITTRAIN_MESH_FLAT_PARTIAL_H

#include "mesh/flat.h"

/* Use partial sums. most: grains of the largest global batch; passes: in a step. With several
 * passes the partial sums stay whole until the last pass. spare: with memory for flat_spare_open.
 * Call it after flat_open and before flat_allocate. */
void flat_use_grains(struct flat_model *flat, int64_t most, int64_t passes, bool spare);

/* Call it before the backward pass number `pass` of a step, in order. total: grains of the global
 * batch. Without partial sums it does nothing. */
void flat_begin_pass(struct flat_model *flat, int64_t total, int64_t pass);

/* Call these before and after a unit's backward pass on one grain whose gradient is not part of the
 * step: it is written to spare memory. All reductions must have ended. */
void flat_spare_open(struct flat_model *flat, int unit, bool samples);
void flat_spare_close(struct flat_model *flat, int unit);

/* ---- for flat.c and flat_mesh.c */

/* Take the memory of a unit's gradients; of a slot that units share. */
void partial_allocate(const struct flat_model *flat, struct flat_buffer *buffer,
                      struct arena *arena);
void partial_allocate_slot(struct flat_model *flat, int number, struct arena *arena);

/* Set flat->partials.slot for the unit's backward pass. */
void partial_open(struct flat_model *flat, const struct flat_buffer *buffer);
/* Add the partial sums of the pass to those of earlier passes. */
void partial_close(const struct flat_model *flat, struct flat_buffer *buffer);

/* The all-to-all in the shard group. finish: `gradient` then has the partial sums of the group,
 * block * replicas elements apart. */
void partial_shards_start(const struct flat_model *flat, int unit);
void partial_shards_finish(const struct flat_model *flat, int unit);
/* The all-to-all in the replica group. finish: starts the all-gather of the sums. */
void partial_replicas_start(const struct flat_model *flat, int unit);
void partial_replicas_finish(const struct flat_model *flat, int unit);

/* The bytes that this rank sends to reduce a unit in the largest global batch. */
struct flat_traffic partial_traffic(const struct flat_model *flat,
                                    const struct flat_buffer *buffer);

#endif
