// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3 4
// joined
/* Collectives compared with those of MPI, on random values and sizes that are no multiple of the
 * number of ranks; equal bits on all ranks and in every run; groups; agreement. All ranks run the
 * same tests; errors are counted and summed over ranks before an assertion, so that no rank waits
 * for one that has failed. */
#include "comm/comm.h"
#include "comm/mpi_check.h"

#include <mpi.h>

#include "comm_fixture.h"
#include "rank_tests.h"

static const int64_t counts[] = {0,    1,    2,     3,     7,     16,     127,
                                 1000, 5120, 10240, 10241, 40009, 300007, 1500007};
enum { COUNTS = sizeof counts / sizeof counts[0] };

TEST(all_reduce_is_mpis)
{
    int wrong = 0;
    for (int type = 0; type < COMM_TYPES; type++)
        for (int operation = 0; operation < COMM_OPERATIONS; operation++)
            for (int i = 0; i < COUNTS - 1; i++) {
                unsigned salt = (unsigned)(type * 100 + i);
                void *own = buffer_open(comm_types[type].type, counts[i], world->rank, salt);
                void *reference = buffer_open(comm_types[type].type, counts[i], world->rank, salt);
                comm_all_reduce(world, own, counts[i], comm_types[type].type,
                                comm_operations[operation].operation);
                reference_reduce(type, reference, counts[i], comm_operations[operation].mpi,
                                 MPI_COMM_WORLD);
                wrong += memcmp(own, reference, (size_t)counts[i] * comm_types[type].size) != 0;
                free(own);
                free(reference);
            }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(reduce_scatter_is_mpis)
{
    int wrong = 0;
    for (int type = 0; type < COMM_TYPES; type++)
        for (int i = 0; i < COUNTS - 2; i++) {
            int64_t count = counts[i];
            unsigned salt = (unsigned)(type * 100 + i);
            size_t block = (size_t)count * comm_types[type].size;
            void *own = buffer_open(comm_types[type].type, count * world->size, world->rank, salt);
            void *reference =
                buffer_open(comm_types[type].type, count * world->size, world->rank, salt);
            world->backend->wait(world->backend->reduce_scatter(
                                     world, own, count, comm_types[type].type, COMM_SUM, NULL),
                                 NULL);
            reference_reduce(type, reference, count * world->size, MPI_SUM, MPI_COMM_WORLD);
            size_t part = block * (size_t)world->rank;
            wrong += memcmp((char *)own + part, (char *)reference + part, block) != 0;
            free(own);
            free(reference);
        }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(all_gather_brings_every_block)
{
    int64_t wrong = 0;
    for (int i = 0; i < COUNTS - 1; i++) {
        int64_t count = counts[i];
        float *buffer = calloc((size_t)(count * world->size) + 1, sizeof *buffer);
        for (int64_t j = 0; j < count; j++)
            buffer[world->rank * count + j] = (float)small_value(world->rank, j, 5);
        comm_all_gather(world, buffer, count, COMM_FP32);
        for (int rank = 0; rank < world->size; rank++)
            for (int64_t j = 0; j < count; j++)
                wrong += buffer[rank * count + j] != (float)small_value(rank, j, 5);
        free(buffer);
    }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(broadcast_reaches_all_from_any_root)
{
    int64_t wrong = 0;
    for (int root = 0; root < world->size; root++)
        for (int i = 0; i < COUNTS - 1; i++) {
            uint8_t *buffer = buffer_open(COMM_BYTE, counts[i] * 8, world->rank, 9);
            comm_broadcast(world, buffer, counts[i] * 8, COMM_BYTE, root);
            for (int64_t j = 0; j < counts[i] * 8; j += 1 + counts[i] / 1000)
                wrong += buffer[j] != (uint8_t)(small_value(root, j, 9) + 8);
            free(buffer);
        }
    assert_int_equal(all_wrong(wrong), 0);
}

/* ---- all-to-all */

/* Uneven numbers of partial values. In the last two patterns a single rank has some, or none. */
enum { PATTERNS = 4 };

static int parts_of(int pattern, int rank, int size)
{
    return pattern == 0                       ? 1
           : pattern == 1                     ? (rank + 1) % 4
           : pattern == 2 && rank == size - 1 ? 9
                                              : 0;
}

/* Byte i of the block for rank `to` in a partial value. */
static uint8_t block_byte(int rank, int part, int to, int64_t i)
{
    return (uint8_t)(rank * 37 + part * 101 + to * 59 + i * 7 + i / 251);
}

/* Fill the partial values of a rank; the bytes between them are 255. */
static void parts_fill(const struct comm *group, int parts, int64_t distance, int64_t block,
                       uint8_t *sent)
{
    memset(sent, 255, (size_t)(parts * distance));
    for (int part = 0; part < parts; part++)
        for (int to = 0; to < group->size; to++)
            for (int64_t i = 0; i < block; i++)
                sent[part * distance + to * block + i] = block_byte(group->rank, part, to, i);
}

/* Count wrong bytes of the result, and check that `sent` and the memory after the result have not
 * changed. */
static int64_t parts_wrong(const struct comm *group, const int *parts, int64_t distance,
                           int64_t block, const uint8_t *sent, const uint8_t *received)
{
    int64_t wrong = 0, own = parts[group->rank] * distance;
    for (int rank = 0; rank < group->size; rank++)
        for (int part = 0; part < parts[rank]; part++, received += block)
            for (int64_t i = 0; i < block; i++)
                wrong += received[i] != block_byte(rank, part, group->rank, i);
    uint8_t *again = malloc((size_t)own + 1);
    parts_fill(group, parts[group->rank], distance, block, again);
    wrong += memcmp(sent, again, (size_t)own) != 0;
    free(again);
    return wrong + (*received != 254);
}

static int64_t all_to_all_wrong(struct comm *group, int pattern, int64_t count, int type)
{
    const int64_t width = (int64_t)comm_types[type].size, block = count * width;
    const int64_t stride = group->size * count + 3, distance = stride * width;
    int *parts = malloc((size_t)group->size * sizeof *parts);
    for (int rank = 0; rank < group->size; rank++)
        parts[rank] = parts_of(pattern, rank, group->size);
    int64_t values = comm_parts_before(parts, group->size);
    uint8_t *sent = malloc((size_t)(parts[group->rank] * distance) + 1);
    uint8_t *received = malloc((size_t)(values * block) + 1);
    memset(received, 254, (size_t)(values * block) + 1);
    parts_fill(group, parts[group->rank], distance, block, sent);
    group->backend->wait(group->backend->all_to_all(group, sent, stride, parts, received, count,
                                                    comm_types[type].type, NULL),
                         NULL);
    int64_t wrong = parts_wrong(group, parts, distance, block, sent, received);
    free(parts);
    free(sent);
    free(received);
    return wrong;
}

/* By messages and in shared memory. The largest blocks have several segments and chunks. */
TEST(all_to_all_brings_the_parts_of_all_ranks)
{
    static const int64_t sizes[] = {0, 1, 7, 5003, 70001};
    int64_t wrong = 0;
    for (int shared = 0; shared < 2; shared++) {
        struct error error = {0};
        struct comm *group = world->backend->split(world, 0, -world->rank);
        wrong += !group->backend->set_transport(group, shared ? TRANSPORT_SHARED : TRANSPORT_RING,
                                                &error);
        for (int pattern = 0; pattern < PATTERNS; pattern++)
            for (int type = 0; type < COMM_TYPES; type++)
                for (int i = 0; i < 5; i++)
                    if (i < 4 || comm_types[type].type == COMM_FP32 ||
                        comm_types[type].type == COMM_FP64)
                        wrong += all_to_all_wrong(group, pattern, sizes[i], type);
        group->backend->close(group);
    }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(sums_have_the_same_bits_everywhere_and_always)
{
    int64_t wrong = 0;
    for (int i = 0; i < COUNTS; i++) {
        int64_t count = counts[i];
        size_t bytes = (size_t)count * sizeof(float);
        float *first = noise_open(world->rank, count), *again = noise_open(world->rank, count);
        double *exact = malloc((size_t)count * sizeof *exact + 8);
        for (int64_t j = 0; j < count; j++)
            exact[j] = first[j];
        MPI_Allreduce(MPI_IN_PLACE, exact, (int)count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        comm_all_reduce(world, first, count, COMM_FP32, COMM_SUM);
        comm_all_reduce(world, again, count, COMM_FP32, COMM_SUM);
        wrong += memcmp(first, again, bytes) != 0;
        wrong += differs_from_root(first, count);
        for (int64_t j = 0; j < count; j++)
            wrong += fabs(first[j] - exact[j]) > world->size * ldexp(1, 24 - 24);
        free(first);
        free(again);
        free(exact);
    }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(bf16_is_added_in_fp32_and_rounded_to_even)
{
    /* 256 + 1 lies half-way between 256 and 258, 258 + 1 between 258 and 260. */
    uint16_t value[4] = {to_bf16(world->rank == 0   ? 256
                                 : world->rank == 1 ? 1
                                                    : 0),
                         to_bf16(world->rank == 0   ? 258
                                 : world->rank == 1 ? 1
                                                    : 0),
                         to_bf16(world->rank == 0 ? NAN : 0), to_bf16(INFINITY)};
    comm_all_reduce(world, value, 4, COMM_BF16, COMM_SUM);
    int wrong = from_bf16(value[0]) != 256 || !isnan(from_bf16(value[2])) ||
                from_bf16(value[3]) != INFINITY ||
                from_bf16(value[1]) != (world->size > 1 ? 260 : 258);
    assert_int_equal(all_wrong(wrong), 0);
}

/* Every fp16 number plus another of any magnitude: subnormals, ties, overflow, NaN. */
TEST(fp16_is_added_in_fp32_and_rounded_to_even)
{
    enum { ALL = 1 << 16, TURNS = 5 };
    static const uint16_t factor[TURNS] = {1, 3, 259, 0x7bff, 0x8001};
    uint16_t *value = malloc(ALL * sizeof *value);
    int64_t wrong = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < ALL; i++)
            value[i] = (uint16_t)(world->rank == 0   ? i
                                  : world->rank == 1 ? i * factor[turn] + turn
                                                     : 0);
        comm_all_reduce(world, value, ALL, COMM_FP16, COMM_SUM);
        for (int i = 0; i < ALL; i++) {
            double sum = from_fp16((uint16_t)i);
            if (world->size > 1)
                sum += from_fp16((uint16_t)(i * factor[turn] + turn));
            double expected = from_fp16(to_fp16(sum)), is = from_fp16(value[i]);
            wrong += isnan(expected) ? !isnan(is) : is != expected;
        }
    }
    free(value);
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(many_in_flight_end_in_any_order)
{
    enum { FLIGHTS = 24 };
    struct comm_request *request[FLIGHTS];
    double *buffer[FLIGHTS];
    const struct comm_backend *backend = world->backend;
    int64_t count[FLIGHTS], wrong = 0;
    int size = world->size;
    for (int i = 0; i < FLIGHTS; i++) {
        count[i] = counts[i * 5 % (COUNTS - 2)];
        buffer[i] = malloc((size_t)(count[i] * size) * sizeof **buffer + 8);
        for (int64_t j = 0; j < count[i] * size; j++)
            buffer[i][j] = (double)(world->rank + i + j);
        request[i] =
            i % 3 == 0 ? backend->all_reduce(world, buffer[i], count[i], COMM_FP64, COMM_SUM, NULL)
            : i % 3 == 1
                ? backend->all_gather(world, buffer[i], count[i], COMM_FP64, NULL)
                : backend->broadcast(world, buffer[i], count[i], COMM_FP64, i % size, NULL);
    }
    for (int i = FLIGHTS - 1; i >= 0; i--) {
        backend->wait(request[i], NULL);
        for (int64_t j = 0; j < count[i]; j++) {
            double last = (double)(i + j + (size - 1) * (count[i] + 1));
            if (i % 3 == 0)
                wrong += buffer[i][j] != (double)size * (double)(i + j) + size * (size - 1) / 2.0;
            else if (i % 3 == 1)
                wrong += buffer[i][(size - 1) * count[i] + j] != last;
            else
                wrong += buffer[i][j] != (double)(i % size + i + j);
        }
        free(buffer[i]);
    }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(split_groups_work_side_by_side)
{
    int color = world->rank % 2;
    struct comm *half = world->backend->split(world, color, -world->rank);
    int64_t wrong = half->size != (world->size + 1 - color) / 2;
    wrong += half->rank != half->size - 1 - world->rank / 2;
    float *buffer = malloc(300007 * sizeof *buffer);
    for (int i = 0; i < 300007; i++)
        buffer[i] = (float)(world->rank + i % 10);
    struct comm_request *request =
        half->backend->all_reduce(half, buffer, 300007, COMM_FP32, COMM_SUM, NULL);
    int64_t members = 1;
    comm_all_reduce(world, &members, 1, COMM_INT64, COMM_SUM);
    half->backend->wait(request, NULL);
    int ranks = half->size * (half->size - 1) + color * half->size;
    for (int i = 0; i < 300007; i++)
        wrong += buffer[i] != (float)(ranks + half->size * (i % 10));
    wrong += members != world->size;
    int handle_size = 0;
    MPI_Comm_size(*(MPI_Comm *)comm_handle(half), &handle_size);
    wrong += handle_size != half->size;
    free(buffer);
    half->backend->close(half);
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(nodes_are_counted)
{
    int node = -1;
    int count = comm_node_count(world, &node);
    struct comm *here = comm_split_node(world);
    int wrong = count != 1 || node != 0 || here->size != world->size || here->rank != world->rank;
    here->backend->close(here);
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(bytes_go_between_two_ranks)
{
    static const size_t sizes[] = {0, 1, 5000, 3 << 20, (7 << 20) + 13};
    int64_t wrong = 0;
    for (int i = 0; i < 5; i++) {
        uint8_t *data = malloc(sizes[i] + 1);
        for (size_t j = 0; j < sizes[i]; j++)
            data[j] = (uint8_t)(world->rank == 0 ? j * 7 + j / 1000 : 0);
        if (world->rank == 0 && world->size > 1)
            comm_send(world, data, sizes[i], world->size - 1);
        if (world->rank > 0 && world->rank == world->size - 1) {
            comm_receive(world, data, sizes[i], 0);
            for (size_t j = 0; j < sizes[i]; j++)
                wrong += data[j] != (uint8_t)(j * 7 + j / 1000);
        }
        free(data);
    }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(a_shift_sends_to_all_ranks)
{
    enum { BYTES = 200000 }; /* the sender waits for the receiver */
    static uint8_t data[BYTES], received[BYTES];
    int64_t wrong = 0;
    for (int size = 1; size <= world->size; size++) {
        struct comm *group = world->backend->split(world, world->rank < size, world->rank);
        for (int shift = 0; shift < group->size; shift++) {
            const int from = (group->rank + group->size - shift) % group->size;
            memset(data, group->rank + 10 * shift, BYTES);
            memset(received, 0xff, BYTES);
            comm_shift(group, data, received, BYTES, shift);
            for (int i = 0; i < BYTES; i++)
                wrong += received[i] != from + 10 * shift;
        }
        group->backend->close(group);
    }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(agree_gives_all_the_lowest_ranks_error)
{
    struct error error = {0};
    int wrong = !comm_agree(world, &error) || error.kind != ERROR_NONE;
    if (world->rank >= world->size / 2)
        error_set(&error, world->rank == world->size / 2 ? ERROR_DATA : ERROR_FILE, "file %d",
                  world->rank);
    wrong += comm_agree(world, &error);
    char expected[ERROR_TEXT_SIZE];
    if (world->size > 1)
        snprintf(expected, sizeof expected, "rank %d on %s: file %d", world->size / 2, comm_host(),
                 world->size / 2);
    else
        strcpy(expected, "file 0");
    wrong += error.kind != ERROR_DATA || strcmp(error.text, expected) != 0;
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(same_sees_one_different_bit_or_length)
{
    char text[] = "the deck of the run, which must be the same";
    int wrong = !comm_same(world, text, sizeof text);
    if (world->size > 1) {
        text[7] ^= world->rank == world->size - 1;
        wrong += comm_same(world, text, sizeof text);
        wrong += comm_same(world, "aaaa", world->rank == 0 ? 3 : 4);
    }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(times_add_up)
{
    double busy, exposed, busy_after, exposed_after;
    world->backend->times(world, &busy, &exposed);
    comm_barrier(world);
    world->backend->times(world, &busy_after, &exposed_after);
    int wrong = busy_after < busy || exposed_after < exposed;
    if (world->size > 1)
        wrong += busy_after <= busy;
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(fake_behaves_as_if_others_held_zeros)
{
    struct comm *fake = comm_fake_open(2, 4);
    float value[4] = {-1, 2, 3, 4};
    comm_all_reduce(fake, value, 4, COMM_FP32, COMM_SUM);
    assert_true(value[0] == -1 && value[3] == 4);
    comm_all_reduce(fake, value, 4, COMM_FP32, COMM_MAX);
    assert_true(value[0] == 0 && value[3] == 4);
    comm_all_gather(fake, value, 1, COMM_FP32);
    assert_true(value[1] == 0 && value[2] == 3 && value[3] == 0);
    struct error error = {0};
    assert_true(comm_agree(fake, &error));
    error_set(&error, ERROR_DATA, "bad");
    assert_false(comm_agree(fake, &error));
    int node;
    assert_int_equal(comm_node_count(fake, &node), 1);
    comm_broadcast(fake, value, 4, COMM_FP32, 0);
    assert_true(value[2] == 0);
    value[0] = 7;
    comm_receive(fake, value, sizeof value, 1);
    comm_send(fake, value, sizeof value, 1);
    assert_true(value[0] == 0);
    const double sent[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}; /* 2 partial values, 6 apart */
    const int parts[4] = {1, 0, 2, 1};
    double received[4] = {-1, -1, -1, -1};
    assert_null(fake->backend->all_to_all(fake, sent, 6, parts, received, 1, COMM_FP64, NULL));
    assert_true(received[0] == 0 && received[1] == 3 && received[2] == 9 && received[3] == 0);
    struct comm *alone = fake->backend->split(fake, 1, 0);
    struct comm *same = fake->backend->split(fake, 0, 1);
    assert_int_equal(alone->size, 1);
    assert_int_equal(same->size, 4);
    assert_int_equal(same->rank, 3);
    assert_null(comm_handle(fake));
    alone->backend->close(alone);
    same->backend->close(same);
    fake->backend->close(fake);
}

TEST_MAIN_WORLD()
