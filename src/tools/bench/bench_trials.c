// SPDX-License-Identifier: BSD-3-Clause
/* Trials: operations at any size, as models start them, on tensors of arbitrary
 * numbers.
 *
 * In a training step an operation finds its tensors outside of the caches, because all other
 * tensors were used since. So trials move through pools larger than the caches. On tensors that
 * stayed in the caches, predicted step times came out 12 to 20 % too short. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/options.h"
#include "core/clock.h"
#include "tools/bench/bench_machine.h"
#include "train/hardware.h"

size_t trial_pool_bytes(const struct machine_bench *self)
{
    double cache = 128 << 20; /* GPUs, and processors that do not report their caches */
#ifdef _SC_LEVEL3_CACHE_SIZE
    long shared = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (self->limits.memory_bytes == 0 && shared > 0)
        cache = (double)shared / self->node->size;
#endif
    /* The tensors together exceed the cache by half. */
    return TRIAL_BYTES + (size_t)(1.5 * cache / TRIAL_TENSORS);
}

void trial_tensors_fill(struct machine_bench *self)
{
    for (int i = 0; i < TRIAL_TENSORS; i++)
        for (size_t at = 0; at < self->pool_bytes; at += TRIAL_BYTES) {
            size_t left = self->pool_bytes - at;
            self->device->backend->copy(self->stream, self->pool[i] + at, self->numbers,
                                        left < TRIAL_BYTES ? left : TRIAL_BYTES);
        }
    self->device->backend->stream_synchronize(self->stream);
}

/* Move all tensors on by `bytes` in their pools, out of what the caches hold. */
static void trial_tensors_move(struct machine_bench *self, double bytes)
{
    void **const tensors[TRIAL_TENSORS] = {&self->x,     &self->y,   &self->weight,
                                           &self->other, &self->pre, &self->gradient};
    const size_t page = 4096;
    self->moved += ((size_t)bytes + page) / page * page;
    if (self->moved > self->pool_bytes - TRIAL_BYTES)
        self->moved = 0;
    for (int i = 0; i < TRIAL_TENSORS; i++)
        *tensors[i] = self->pool[i] + self->moved;
}

bool machine_bench_open(struct machine_bench *self, struct bench *bench, struct error *error)
{
    *self = (struct machine_bench){.bench = bench, .world = bench->world};
    self->node = comm_split_node(bench->world);
    self->device = hardware_open(bench->options, self->node, error);
    if (self->device != NULL) {
        self->device->backend->limits(self->device, &self->limits);
        self->stream = self->device->backend->stream_open(self->device);
    }
    return comm_agree(self->world, error);
}

bool trial_tensors_open(struct machine_bench *self, size_t pool_bytes, size_t convolution_bytes,
                        struct error *error)
{
    static const struct step_params params = {.update = 1, .rate = 1e-3, .beta1 = 0.9};
    const struct device_backend *backend = self->device->backend;
    const size_t bytes = backend->workspace_bytes(self->device);
    uint32_t state = 1;
    self->pool_bytes = pool_bytes;
    self->numbers = allocate(1, TRIAL_BYTES);
    /* GPUs multiply zeros faster. These bits are moderate numbers in fp32, and in both halves as
     * bf16 or fp16. */
    for (size_t i = 0; i < TRIAL_BYTES / sizeof *self->numbers; i++) {
        state = state * 1664525 + 1013904223;
        self->numbers[i] = 0x3c003c00 | (state & 0x80ff80ff);
    }
    for (int i = 0; i < TRIAL_TENSORS && error->kind == ERROR_NONE; i++)
        self->pool[i] = backend->allocate(self->device, self->pool_bytes, error);
    if (error->kind == ERROR_NONE)
        self->convolution = backend->allocate(self->device, convolution_bytes, error);
    if (error->kind == ERROR_NONE)
        self->params = backend->allocate(self->device, sizeof *self->params, error);
    if (error->kind == ERROR_NONE)
        self->workspace = backend->allocate(self->device, bytes + 1, error);
    if (!comm_agree(self->world, error))
        return false;
    backend->workspace_set(self->device, self->workspace, bytes);
    backend->copy(self->stream, self->params, &params, sizeof params);
    backend->stream_synchronize(self->stream);
    trial_tensors_fill(self);
    trial_tensors_move(self, 0);
    return true;
}

void machine_bench_close(struct machine_bench *self)
{
    void *const memory[] = {self->params, self->convolution, self->workspace};
    if (self->device != NULL) {
        const struct device_backend *backend = self->device->backend;
        for (int i = 0; i < TRIAL_TENSORS; i++)
            if (self->pool[i] != NULL)
                backend->release(self->device, self->pool[i]);
        for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
            if (memory[i] != NULL)
                backend->release(self->device, memory[i]);
        free(self->numbers);
        backend->stream_close(self->stream);
        backend->close(self->device);
    }
    self->node->backend->close(self->node);
}

