// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// joined
/* Control flags: a flag that one rank sets reaches all ranks. */
#include "train/control.h"

#include "model_fixture.h"
#include "test.h"

TEST(no_flags_give_no_flags)
{
    struct control control;
    const struct control_flags none = {0};
    control = (struct control){.world = world};
    for (int step = 0; step < 3; step++) {
        control_start(&control, &none);
        struct control_flags flags = control_wait(&control);
        assert_memory_equal(&flags, &none, sizeof none);
    }
    control_close(&control);
}

/* Each rank in turn sets each flag. */
TEST(a_flag_of_one_rank_reaches_all_ranks)
{
    struct control control;
    control = (struct control){.world = world};
    for (int rank = 0; rank < world->size; rank++)
        for (size_t flag = 0; flag < 4; flag++) {
            int64_t expected[4] = {0}, own[4] = {0};
            struct control_flags flags;
            expected[flag] = 1;
            own[flag] = world->rank == rank;
            memcpy(&flags, own, sizeof flags);
            control_start(&control, &flags);
            flags = control_wait(&control);
            assert_memory_equal(&flags, expected, sizeof flags);
        }
    control_close(&control);
}

/* A signal usually reaches all ranks: flags are 0 or 1, not counts. */
TEST(a_flag_of_all_ranks_is_one)
{
    const struct control_flags all = {.stop = 1, .time_over = 1, .checkpoint = 1, .writing = 1};
    struct control control;
    control = (struct control){.world = world};
    control_start(&control, &all);
    struct control_flags flags = control_wait(&control);
    assert_memory_equal(&flags, &all, sizeof flags);
    control_close(&control);
}

/* Other collectives of a step run between start and wait; a failed step never waits. */
TEST(close_waits_for_a_started_all_reduce)
{
    struct control control;
    const struct control_flags stop = {.stop = 1};
    control = (struct control){.world = world};
    control_start(&control, &stop);
    comm_barrier(world);
    control_close(&control);
    control_close(&control);
    struct control unused = {0};
    control_close(&unused);
}

TEST_MAIN_WORLD()
