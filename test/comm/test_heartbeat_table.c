// SPDX-License-Identifier: BSD-3-Clause
/* The readings of the table of heartbeats: which ranks are silent, missing and stalled, from a
 * table of reports and a time. Six ranks on three hosts report once per second; no process and no
 * clock is needed.
 */
#include "comm/heartbeat_table.h"

#include "base/log.h"
#include "base/status.h"
#include "test.h"

enum { RANKS = 6, WORLD = 1, LOW = 2, HIGH = 3 }; /* LOW: ranks 0 and 1, HIGH: ranks 1 and 2 */

static struct heartbeat_table table;
static struct report report[RANKS];

static const char *host_of(int rank)
{
    static const char *const host[] = {"a", "b", "c"};
    return host[rank / 2];
}

static void table_open(void)
{
    log_open(0, LOG_QUIET);
    heartbeat_table_open(&table, RANKS, host_of, 0);
    for (int rank = 0; rank < RANKS; rank++) {
        report[rank] = (struct report){.status = {.phase = PHASE_BACKWARD, .step = 7, .unit = -1},
                                       .late = -1,
                                       .groups = 1,
                                       .member[0] = {.identity = WORLD, .rank = rank}};
    }
}

static void table_close(void)
{
    heartbeat_table_close(&table);
}

/* Add the rank to a group of two. */
static void join(int rank, int64_t identity, int number)
{
    report[rank].member[report[rank].groups++] =
        (struct report_group){.identity = identity, .rank = number};
}

/* The rank waits in a collective since second 0. */
static void enter(int rank, int64_t identity, int64_t sequence)
{
    struct report *own = &report[rank];
    snprintf(own->what, sizeof own->what, "all-reduce %d", (int)identity);
    own->group = identity;
    own->size = identity == WORLD ? RANKS : 2;
    own->sequence = sequence;
    own->status.waits = 1;
    for (int i = 0; i < own->groups; i++)
        if (own->member[i].identity == identity)
            own->member[i].entered = sequence;
}

/* All ranks but one enter collective 4 of the world. */
static void enter_without(int missing)
{
    for (int rank = 0; rank < RANKS; rank++)
        if (rank != missing)
            enter(rank, WORLD, 4);
}

/* The ranks that are not in `stopped` report; mesh.timeout is 10 s. */
static void tick(double now, const char *stopped)
{
    for (int rank = 0; rank < RANKS; rank++) {
        if (report[rank].what[0] != '\0')
            report[rank].late = (report[rank].waited = now) - 10;
        if (strchr(stopped, '0' + rank) == NULL)
            heartbeat_table_store(&table, rank, &report[rank], now);
    }
}

/* Fail unless the reading has this text, or is NULL if the text is. */
static void assert_reads(char *reading, const char *text)
{
    if (text == NULL)
        assert_null(reading);
    else
        assert_string_equal(reading == NULL ? "nothing" : reading, text);
    free(reading);
}

TEST(silent_ranks_are_named_by_host)
{
    tick(10, "");
    tick(11, "235");
    assert_reads(heartbeat_table_silent(&table, 20, 29.9), NULL);
    tick(29.5, "2345");
    assert_reads(heartbeat_table_silent(&table, 20, 30),
                 "ranks 2-3 on b (no heartbeat for 20.0 s; last in backward, step 7, for 0.0 s; in "
                 "no collective), ranks 4-5 on c (no heartbeat for 20.0 s; last in backward, step "
                 "7, for 0.0 s; in no collective)");
    heartbeat_table_shift(&table, 5); /* this process was stopped */
    assert_reads(heartbeat_table_silent(&table, 20, 34.9), NULL);
    tick(35, "0123");
    assert_reads(heartbeat_table_silent(&table, 20, 35),
                 "ranks 2-3 on b (no heartbeat for 20.0 s; last in backward, step 7, for 0.0 s; in "
                 "no collective)");
}

