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

/* Use partial sums. Call it after flat_open and before flat_allocate. most_grains: grains of the
 * largest global batch; passes: micro-batches of a step; spare: take memory for flat_spare_open,
 * too. With several passes, gradients are not sharded before the last pass. */
void flat_use_grains(struct flat_model *flat, int64_t most_grains, int64_t passes, bool spare);

/* Call it before each backward pass of a step, with pass = 0, 1, ... total: grains of the global
 * batch. Does nothing without partial sums. */
void flat_begin_pass(struct flat_model *flat, int64_t total, int64_t pass);

/* Call these before and after a unit's backward pass on one grain whose gradient is not part of the
 * step. The gradient is written to spare memory. All reductions must have ended. samples: false if
 * this rank has no samples in the pass. */
void flat_spare_open(struct flat_model *flat, int unit, bool samples);
void flat_spare_close(struct flat_model *flat, int unit);

#endif
