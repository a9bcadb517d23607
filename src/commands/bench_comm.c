// SPDX-License-Identifier: BSD-3-Clause
/* `bench comm`: the collectives of vittrain by each transport, those of MPI, and those of the GPUs,
 * measured in turn so that other work on the machine affects all alike. Every result is checked.
 * Overlap is measured like in the OSU benchmarks: the share of a collective's time that is hidden
 * if the thread that started it computes for the same time. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "comm/mpi_check.h"
#include "commands/bench.h"
#include "options/options.h"
#include "plan/plan.h"
#include "train/hardware.h"

/* The first three have the numbers of enum collective_action. */
enum collective_kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST };
static const char *const collective_name[] = {"all_reduce", "reduce_scatter", "all_gather",
                                              "broadcast"};

/* An implementation to measure: a transport with its own group, or MPI (group NULL). */
struct way {
    const char *name;
    struct comm *group;
    float *memory; /* of the GPU; NULL: the buffer on the host */
};
enum { WAYS = 5, LEAST_ROUNDS = 5, MOST_ROUNDS = 101, SMALLEST = 8, FACTOR = 8 };

struct comm_bench {
    struct bench *bench;
    struct comm *world;
    MPI_Comm mpi;
    char mpi_version[64];
    struct way way[WAYS];
    int ways;
    struct device *host;    /* allocates the buffers */
    struct device *gpu;     /* with run.backend=cuda on several ranks; else NULL */
    struct stream *stream;  /* of the GPU */
    void *memory;           /* of the GPU */
    float *buffer, *result; /* result: output of MPI's reduce-scatter */
    enum collective_kind kind;
    int64_t count, part;     /* elements of all ranks and of one rank */
    int64_t wrong;           /* wrong elements on all ranks so far */
    struct network *network; /* of bench.machine, where the times are added; NULL: none */
};

/* Copy the buffer to the GPU's memory or back, for a way that has some. */
static void way_copy(const struct comm_bench *self, const struct way *way, bool back)
{
    if (way->memory == NULL)
        return;
    self->gpu->backend->copy(self->stream, back ? self->buffer : way->memory,
                             back ? way->memory : self->buffer,
                             (size_t)self->count * sizeof *self->buffer);
    self->gpu->backend->stream_synchronize(self->stream);
}

/* Run the collective by MPI, or by a group of this program. */
static void way_run(const struct comm_bench *self, const struct way *way)
{
    const int count = (int)self->count, part = (int)self->part;
    struct comm *group = way->group;
    float *buffer = way->memory != NULL ? way->memory : self->buffer;
    struct comm_request *request = NULL;
    switch (self->kind) {
    case ALL_REDUCE:
        if (group == NULL)
            MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, self->mpi));
        else
            request = comm_start_all_reduce(group, buffer, count, COMM_FP32, COMM_SUM, NULL);
        break;
    case REDUCE_SCATTER:
        if (group == NULL)
            MPI_CHECK(MPI_Reduce_scatter_block(buffer, self->result, part, MPI_FLOAT, MPI_SUM,
                                               self->mpi));
        else
            request = comm_start_reduce_scatter(group, buffer, part, COMM_FP32, COMM_SUM, NULL);
        break;
    case ALL_GATHER:
        if (group == NULL)
            MPI_CHECK(
                MPI_Allgather(MPI_IN_PLACE, part, MPI_FLOAT, buffer, part, MPI_FLOAT, self->mpi));
        else
            request = comm_start_all_gather(group, buffer, part, COMM_FP32, NULL);
        break;
    case BROADCAST:
        if (group == NULL)
            MPI_CHECK(MPI_Bcast(buffer, count, MPI_FLOAT, 0, self->mpi));
        else
            request = comm_start_broadcast(group, buffer, count, COMM_FP32, 0, NULL);
    }
    if (group != NULL)
        group->backend->wait(request, NULL);
}

/* Collective: the maximum over ranks. */
static double slowest(const struct comm_bench *self, double seconds)
{
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, self->mpi));
    return seconds;
}

