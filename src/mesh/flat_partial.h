// SPDX-License-Identifier: BSD-3-Clause
/* Partial sums of gradients, with which the gradient has the same bits on every mesh
 * (train.exact=layout). The global batch is cut into grains. Each rank has a contiguous range of
 * grains, in the order of the ranks, which must be numbered node by node. Each pass computes a part
 * of the range of its rank. It writes one partial sum of the whole gradient for each subtree of its
 * grains (core/tree.h). An all-to-all in the shard group and another one in the replica group send
 * each part of the partial sums to its owner, which adds them in the order of the tree. */
#ifndef VITTRAIN_MESH_FLAT_PARTIAL_H
#define VITTRAIN_MESH_FLAT_PARTIAL_H

#include "mesh/flat.h"

/* Use partial sums. Call it after flat_open and before flat_allocate. most: grains of the largest
 * global batch; passes: micro-batches of a step; spare: take memory for flat_spare_open, too. With
 * several passes, gradients are not sharded before the last pass. */
void flat_use_grains(struct flat_model *flat, int64_t most, int64_t passes, bool spare);

/* Call it before each backward pass of a step, with pass = 0, 1, ... total: grains of the global
 * batch. Does nothing without partial sums. */
void flat_begin_pass(struct flat_model *flat, int64_t total, int64_t pass);

/* Call these before and after a unit's backward pass on one grain whose gradient is not part of the
 * step. The gradient is written to spare memory. All reductions must have ended. samples: false if
 * this rank has no samples in the pass. */
void flat_spare_open(struct flat_model *flat, int unit, bool samples);
void flat_spare_close(struct flat_model *flat, int unit);

/* ---- for flat.c and flat_mesh.c */

/* Take the memory of a unit's gradients from the arena. */
void partial_allocate(const struct flat_model *flat, struct flat_buffer *buffer,
                      struct arena *arena);
/* Take the memory of flat->slots[number], which several units share. */
void partial_allocate_slot(struct flat_model *flat, int number, struct arena *arena);

/* Set flat->partials.slot for the unit's backward pass. */
void partial_open(struct flat_model *flat, const struct flat_buffer *buffer);
/* Add the partial sums of the pass to those of earlier passes. */
void partial_close(const struct flat_model *flat, struct flat_buffer *buffer);

/* Start and finish the all-to-all in the shard group. Afterwards `gradient` contains the partial
 * sums of the group, block * replicas elements apart. */
void partial_shards_start(const struct flat_model *flat, int unit);
void partial_shards_finish(const struct flat_model *flat, int unit);
/* Start and finish the all-to-all in the replica group. finish also starts the all-gather of the
 * sums. */
void partial_replicas_start(const struct flat_model *flat, int unit);
void partial_replicas_finish(const struct flat_model *flat, int unit);

/* Return the bytes that this rank sends to reduce a unit, for the global batch of the last
 * flat_begin_pass; flat_use_grains begins with the largest. */
struct flat_traffic partial_traffic(const struct flat_model *flat,
                                    const struct flat_buffer *buffer);

#endif
