/* What the files of `bench machine` share: bench_machine.c (what is measured),
 * bench_machine_trials.c (operations of device.h at a size), bench_machine_tensors.c (on what),
 * bench_machine_network.c (collectives). */
#ifndef VITTRAIN_BENCH_BENCH_MACHINE_H
#define VITTRAIN_BENCH_BENCH_MACHINE_H

#include "bench/bench.h"
#include "plan/machine.h"

enum { TRIAL_BYTES = 28 << 20, TRIAL_TENSORS = 6 };

struct machine_bench {
    struct counter counter; /* first: what count.h tells goes to `counted` */
    struct counted counted;
    struct bench *bench;
    struct comm *world, *node;
    struct device *device;
    struct device_limits limits;
    struct stream *stream;
    enum data_type type; /* of the trials that have one */
    struct machine machine;
    /* Tensors for trials, of TRIAL_BYTES each, somewhere in their pools; what operations work in.
     */
    void *x, *y, *weight, *other, *pre, *gradient, *convolution, *workspace;
    unsigned char *pool[TRIAL_TENSORS];
    uint32_t *numbers; /* of which the pools are filled: TRIAL_BYTES */
    size_t pool_bytes, turned;
    struct step_params *place; /* device */
};

/* Fills all anew; moves them on by so many bytes, to where the last runs have not been. */
void trial_tensors_fill(struct machine_bench *self);
void trial_tensors_turn(struct machine_bench *self, double bytes);

/* Queues one operation of the size given. */
typedef void machine_trial(struct machine_bench *self, const int64_t *size);

/* Rows, in, out. */
machine_trial trial_linear_forward, trial_linear_backward;
/* Samples, tokens, heads. */
machine_trial trial_attention_forward, trial_attention_backward;
/* Samples, height and width, channels in, out, kernel, stride. */
machine_trial trial_convolution_forward, trial_convolution_backward;
/* Bytes that both work in. */
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

/* Collective. Device and memory; false and an agreed error. Closed whether it was opened or not. */
MUST_CHECK bool machine_bench_open(struct machine_bench *self, struct error *error);
void machine_bench_close(struct machine_bench *self);

/* The most that a convolution of the trials works in. */
size_t machine_convolution_bytes(const struct machine_bench *self);

/* Collective: the networks that there are, into self->machine. */
void machine_networks_measure(struct machine_bench *self, struct error *error);

/* The mean without the longest, where there are several: what else a machine does now and then
 * makes steps longer, too, so a median would foretell too much. Sorts. */
double machine_typical(double *values, int count);

/* Collective. The mean over ranks. */
double machine_mean(struct comm *world, double value);

/* A row of the benchmarks' CSV. */
void machine_row(struct machine_bench *self, const char *work, const char *model,
                 enum data_type type, double seconds, struct error *error);

#endif
