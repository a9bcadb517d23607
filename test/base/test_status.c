// SPDX-License-Identifier: BSD-3-Clause
/* The record of what a process is doing, and its description. */
#include "base/status.h"

#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "temporary.h"
#include "test.h"

/* A stopped clock, and a wait in which the file `go` is created after three turns. */
static int turns;

int clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    *time = (struct timespec){.tv_sec = 1000};
    return 0;
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    (void)wanted;
    (void)left;
    if (++turns == 3)
        temporary_file("go", "", 0);
    return 0;
}

/* As it will be described `seconds` from now. */
static void assert_says(double seconds, const char *expected)
{
    char text[256];
    const struct status status = status_read(clock_now() + seconds);
    status_describe(&status, text, sizeof text);
    assert_string_equal(text, expected);
}

TEST(phase_unit_step_and_time_are_told)
{
    assert_says(7, "the start, for 0.0 s");
    status_name_unit(0, "stem");
    status_name_unit(1, "blocks.0");
    status_set_phase(PHASE_DATA_OPEN);
    assert_says(3, "the opening of the data, for 3.0 s");
    status_set_step(120);
    status_set_phase(PHASE_BACKWARD);
    assert_says(0, "backward, step 120, for 0.0 s");
    status_set_unit(1);
    assert_says(0.5, "backward of blocks.0, step 120, for 0.5 s");
    status_set_unit(2);
    assert_says(0, "backward of unit 2, step 120, for 0.0 s");
    status_set_phase(PHASE_UPDATE);
    status_set_background(PHASE_CHECKPOINT_WRITE);
    assert_says(0, "update, step 120, for 0.0 s, beside the writing of a checkpoint");
    status_set_background(PHASE_START);
    assert_says(0, "update, step 120, for 0.0 s");
}

/* As another rank may send them. */
TEST(unknown_phases_and_units_are_described)
{
    char text[256];
    status_describe(&(struct status){.phase = 1000, .unit = 1 << 30}, text, sizeof text);
    assert_string_equal(text, "an unknown phase of unit 1073741824, for 0.0 s");
    status_name_unit(-1, "below");
    status_name_unit(STATUS_UNITS, "above");
    status_describe(&(struct status){.phase = PHASE_FORWARD, .unit = STATUS_UNITS}, text,
                    sizeof text);
    assert_string_equal(text, "forward of unit 512, for 0.0 s");
}

TEST(a_pause_is_taken_once)
{
    static const char *const wrong[] = {"backward",     "backward:3",     "sleep:3:go",
                                        "backward:3:",  "backward:-1:go", "backward:x:go",
                                        "backward::go", "backward:3::1",  ""};
    char text[300];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        error_clear(&error);
        assert_false(status_pause_at(wrong[i], &error));
        assert_int_equal(error.kind, ERROR_USAGE);
    }
    error_clear(&error);
    assert_true(status_pause_at("none", &error));
    snprintf(text, sizeof text, "checkpoint_name:3:%s:1", temporary_path("go"));
    assert_true(status_pause_at(text, &error)); /* another rank */
    status_set_step(3);
    status_set_phase(PHASE_CHECKPOINT_NAME);
    assert_int_equal(access(temporary_path("go.0"), F_OK), -1);
    snprintf(text, sizeof text, "checkpoint_name:3:%s", temporary_path("go"));
    assert_true(status_pause_at(text, &error));
    status_set_step(2);
    status_set_phase(PHASE_CHECKPOINT_NAME);
    status_set_step(3);
    status_set_phase(PHASE_CHECKPOINT_WRITE);
    assert_int_equal(access(temporary_path("go.0"), F_OK), -1);
    status_set_phase(PHASE_CHECKPOINT_NAME);
    assert_int_equal(turns, 3);
    OWNED char *process = temporary_text("go.0");
    assert_int_equal(atol(process), getpid());
    unlink(temporary_path("go.0"));
    status_set_phase(PHASE_CHECKPOINT_NAME);
    assert_int_equal(access(temporary_path("go.0"), F_OK), -1);
    /* Without the file for its number the rank does not wait. */
    assert_true(status_pause_at("checkpoint_name:3:/nowhere/go", &error));
    status_set_phase(PHASE_CHECKPOINT_NAME);
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_close)
