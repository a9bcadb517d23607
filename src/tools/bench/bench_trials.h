// SPDX-License-Identifier: BSD-3-Clause
/* Trials: operations of a device at any size, for `bench device`. `bench comm` opens its GPUs with
 * them. */
#ifndef VITTRAIN_TOOLS_BENCH_BENCH_TRIALS_H
#define VITTRAIN_TOOLS_BENCH_BENCH_TRIALS_H

#include "device/count.h"
#include "tools/bench/bench.h"

enum { TRIAL_TENSORS = 6 };

struct product_cache;

struct trials {
    struct counter counter; /* first: count.h passes it back; results go to `counted` */
    struct counted counted;
    struct bench *bench;
    struct comm *world, *node;
    struct device *device;
    struct device_limits limits;
    struct stream *stream;
    enum data_type type; /* of the tensors of the next trial */
    /* Tensors at the same offset in their pools. */
    void *x, *y, *weight, *other, *pre, *gradient;
    void *pool[TRIAL_TENSORS], *workspace;
    size_t spare, moved;            /* bytes by which the tensors can move, and have moved */
    struct product_cache *products; /* of the caller, for trials of oneDNN */
};

/* Collective. Initialize all and open the device; false and an agreed error on failure. Close in
 * both cases. */
MUST_CHECK bool trials_open(struct trials *self, struct bench *bench, struct error *error);
void trials_close(struct trials *self);

/* Collective. Allocate and fill tensors of `bytes` each. */
MUST_CHECK bool trials_tensors_open(struct trials *self, size_t bytes, struct error *error);

/* Start one operation of the given size on the stream. */
typedef void trial(struct trials *self, const int64_t *size);

/* Rows, in, out. */
trial trial_linear_forward, trial_linear_backward;
/* Samples, tokens, heads. */
trial trial_attention_forward, trial_attention_backward;
/* Rows, width. */
trial trial_copy, trial_add;

/* With bench.machine: move all tensors on by `bytes`, out of what the caches hold. In a training
 * step an operation finds its tensors outside of the caches, because all other tensors were used
 * since. With tensors that stay in the caches, predicted steps are 12 to 20 % too short. */
void trials_move(struct trials *self, double bytes);

/* Fill in self->counted: the operation's FLOP and bytes, by the count that `plan` uses. */
void trials_count(struct trials *self, trial *run, const int64_t *size);

#endif
