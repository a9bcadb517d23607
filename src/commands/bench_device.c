// SPDX-License-Identifier: BSD-3-Clause
/* `bench device`: linear layers and attention of vit_cifar (batch 64), vit_base_patch32_224
 * (batch 32) and, on GPUs, vit_base_patch16_224 (batch 256). All ranks measure at the same time,
 * because cores share memory, power and caches. All times are the best of some rounds, averaged
 * over the ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "commands/bench.h"
#include "device/count.h"
#include "options/options.h"
#include "plan/plan.h"
#include "train/hardware.h"

enum { ROUNDS = 12, HEADS = 12, HEAD_DIM = 64, TENSORS = 6 };

static const struct layer {
    const char *model, *name;
    int64_t size[3]; /* rows, in, out */
} layers[] = {
    {"vit_cifar", "qkv", {4160, 192, 576}},
    {"vit_cifar", "proj", {4160, 192, 192}},
    {"vit_cifar", "fc1", {4160, 192, 768}},
    {"vit_cifar", "fc2", {4160, 768, 192}},
    {"vit_base_patch32_224", "qkv", {1600, 768, 2304}},
    {"vit_base_patch32_224", "proj", {1600, 768, 768}},
    {"vit_base_patch32_224", "fc1", {1600, 768, 3072}},
    {"vit_base_patch32_224", "fc2", {1600, 3072, 768}},
    {"vit_base_patch16_224", "qkv", {50432, 768, 2304}},
    {"vit_base_patch16_224", "proj", {50432, 768, 768}},
    {"vit_base_patch16_224", "fc1", {50432, 768, 3072}},
    {"vit_base_patch16_224", "fc2", {50432, 3072, 768}},
};

enum { LAYERS = sizeof layers / sizeof layers[0], LAYERS_CPU = 8 };

struct device_bench {
    struct counter counter; /* first: count.h passes it back; results go to `counted` */
    struct counted counted;
    struct bench *bench;
    struct comm *world, *node;
    struct device *device;
    struct device_limits limits;
    struct stream *stream;
    bool cpu;
    double flops, seconds; /* of the linear layers so far */
    enum data_type type;   /* of the tensors of the next operation */
    /* Tensors at the same offset in their pools. */
    void *x, *y, *weight, *other, *pre, *gradient;
    void *pool[TENSORS], *workspace;
    size_t spare, moved; /* bytes by which the tensors can move, and have moved */
};

/* ---- tensors */

/* GPUs multiply zeros faster. These bits are moderate numbers in fp32, and in both halves as bf16
 * or fp16. */
enum { PATTERN_BYTES = 28 << 20 };

/* With bench.machine: move all tensors on by `bytes`, out of what the caches hold. In a training
 * step an operation finds its tensors outside of the caches, because all other tensors were used
 * since. With tensors that stay in the caches, predicted steps are 12 to 20 % too short. */
static void tensors_move(struct device_bench *self, double bytes)
{
    void **const tensors[TENSORS] = {&self->x,     &self->y,   &self->weight,
                                     &self->other, &self->pre, &self->gradient};
    const size_t page = 4096;
    self->moved += ((size_t)bytes + page) / page * page;
    if (self->moved > self->spare)
        self->moved = 0;
    for (int i = 0; i < TENSORS; i++)
        *tensors[i] = (unsigned char *)self->pool[i] + self->moved;
}

/* Collective. Allocate and fill tensors of `bytes` each. */
static bool tensors_open(struct device_bench *self, size_t bytes, struct error *error)
{
    const struct device_backend *backend = self->device->backend;
    const size_t workspace = backend->workspace_bytes(self->device);
    if (self->bench->machine != NULL) {
        /* All pools together must exceed the caches. */
        double cache = 128 << 20; /* GPUs, and processors that do not report their caches */
#ifdef _SC_LEVEL3_CACHE_SIZE
        const long shared = sysconf(_SC_LEVEL3_CACHE_SIZE);
        if (self->cpu && shared > 0)
            cache = (double)shared / self->node->size;
#endif
        self->spare = (size_t)(1.5 * cache / TENSORS);
    }
    for (int i = 0; i < TENSORS && error->kind == ERROR_NONE; i++)
        self->pool[i] = backend->allocate(self->device, bytes + self->spare, error);
    if (error->kind == ERROR_NONE)
        self->workspace = backend->allocate(self->device, workspace + 1, error);
    if (!comm_agree(self->world, error))
        return false;
    backend->workspace_set(self->device, self->workspace, workspace);
    uint32_t *pattern = allocate(1, PATTERN_BYTES), random = 1;
    for (size_t i = 0; i < PATTERN_BYTES / sizeof *pattern; i++) {
        random = random * 1664525 + 1013904223;
        pattern[i] = 0x3c003c00 | (random & 0x80ff80ff);
    }
    for (int i = 0; i < TENSORS; i++)
        for (size_t at = 0; at < bytes + self->spare; at += PATTERN_BYTES) {
            const size_t left = bytes + self->spare - at;
            backend->copy(self->stream, (unsigned char *)self->pool[i] + at, pattern,
                          left < PATTERN_BYTES ? left : PATTERN_BYTES);
        }
    backend->stream_synchronize(self->stream);
    free(pattern);
    tensors_move(self, 0);
    return true;
}