/* Run once on known values; return the number of wrong elements on all ranks. */
static int64_t way_check(const struct comm_bench *self, const struct way *way)
{
    int64_t size = self->world->size, rank = self->world->rank, wrong = 0;
    bool scatter = self->kind == REDUCE_SCATTER;
    bool sums = scatter || self->kind == ALL_REDUCE;
    int64_t begin = scatter ? self->part * rank : 0;
    int64_t end = scatter ? begin + self->part : self->count;
    for (int64_t i = 0; i < self->count; i++)
        self->buffer[i] = (float)(rank + i % 7);
    way_copy(self, way, false);
    way_run(self, way);
    way_copy(self, way, true);
    const float *got = scatter && way->group == NULL ? self->result : self->buffer + begin;
    for (int64_t i = begin; i < end; i++) {
        int64_t expected = sums                       ? size * (i % 7) + size * (size - 1) / 2
                           : self->kind == ALL_GATHER ? i % 7 + i / self->part
                                                      : i % 7;
        wrong += got[i - begin] != (float)expected;
    }
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, self->mpi));
    return wrong;
}

/* Seconds of one run, averaged over `times` runs. */
static double way_time(const struct comm_bench *self, const struct way *way, int times)
{
    MPI_CHECK(MPI_Barrier(self->mpi));
    double start = clock_now();
    for (int i = 0; i < times; i++)
        way_run(self, way);
    return slowest(self, clock_now() - start) / times;
}

/* Median seconds of each implementation, measured in turn. */
static void ways_measure(const struct comm_bench *self, double seconds[WAYS])
{
    const double sample = 300e-6;
    static double times[WAYS][MOST_ROUNDS];
    double limit = self->bench->options->bench.seconds * self->ways, begin = clock_now();
    int repeat[WAYS], rounds = 0;
    for (int i = 0; i < self->ways; i++) {
        double single = way_time(self, &self->way[i], 1);
        repeat[i] = single > sample / 64 ? (int)(sample / single) + 1 : 64;
    }
    do {
        for (int i = 0; i < self->ways; i++)
            times[i][rounds] = way_time(self, &self->way[i], repeat[i]);
        rounds++;
    } while (rounds < MOST_ROUNDS &&
             (rounds < LEAST_ROUNDS || slowest(self, clock_now() - begin) < limit));
    for (int i = 0; i < self->ways; i++)
        seconds[i] = values_median(times[i], rounds);
}

/* Bandwidths as defined by nccl-tests. Bus bandwidth is the load of each rank's link. */
static void way_report(struct comm_bench *self, const struct way *way, double seconds,
                       int64_t wrong, struct error *error)
{
    double size = self->world->size, bytes = (double)self->count * sizeof(float);
    double factor = self->kind == ALL_REDUCE  ? 2 * (size - 1) / size
                    : self->kind == BROADCAST ? 1
                                              : (size - 1) / size;
    double bandwidth = bytes / seconds * 1e-9;
    char model[32];
    printf("%-14s  %-12s  %12.0f  %11lld  %5s  %12.2f  %11.3f  %11.3f  %8lld\n",
           collective_name[self->kind], way->name, bytes, (long long)self->count, "fp32",
           seconds * 1e6, bandwidth, bandwidth * factor, (long long)wrong);
    fflush(stdout);
    snprintf(model, sizeof model, "%.0f bytes", bytes);
    struct bench_row row = {.framework = way->group != NULL ? "vittrain" : "mpi",
                            .version = way->group != NULL ? version_number : self->mpi_version,
                            .work = collective_name[self->kind],
                            .model = model,
                            .strategy = way->group != NULL ? way->name : ""};
    const struct {
        const char *metric, *unit;
        double value;
    } values[] = {{"time", "s", seconds},
                  {"algorithm bandwidth", "GB/s", bandwidth},
                  {"bus bandwidth", "GB/s", bandwidth * factor},
                  {"wrong elements", "", (double)wrong}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        row.metric = values[i].metric;
        row.unit = values[i].unit;
        row.value = values[i].value;
        bench_write(self->bench, &row, error);
    }
}

