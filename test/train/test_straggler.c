// SPDX-License-Identifier: BSD-3-Clause
/* A rank is a straggler if its work takes longer than the median by a tenth of the step in three
 * consecutive windows; noise is not reported. */
#include "train/straggler.h"

#include "base/log.h"
#include "test.h"

enum { RANKS = 8 };

static const char *host_of(int rank)
{
    return rank < RANKS / 2 ? "node1" : "node2";
}

/* Equal ranks: of 10 s they compute 6 s and wait for other ranks 3.5 s. */
static void usual(struct rank_times *times, int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        times[rank] = (struct rank_times){.data = 0.5, .compute = 6, .waiting = 3.5};
}

/* Return the slow ranks of a window of 10 s as bits. */
static int slow_ranks(const struct rank_times *times, int ranks)
{
    struct straggler straggler;
    int bits = 0;
    straggler_open(&straggler, &(struct comm){.size = ranks}, host_of);
    straggler_follow(&straggler, times, 10, 100);
    for (int rank = 0; rank < ranks; rank++)
        bits |= straggler.windows_slow[rank] << rank;
    straggler_close(&straggler);
    return bits;
}

TEST(slow_ranks_are_found)
{
    static const struct {
        struct rank_times one,
            other;              /* of `first` ranks and of the next one, if they are not zero */
        int ranks, first, slow; /* slow: bits of the ranks */
    } rows[] = {
        {.ranks = RANKS},
        /* Less than a tenth of the step, and more. */
        {.one = {0.5, 6.9, 2.6}, .ranks = RANKS, .first = 1},
        {.one = {0.5, 7.1, 2.4}, .other = {3, 6, 1}, .ranks = RANKS, .first = 1, .slow = 1 | 2},
        /* Fast ranks are no reason, and half of the ranks may be slow. */
        {.one = {0, 1, 9}, .ranks = RANKS, .first = 2},
        {.one = {0.5, 9, 0.5}, .ranks = RANKS, .first = 4, .slow = 15},
        {.one = {0.5, 9, 0.5}, .ranks = 2, .first = 1, .slow = 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rank_times times[RANKS];
        usual(times, RANKS);
        for (int rank = 0; rank < rows[i].first; rank++)
            times[rank] = rows[i].one;
        if (rows[i].other.data > 0)
            times[rows[i].first] = rows[i].other;
        assert_int_equal(slow_ranks(times, rows[i].ranks), rows[i].slow);
    }
}

/* On a GPU the compute time contains the waits for other ranks. */
TEST(without_known_waits_only_data_count)
{
    struct rank_times times[RANKS];
    for (int rank = 0; rank < RANKS; rank++)
        times[rank] = (struct rank_times){.compute = 10};
    times[3] = (struct rank_times){.data = 3, .compute = 7};
    times[4].compute = 12;
    assert_int_equal(slow_ranks(times, RANKS), 1 << 3);
}

/* Windows of 10 s in which one rank, or none if it is -1, has the times `slow`. */
struct windows {
    const int *rank;
    int count;
    struct rank_times slow;
};

static void windows_follow(void *context)
{
    const struct windows *windows = context;
    struct straggler straggler;
    straggler_open(&straggler, &(struct comm){.size = RANKS}, host_of);
    for (int window = 0; window < windows->count; window++) {
        struct rank_times times[RANKS];
        usual(times, RANKS);
        if (windows->rank[window] >= 0)
            times[windows->rank[window]] = windows->slow;
        straggler_follow(&straggler, times, 10, 100);
    }
    straggler_close(&straggler);
    fflush(stdout);
}

TEST(a_rank_is_named_once_after_three_windows)
{
    static const int noise[] = {6, 6, -1, 6, 5, 6, 6}, slow[] = {6, 6, 6, 6};
    struct windows windows = {noise, 7, {.data = 3.5, .compute = 6, .waiting = 0.5}};
    char log[4096];
    child_run(windows_follow, &windows, log, sizeof log);
    assert_string_equal(log, "");
    windows.rank = slow;
    windows.count = 4;
    child_run(windows_follow, &windows, log, sizeof log);
    assert_has(log, "rank 6 on node2 delays the other ranks by 30 %");
    assert_has(log, "data wait 35.0 ms, compute 60.0 ms, communication 5.0 ms");
    assert_has(log, "the median rank: 5.0, 60.0, 35.0; check its disk and data.workers");
    assert_int_equal(strlen(strchr(log, '\n')), 1); /* one line */
    windows.slow = (struct rank_times){.data = 0.5, .compute = 9};
    child_run(windows_follow, &windows, log, sizeof log);
    assert_has(log, "monitor.csv");
}

int main(void)
{
    log_open(0, LOG_INFO);
    return TESTS_RUN();
}