/* ---- operations */

/* Start one operation of the given size on the stream. */
typedef void trial(struct device_bench *self, const int64_t *size);

/* Size: rows, in, out. Fused as in a transformer block: GELU after the first layer of an MLP, the
 * residual added after its second layer and after the projection. */
static void trial_linear_forward(struct device_bench *self, const int64_t *size)
{
    bool widens = size[2] == 4 * size[1], adds = size[1] == 4 * size[2] || size[1] == size[2];
    OPERATION_RUN(self->device, self->stream, linear_forward, .type = self->type, .rows = size[0],
                  .in = size[1], .out = size[2], .rows_per_sample = 1, .x = self->x,
                  .weight = self->weight, .bias = self->gradient,
                  .residual = adds ? self->other : NULL, .pre = widens ? self->pre : NULL,
                  .y = self->y);
}

static void trial_linear_backward(struct device_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, linear_backward, .type = self->type, .rows = size[0],
                  .in = size[1], .out = size[2], .rows_per_sample = 1, .x = self->x,
                  .weight = self->weight, .dy = self->y,
                  .pre = size[1] == 4 * size[2] ? self->pre : NULL, .dx = self->other,
                  .dweight = self->gradient, .dbias = (float *)self->gradient + size[1] * size[2]);
}

/* Size: samples, tokens, heads. */
static void trial_attention_forward(struct device_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, attention_forward, .type = self->type,
                  .batch = size[0], .tokens = size[1], .queries = size[1], .heads = size[2],
                  .head_dim = HEAD_DIM, .scale = 0.125f, .qkv = self->x, .out = self->y,
                  .lse = self->gradient);
}

static void trial_attention_backward(struct device_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, attention_backward, .type = self->type,
                  .batch = size[0], .tokens = size[1], .queries = size[1], .heads = size[2],
                  .head_dim = HEAD_DIM, .scale = 0.125f, .qkv = self->x, .out = self->y,
                  .dout = self->other, .lse = self->gradient, .dqkv = self->pre);
}

/* Size: rows, width. */
static void trial_copy(struct device_bench *self, const int64_t *size)
{
    self->device->backend->copy(self->stream, self->y, self->x,
                                (size_t)(size[0] * size[1]) * type_size(self->type));
}

static void trial_add(struct device_bench *self, const int64_t *size)
{
    self->device->backend->add(self->stream, self->y, self->x, size[0] * size[1]);
}

/* A matrix product with nothing fused. */
static void trial_product(struct device_bench *self, const int64_t *size)
{
    OPERATION_RUN(self->device, self->stream, linear_forward, .type = self->type, .rows = size[0],
                  .in = size[1], .out = size[2], .rows_per_sample = 1, .x = self->x,
                  .weight = self->weight, .y = self->y);
}

/* ---- measuring */

static void counted_keep(struct counter *counter, const struct counted *counted)
{
    ((struct device_bench *)counter)->counted = *counted;
}

/* Collective. Return the best seconds of one run, averaged over the ranks. */
static double seconds_measure(struct device_bench *self, trial *run, const int64_t *size)
{
    double best = INFINITY;
    int times = 1;
    self->counter.operation = counted_keep;
    count_open(self->device, &self->counter);
    run(self, size);
    count_close(self->device);
    /* Algorithms are chosen and kernels loaded in round -2; round -1 sets the number of runs. */
    for (int round = -2; round < ROUNDS; round++) {
        comm_barrier(self->world);
        double begin = clock_now();
        for (int i = 0; i < times; i++) {
            tensors_move(self, self->counted.bytes);
            run(self, size);
        }
        self->device->backend->stream_synchronize(self->stream);
        double once = (clock_now() - begin) / times;
        if (round >= 0)
            best = fmin(best, once);
        else if (round == -1 && !self->cpu) /* so that waiting for the GPU is negligible */
            times = (int)fmax(1, fmin(20, 5e-3 / once));
    }
    comm_all_reduce(self->world, &best, 1, COMM_FP64, COMM_SUM);
    return best / self->world->size;
}

