// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3 4 6
// sources: test/comm/fake_network.c
/* Every transport compared with the collectives of MPI: all kinds, types and operations, random
 * sizes, concurrent on several groups, over a network that delays and reorders messages, on real
 * and simulated nodes. Equal bits in each run and on all ranks. An impossible transport is an error
 * on all ranks. */
#include <mpi.h>
#include <unistd.h>

#include "base/random.h"
#include "comm_fixture.h"
#include "fake_network.h"
#include "options/options.h"
#include "rank_tests.h"

/* Placement of the ranks, and the requested transport. A ring on simulated nodes has the limits of
 * 999 times as many ranks. */
struct layout {
    enum transport_choice transport;
    int ranks_a_node; /* 0: the real node */
    bool mixed;
};

static const struct layout layouts[] = {
    {TRANSPORT_RING, 0, false},         {TRANSPORT_SHARED, 0, false},
    {TRANSPORT_AUTO, 2, false},         {TRANSPORT_HIERARCHICAL, 3, false},
    {TRANSPORT_HIERARCHICAL, 1, false}, {TRANSPORT_HIERARCHICAL, 2, true},
    {TRANSPORT_HIERARCHICAL, 0, false}, {TRANSPORT_RING, 1, false},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

/* Groups with concurrent collectives: all ranks, two halves, pairs across the halves. */
enum { GROUPS = 3 };

static bool layout_fits(const struct layout *layout)
{
    return layout->transport != TRANSPORT_HIERARCHICAL || layout->ranks_a_node == 0 ||
           world->size % layout->ranks_a_node == 0;
}

static void groups_open(const struct layout *layout, struct comm *group[GROUPS])
{
    const struct comm_backend *backend = world->backend;
    int half = (world->size + 1) / 2;
    network_set_nodes(layout->ranks_a_node, layout->mixed);
    comm_set_rank_factor(layout->transport == TRANSPORT_RING && layout->ranks_a_node > 0 ? 999 : 1);
    group[0] = backend->split(world, 0, world->rank);
    group[1] = backend->split(world, world->rank / half, world->rank);
    group[2] = backend->split(world, world->rank % half, world->rank);
    for (int i = 0; i < GROUPS; i++) {
        /* In some layouts a node belongs to both halves. */
        enum transport_choice wanted = i == 0 ? layout->transport : TRANSPORT_AUTO;
        ENSURE(backend->set_transport(group[i], wanted, &error), "%s", error.text);
    }
}

static void groups_close(struct comm *group[GROUPS])
{
    for (int i = 0; i < GROUPS; i++)
        group[i]->backend->close(group[i]);
    network_set_nodes(0, false);
}

enum { KINDS = COMM_ALL_TO_ALL + 1, RANKS_MOST = 16 };

/* A collective in progress and its expected result. */
struct flight {
    struct comm *group;
    struct comm_call call;
    int type, operation; /* indices into comm_types and comm_operations */
    unsigned number;     /* of the values */
    int64_t total;       /* elements of the buffer */
    void *reference;
    int parts[RANKS_MOST];
    struct comm_request *request;
};

static int64_t draw_count(const uint32_t word[4])
{
    static const int64_t often[] = {0, 1, 2, 5119, 5120, 5121, 8209, 10240, 10241, 65537, 100003};
    if (word[0] % 3 == 0)
        return often[word[1] % 11];
    return word[1] % ((uint32_t)1 << (1 + word[2] % 15));
}

static void flight_start(struct flight *flight, struct comm *const group[GROUPS], unsigned number)
{
    struct random_block drawn = random_block_at(number, RANDOM_SYNTHETIC, 1, 0, 0, 0);
    struct random_block sizes = random_block_at(number, RANDOM_SYNTHETIC, 2, 0, 0, 0);
    struct comm *comm = group[drawn.word[0] % GROUPS];
    *flight = (struct flight){.group = comm,
                              .type = (int)(number / KINDS % COMM_TYPES),
                              .operation = (int)(number / (KINDS * COMM_TYPES) % COMM_OPERATIONS),
                              .number = number};
    struct comm_call *call = &flight->call;
    *call = (struct comm_call){.action = (enum comm_action)(number % KINDS),
                               .count = draw_count(sizes.word),
                               .type = comm_types[flight->type].type,
                               .operation = comm_operations[flight->operation].operation,
                               .peer = (int)(sizes.word[3] % (uint32_t)comm->size)};
    const bool blocks = call->action == COMM_REDUCE_SCATTER || call->action == COMM_ALL_GATHER;
    flight->total = call->count * (blocks ? comm->size : 1);
    if (call->action == COMM_ALL_TO_ALL) {
        /* Up to two partial values per rank; in some collectives, the last rank alone has some. */
        for (int rank = 0; rank < comm->size; rank++)
            flight->parts[rank] = number % 4 != 3          ? (int)((unsigned)rank + number) % 3
                                  : rank == comm->size - 1 ? 2
                                                           : 0;
        call->parts = flight->parts;
        call->stride = call->count * comm->size + 5;
        flight->total = 2 * call->stride;
    }
    const size_t received = (size_t)(comm_parts_before(flight->parts, comm->size) * call->count) *
                            comm_types[flight->type].size;
    call->buffer = buffer_open(call->type, flight->total, world->rank, number);
    call->received = allocate(received + 1, 1);
    flight->reference = call->action == COMM_ALL_TO_ALL
                            ? allocate(received + 1, 1)
                            : buffer_open(call->type, flight->total, world->rank, number);
    if (call->action == COMM_ALL_TO_ALL)
        flight->request = comm_start_all_to_all(comm, call->sent, call->stride, call->parts,
                                                call->received, call->count, call->type, NULL);
    else if (call->count > 0)
        flight->request = comm->backend->start(comm, call);
}

/* One call of MPI for each number of a partial value. Return 1 if the result differs. */
static int64_t all_to_all_end(struct flight *flight, MPI_Comm mpi)
{
    const struct comm *comm = flight->group;
    const struct comm_call *call = &flight->call;
    const int width = (int)comm_types[flight->type].size, block = (int)call->count * width;
    int sends[RANKS_MOST], from[RANKS_MOST], receives[RANKS_MOST], into[RANKS_MOST];
    for (int part = 0; part < 2; part++) {
        for (int rank = 0; rank < comm->size; rank++) {
            sends[rank] = flight->parts[comm->rank] > part ? block : 0;
            from[rank] = part * (int)call->stride * width + rank * block;
            receives[rank] = flight->parts[rank] > part ? block : 0;
            into[rank] = ((int)comm_parts_before(flight->parts, rank) + part) * block;
        }
        MPI_Alltoallv(call->buffer, sends, from, MPI_BYTE, flight->reference, receives, into,
                      MPI_BYTE, mpi);
    }
    size_t bytes = (size_t)comm_parts_before(flight->parts, comm->size) * (size_t)block;
    int64_t wrong = memcmp(call->received, flight->reference, bytes + 1) != 0; /* one beyond, too */
    OWNED unsigned char *sent = buffer_open(call->type, flight->total, world->rank, flight->number);
    wrong += memcmp(call->buffer, sent, (size_t)flight->total * (size_t)width) != 0;
    return wrong;
}

static int64_t flight_end(struct flight *flight)
{
    const struct comm *comm = flight->group;
    const struct comm_call *call = &flight->call;
    MPI_Comm mpi = *(MPI_Comm *)comm_handle(flight->group);
    size_t width = comm_types[flight->type].size, block = (size_t)call->count * width;
    size_t begin = 0, bytes = (size_t)flight->total * width;
    unsigned char *got = call->buffer, *expected = flight->reference;
    comm->backend->wait(flight->request, NULL);
    if (call->action == COMM_ALL_REDUCE || call->action == COMM_REDUCE_SCATTER)
        reference_reduce(flight->type, expected, flight->total,
                         comm_operations[flight->operation].mpi, mpi);
    if (call->action == COMM_REDUCE_SCATTER) {
        begin = (size_t)comm->rank * block;
        bytes = block;
    } else if (call->action == COMM_ALL_GATHER) {
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, expected, (int)block, MPI_BYTE, mpi);
    } else if (call->action == COMM_BROADCAST) {
        MPI_Bcast(expected, (int)bytes, MPI_BYTE, call->peer, mpi);
    }
    int64_t wrong = call->action == COMM_ALL_TO_ALL
                        ? all_to_all_end(flight, mpi)
                        : memcmp(got + begin, expected + begin, bytes) != 0;
    if (wrong)
        printf("# rank %d: action %d of %lld, type %d, %d ranks\n", world->rank, (int)call->action,
               (long long)call->count, flight->type, comm->size);
    free(call->buffer);
    free(call->received);
    free(flight->reference);
    return wrong;
}

