// SPDX-License-Identifier: BSD-3-Clause
/* `bench machine`: measures for `plan` how fast this machine computes and communicates. All ranks
 * measure at the same time, as they compute in a step: cores share memory, power and caches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/atomic_file.h"
#include "core/clock.h"
#include "core/median.h"
#include "core/version.h"
#include "tools/bench/bench_machine.h"
#include "train/hardware.h"
#include "train/peak.h"

/* The meaning of the sizes depends on the operation: see bench_machine.h. */
struct trial {
    enum device_operation operation;
    machine_trial *run;
    int64_t size[6];
};

#define BOTH(name, ...)                                                                            \
    {OPERATION_##name##_forward, trial_##name##_forward, {__VA_ARGS__}},                           \
    {                                                                                              \
        OPERATION_##name##_backward, trial_##name##_backward,                                      \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define ROWS(name, ...)                                                                            \
    {OPERATION_##name, trial_##name, {__VA_ARGS__}},                                               \
    {                                                                                              \
        OPERATION_##name, trial_##name,                                                            \
        {                                                                                          \
            SMALLER(__VA_ARGS__)                                                                   \
        }                                                                                          \
    }
#define SMALLER(rows, width) (rows) / 16, width

/* Linear layers of vit_cifar and ViT-B/32 at small and large batches; convolutions of ResNet and of
 * small CNNs; memory-bound operations at two sizes. */
static const struct trial trials[] = {
    BOTH(linear, 1040, 192, 576),
    BOTH(linear, 4160, 192, 192),
    BOTH(linear, 4160, 192, 768),
    BOTH(linear, 4160, 768, 192),
    BOTH(linear, 400, 768, 2304),
    BOTH(linear, 1600, 768, 768),
    BOTH(linear, 1600, 768, 2304),
    BOTH(linear, 1600, 768, 3072),
    BOTH(linear, 1600, 3072, 768),
    BOTH(linear, 64, 768, 10),
    BOTH(attention, 64, 65, 3),
    BOTH(attention, 32, 50, 12),
    BOTH(attention, 4, 197, 12),
    BOTH(convolution, 8, 56, 64, 64, 3, 1),
    BOTH(convolution, 8, 28, 128, 128, 3, 1),
    BOTH(convolution, 8, 14, 256, 256, 3, 1),
    BOTH(convolution, 8, 7, 512, 512, 3, 1),
    BOTH(convolution, 8, 56, 64, 128, 1, 2),
    BOTH(convolution, 8, 224, 3, 64, 7, 2),
    BOTH(convolution, 64, 32, 3, 16, 3, 1),
    ROWS(norm_forward, 4096, 768),
    ROWS(norm_backward, 4096, 768),
    ROWS(dropout_apply, 4096, 768),
    ROWS(batch_norm_sums, 25088, 64),
    ROWS(batch_norm_forward, 25088, 64),
    ROWS(batch_norm_backward_sums, 25088, 64),
    ROWS(batch_norm_backward, 25088, 64),
    BOTH(max_pool, 8, 112, 64),
    {OPERATION_image_transform, trial_image_transform, {64, 32}},
    {OPERATION_image_transform, trial_image_transform, {16, 224}},
    ROWS(copy, 4096, 768),
};

/* Operations that exist in fp32 only. */
static const struct trial fp32_trials[] = {
    ROWS(update, 7168, 1024),  ROWS(sum_squares, 7168, 1024), ROWS(add, 7168, 1024),
    ROWS(convert, 7168, 1024), ROWS(zero, 7168, 1024),
};

static size_t convolution_bytes(const struct machine_bench *self)
{
    size_t most = 1;
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++)
        for (int type = 0; type < MACHINE_TYPES; type++) {
            if (trials[i].run != trial_convolution_forward)
                continue;
            size_t bytes = trial_convolution_workspace(self, (enum data_type)type, trials[i].size);
            most = bytes > most ? bytes : most;
        }
    return most;
}

double machine_typical(double *values, int count)
{
    double sum = 0;
    values_sort(values, count);
    if (count > 1)
        count--;
    for (int i = 0; i < count; i++)
        sum += values[i];
    return sum / count;
}

double machine_mean(struct comm *world, double value)
{
    comm_all_reduce(world, &value, 1, COMM_FP64, COMM_SUM);
    return value / world->size;
}

/* Collective. The mean of rounds of about 12 ms on all ranks at once. The first run is not counted:
 * libraries choose their algorithms in it. */
static double trial_seconds(struct machine_bench *self, const struct trial *trial)
{
    enum { ROUNDS = 7 };
    double rounds[ROUNDS], once = 0;
    if (!self->bench->options->bench.quick)
        trial_tensors_fill(self);
    for (int i = 0; i < 2; i++)
        once = trial_time(self, trial->run, trial->size, 1);
    if (self->bench->options->bench.quick)
        return machine_mean(self->world, once);
    comm_all_reduce(self->world, &once, 1, COMM_FP64, COMM_MAX);
    int times = (int)fmax(1, fmin(1000, 12e-3 / once));
    for (int i = 0; i < ROUNDS; i++) {
        comm_barrier(self->world);
        rounds[i] = trial_time(self, trial->run, trial->size, times);
    }
    return machine_mean(self->world, machine_typical(rounds, ROUNDS));
}

void machine_row(struct machine_bench *self, const char *work, const char *model,
                 enum data_type type, double seconds, struct error *error)
{
    struct bench_row row = {.work = work,
                            .model = model,
                            .precision = type_name(type),
                            .gpu = self->limits.memory_bytes > 0 ? self->limits.name : NULL,
                            .threads = self->limits.threads,
                            .metric = "time",
                            .value = seconds,
                            .unit = "s"};
    if (self->world->rank == 0)
        bench_write(self->bench, &row, error);
}

static void trial_run(struct machine_bench *self, const struct trial *trial, struct error *error)
{
    if (self->bench->options->bench.quick &&
        self->machine.speed[self->type][trial->operation].count > 0)
        return;
    trial_count(self, trial->run, trial->size);
    const struct counted counted = self->counted;
    double seconds = trial_seconds(self, trial);
    double work = counted.flops > 0 ? counted.flops : counted.bytes;
    struct speed *speed = &self->machine.speed[counted.type][trial->operation];
    char size[96];
    snprintf(size, sizeof size, "%.0fx%.0fx%.0f", counted.size[0], counted.size[1],
             counted.size[2]);
    ENSURE(speed->count < MACHINE_POINTS, "too many sizes of %s", operation_name[trial->operation]);
    struct speed_point *point = &speed->point[speed->count++];
    memcpy(point->size, counted.size, sizeof point->size);
    point->speed = work / fmax(seconds - self->machine.launch, 0.05 * seconds);
    if (self->world->rank == 0)
        printf("%-22s %-5s %-18s %12.2f us %10.2f %s\n", operation_name[trial->operation],
               type_name(counted.type), size, 1e6 * seconds, 1e-9 * work / seconds,
               counted.flops > 0 ? "GFLOP/s" : "GB/s");
    fflush(stdout);
    machine_row(self, operation_name[trial->operation], size, counted.type, seconds, error);
}

/* Measure how much faster one rank of a node computes while the others are idle. */
static void alone_measure(struct machine_bench *self)
{
    static const struct trial product = {
        OPERATION_linear_forward, trial_linear_forward, {1600, 768, 768}};
    double together = trial_seconds(self, &product), alone = 0, ranks = self->node->rank == 0;
    comm_barrier(self->world);
    if (self->node->rank == 0) {
        enum { ROUNDS = 7 };
        double rounds[ROUNDS];
        for (int i = 0; i < ROUNDS; i++)
            rounds[i] = trial_time(self, product.run, product.size, (int)fmax(1, 12e-3 / together));
        alone = machine_typical(rounds, ROUNDS);
    }
    comm_barrier(self->world);
    alone = machine_mean(self->world, alone) / machine_mean(self->world, ranks);
    self->machine.alone = fmin(10, fmax(0.1, together / alone));
}

/* Return the peak rate; 0: unknown. */
static double peak_of(const struct machine_bench *self, enum data_type type)
{
    const double peak = peak_find(self->device, type, "");
    return isnan(peak) ? 0 : peak;
}

static void device_measure(struct machine_bench *self, struct error *error)
{
    static const struct trial empty = {OPERATION_zero, trial_zero, {1, 1}};
    const bool multiplies[MACHINE_TYPES] = {[TYPE_FP32] = true,
                                            [TYPE_BF16] = self->limits.multiplies_bf16,
                                            [TYPE_FP16] = self->limits.multiplies_fp16};
    self->type = TYPE_FP32;
    self->machine.launch = trial_seconds(self, &empty);
    for (int type = TYPE_FP32; type < MACHINE_TYPES; type++) {
        self->type = (enum data_type)type;
        self->machine.peak[type] = self->world->rank == 0 ? peak_of(self, self->type) : 0;
        comm_barrier(self->world);
        for (size_t i = 0; multiplies[type] && i < sizeof trials / sizeof trials[0]; i++)
            trial_run(self, &trials[i], error);
    }
    /* `plan` uses the bandwidth of a large copy for operations that were not measured. */
    self->machine.memory_bandwidth = self->machine.speed[TYPE_FP32][OPERATION_copy].point[0].speed;
    if (self->world->size > 1)
        alone_measure(self);
    self->type = TYPE_FP32;
    for (size_t i = 0; i < sizeof fp32_trials / sizeof fp32_trials[0]; i++)
        trial_run(self, &fp32_trials[i], error);
}

/* Collective. Rank 0 opens the file before the measurement, which takes long. */
static void machine_measure(struct machine_bench *self, struct error *error)
{
    int64_t node_ranks = self->node->size;
    struct atomic_file file = {0};
    bool first = self->world->rank == 0, opened = false;
    comm_all_reduce(self->world, &node_ranks, 1, COMM_INT64, COMM_MIN);
    if (first)
        opened = atomic_file_open(&file, self->bench->options->bench.machine, error);
    if (comm_agree(self->world, error)) {
        const struct network network = {
            .members = 2, .share = 1, .compute_speed = 1, .send_speed = 1};
        struct machine *machine = &self->machine;
        *machine = (struct machine){.node_ranks = (int)node_ranks,
                                    .nodes = self->bench->nodes,
                                    .threads = self->limits.threads > 0 ? self->limits.threads : 1,
                                    .shared_memory = !hardware_has_memory(self->device),
                                    .memory = (double)self->limits.memory_bytes,
                                    .alone = 1,
                                    .inside = network,
                                    .between = network};
        clock_stamp(machine->date, sizeof machine->date);
        snprintf(machine->host, sizeof machine->host, "%s", comm_host());
        snprintf(machine->commit, sizeof machine->commit, "%s", version_commit);
        snprintf(machine->device, sizeof machine->device, "%s", self->limits.name);
        device_measure(self, error);
        machine_networks_measure(self, error);
    }
    if (!opened)
        return;
    if (error->kind != ERROR_NONE) {
        atomic_file_discard(&file);
        return;
    }
    machine_write(&self->machine, file.stream);
    if (atomic_file_commit(&file, error))
        printf("written to %s\n", self->bench->options->bench.machine);
}

bool bench_machine(struct bench *bench, struct error *error)
{
    static struct machine_bench self;
    const bool quick = bench->options->bench.quick;
    if (machine_bench_open(&self, bench, error) &&
        trial_tensors_open(&self, quick ? TRIAL_BYTES : trial_pool_bytes(&self),
                           convolution_bytes(&self), error))
        machine_measure(&self, error);
    machine_bench_close(&self);
    return comm_agree(bench->world, error);
}
