// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3 4
/* Collectives on the memory of (emulated) GPUs, on 1 to 4 ranks: the same sums as MPI, in the order
 * of streams and events, and an all-to-all in a graph (test_gpu_emulated.sh has steps in graphs,
 * and two groups). The emulation runs streams as late as allowed, so that a missing wait is
 * detected. All ranks run the same tests and add their numbers of failures. `test_nccl WAY` (under
 * mpirun) is a job that fails in that way, for test_nccl_failures.sh. */
#include <mpi.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm_fixture.h"
#include "device/device.h"
#include "device_test.h"
#include "mesh/mesh.h"

/* The last count exceeds a chunk of the emulation's shared memory, in types of 8 bytes. */
static const int64_t counts[] = {0, 1, 7, 1000, 140003};
enum { COUNTS = sizeof counts / sizeof counts[0], LARGE = 300007 };

static struct comm *world;
static struct device *device;
static const struct device_backend *backend;
static struct stream *stream;

/* A world group on GPUs. */
static struct mesh mesh;
static struct comm *group;

static unsigned char *device_memory(size_t bytes)
{
    unsigned char *memory = backend->allocate(device, bytes, &error);
    ENSURE(memory != NULL, "%s", error.text);
    return memory;
}

/* Return the memory's content after the stream has run; the caller frees it. */
static void *content_of(const void *memory, size_t bytes)
{
    unsigned char *content = allocate(bytes, 1);
    backend->copy(stream, content, memory, bytes);
    backend->stream_synchronize(stream);
    return content;
}

/* Memory with values that the stream computes, and the event after it. */
struct operand {
    unsigned char *memory;
    struct event *ready;
    size_t bytes;
};

static struct operand operand_open(const void *values, size_t bytes)
{
    const struct operand operand = {device_memory(bytes), backend->event_open(device), bytes};
    backend->zero(stream, operand.memory, bytes);
    backend->copy(stream, operand.memory, values, bytes);
    backend->event_record(operand.ready, stream);
    return operand;
}

/* Close it and return its content; the caller frees it. */
static void *operand_close(const struct operand *operand)
{
    void *content = content_of(operand->memory, operand->bytes);
    backend->event_close(operand->ready);
    backend->release(device, operand->memory);
    return content;
}

/* As in a training step: values are computed on the stream, then the collective runs, then they are
 * copied to the host, which waits once at the end. */
static void *reduced(const void *values, int64_t count, const struct comm_test_type *type,
                     enum comm_operation operation)
{
    const struct operand operand = operand_open(values, (size_t)count * type->size);
    group->backend->wait(
        comm_start_all_reduce(group, operand.memory, count, type->type, operation, operand.ready),
        stream);
    return operand_close(&operand);
}

TEST(all_reduce_is_mpis)
{
    int wrong = 0;
    for (int type = 0; type < COMM_TYPES; type++)
        for (int operation = 0; operation < COMM_OPERATIONS; operation++)
            for (int i = 0; i < COUNTS; i++) {
                const struct comm_test_type *tested = &comm_types[type];
                OWNED void *own = buffer_open(tested->type, counts[i], world->rank, (unsigned)i);
                OWNED void *got =
                    reduced(own, counts[i], tested, comm_operations[operation].operation);
                reference_reduce(type, own, counts[i], comm_operations[operation].mpi,
                                 MPI_COMM_WORLD);
                wrong += memcmp(own, got, (size_t)counts[i] * tested->size) != 0;
            }
    assert_int_equal(all_wrong(wrong), 0);
}