/* ---- operations */

/* Fused as in a transformer block: GELU after the first layer of an MLP, the residual added after
 * its second layer and after the projection. */
void trial_linear_forward(struct machine_bench *self, const int64_t *size)
{
    bool widens = size[2] == 4 * size[1], adds = size[1] == 4 * size[2] || size[1] == size[2];
    OPERATION_RUN(self->device, self->stream, linear_forward, .type = self->type, .rows = size[0],
                  .in = size[1], .out = size[2], .rows_per_sample = 1, .x = self->x,
                  .weight = self->weight, .bias = self->gradient,
                  .residual = adds ? self->other : NULL, .pre = widens ? self->pre : NULL,
                  .y = self->y);
}

void trial_linear_backward(struct machine_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, linear_backward, .type = self->type, .rows = size[0],
                  .in = size[1], .out = size[2], .rows_per_sample = 1, .x = self->x,
                  .weight = self->weight, .dy = self->y,
                  .pre = size[1] == 4 * size[2] ? self->pre : NULL, .dx = self->other,
                  .dweight = self->gradient, .dbias = (float *)self->gradient + size[1] * size[2]);
}

enum { HEAD_DIM = 64 };

void trial_attention_forward(struct machine_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, attention_forward, .type = self->type,
                  .batch = size[0], .tokens = size[1], .queries = size[1], .heads = size[2],
                  .head_dim = HEAD_DIM, .scale = 0.125f, .qkv = self->x, .out = self->y,
                  .lse = self->gradient);
}

void trial_attention_backward(struct machine_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, attention_backward, .type = self->type,
                  .batch = size[0], .tokens = size[1], .queries = size[1], .heads = size[2],
                  .head_dim = HEAD_DIM, .scale = 0.125f, .qkv = self->x, .out = self->y,
                  .dout = self->other, .lse = self->gradient, .dqkv = self->pre);
}

struct convolution_shape trial_convolution_shape(const int64_t *size)
{
    return (struct convolution_shape){.batch = size[0],
                                      .height = size[1],
                                      .width = size[1],
                                      .in = size[2],
                                      .out = size[3],
                                      .kernel = size[4],
                                      .stride = size[5],
                                      .padding = size[4] / 2};
}

size_t trial_convolution_workspace(const struct machine_bench *self, enum data_type type,
                                   const int64_t *size)
{
    const struct convolution_shape shape = trial_convolution_shape(size);
    return self->device->backend->convolution_workspace(self->device, type, &shape);
}

void trial_convolution_forward(struct machine_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, convolution_forward, .type = self->type,
                  .shape = trial_convolution_shape(size), .x = self->x, .weight = self->weight,
                  .y = self->y, .workspace = self->convolution);
}

void trial_convolution_gradients(struct machine_bench *self, const int64_t *size, bool input,
                                 bool weight)
{
    OPERATION_RUN(self->device, self->stream, convolution_backward, .type = self->type,
                  .shape = trial_convolution_shape(size), .x = self->x, .weight = self->weight,
                  .dy = self->y, .dx = input ? self->other : NULL,
                  .dweight = weight ? self->gradient : NULL, .workspace = self->convolution);
}

/* The first layer of a model computes no gradient of the images. */
void trial_convolution_backward(struct machine_bench *self, const int64_t *size)
{
    trial_convolution_gradients(self, size, size[2] > 4, true);
}

void trial_norm_forward(struct machine_bench *self, const int64_t *size)
{
    float *statistics = self->gradient;
    OPERATION_RUN(self->device, self->stream, norm_forward, .type = self->type, .rows = size[0],
                  .width = size[1], .epsilon = 1e-6f, .x = self->x, .gamma = self->weight,
                  .beta = self->weight, .y = self->y, .mean = statistics,
                  .rstd = statistics + size[0]);
}

void trial_norm_backward(struct machine_bench *self, const int64_t *size)
{
    float *statistics = self->gradient;
    float *sums = statistics + 2 * size[0];
    OPERATION_RUN(self->device, self->stream, norm_backward, .type = self->type, .rows = size[0],
                  .width = size[1], .x = self->x, .gamma = self->weight, .dy = self->y,
                  .mean = statistics, .rstd = statistics + size[0], .add = self->other,
                  .dx = self->pre, .dgamma = sums, .dbeta = sums + size[1]);
}