/* Add the time of the transport that a training selects: the last one of the program. */
static void duration_add(struct comm_bench *self, const double seconds[WAYS])
{
    struct measured *duration = &self->network->measured[self->kind];
    const struct collective collective = {
        .action = (enum collective_action)self->kind,
        .bytes = sizeof(float) * (double)(self->kind == ALL_REDUCE ? self->count : self->part)};
    const double bytes = machine_network_bytes(&collective, self->world->size);
    int way = self->ways - 1;
    while (self->way[way].group == NULL)
        way--;
    if (duration->count < MACHINE_POINTS &&
        (duration->count == 0 || bytes > duration->point[duration->count - 1].size[0]))
        duration->point[duration->count++] = (struct measured_point){{bytes}, seconds[way]};
}

static void size_run(struct comm_bench *self, int64_t bytes, struct error *error)
{
    double seconds[WAYS];
    int64_t wrong[WAYS], size = self->world->size;
    bool blocks = self->kind == REDUCE_SCATTER || self->kind == ALL_GATHER;
    self->count = round_up_division(bytes, sizeof(float));
    self->part = round_up_division(self->count, size);
    self->count = blocks ? self->part * size : self->count;
    for (int i = 0; i < self->ways; i++) {
        wrong[i] = way_check(self, &self->way[i]);
        self->wrong += wrong[i];
    }
    /* Repeated sums of zeros do not overflow. */
    memset(self->buffer, 0, (size_t)self->count * sizeof *self->buffer);
    for (int i = 0; i < self->ways; i++)
        way_copy(self, &self->way[i], false);
    ways_measure(self, seconds);
    if (self->network != NULL && self->kind <= ALL_GATHER)
        duration_add(self, seconds);
    for (int i = 0; i < self->ways && self->world->rank == 0; i++)
        way_report(self, &self->way[i], seconds[i], wrong[i], error);
}

static void table_run(struct comm_bench *self, struct error *error)
{
    const struct options *options = self->bench->options;
    if (self->world->rank == 0)
        printf("%-14s  %-12s  %12s  %11s  %5s  %12s  %11s  %11s  %8s\n", "collective", "transport",
               "size (B)", "count", "type", "time (us)", "alg. (GB/s)", "bus (GB/s)", "wrong");
    for (int kind = 0; kind <= BROADCAST; kind++) {
        self->kind = (enum collective_kind)kind;
        if (self->network != NULL && kind <= ALL_GATHER)
            self->network->measured[kind].count = 0;
        for (int64_t bytes = SMALLEST; bytes < options->bench.max; bytes *= FACTOR)
            size_run(self, bytes, error);
        size_run(self, options->bench.max, error);
    }
}

/* Open a group for each possible transport, except those that equal an earlier one. */
static void ways_open(struct comm_bench *self, struct error *error)
{
    static const char *const names[] = {"", "ring", "shared", "hierarchical"};
    enum transport_choice only = self->bench->options->mesh.transport;
    char text[WAYS][256];
    for (int wanted = TRANSPORT_RING; wanted <= TRANSPORT_HIERARCHICAL; wanted++) {
        struct error refused = {0};
        struct comm *group = self->world->backend->split(self->world, 0, self->world->rank);
        bool good = group->backend->set_transport(group, (enum transport_choice)wanted, &refused) &&
                    (only == TRANSPORT_AUTO || only == (enum transport_choice)wanted);
        group->backend->describe_transport(group, text[self->ways], sizeof text[0]);
        for (int i = 0; i < self->ways; i++)
            good = good && strcmp(text[i], text[self->ways]) != 0;
        if (good)
            self->way[self->ways++] = (struct way){.name = names[wanted], .group = group};
        else
            group->backend->close(group);
        if (only == (enum transport_choice)wanted && refused.kind != ERROR_NONE)
            error_set(error, refused.kind, "%s", refused.text);
    }
    self->way[self->ways++] = (struct way){.name = "mpi"};
}

