// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/bench.h"

#include <stdlib.h>
#include <unistd.h>

#include "config/options.h"
#include "train/hardware.h"

/* GPUs multiply zeros faster. These bits are moderate numbers in fp32, and in both halves as bf16
 * or fp16. */
enum { PATTERN_BYTES = 28 << 20 };

static uint32_t *pattern_make(void)
{
    uint32_t *numbers = allocate(1, PATTERN_BYTES), state = 1;
    for (size_t i = 0; i < PATTERN_BYTES / sizeof *numbers; i++) {
        state = state * 1664525 + 1013904223;
        numbers[i] = 0x3c003c00 | (state & 0x80ff80ff);
    }
    return numbers;
}

/* Return the bytes by which the tensors move, such that all pools together exceed the caches. */
static size_t spare_bytes(const struct trials *self)
{
    double cache = 128 << 20; /* GPUs, and processors that do not report their caches */
    if (self->bench->machine == NULL)
        return 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    long shared = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (self->limits.memory_bytes == 0 && shared > 0)
        cache = (double)shared / self->node->size;
#endif
    return (size_t)(1.5 * cache / TRIAL_TENSORS);
}

void trials_move(struct trials *self, double bytes)
{
    void **const tensors[TRIAL_TENSORS] = {&self->x,     &self->y,   &self->weight,
                                           &self->other, &self->pre, &self->gradient};
    const size_t page = 4096;
    self->moved += ((size_t)bytes + page) / page * page;
    if (self->moved > self->spare)
        self->moved = 0;
    for (int i = 0; i < TRIAL_TENSORS; i++)
        *tensors[i] = (unsigned char *)self->pool[i] + self->moved;
}

bool trials_open(struct trials *self, struct bench *bench, struct error *error)
{
    *self = (struct trials){.bench = bench, .world = bench->world};
    self->node = comm_split_node(bench->world);
    self->device = hardware_open(bench->options, self->node, error);
    if (self->device != NULL) {
        self->device->backend->limits(self->device, &self->limits);
        self->stream = self->device->backend->stream_open(self->device);
    }
    return comm_agree(self->world, error);
}

bool trials_tensors_open(struct trials *self, size_t bytes, struct error *error)
{
    const struct device_backend *backend = self->device->backend;
    const size_t workspace = backend->workspace_bytes(self->device);
    self->spare = spare_bytes(self);
    for (int i = 0; i < TRIAL_TENSORS && error->kind == ERROR_NONE; i++)
        self->pool[i] = backend->allocate(self->device, bytes + self->spare, error);
    if (error->kind == ERROR_NONE)
        self->workspace = backend->allocate(self->device, workspace + 1, error);
    if (!comm_agree(self->world, error))
        return false;
    backend->workspace_set(self->device, self->workspace, workspace);
    uint32_t *pattern = pattern_make();
    for (int i = 0; i < TRIAL_TENSORS; i++)
        for (size_t at = 0; at < bytes + self->spare; at += PATTERN_BYTES) {
            const size_t left = bytes + self->spare - at;
            backend->copy(self->stream, (unsigned char *)self->pool[i] + at, pattern,
                          left < PATTERN_BYTES ? left : PATTERN_BYTES);
        }
    backend->stream_synchronize(self->stream);
    free(pattern);
    trials_move(self, 0);
    return true;
}

void trials_close(struct trials *self)
{
    if (self->device != NULL) {
        const struct device_backend *backend = self->device->backend;
        for (int i = 0; i < TRIAL_TENSORS; i++)
            if (self->pool[i] != NULL)
                backend->release(self->device, self->pool[i]);
        if (self->workspace != NULL)
            backend->release(self->device, self->workspace);
        backend->stream_close(self->stream);
        backend->close(self->device);
    }
    self->node->backend->close(self->node);
}

/* ---- operations */

/* Fused as in a transformer block: GELU after the first layer of an MLP, the residual added after
 * its second layer and after the projection. */
void trial_linear_forward(struct trials *self, const int64_t *size)
{
    bool widens = size[2] == 4 * size[1], adds = size[1] == 4 * size[2] || size[1] == size[2];
    OPERATION_RUN(self->device, self->stream, linear_forward, .type = self->type, .rows = size[0],
                  .in = size[1], .out = size[2], .rows_per_sample = 1, .x = self->x,
                  .weight = self->weight, .bias = self->gradient,
                  .residual = adds ? self->other : NULL, .pre = widens ? self->pre : NULL,
                  .y = self->y);
}

void trial_linear_backward(struct trials *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, linear_backward, .type = self->type, .rows = size[0],
                  .in = size[1], .out = size[2], .rows_per_sample = 1, .x = self->x,
                  .weight = self->weight, .dy = self->y,
                  .pre = size[1] == 4 * size[2] ? self->pre : NULL, .dx = self->other,
                  .dweight = self->gradient, .dbias = (float *)self->gradient + size[1] * size[2]);
}

enum { HEAD_DIM = 64 };

void trial_attention_forward(struct trials *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, attention_forward, .type = self->type,
                  .batch = size[0], .tokens = size[1], .queries = size[1], .heads = size[2],
                  .head_dim = HEAD_DIM, .scale = 0.125f, .qkv = self->x, .out = self->y,
                  .lse = self->gradient);
}

void trial_attention_backward(struct trials *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, attention_backward, .type = self->type,
                  .batch = size[0], .tokens = size[1], .queries = size[1], .heads = size[2],
                  .head_dim = HEAD_DIM, .scale = 0.125f, .qkv = self->x, .out = self->y,
                  .dout = self->other, .lse = self->gradient, .dqkv = self->pre);
}

void trial_copy(struct trials *self, const int64_t *size)
{
    self->device->backend->copy(self->stream, self->y, self->x,
                                (size_t)(size[0] * size[1]) * type_size(self->type));
}

void trial_add(struct trials *self, const int64_t *size)
{
    self->device->backend->add(self->stream, self->y, self->x, size[0] * size[1]);
}

/* ---- counting */

static void counted_keep(struct counter *counter, const struct counted *counted)
{
    ((struct trials *)counter)->counted = *counted;
}

void trials_count(struct trials *self, trial *run, const int64_t *size)
{
    self->counter.operation = counted_keep;
    count_open(self->device, &self->counter);
    run(self, size);
    count_close(self->device);
}