enum { FLIGHTS = 5 };

static int64_t fly(const struct layout *layout, unsigned rounds, unsigned first)
{
    struct comm *group[GROUPS];
    struct flight flight[FLIGHTS];
    int64_t wrong = 0;
    groups_open(layout, group);
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < FLIGHTS; i++)
            flight_start(&flight[i], group, first + round * FLIGHTS + i);
        /* The collectives of MPI must be called in the same order on all ranks. In every second
         * round it is not the order of the starts. */
        for (unsigned i = 0; i < FLIGHTS; i++)
            wrong += flight_end(&flight[round % 2 == 0 ? i : FLIGHTS - 1 - i]);
    }
    groups_close(group);
    return wrong;
}

/* Two layouts together have every kind with every type and operation. */
static int64_t all_wrong_on(unsigned rounds, unsigned begin)
{
    int64_t wrong = 0;
    for (unsigned i = 0; i < LAYOUTS; i++)
        if (layout_fits(&layouts[i]))
            wrong += fly(&layouts[i], rounds, begin + i * rounds * FLIGHTS);
    return all_wrong(wrong);
}

TEST(results_are_mpis_on_every_layout)
{
    assert_int_equal(all_wrong_on(9, 0), 0);
}

TEST(results_are_mpis_over_a_bad_network)
{
    network_delay(true);
    const int64_t wrong = all_wrong_on(3, 10000);
    network_delay(false);
    assert_int_equal(wrong, 0);
}

