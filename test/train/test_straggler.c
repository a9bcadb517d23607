// SPDX-License-Identifier: BSD-3-Clause
/* A rank is a straggler if its work takes longer than the median by a tenth of the step in three
 * consecutive windows; noise is not reported. */
#include "train/straggler.h"

#include <unistd.h>

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

/* Return the log of rank 0 after windows of 10 s in which one rank has these times; rank -1: the
 * usual ones. */
static const char *log_of(const int *ranks, int windows, struct rank_times slow)
{
    static char text[4096];
    struct straggler straggler;
    FILE *file = tmpfile();
    const int console = dup(STDOUT_FILENO), errors = dup(STDERR_FILENO);
    assert_non_null(file);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    straggler_open(&straggler, &(struct comm){.size = RANKS}, host_of);
    for (int window = 0; window < windows; window++) {
        struct rank_times times[RANKS];
        usual(times, RANKS);
        if (ranks[window] >= 0)
            times[ranks[window]] = slow;
        straggler_follow(&straggler, times, 10, 100);
    }
    straggler_close(&straggler);
    fflush(stdout);
    dup2(console, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    close(console);
    close(errors);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

TEST(a_rank_is_named_once_after_three_windows)
{
    static const int noise[] = {6, 6, -1, 6, 5, 6, 6}, slow[] = {6, 6, 6, 6};
    const struct rank_times loading = {.data = 3.5, .compute = 6, .waiting = 0.5};
    assert_string_equal(log_of(noise, 7, loading), "");
    const char *log = log_of(slow, 4, loading);
    assert_has(log, "rank 6 on node2 delays the other ranks by 30 %");
    assert_has(log, "data wait 35.0 ms, compute 60.0 ms, communication 5.0 ms");
    assert_has(log, "the median rank: 5.0, 60.0, 35.0; check its disk and data.workers");
    assert_int_equal(strlen(strchr(log, '\n')), 1); /* one line */
    assert_has(log_of(slow, 3, (struct rank_times){.data = 0.5, .compute = 9}), "monitor.csv");
}

int main(void)
{
    log_open(0, LOG_INFO);
    return TESTS_RUN();
}
