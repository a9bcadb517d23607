// SPDX-License-Identifier: BSD-3-Clause
/* Shared by the topics `machine` and `device` of `vittrain bench`: bench_machine.c and
 * bench_network.c (the machine file of `plan`), bench_device.c (the layers of some models) and
 * bench_trials.c (operations at any size). */
#ifndef VITTRAIN_TOOLS_BENCH_BENCH_MACHINE_H
#define VITTRAIN_TOOLS_BENCH_BENCH_MACHINE_H

#include "plan/machine.h"
#include "tools/bench/bench.h"

enum { TRIAL_BYTES = 28 << 20, TRIAL_TENSORS = 6 };

struct machine_bench {
    struct counter counter; /* first: count.h passes it back; results go to `counted` */
    struct counted counted;
    struct bench *bench;
    struct comm *world, *node;
    struct device *device;
    struct device_limits limits;
    struct stream *stream;
    enum data_type type; /* of the tensors of the next trial */
    struct machine machine;
    /* Tensors of at least TRIAL_BYTES each, at some offset in their pools. */
    void *x, *y, *weight, *other, *pre, *gradient;
    void *convolution, *workspace;
    unsigned char *pool[TRIAL_TENSORS];
    uint32_t *numbers; /* TRIAL_BYTES of arbitrary numbers, copied to the pools */
    size_t pool_bytes, moved;
    struct step_params *params; /* in device memory */
};

/* ---- bench_trials.c */

/* Collective. Initialize all and open the device; false and an agreed error on failure. Close in
 * both cases. */
MUST_CHECK bool machine_bench_open(struct machine_bench *self, struct bench *bench,
                                   struct error *error);
void machine_bench_close(struct machine_bench *self);

/* Bytes of a pool such that all pools together exceed the caches. */
size_t trial_pool_bytes(const struct machine_bench *self);

/* Collective. Allocate and fill the tensors; convolution_bytes: work space of convolutions. */
MUST_CHECK bool trial_tensors_open(struct machine_bench *self, size_t pool_bytes,
                                   size_t convolution_bytes, struct error *error);
void trial_tensors_fill(struct machine_bench *self);

/* Start one operation of the given size on the stream. */
typedef void machine_trial(struct machine_bench *self, const int64_t *size);

/* Rows, in, out. */
machine_trial trial_linear_forward, trial_linear_backward;
/* Samples, tokens, heads. */
machine_trial trial_attention_forward, trial_attention_backward;
/* Samples, height and width, channels in, out, kernel, stride. */
machine_trial trial_convolution_forward, trial_convolution_backward;
/* One or both gradients of a convolution. */
void trial_convolution_gradients(struct machine_bench *self, const int64_t *size, bool input,
                                 bool weight);
struct convolution_shape trial_convolution_shape(const int64_t *size);
/* Workspace of all passes, in bytes. */
size_t trial_convolution_workspace(const struct machine_bench *self, enum data_type type,
                                   const int64_t *size);
/* Rows, width. */
machine_trial trial_norm_forward, trial_norm_backward, trial_dropout_apply, trial_batch_norm_sums,
    trial_batch_norm_forward, trial_batch_norm_backward_sums, trial_batch_norm_backward, trial_copy,
    trial_update, trial_sum_squares, trial_add, trial_convert, trial_zero;
/* Samples, height and width, channels. */
machine_trial trial_max_pool_forward, trial_max_pool_backward;
/* Samples, height and width. */
machine_trial trial_image_transform;

/* Seconds per run, with the tensors moved before each. */
double trial_time(struct machine_bench *self, machine_trial *run, const int64_t *size, int times);

/* Fill in self->counted: the operation's FLOP and bytes, by the count that `plan` uses. */
void trial_count(struct machine_bench *self, machine_trial *run, const int64_t *size);

/* ---- bench_machine.c */

/* The mean without the largest value: other work on a machine lengthens steps, too, so a median
 * would predict too short times. Sorts `values`. */
double machine_typical(double *values, int count);

/* Collective. The mean over ranks. */
double machine_mean(struct comm *world, double value);

/* Rank 0: write a time as a row of the table. */
void machine_row(struct machine_bench *self, const char *work, const char *model,
                 enum data_type type, double seconds, struct error *error);

/* ---- bench_network.c */

/* Collective. Measure the networks within and between nodes; results in self->machine. */
void machine_networks_measure(struct machine_bench *self, struct error *error);

#endif
