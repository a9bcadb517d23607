// SPDX-License-Identifier: BSD-3-Clause
/* Results that do not depend on how the global batch is divided (train.exact=layout): a backend
 * that wraps the device's own. The global batch is cut into grains of a fixed number of samples.
 * Between grains_begin and grains_end each operation that sums over samples, or whose bits could
 * depend on the number of samples in a call, runs once per grain. Gradients of grains are added in
 * the order of core/tree.h. Outside, all operations pass through. */
#ifndef VITTRAIN_DEVICE_GRAINS_H
#define VITTRAIN_DEVICE_GRAINS_H

#include "core/arena.h"
#include "device/device.h"

struct grains;

/* `samples`: samples of a grain, a multiple of 8, so that the tensors of all grains are aligned.
 * Sets device->reproducible: call it before models and workspaces are measured. The grains that
 * were opened last are used; those before them are used again after grains_close. */
struct grains *grains_open(struct device *device, int64_t samples);
/* NULL is allowed. */
void grains_close(struct grains *grains);

/* Take memory from the arena; call it once to measure and once to allocate. batch: maximum number
 * of samples of a pass; total: maximum number of grains of a global batch; largest: elements of the
 * largest tensor with a gradient; channels: most channels of a batch norm, 0 without one. */
void grains_allocate(struct grains *grains, struct arena *arena, int64_t batch, int64_t total,
                     int64_t largest, int64_t channels);

/* Start a pass over `count` samples of a global batch of `global_count` samples, from sample
 * `first`. The samples must be whole grains; only the last grain of the global batch may be short.
 * Operations must have `overwrite` set: a pass writes its partial sums, one for each subtree of
 * tree_cut. */
void grains_begin(struct grains *grains, int64_t first, int64_t count, int64_t global_count);

/* Set where the partial sums of the following gradients are written: partial sum k at the
 * operation's pointer + slot[k] * stride elements. `slot` must stay valid until the next call or
 * grains_end. Call it before each backward pass of a unit. */
void grains_unit(struct grains *grains, int64_t stride, const int *slot);

void grains_end(struct grains *grains);

/* Hash the gradients of one grain of the next passes; `grain` counts in the global batch, -1: none.
 * flip: invert a bit, which `seed` chooses, in an output or a gradient of this grain. */
enum grains_flip { FLIP_NOTHING, FLIP_ACTIVATION, FLIP_GRADIENT };
void grains_watch(struct grains *grains, int64_t grain, enum grains_flip flip, uint64_t seed);
/* Return the hash since grains_watch. It depends on the order of the operations. */
uint64_t grains_hash(const struct grains *grains);

/* Sum the last result of batch_norm_sums or batch_norm_backward_sums over the global batch.
 * all_reduce(context, rows, n) must all-reduce n doubles in device memory over all ranks, on
 * `stream`: one row of `count` for each grain of the global batch, zero for the grains of other
 * ranks. The rows are then added in the order of core/tree.h into `sums`. Collective, also for
 * ranks without samples. */
void grains_add_sums(struct grains *grains, struct stream *stream,
                     void (*all_reduce)(void *context, double *sums, int64_t count), void *context,
                     double *sums, int64_t count);

#endif