/* Run on the first group of the layout. */
static float *noise_sum(const struct layout *layout, int64_t count)
{
    struct comm *group[GROUPS];
    float *sum = noise_open(world->rank, count);
    groups_open(layout, group);
    comm_all_reduce(group[0], sum, count, COMM_FP32, COMM_SUM);
    groups_close(group);
    return sum;
}

/* Return 0 if the sums have the same bits on all ranks in both layouts, of which the second has a
 * bad network. */
static int64_t sums_differ(const struct layout *one, const struct layout *other, int64_t count)
{
    OWNED float *first = noise_sum(one, count);
    network_delay(true);
    OWNED float *again = noise_sum(other, count);
    network_delay(false);
    const int64_t wrong = (memcmp(first, again, (size_t)count * sizeof(float)) != 0) +
                          differs_from_root(first, count);
    return wrong;
}

/* An all-reduce of a large buffer, an all-gather of small blocks and a broadcast in a group without
 * another transport, with the limits of many ranks. */
TEST(messages_grow_with_the_logarithm_of_the_ranks)
{
    enum { BYTES = 1 << 20, BLOCK = 24 };
    struct comm *group[GROUPS];
    int64_t steps = 0, sent[4];
    OWNED unsigned char *data = allocate(BYTES, 1);
    groups_open(&layouts[LAYOUTS - 1], group);
    while (1 << steps < world->size)
        steps++;
    sent[0] = network_sent();
    comm_all_reduce(group[0], data, BYTES, COMM_BYTE, COMM_SUM);
    sent[1] = network_sent();
    comm_all_gather(group[0], data, BLOCK, COMM_BYTE);
    sent[2] = network_sent();
    comm_broadcast(group[0], data, BYTES, COMM_BYTE, 0);
    sent[3] = network_sent();
    groups_close(group);
    const bool wrong =
        sent[1] - sent[0] > 2 * steps || sent[2] - sent[1] > steps || sent[3] - sent[2] > steps;
    assert_int_equal(all_wrong(wrong), 0);
}

/* The available shared memory is not part of the layout. */
TEST(a_layout_gives_the_same_bits_always_and_everywhere)
{
    const int64_t counts[] = {1, 10240, 10241, 100003}; /* the first two are exchanges */
    int64_t wrong = 0;
    for (int i = 0; i < LAYOUTS; i++)
        if (layout_fits(&layouts[i]))
            wrong += sums_differ(&layouts[i], &layouts[i], 30011);
    for (int i = 0; i < 4; i++)
        wrong += sums_differ(&layouts[0], &layouts[1], counts[i]);
    assert_int_equal(all_wrong(wrong), 0);
}

/* More small all-reduces than slots, while a large one is in progress; they are waited for in
 * reverse order. A late rank starts after all others have started the large one, so they wait on
 * the communication thread. */
