/* Our collectives against MPI's own, in the same run, one after the other, results checked. Prints
 * rows of the benchmarks' CSV. Overlap as the OSU benchmarks measure it: how much of the
 * collective's time is hidden when the thread that started it computes for that long. mpirun -np 2
 * bench_comm [LARGEST_BYTES]   (default 367001600: 350 MiB) */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/clock.h"

enum way { OURS, MPIS, WAYS };
enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, KINDS };

static const char *const way_name[] = {"vittrain", "openmpi"};
static const char *const kind_name[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};

struct bench {
    struct comm *world;
    struct device *device;
    float *buffer, *result; /* result: MPI's reduce-scatter needs another */
    int64_t count;          /* floats in all */
    enum kind kind;
};

static struct ticket *ours_start(const struct bench *bench)
{
    struct comm *world = bench->world;
    const struct comm_backend *backend = world->backend;
    int64_t part = bench->count / world->size;
    switch (bench->kind) {
    case ALL_REDUCE:
        return backend->all_reduce(world, bench->buffer, bench->count, COMM_FP32, COMM_SUM, NULL);
    case REDUCE_SCATTER:
        return backend->reduce_scatter(world, bench->buffer, part, COMM_FP32, COMM_SUM, NULL);
    case ALL_GATHER:
        return backend->all_gather(world, bench->buffer, part, COMM_FP32, NULL);
    default:
        return backend->broadcast(world, bench->buffer, bench->count, COMM_FP32, 0, NULL);
    }
}

static void mpis_start(const struct bench *bench, MPI_Request *request)
{
    int count = (int)bench->count, part = count / bench->world->size;
    MPI_Comm world = *(MPI_Comm *)comm_handle(bench->world);
    switch (bench->kind) {
    case ALL_REDUCE:
        MPI_Iallreduce(MPI_IN_PLACE, bench->buffer, count, MPI_FLOAT, MPI_SUM, world, request);
        break;
    case REDUCE_SCATTER:
        MPI_Ireduce_scatter_block(bench->buffer, bench->result, part, MPI_FLOAT, MPI_SUM, world,
                                  request);
        break;
    case ALL_GATHER:
        MPI_Iallgather(MPI_IN_PLACE, part, MPI_FLOAT, bench->buffer, part, MPI_FLOAT, world,
                       request);
        break;
    default:
        MPI_Ibcast(bench->buffer, count, MPI_FLOAT, 0, world, request);
    }
}

static void mpis_run(const struct bench *bench)
{
    int count = (int)bench->count, part = count / bench->world->size;
    MPI_Comm world = *(MPI_Comm *)comm_handle(bench->world);
    switch (bench->kind) {
    case ALL_REDUCE:
        MPI_Allreduce(MPI_IN_PLACE, bench->buffer, count, MPI_FLOAT, MPI_SUM, world);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(bench->buffer, bench->result, part, MPI_FLOAT, MPI_SUM, world);
        break;
    case ALL_GATHER:
        MPI_Allgather(MPI_IN_PLACE, part, MPI_FLOAT, bench->buffer, part, MPI_FLOAT, world);
        break;
    default:
        MPI_Bcast(bench->buffer, count, MPI_FLOAT, 0, world);
    }
}

static void run(const struct bench *bench, enum way way)
{
    if (way == OURS)
        bench->world->backend->wait(ours_start(bench), NULL);
    else
        mpis_run(bench);
}

static void fill(const struct bench *bench)
{
    for (int64_t i = 0; i < bench->count; i++)
        bench->buffer[i] = (float)(bench->world->rank + i % 7);
}

/* Is what this rank got right? */
static bool check(const struct bench *bench, enum way way)
{
    int64_t size = bench->world->size, rank = bench->world->rank, part = bench->count / size;
    bool scatter = bench->kind == REDUCE_SCATTER;
    int64_t begin = scatter ? part * rank : 0, end = scatter ? begin + part : bench->count;
    const float *got = scatter && way == MPIS ? bench->result : bench->buffer + begin;
    for (int64_t i = begin; i < end; i++) {
        int64_t expected = i % 7;
        if (bench->kind == ALL_REDUCE || scatter)
            expected = size * (i % 7) + size * (size - 1) / 2;
        else if (bench->kind == ALL_GATHER)
            expected += i / part;
        if (got[i - begin] != (float)expected)
            return false;
    }
    return true;
}

/* Arithmetic on registers only, `turns` times: what a kernel does that is limited by products. */
static double compute(int64_t turns)
{
    double a = 1, b = 1.1, c = 1.2, d = 1.3;
    for (int64_t i = 0; i < turns; i++) {
        a = a * 0.999999 + 1e-6;
        b = b * 0.999999 + 1e-6;
        c = c * 0.999999 + 1e-6;
        d = d * 0.999999 + 1e-6;
    }
    return a + b + c + d;
}

