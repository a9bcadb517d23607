// SPDX-License-Identifier: BSD-3-Clause
/* A backend that wraps the device's own (train.exact=layout). Its results do not depend on how the
 * global batch is divided into passes. The global batch is cut into grains of a fixed number of
 * samples. Between grains_begin and grains_end, operations that sum over samples, and those whose
 * bits could depend on the number of samples in a call, run once per grain. Linear layers may
 * compute several grains in a call (device_backend.linear_grains). Gradients of grains are added in
 * the order of base/sum_tree.h. All other calls go to the device's backend. */
#ifndef VITTRAIN_DEVICE_GRAINS_H
#define VITTRAIN_DEVICE_GRAINS_H

#include "base/arena.h"
#include "device/device.h"
#include "options/option_types.h"

struct grains;

/* Replace device->backend and set device->reproducible. Call it before models and workspaces are
 * measured. samples: of a grain, a multiple of 8, so that the tensors of all grains are aligned.
 * Only the grains that were opened last are active. Close grains in reverse order. */
struct grains *grains_open(struct device *device, int64_t samples);
/* Restore the device's backend and free `grains`. NULL is allowed. */
void grains_close(struct grains *grains);

/* Take memory from the arena. Call it once to measure and once to allocate. batch: maximum number
 * of samples of a pass; total: maximum number of grains of a global batch; largest: elements of the
 * largest tensor with a gradient; channels: maximum over all batch norms, 0 without one. */
void grains_allocate(struct grains *grains, struct arena *arena, int64_t batch, int64_t total,
                     int64_t largest, int64_t channels);

/* Start a pass over `count` samples, from sample `first` of a global batch of `global_count`. The
 * samples must be whole grains; only the last grain of the global batch may be short. A pass writes
 * one partial sum of each gradient for each subtree of tree_cut, so `overwrite` must be set in the
 * arguments of operations. */
void grains_begin(struct grains *grains, int64_t first, int64_t count, int64_t global_count);

/* Set where the partial sums of the following gradients are written: partial sum k at the
 * operation's pointer + slot[k] * stride elements. `slot` must stay valid until the next call or
 * grains_end. Call it before each backward pass of a unit. */
void grains_unit(struct grains *grains, int64_t stride, const int *slot);

void grains_end(struct grains *grains);

/* Call it after grains_begin. Until grains_end, hash the gradients of this grain: its number in the
 * global batch, or -1 for none. flip: FLIP_ACTIVATION or FLIP_GRADIENT inverts one bit of the first
 * output or gradient of the grain, chosen by `seed`; other values are ignored. */
void grains_watch(struct grains *grains, struct stream *stream, int64_t grain,
                  enum flip_choice flip, uint64_t seed);
/* Invert the highest bit of the mantissa of one of values[count], in device memory. `seed` chooses
 * 64 consecutive values, of which the one with the largest magnitude is changed, so that rounding
 * does not hide the fault. count > 0. Waits for the stream. */
void flip_bit(const struct device_backend *backend, struct stream *stream, enum data_type type,
              void *values, int64_t count, uint64_t seed);

/* Return the hash of all gradients since grains_watch, after waiting for the stream. It depends on
 * the order of operations. */
uint64_t grains_hash(const struct grains *grains, struct stream *stream);

/* Return the sums of the last batch_norm_sums or batch_norm_backward_sums, in device memory: a row
 * of `count` for each grain of the global batch, zero for the grains of other ranks. The caller
 * adds them over all ranks, also those without samples, and then over the grains, by tree_sums. */
double *grains_rows(const struct grains *grains, int64_t count, int64_t *rows);

#endif
