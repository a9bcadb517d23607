// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// joined
/* Control flags: a flag that one rank sets reaches all ranks. */
#include "train/step.h"

#include "model_fixture.h"
#include "test.h"

enum { FLAGS = sizeof(struct control_flags) / sizeof(int64_t) };

/* No flag, each flag of each rank in turn, all flags of all ranks: 0 or 1, not counts. */
TEST(a_flag_of_one_rank_reaches_all_ranks)
{
    struct control control = {.world = world};
    for (int set = -1; set <= world->size * FLAGS; set++) {
        const bool all = set == world->size * FLAGS;
        int64_t expected[FLAGS] = {0}, own[FLAGS] = {0};
        struct control_flags flags;
        for (int flag = 0; flag < FLAGS; flag++) {
            expected[flag] = all || (set >= 0 && set % FLAGS == flag);
            own[flag] = expected[flag] && (all || set / FLAGS == world->rank);
        }
        memcpy(&flags, own, sizeof flags);
        control_start(&control, &flags);
        flags = control_wait(&control);
        assert_memory_equal(&flags, expected, sizeof flags);
    }
    control_close(&control);
}

/* Other collectives of a step run between start and wait; a failed step never waits. */
TEST(close_waits_for_a_started_all_reduce)
{
    struct control control = {.world = world}, unused = {0};
    control_start(&control, &(struct control_flags){.stop = 1});
    comm_barrier(world);
    control_close(&control);
    control_close(&control);
    control_close(&unused);
}

TEST_MAIN_WORLD()