void trial_dropout_apply(struct machine_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, dropout_apply, .type = self->type, .rows = size[0],
                  .width = size[1], .rows_per_sample = 1, .x = self->x, .y = self->y,
                  .dropout = {.rate = 0.1f, .params = self->params});
}

void trial_batch_norm_sums(struct machine_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, batch_norm_sums, .type = self->type, .rows = size[0],
                  .channels = size[1], .x = self->x, .sums = self->gradient);
}

/* Statistics follow the sums in `gradient`. */
static float *statistics_of(const struct machine_bench *self, const int64_t *size)
{
    return (float *)((double *)self->gradient + 2 * size[1] + 16);
}

void trial_batch_norm_forward(struct machine_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, batch_norm_forward, .type = self->type,
                  .rows = size[0], .channels = size[1], .epsilon = 1e-5f, .x = self->x,
                  .gamma = self->weight, .beta = self->weight, .running_mean = self->weight,
                  .running_variance = self->weight, .relu = true, .y = self->y,
                  .statistics = statistics_of(self, size));
}

void trial_batch_norm_backward_sums(struct machine_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, batch_norm_backward_sums, .type = self->type,
                  .rows = size[0], .channels = size[1], .x = self->x, .y = self->y,
                  .statistics = statistics_of(self, size), .dy = self->other,
                  .sums = self->gradient);
}

void trial_batch_norm_backward(struct machine_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, batch_norm_backward, .type = self->type,
                  .rows = size[0], .channels = size[1], .x = self->x, .dy = self->other,
                  .gamma = self->weight, .statistics = statistics_of(self, size), .dx = self->pre);
}

/* The shape of a max pool as in ResNets. */
#define MAX_POOL_SHAPE                                                                             \
    .type = self->type, .batch = size[0], .height = size[1], .width = size[1],                     \
    .channels = size[2], .kernel = 3, .stride = 2, .padding = 1

void trial_max_pool_forward(struct machine_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, max_pool_forward, MAX_POOL_SHAPE, .x = self->x,
                  .y = self->y, .index = self->pre);
}

void trial_max_pool_backward(struct machine_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, max_pool_backward, MAX_POOL_SHAPE, .dy = self->y,
                  .index = self->pre, .dx = self->other);
}

void trial_image_transform(struct machine_bench *self, const int64_t *size)
{
    static const float mean[] = {0.5f, 0.5f, 0.5f}, std[] = {0.5f, 0.5f, 0.5f};
    OPERATION_RUN(self->device, self->stream, image_transform, .type = self->type, .batch = size[0],
                  .channels = 3, .source_height = size[1], .source_width = size[1],
                  .height = size[1], .width = size[1], .source = self->x, .mean = mean, .std = std,
                  .images = self->y);
}

void trial_copy(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->copy(self->stream, self->y, self->x,
                                (size_t)(size[0] * size[1]) * type_size(self->type));
}

void trial_update(struct machine_bench *self, const int64_t *size)
{
    const struct update_segment all = {.end = size[0] * size[1], .rate_scale = 1};
    OPERATION_RUN(self->device, self->stream, update, .rule = UPDATE_ADAMW,
                  .count = size[0] * size[1], .weights = self->x, .gradient = self->gradient,
                  .moment1 = self->y, .moment2 = self->other, .segments = &all, .segment_count = 1,
                  .params = self->params, .beta2 = 0.999, .epsilon = 1e-8);
    self->device->backend->stream_synchronize(self->stream); /* the update reads `all` */
}

void trial_sum_squares(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->sum_squares(self->stream, self->x, size[0] * size[1], self->gradient);
}

void trial_add(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->add(self->stream, self->y, self->x, size[0] * size[1]);
}

void trial_convert(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->convert(self->stream, TYPE_BF16, self->y, TYPE_FP32, self->x,
                                   size[0] * size[1]);
}

void trial_zero(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->zero(self->stream, self->pre, (size_t)(size[0] * size[1]) * 4);
}

/* ---- measuring */

double trial_time(struct machine_bench *self, machine_trial *run, const int64_t *size, int times)
{
    double begin = clock_now();
    for (int i = 0; i < times; i++) {
        trial_tensors_move(self, self->counted.bytes);
        run(self, size);
    }
    self->device->backend->stream_synchronize(self->stream);
    return (clock_now() - begin) / times;
}

static void counted_keep(struct counter *counter, const struct counted *counted)
{
    ((struct machine_bench *)counter)->counted = *counted;
}

void trial_count(struct machine_bench *self, machine_trial *run, const int64_t *size)
{
    self->counter.operation = counted_keep;
    count_open(self->device, &self->counter);
    run(self, size);
    count_close(self->device);
}
