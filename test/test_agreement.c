/* What ranks wish at a step all of them hear at its end, whoever wishes it, and however late a rank
 * is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "train/agreement.h"

static struct comm *world;

static void nobody_wishes_anything(void **state)
{
    (void)state;
    struct agreement agreement;
    const struct wishes none = {0};
    agreement_open(&agreement, world);
    for (int step = 0; step < 3; step++) {
        agreement_ask(&agreement, &none);
        struct wishes heard = agreement_hear(&agreement);
        assert_memory_equal(&heard, &none, sizeof none);
    }
    agreement_close(&agreement);
}

/* Each rank in turn wishes each thing, and comes late. */
static void what_one_wishes_all_hear(void **state)
{
    (void)state;
    const struct timespec late = {.tv_nsec = 2000000};
    struct agreement agreement;
    agreement_open(&agreement, world);
    for (int rank = 0; rank < world->size; rank++)
        for (size_t wish = 0; wish < 4; wish++) {
            int64_t wanted[4] = {0}, own[4] = {0};
            struct wishes wishes, heard;
            wanted[wish] = 1;
            own[wish] = world->rank == rank;
            if (world->rank == rank)
                nanosleep(&late, NULL);
            memcpy(&wishes, own, sizeof wishes);
            agreement_ask(&agreement, &wishes);
            heard = agreement_hear(&agreement);
            assert_memory_equal(&heard, wanted, sizeof heard);
        }
    agreement_close(&agreement);
}

/* Signals go to all ranks, as a rule: 1 is heard, however many wish it. */
static void what_all_wish_is_heard_once(void **state)
{
    (void)state;
    const struct wishes all = {.stop = 1, .time_over = 1, .checkpoint = 1, .writing = 1};
    struct agreement agreement;
    agreement_open(&agreement, world);
    agreement_ask(&agreement, &all);
    struct wishes heard = agreement_hear(&agreement);
    assert_memory_equal(&heard, &all, sizeof heard);
    agreement_close(&agreement);
}

/* Other collectives of a step come between question and answer; a step that fails leaves a
 * question. */
static void a_question_may_stay_without_an_answer(void **state)
{
    (void)state;
    struct agreement agreement;
    const struct wishes stop = {.stop = 1};
    agreement_open(&agreement, world);
    agreement_ask(&agreement, &stop);
    comm_barrier(world);
    agreement_close(&agreement);
    agreement_close(&agreement);
    struct agreement unused = {0};
    agreement_close(&unused);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_wishes_anything),
        cmocka_unit_test(what_one_wishes_all_hear),
        cmocka_unit_test(what_all_wish_is_heard_once),
        cmocka_unit_test(a_question_may_stay_without_an_answer),
    };
    struct error error = {.kind = ERROR_NONE};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (!comm_world_open(&argc, &argv, &world, &error))
        return 1;
    int failed = cmocka_run_group_tests_name("agreement", tests, NULL, NULL);
    comm_world_close(world);
    return failed;
}