/* Collective. Add the way of the GPUs. gpu_close must be called, also on failure. */
static bool gpu_open(struct comm_bench *self, size_t bytes, struct error *error)
{
    struct comm *node = self->world->backend->split_node(self->world);
    self->gpu = hardware_open(self->bench->options, node, error);
    node->backend->close(node);
    if (!comm_agree(self->world, error))
        return false;
    self->stream = self->gpu->backend->stream_open(self->gpu);
    self->memory = self->gpu->backend->allocate(self->gpu, bytes, error);
    if (!comm_agree(self->world, error))
        return false;
    struct comm *group = self->gpu->backend->comm_open(self->world, error);
    if (group != NULL)
        self->way[self->ways++] = (struct way){"nccl", group, self->memory};
    return comm_agree(self->world, error);
}

static void gpu_close(struct comm_bench *self)
{
    if (self->memory != NULL)
        self->gpu->backend->release(self->gpu, self->memory);
    if (self->stream != NULL)
        self->gpu->backend->stream_close(self->stream);
    if (self->gpu != NULL)
        self->gpu->backend->close(self->gpu);
}

bool bench_comm(struct bench *bench, struct error *error)
{
    struct comm_bench self = {.bench = bench, .world = bench->world};
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    self.mpi = *(MPI_Comm *)comm_handle(bench->world);
    if (self.mpi == MPI_COMM_NULL)
        return error_set(
            error, ERROR_USAGE,
            "bench comm needs MPI, which a process without a launcher does not use: start "
            "it with mpirun -np RANKS vittrain bench comm");
    MPI_CHECK(MPI_Get_library_version(version, &length));
    snprintf(self.mpi_version, sizeof self.mpi_version, "%.*s", (int)strcspn(version, ",\n"),
             version);
    ways_open(&self, error);
    if (bench->machine != NULL) {
        const int nodes = bench->nodes, ranks = bench->world->size;
        self.network = nodes > 1 ? &bench->machine->between : &bench->machine->inside;
        self.network->members = ranks;
        if (ranks == 1 || (nodes > 1 && nodes < ranks))
            error_set(error, ERROR_USAGE,
                      "bench comm: bench.machine=%s: start several ranks on one node, or one on "
                      "each of several nodes",
                      bench->options->bench.machine);
    }
    const bool on_gpus = bench->options->run.backend == BACKEND_CUDA && bench->world->size > 1;
    const size_t ranks = (size_t)bench->world->size;
    const size_t most = (size_t)bench->options->bench.max + ranks * sizeof(float);
    if (most / sizeof(float) > INT_MAX)
        error_set(error, ERROR_USAGE,
                  "bench.max: must be below 8GiB, the limit of MPI's collectives");
    self.host = device_cpu.open(0, 1, error);
    if (error->kind == ERROR_NONE)
        self.buffer = device_cpu.allocate(self.host, most, error);
    if (error->kind == ERROR_NONE)
        self.result = device_cpu.allocate(self.host, most / ranks + ranks * sizeof(float), error);
    if (comm_agree(bench->world, error) && (!on_gpus || gpu_open(&self, most, error))) {
        table_run(&self, error);
        const struct measured *sums =
            self.network != NULL ? &self.network->measured[ACTION_SUM] : NULL;
        if (sums != NULL && sums->count > 0) {
            /* Of the all-reduces, each sends around the ring twice. */
            const struct measured_point *last = &sums->point[sums->count - 1];
            self.network->latency = sums->point[0].value / (2 * (self.network->members - 1));
            self.network->bandwidth = last->size[0] / last->value;
        }
        if (self.wrong > 0)
            error_set(error, ERROR_INTERNAL, "bench comm: %lld elements are wrong",
                      (long long)self.wrong);
    }
    for (int i = 0; i < self.ways; i++)
        if (self.way[i].group != NULL)
            self.way[i].group->backend->close(self.way[i].group);
    gpu_close(&self);
    if (self.buffer != NULL)
        device_cpu.release(self.host, self.buffer);
    if (self.result != NULL)
        device_cpu.release(self.host, self.result);
    if (self.host != NULL)
        device_cpu.close(self.host);
    return comm_agree(bench->world, error);
}