TEST(a_rank_that_does_not_come_is_missing)
{
    enter_without(3);
    report[3].status.seconds = 9;
    tick(9, "");
    assert_reads(heartbeat_table_missing(&table, 9), NULL);
    tick(11, "3"); /* it may have come since its report */
    assert_reads(heartbeat_table_missing(&table, 11), NULL);
    tick(12, "");
    assert_reads(heartbeat_table_missing(&table, 12.5),
                 "rank 0 on a: all-reduce 1 has waited for 12.0 s; missing: rank 3 on b (in "
                 "backward, step 7, for 9.5 s; in no collective)");
    enter(3, WORLD, 4);
    tick(13, "");
    assert_reads(heartbeat_table_missing(&table, 13),
                 "rank 0 on a: all-reduce 1 has waited for 13.0 s; all "
                 "ranks have started it, but no data arrives");
    tick(17, "5"); /* it has started it, but is stopped now */
    assert_reads(heartbeat_table_missing(&table, 17),
                 "rank 0 on a: all-reduce 1 has waited for 17.0 s; missing: rank 5 on c (no "
                 "heartbeat for 4.0 s; last in backward, step 7, for 0.0 s; in all-reduce 1)");
}

TEST(the_rank_that_all_wait_for_is_missing)
{
    tick(0, ""); /* rank 2 stops before it reports its groups */
    join(0, LOW, 0), join(1, LOW, 1), join(1, HIGH, 0);
    enter(0, LOW, 1);
    enter(1, HIGH, 1);
    tick(2.9, "2");
    assert_reads(heartbeat_table_missing(&table, 2.9), NULL);
    tick(10.1, "2");
    assert_reads(heartbeat_table_missing(&table, 10.1),
                 "rank 1 on a: all-reduce 3 has waited for 10.1 s; missing: rank 2 on b (no "
                 "heartbeat for 10.1 s; last in backward, step 7, for 0.0 s; in no collective)");
}

TEST(ranks_that_wait_for_each_other_are_named_later)
{
    report[2].member[0].entered = 3; /* an earlier one */
    enter_without(2);
    enter(2, WORLD, 0);
    report[2].peer = 1; /* a message that rank 1 does not send */
    tick(12, "");
    assert_reads(heartbeat_table_missing(&table, 12), NULL);
    tick(16, "");
    assert_reads(heartbeat_table_missing(&table, 16),
                 "rank 0 on a: all-reduce 1 has waited for 16.0 s; missing: rank 2 on b (in "
                 "backward, step 7, for 0.0 s; in all-reduce 1)");
    for (int rank = 0; rank < RANKS; rank++)
        if (rank != 2)
            report[rank].what[0] = '\0', report[rank].late = -1;
    tick(17, "");
    assert_reads(heartbeat_table_missing(&table, 17),
                 "rank 2 on b: all-reduce 1 has waited for 17.0 s; "
                 "missing: rank 1 on a (in backward, step 7, for 0.0 s; in no "
                 "collective)");
}

TEST(a_stalled_rank_is_named_once)
{
    static const char one[] = "stalled: rank 4 on c (in backward, step 7, for 0.0 s; in no "
                              "collective); 5 ranks wait for it";
    enter_without(4);
    report[4].status.activity = 1;
    for (int now = 0; now < 20; now++) {
        tick(now, "");
        assert_reads(heartbeat_table_stalled(&table, 20, now), NULL);
    }
    tick(20, "");
    assert_reads(heartbeat_table_stalled(&table, 20, 20), one);
    assert_reads(heartbeat_table_stalled(&table, 20, 20), NULL);
    report[4].status.activity = 2;
    tick(21, "");
    tick(24.5, "4"); /* a stopped process is silent, not stalled, also when it continues */
    tick(42, "");
    assert_reads(heartbeat_table_stalled(&table, 20, 42), NULL);
    report[4].status.phase = PHASE_CHECKPOINT_WRITE; /* takes as long as the disk needs */
    for (int now = 43; now < 63; now++)
        tick(now, "");
    assert_reads(heartbeat_table_stalled(&table, 20, 63), NULL);
    report[4].status.phase = PHASE_BACKWARD;
    tick(63, "");
    assert_reads(heartbeat_table_stalled(&table, 20, 63), one);
}

TEST(nobody_is_stalled_if_nobody_waits)
{
    for (int now = 0; now <= 40; now++)
        tick(now, "");
    assert_reads(heartbeat_table_stalled(&table, 20, 40), NULL);
}

TEST_MAIN(.before = table_open, .after = table_close)