TEST(small_ones_may_be_many_and_late)
{
    enum { SMALL = 11, LARGE = 100000 };
    struct comm *group[GROUPS];
    struct comm_request *request[SMALL];
    int64_t value[SMALL], wrong = 0;
    OWNED float *large = allocate(LARGE, sizeof *large);
    groups_open(&(struct layout){TRANSPORT_SHARED, 0, false}, group);
    const struct comm_backend *backend = group[0]->backend;
    const int step = group[0]->size > 4 ? 4 : 1;
    for (int late = 0; late < group[0]->size; late += step) {
        for (int other = 0; other < world->size && world->rank == late; other++)
            if (other != late)
                MPI_Recv(NULL, 0, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        struct comm_request *beside =
            comm_start_all_reduce(group[0], large, LARGE, COMM_FP32, COMM_SUM, NULL);
        if (world->rank != late)
            MPI_Send(NULL, 0, MPI_BYTE, late, 0, MPI_COMM_WORLD);
        for (int i = 0; i < SMALL; i++) {
            value[i] = 100 * i + group[0]->rank;
            request[i] = comm_start_all_reduce(group[0], &value[i], 1, COMM_INT64, COMM_MAX, NULL);
        }
        for (int i = SMALL - 1; i >= 0; i--) {
            backend->wait(request[i], NULL);
            wrong += value[i] != 100 * i + group[0]->size - 1;
        }
        backend->wait(beside, NULL);
    }
    groups_close(group);
    assert_int_equal(all_wrong(wrong), 0);
}

/* Return how many bytes of the result are wrong, then clear them unless the next collective needs
 * them. */
static int64_t large_wrong(uint8_t *data, int64_t begin, int64_t end, bool keep)
{
    int64_t wrong = 0;
    for (int64_t i = begin; i < end; i++) {
        wrong += data[i] != (uint8_t)(i % 251 + (i >> 20));
        data[i] *= keep;
    }
    return wrong;
}

/* All collectives on a buffer larger than 2^31 bytes, which rank 0 fills. */
static int64_t large_run(struct comm *group, uint8_t *data, int64_t count)
{
    const int64_t part = count / group->size, begin = part * group->rank, end = begin + part;
    const bool first = group->rank == 0;
    for (int64_t i = 0; i < count; i++)
        data[i] = (uint8_t)(first ? i % 251 + (i >> 20) : 0);
    comm_all_reduce(group, data, count, COMM_BYTE, COMM_SUM);
    int64_t wrong = large_wrong(data, 0, count, first);
    group->backend->wait(comm_start_reduce_scatter(group, data, part, COMM_BYTE, COMM_SUM, NULL),
                         NULL);
    wrong += large_wrong(data, begin, end, true);
    memset(data, 0, (size_t)begin);
    memset(data + end, 0, (size_t)(count - end));
    comm_all_gather(group, data, part, COMM_BYTE);
    wrong += large_wrong(data, 0, count, first);
    comm_broadcast(group, data, count, COMM_BYTE, 0);
    wrong += large_wrong(data, 0, count, group->rank != 1);
    if (first)
        comm_send(group, data, (size_t)count, 1);
    if (group->rank == 1)
        comm_receive(group, data, (size_t)count, 0);
    return wrong + large_wrong(data, 0, count, true);
}

/* make check-long, on a machine with 2.2 GB for each of 4 ranks */
TEST(counts_go_beyond_2_gib)
{
    const int64_t count = ((int64_t)1 << 31) + 4100;
    double memory = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    bool room = memory > 1.1 * (double)count * world->size;
    MPI_Bcast(&room, 1, MPI_C_BOOL, 0, MPI_COMM_WORLD);
    if (getenv("TEST_LONG") == NULL || !room || world->size != 4)
        return;
    OWNED uint8_t *data = allocate((size_t)count, 1);
    int64_t wrong = 0;
    for (int i = 0; i < 3; i++) { /* ring, shared, 2 nodes */
        struct comm *group[GROUPS];
        groups_open(&layouts[i], group);
        wrong += large_run(group[0], data, count);
        groups_close(group);
    }
    assert_int_equal(all_wrong(wrong), 0);
}

/* Set the layout's transport of a group of all ranks. Return 1 unless it is described by `text`, or
 * refused with an error that contains `refusal`. */
static int64_t choice_wrong(const struct layout *layout, const char *text, const char *refusal)
{
    error_clear(&error);
    char described[256];
    int64_t ranks = 1;
    network_set_nodes(layout->ranks_a_node, layout->mixed);
    struct comm *group = world->backend->split(world, 0, world->rank);
    const bool good = group->backend->set_transport(group, layout->transport, &error);
    group->backend->describe_transport(group, described, sizeof described);
    comm_all_reduce(group, &ranks, 1, COMM_INT64, COMM_SUM); /* the group is usable */
    group->backend->close(group);
    network_set_nodes(0, false);
    return ranks != world->size || good != (refusal == NULL) ||
           (good ? strcmp(described, text) != 0
                 : error.kind != ERROR_USAGE || strstr(error.text, refusal) == NULL);
}

TEST(the_choice_is_told)
{
    const int size = world->size;
    char nodes[64];
    snprintf(nodes, sizeof nodes, "hierarchical (%d nodes x 2 ranks, shared inside)", size / 2);
    int64_t wrong = choice_wrong(&(struct layout){TRANSPORT_AUTO, 1, false}, "ring", NULL) +
                    choice_wrong(&layouts[1], size > 1 ? "shared" : "ring", NULL);
    if (size > 2 && size % 2 == 0)
        wrong += choice_wrong(&(struct layout){TRANSPORT_AUTO, 2, false}, nodes, NULL);
    if (size > 2 && size % 2 == 1)
        wrong += choice_wrong(&(struct layout){TRANSPORT_HIERARCHICAL, 2, false}, NULL,
                              "different numbers of ranks");
    if (size > 1)
        wrong += choice_wrong(&(struct layout){TRANSPORT_SHARED, 1, false}, NULL, "nodes");
    assert_int_equal(all_wrong(wrong), 0);
}

TEST_MAIN_WORLD()