/* A sum of random numbers depends on the order: by rank. */
TEST(sums_go_by_rank_and_are_the_same_everywhere)
{
    const struct comm_test_type fp32 = {.type = COMM_FP32, .size = sizeof(float)};
    OWNED float *own = noise_open(world->rank, LARGE), *sum = noise_open(0, LARGE);
    for (int rank = 1; rank < world->size; rank++) {
        OWNED float *other = noise_open(rank, LARGE);
        for (int64_t i = 0; i < LARGE; i++)
            sum[i] += other[i];
    }
    OWNED float *got = reduced(own, LARGE, &fp32, COMM_SUM);
    int wrong = memcmp(got, sum, LARGE * sizeof *sum) != 0 || differs_from_root(got, LARGE);
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(scatter_and_gather_are_an_all_reduce)
{
    int wrong = 0;
    for (int i = 0; i < COMM_TYPES * COUNTS; i++) {
        const int type = i / COUNTS;
        const struct comm_test_type *tested = &comm_types[type];
        const int64_t count = counts[i % COUNTS], all = count * world->size;
        const size_t bytes = (size_t)all * tested->size;
        OWNED void *own = buffer_open(tested->type, all, world->rank, (unsigned)count);
        const struct operand operand = operand_open(own, bytes);
        group->backend->wait(comm_start_reduce_scatter(group, operand.memory, count, tested->type,
                                                       COMM_SUM, operand.ready),
                             stream);
        backend->event_record(operand.ready, stream);
        group->backend->wait(
            comm_start_all_gather(group, operand.memory, count, tested->type, operand.ready),
            stream);
        OWNED void *got = operand_close(&operand);
        reference_reduce(type, own, all, MPI_SUM, MPI_COMM_WORLD);
        wrong += memcmp(own, got, bytes) != 0;
    }
    assert_int_equal(all_wrong(wrong), 0);
}

/* The host waits for the request only. */
TEST(broadcast_comes_from_its_root)
{
    int wrong = 0;
    for (int root = 0; root < world->size; root++) {
        OWNED float *own = noise_open(world->rank, LARGE), *expected = noise_open(root, LARGE);
        const struct operand operand = operand_open(own, LARGE * sizeof *own);
        group->backend->wait(
            comm_start_broadcast(group, operand.memory, LARGE, COMM_FP32, root, operand.ready),
            NULL);
        OWNED float *got = operand_close(&operand);
        wrong += memcmp(got, expected, LARGE * sizeof *own) != 0;
    }
    assert_int_equal(all_wrong(wrong), 0);
}

/* ---- all-to-all */

/* Numbers of partial values: some ranks have none. Patterns 2 and 3 leave one rank or none with
 * some. */
enum { PATTERNS = 4, RANKS_MOST = 16 };

static int parts_of(int pattern, int rank)
{
    return pattern == 0 ? 1 : pattern == 1 ? (rank + 2) % 3 : pattern == 2 && rank == 0 ? 5 : 0;
}

/* Compare with the partial values of each rank, which are known: buffer_open with the rank. */
static int received_wrong(const unsigned char *got, const int *parts, int64_t stride, int64_t count,
                          const struct comm_test_type *type)
{
    const size_t block = (size_t)count * type->size;
    int wrong = 0;
    for (int rank = 0; rank < world->size; rank++) {
        OWNED unsigned char *sent = buffer_open(type->type, parts[rank] * stride, rank, 3);
        for (int part = 0; part < parts[rank]; part++, got += block) {
            int64_t first = part * stride + world->rank * count;
            wrong += memcmp(got, sent + (size_t)first * type->size, block) != 0;
        }
    }
    return wrong;
}

/* Run the collective, and if `recorded` again in a graph. */
static int all_to_all_wrong(int pattern, int64_t count, const struct comm_test_type *type,
                            bool recorded)
{
    const int64_t stride = world->size * count + 7;
    int parts[RANKS_MOST] = {0}, wrong = 0;
    for (int rank = 0; rank < world->size; rank++)
        parts[rank] = parts_of(pattern, rank);
    const size_t bytes = (size_t)(parts[world->rank] * stride) * type->size;
    const size_t result = (size_t)(comm_parts_before(parts, world->size) * count) * type->size;
    OWNED unsigned char *own = buffer_open(type->type, parts[world->rank] * stride, world->rank, 3);
    unsigned char *sent = device_memory(bytes + 8), *received = device_memory(result + 8);
    struct event *ready = backend->event_open(device);
    backend->copy(stream, sent, own, bytes);
    for (int time = 0; time <= recorded; time++) {
        backend->zero(stream, received, result);
        if (time == 1)
            backend->graph_begin(stream);
        backend->event_record(ready, stream);
        struct comm_request *request =
            comm_start_all_to_all(group, sent, stride, parts, received, count, type->type, ready);
        group->backend->wait(request, stream);
        struct graph *graph = time == 1 ? backend->graph_end(stream) : NULL;
        if (graph != NULL)
            backend->graph_run(graph, stream);
        OWNED unsigned char *got = content_of(received, result);
        wrong += received_wrong(got, parts, stride, count, type);
        if (graph != NULL)
            backend->graph_close(graph);
    }
    OWNED unsigned char *after = content_of(sent, bytes);
    wrong += memcmp(after, own, bytes) != 0;
    backend->event_close(ready);
    backend->release(device, sent);
    backend->release(device, received);
    return wrong;
}

TEST(all_to_all_brings_the_parts_of_all_ranks)
{
    int wrong = 0;
    for (int pattern = 0; pattern < PATTERNS; pattern++)
        for (int type = 0; type < COMM_TYPES; type++)
            for (int i = 0; i < COUNTS; i++)
                if (counts[i] <= 1000 || comm_types[type].type == COMM_FP32 ||
                    comm_types[type].type == COMM_FP64)
                    wrong +=
                        all_to_all_wrong(pattern, counts[i], &comm_types[type], counts[i] == 7);
    assert_int_equal(all_wrong(wrong), 0);
}

/* ---- Jobs that fail */

/* If `recorded`, in a graph, which is not closed. */
static void sum_once(int64_t count, bool recorded)
{
    unsigned char *memory = device_memory((size_t)count * sizeof(float));
    struct event *ready = backend->event_open(device);
    if (recorded)
        backend->graph_begin(stream);
    backend->event_record(ready, stream);
    group->backend->wait(comm_start_all_reduce(group, memory, count, COMM_FP32, COMM_SUM, ready),
                         stream);
    if (recorded)
        backend->graph_run(backend->graph_end(stream), stream);
    backend->stream_synchronize(stream);
    backend->event_close(ready);
    backend->release(device, memory);
}

static void exchange_once(void)
{
    static const int parts[RANKS_MOST] = {1, 1, 1};
    unsigned char *memory = device_memory(6 * sizeof(float));
    unsigned char *received = memory + 3 * sizeof(float);
    group->backend->wait(
        comm_start_all_to_all(group, memory, 3, parts, received, 1, COMM_FP32, NULL), stream);
    backend->stream_synchronize(stream);
    backend->release(device, memory);
}

/* Overlapping collectives of two groups. */
static void overlapping(void)
{
    struct comm *replicas = mesh.replica_data;
    unsigned char *memory = device_memory(2 * sizeof(float));
    for (int i = 0; i < 10; i++) {
        struct comm_request *first =
            comm_start_all_reduce(group, memory, 1, COMM_FP32, COMM_SUM, NULL);
        struct comm_request *second =
            comm_start_all_reduce(replicas, memory + sizeof(float), 1, COMM_FP32, COMM_SUM, NULL);
        group->backend->wait(first, NULL);
        replicas->backend->wait(second, NULL);
    }
}

static void groups_open(int shard, bool late)
{
    const struct mesh_options options = {
        .strategy = STRATEGY_ZERO1, .shard = shard, .timeout = comm_timeout()};
    ENSURE(mesh_open(&mesh, world, &options, &error), "%s", error.text);
    if (late)
        pause();
    ENSURE(mesh_use_device(&mesh, device, &error), "%s", error.text);
    group = mesh.shard_data;
    group->device = backend;
}

static void device_open(void)
{
    const struct device_backend *cuda = device_find("cuda", &error);
    device = cuda != NULL ? cuda->open(world->rank, 1, &error) : NULL;
    ENSURE(device != NULL, "%s", error.text);
    backend = device->backend;
    stream = backend->stream_open(device);
}

/* The last rank does not come to the last of `count` sums or all-to-alls. */
static void without_one(bool all_to_all, int count)
{
    for (int i = 1; i <= count; i++) {
        if (i == count && world->rank == world->size - 1)
            pause();
        if (all_to_all)
            exchange_once();
        else
            sum_once(1, false);
    }
}

static int job_run(const char *way)
{
    comm_set_timeout(2);
    const bool overlaps = strcmp(way, "overlapping") == 0;
    groups_open(overlaps ? world->size / 2 : world->size,
                strcmp(way, "late") == 0 && world->rank == world->size - 1);
    if (overlaps)
        overlapping();
    else if (strcmp(way, "away") == 0)
        without_one(false, 2);
    else if (strcmp(way, "unconnected") == 0)
        without_one(true, 1);
    else if (strcmp(way, "connected") == 0)
        without_one(true, 3);
    else if (strcmp(way, "different") == 0)
        sum_once(world->rank == 0 ? 1 : 2, false);
    else if (strcmp(way, "mixed") == 0)
        sum_once(1, world->rank == 0);
    else
        for (int i = 0; i < 10; i++)
            sum_once(1, strcmp(way, "recorded") == 0);
    return 0;
}

int main(int argc, char **argv)
{
    if (!device_test_of_gpu())
        return 0;
    if (!comm_world_open(&argc, &argv, &world, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    device_open();
    if (argc == 1) {
        comm_set_rank_factor(60); /* two roots of 3 or 4 ranks */
        groups_open(world->size, false);
    }
    int failed = argc > 1 ? job_run(argv[1]) : TESTS_RUN();
    mesh_close(&mesh);
    backend->stream_close(stream);
    backend->close(device);
    comm_world_close(world);
    return failed;
}
