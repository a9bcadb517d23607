// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3 4
// joined
/* Collectives: rounding, groups, agreement (test_transport compares results and bits). Errors are
 * counted and summed over ranks before an assertion, so that no rank waits for one that has failed.
 */
#include "comm/comm.h"
#include "comm/mpi_check.h"

#include <mpi.h>

#include "comm_fixture.h"
#include "rank_tests.h"

/* Every 16-bit number plus another of any magnitude: subnormals, ties, overflow, NaN. */
TEST(halves_are_added_in_fp32_and_rounded_to_even)
{
    enum { ALL = 1 << 16, TURNS = 5 };
    static const uint16_t factor[TURNS] = {1, 3, 259, 0x7bff, 0x8001};
    OWNED uint16_t *value = allocate(ALL, sizeof *value);
    int64_t wrong = 0;
    for (int turn = 0; turn < 2 * TURNS; turn++) {
        const bool bf16 = turn >= TURNS;
        for (int i = 0; i < ALL; i++)
            value[i] = (uint16_t)(world->rank == 0   ? i
                                  : world->rank == 1 ? i * factor[turn % TURNS] + turn
                                                     : 0);
        comm_all_reduce(world, value, ALL, bf16 ? COMM_BF16 : COMM_FP16, COMM_SUM);
        for (int i = 0; i < ALL; i++) {
            const uint16_t other = (uint16_t)(i * factor[turn % TURNS] + turn);
            double sum = bf16 ? from_bf16((uint16_t)i) : from_fp16((uint16_t)i);
            if (world->size > 1)
                sum += bf16 ? from_bf16(other) : from_fp16(other);
            const double expected = bf16 ? from_bf16(to_bf16((float)sum)) : from_fp16(to_fp16(sum));
            const double is = bf16 ? from_bf16(value[i]) : from_fp16(value[i]);
            wrong += isnan(expected) ? !isnan(is) : is != expected;
        }
    }
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(groups_are_split_by_color_and_key)
{
    const int color = world->rank % 2;
    struct comm *half = world->backend->split(world, color, -world->rank);
    int64_t ranks = 1, wrong = half->rank != half->size - 1 - world->rank / 2;
    comm_all_reduce(half, &ranks, 1, COMM_INT64, COMM_SUM);
    wrong += half->size != ranks || half->size != (world->size + 1 - color) / 2;
    half->backend->close(half);
    int node = -1;
    wrong += comm_node_count(world, &node) != 1 || node != 0;
    struct comm *here = world->backend->split_node(world);
    wrong += here->size != world->size || here->rank != world->rank;
    here->backend->close(here);
    assert_int_equal(all_wrong(wrong), 0);
}

TEST(bytes_go_between_two_ranks)
{
    static const size_t sizes[] = {0, 1, 5000, 3 << 20, (7 << 20) + 13};
    int64_t wrong = 0;
    for (int i = 0; i < 5; i++) {
        OWNED uint8_t *data = allocate(sizes[i], 1);
        for (size_t j = 0; j < sizes[i]; j++)
            data[j] = (uint8_t)(world->rank == 0 ? j * 7 + j / 1000 : 0);
        if (world->rank == 0 && world->size > 1)
            comm_send(world, data, sizes[i], world->size - 1);
        if (world->rank > 0 && world->rank == world->size - 1) {
            comm_receive(world, data, sizes[i], 0);
            for (size_t j = 0; j < sizes[i]; j++)
                wrong += data[j] != (uint8_t)(j * 7 + j / 1000);
        }
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

TEST(a_fake_group_leaves_values_unchanged)
{
    struct comm *fake = comm_fake_open(2, 4);
    float value[4] = {-1, 2, 3, 4};
    comm_all_reduce(fake, value, 4, COMM_FP32, COMM_MAX);
    comm_broadcast(fake, value, 4, COMM_FP32, 0);
    assert_true(value[0] == -1 && value[3] == 4);
    assert_true(comm_agree(fake, &error));
    error_set(&error, ERROR_DATA, "bad");
    assert_false(comm_agree(fake, &error));
    fake->backend->close(fake);
}

TEST_MAIN_WORLD()