static void value_write(struct device_bench *self, const char *model, const char *work,
                        const char *metric, double value, const char *unit, struct error *error)
{
    const struct device_limits *limits = &self->limits;
    const struct bench_row row = {.work = work,
                                  .model = model,
                                  .precision = type_name(self->type),
                                  .strategy = "none",
                                  .threads = limits->threads,
                                  .gpu = self->cpu ? NULL : limits->name,
                                  .metric = metric,
                                  .value = value,
                                  .unit = unit};
    if (self->world->rank > 0)
        return;
    bench_write(self->bench, &row, error);
    printf("%-22s %-42s %-14s %12.6g %s\n", model, work, metric, value, unit);
    fflush(stdout);
}

/* Replace the speed at this size in the machine, or add it. The oldest size makes room. */
static void speed_add(struct machine *machine, const struct counted *counted, double seconds)
{
    struct measured *speed = &machine->speed[counted->type][counted->operation];
    struct measured_point *point = speed->point;
    while (point < speed->point + speed->count &&
           memcmp(point->size, counted->size, sizeof point->size) != 0)
        point++;
    if (point == speed->point + MACHINE_POINTS) {
        memmove(speed->point, speed->point + 1, sizeof *point * (MACHINE_POINTS - 1));
        point--;
    } else if (point == speed->point + speed->count) {
        speed->count++;
    }
    memcpy(point->size, counted->size, sizeof point->size);
    point->value = counted->flops / seconds;
}

/* Measure an operation and write its rows. */
static void operation_measure(struct device_bench *self, const char *model, const char *work,
                              trial *run, const int64_t *size, struct error *error)
{
    const double seconds = seconds_measure(self, run, size);
    const struct counted counted = self->counted;
    if (counted.operation != OPERATION_attention_forward &&
        counted.operation != OPERATION_attention_backward) {
        self->flops += counted.flops;
        self->seconds += seconds;
    }
    if (self->bench->machine != NULL)
        speed_add(self->bench->machine, &counted, seconds);
    value_write(self, model, work, "time", seconds, "s", error);
    value_write(self, model, work, "intensity", counted.flops / counted.bytes, "FLOP/B", error);
    value_write(self, model, work, "speed", 1e-9 * counted.flops / seconds, "GFLOP/s", error);
}

static void bandwidth_measure(struct device_bench *self, const char *work, trial *run,
                              int64_t count, double bytes, struct error *error)
{
    const enum data_type type = self->type;
    self->type = TYPE_FP32;
    const double seconds = seconds_measure(self, run, (const int64_t[]){count, 1});
    if (self->bench->machine != NULL)
        self->bench->machine->memory_bandwidth = bytes / seconds;
    value_write(self, "", work, "bandwidth", 1e-9 * bytes / seconds, "GB/s", error);
    self->type = type;
}

static void attention_measure(struct device_bench *self, const char *model, int64_t batch,
                              int64_t tokens, int64_t heads, struct error *error)
{
    const int64_t size[] = {batch, tokens, heads};
    char work[2][96];
    for (int pass = 0; pass < 2; pass++)
        snprintf(work[pass], sizeof work[pass], "attention_%s %lldx%lldx%lldx%d",
                 pass == 0 ? "forward" : "backward", (long long)batch, (long long)heads,
                 (long long)tokens, HEAD_DIM);
    operation_measure(self, model, work[0], trial_attention_forward, size, error);
    operation_measure(self, model, work[1], trial_attention_backward, size, error);
}