/* The slowest rank's. */
static double worst(double seconds)
{
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

static double measure(const struct bench *bench, enum way way)
{
    double best = INFINITY, begin = clock_now();
    bool more = true;
    for (int i = 0; more && i < 1000; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = clock_now();
        run(bench, way);
        double seconds = worst(clock_now() - start);
        best = seconds < best ? seconds : best;
        more = i < 2 || worst(clock_now() - begin) < 0.7;
    }
    return best;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds for computing with, or without, the collective under way; the slowest rank's. */
static double measure_beside(const struct bench *bench, int64_t turns, bool computing_only,
                             enum way way)
{
    volatile double sink;
    struct ticket *ticket = NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = clock_now();
    if (!computing_only && way == OURS)
        ticket = ours_start(bench);
    if (!computing_only && way == MPIS)
        mpis_start(bench, &request);
    sink = compute(turns);
    (void)sink;
    bench->world->backend->wait(ticket, NULL);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return worst(clock_now() - start);
}

/* Percent of `alone` that is hidden behind computation of the same length; the median of some. */
static double measure_overlap(const struct bench *bench, enum way way, double alone)
{
    enum { TRIALS = 7 };
    const int64_t trial = 1000000;
    double hidden[TRIALS];
    double trial_seconds = measure_beside(bench, trial, true, way);
    int64_t turns = (int64_t)((double)trial * alone / trial_seconds) + 1;
    for (int i = 0; i < TRIALS; i++) {
        double computing = measure_beside(bench, turns, true, way);
        double both = measure_beside(bench, turns, false, way);
        hidden[i] = 100 * (1 - (both - computing) / alone);
    }
    qsort(hidden, TRIALS, sizeof hidden[0], by_size);
    double median = hidden[TRIALS / 2];
    return median < 0 ? 0 : median > 100 ? 100 : median;
}

static void row(const struct bench *bench, enum way way, const char *metric, double value,
                const char *unit)
{
    const char *commit = getenv("VITTRAIN_COMMIT");
    struct device_limits limits;
    char date[32];
    device_cpu.limits(bench->device, &limits);
    for (char *comma = limits.name; (comma = strchr(comma, ',')) != NULL;)
        *comma = ' ';
    clock_stamp(date, sizeof date);
    printf("%s,%s,%s,%s,,%s,%lld bytes,,fp32,,%d,1,%s,%.6g,%s\n", date, limits.name,
           commit != NULL ? commit : "", way_name[way], kind_name[bench->kind],
           (long long)bench->count * 4, bench->world->size, metric, value, unit);
    fflush(stdout);
}

/* Bandwidths by the convention of nccl-tests; bus bandwidth is what each rank's link has to carry.
 */
static void report(const struct bench *bench, enum way way, double seconds, double overlap)
{
    double size = bench->world->size, bytes = (double)bench->count * sizeof(float);
    double factor = bench->kind == ALL_REDUCE  ? 2 * (size - 1) / size
                    : bench->kind == BROADCAST ? 1
                                               : (size - 1) / size;
    if (bench->world->rank != 0)
        return;
    row(bench, way, "least time", seconds, "s");
    row(bench, way, "algorithm bandwidth", bytes / seconds * 1e-9, "GB/s");
    row(bench, way, "bus bandwidth", bytes / seconds * 1e-9 * factor, "GB/s");
    row(bench, way, "overlap with computation", overlap, "%");
}

static void bench_size(struct bench *bench)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int way = 0; way < WAYS; way++) {
            bench->kind = (enum kind)kind;
            fill(bench);
            run(bench, (enum way)way);
            bool right = worst(check(bench, (enum way)way) ? 0 : 1) <= 0;
            /* Zeros stay zeros however often they are added. */
            memset(bench->buffer, 0, (size_t)bench->count * sizeof *bench->buffer);
            double seconds = measure(bench, (enum way)way);
            double overlap = measure_overlap(bench, (enum way)way, seconds);
            report(bench, (enum way)way, seconds, overlap);
            ENSURE(right, "%s of %s: wrong result", kind_name[kind], way_name[way]);
        }
}

int main(int argc, char **argv)
{
    struct error error = {0};
    struct bench bench = {0};
    /* MPI's own as it comes: the program would let it yield. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
    if (!comm_world_open(&argc, &argv, &bench.world, &error) ||
        (bench.device = device_cpu.open(0, 1, &error)) == NULL) {
        fprintf(stderr, "%s\n", error.text);
        return (int)error.kind;
    }
    int64_t largest = argc > 1 ? strtoll(argv[1], NULL, 10) : 350 << 20;
    /* Where training has its gradients. */
    bench.buffer = device_cpu.allocate(bench.device, (size_t)largest, &error);
    bench.result = device_cpu.allocate(bench.device, (size_t)largest, &error);
    ENSURE(bench.buffer != NULL && bench.result != NULL, "no memory for %lld bytes",
           (long long)largest);
    if (bench.world->rank == 0)
        printf("date,host_cpu,commit,framework,version,work,model,batch,precision,strategy,ranks,"
               "threads,metric,value,unit\n");
    for (int64_t bytes = 512; bytes / 8 < largest; bytes *= 8) {
        int64_t wanted = bytes < largest ? bytes : largest, size = bench.world->size;
        bench.count = wanted / (int64_t)sizeof(float) / size * size;
        bench_size(&bench);
    }
    device_cpu.release(bench.device, bench.buffer);
    device_cpu.release(bench.device, bench.result);
    device_cpu.close(bench.device);
    comm_world_close(bench.world);
    return 0;
}
