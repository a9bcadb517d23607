// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2 3
/* Control flags: a flag that one rank sets reaches all ranks, however late that rank is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "train/control.h"

static struct comm *world;

static void no_flags_give_no_flags(void **state)
{
    (void)state;
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

/* Each rank in turn sets each flag, 2 ms after the other ranks started. */
static void a_flag_of_one_rank_reaches_all_ranks(void **state)
{
    (void)state;
    const struct timespec late = {.tv_nsec = 2000000};
    struct control control;
    control = (struct control){.world = world};
    for (int rank = 0; rank < world->size; rank++)
        for (size_t flag = 0; flag < 4; flag++) {
            int64_t expected[4] = {0}, own[4] = {0};
            struct control_flags flags;
            expected[flag] = 1;
            own[flag] = world->rank == rank;
            if (world->rank == rank)
                nanosleep(&late, NULL);
            memcpy(&flags, own, sizeof flags);
            control_start(&control, &flags);
            flags = control_wait(&control);
            assert_memory_equal(&flags, expected, sizeof flags);
        }
    control_close(&control);
}

/* A signal usually reaches all ranks: flags are 0 or 1, not counts. */
static void a_flag_of_all_ranks_is_one(void **state)
{
    (void)state;
    const struct control_flags all = {.stop = 1, .time_over = 1, .checkpoint = 1, .writing = 1};
    struct control control;
    control = (struct control){.world = world};
    control_start(&control, &all);
    struct control_flags flags = control_wait(&control);
    assert_memory_equal(&flags, &all, sizeof flags);
    control_close(&control);
}

/* Other collectives of a step run between start and wait; a failed step never waits. */
static void close_waits_for_a_started_all_reduce(void **state)
{
    (void)state;
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_flags_give_no_flags),
        cmocka_unit_test(a_flag_of_one_rank_reaches_all_ranks),
        cmocka_unit_test(a_flag_of_all_ranks_is_one),
        cmocka_unit_test(close_waits_for_a_started_all_reduce),
    };
    struct error error = {.kind = ERROR_NONE};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (!comm_world_open(&argc, &argv, &world, &error))
        return 1;
    int failed = cmocka_run_group_tests_name("control", tests, NULL, NULL);
    comm_world_close(world);
    return failed;
}