static void models_measure(struct device_bench *self, int64_t floats, struct error *error)
{
    /* Adding reads two tensors and writes one. */
    bandwidth_measure(self, "memory: adding tensors", trial_add, floats, 12.0 * (double)floats,
                      error);
    for (int i = 0; i < (self->cpu ? LAYERS_CPU : LAYERS); i++)
        for (int pass = 0; pass < 2; pass++) {
            const int64_t *size = layers[i].size;
            char work[96];
            snprintf(work, sizeof work, "%s_%s %lldx%lldx%lld", layers[i].name,
                     pass == 0 ? "forward" : "backward", (long long)size[0], (long long)size[1],
                     (long long)size[2]);
            operation_measure(self, layers[i].model, work,
                              pass == 0 ? trial_linear_forward : trial_linear_backward, size,
                              error);
        }
    attention_measure(self, "vit_cifar", 64, 65, 3, error);
    attention_measure(self, "vit_base_patch32_224", 32, 50, HEADS, error);
    attention_measure(self, "vit_base_patch16_224", self->cpu ? 8 : 256, 197, HEADS, error);
}

/* subject: NULL, "product:SIDE" or "attention:BATCH:TOKENS". */
static void subject_measure(struct device_bench *self, const char *subject, struct error *error)
{
    long long side = 0, batch = 0, tokens = 0;
    if (subject != NULL && sscanf(subject, "product:%lld", &side) != 1 &&
        sscanf(subject, "attention:%lld:%lld", &batch, &tokens) != 2) {
        error_set(error, ERROR_USAGE,
                  "bench device: %s is not product:SIDE or attention:BATCH:TOKENS", subject);
        return;
    }
    const int64_t floats = side > 0    ? side * side
                           : batch > 0 ? batch * tokens * 3 * HEADS * HEAD_DIM
                                       : (int64_t)(self->cpu ? 4160 : 50432) * 3072;
    if (!tensors_open(self, (size_t)floats * sizeof(float), error))
        return;
    if (side > 0) {
        char work[96];
        snprintf(work, sizeof work, "ceiling: product %lldx%lldx%lld", side, side, side);
        bandwidth_measure(self, "ceiling: copy", trial_copy, floats, 8.0 * (double)floats, error);
        operation_measure(self, "", work, trial_product, (const int64_t[]){side, side, side},
                          error);
    } else if (batch > 0) {
        attention_measure(self, "", batch, tokens, HEADS, error);
    } else {
        models_measure(self, floats, error);
    }
}

/* Describe the device in bench.machine. */
static void machine_describe(struct device_bench *self)
{
    struct machine *machine = self->bench->machine;
    clock_stamp(machine->date, sizeof machine->date);
    snprintf(machine->host, sizeof machine->host, "%s", comm_host());
    snprintf(machine->commit, sizeof machine->commit, "%s", version_commit);
    snprintf(machine->device, sizeof machine->device, "%s", self->limits.name);
    machine->node_ranks = self->node->size;
    machine->nodes = self->bench->nodes;
    machine->threads = self->limits.threads > 0 ? self->limits.threads : 1;
    machine->shared_memory = !hardware_has_memory(self->device);
    machine->memory = (double)self->limits.memory_bytes;
    if (self->seconds > 0)
        machine->flops[self->type] = self->flops / self->seconds;
    const double peak = self->world->rank == 0 ? peak_find(self->device, self->type) : 0;
    machine->peak[self->type] = isnan(peak) ? 0 : peak;
}

bool bench_device(struct bench *bench, struct error *error)
{
    struct device_bench self = {.bench = bench, .world = bench->world};
    const int precision = bench->options->train.precision;
    self.node = bench->world->backend->split_node(bench->world);
    self.device = hardware_open(bench->options, self.node, error);
    if (comm_agree(bench->world, error)) {
        self.device->backend->limits(self.device, &self.limits);
        self.stream = self.device->backend->stream_open(self.device);
        const bool bf16 = precision == PRECISION_BF16 ||
                          (precision == PRECISION_AUTO && self.limits.multiplies_bf16);
        self.type = bf16 ? TYPE_BF16 : precision == PRECISION_FP16 ? TYPE_FP16 : TYPE_FP32;
        self.cpu = self.limits.memory_bytes == 0;
        subject_measure(&self, bench->subject, error);
        if (bench->machine != NULL && error->kind == ERROR_NONE)
            machine_describe(&self);
        for (int i = 0; i < TENSORS; i++)
            if (self.pool[i] != NULL)
                self.device->backend->release(self.device, self.pool[i]);
        if (self.workspace != NULL)
            self.device->backend->release(self.device, self.workspace);
        self.device->backend->stream_close(self.stream);
    }
    if (self.device != NULL)
        self.device->backend->close(self.device);
    self.node->backend->close(self.node);
    return comm_agree(bench->world, error);
}
