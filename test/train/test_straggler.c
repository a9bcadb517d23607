// SPDX-License-Identifier: BSD-3-Clause
/* A rank is a straggler if its work takes longer than the median by a tenth of the step in three
 * consecutive windows; noise is not reported. */
#include "train/straggler.h"

#include <unistd.h>

#include "base/log.h"
#include "test.h"

enum { RANKS = 8 };

/* Equal ranks: of 10 s they compute 6 s and wait for other ranks 3.5 s. */
static void usual(struct rank_times *times, int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        times[rank] = (struct rank_times){.data = 0.5, .compute = 6, .waiting = 3.5};
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
        bool slow[RANKS];
        int bits = 0;
        usual(times, RANKS);
        for (int rank = 0; rank < rows[i].first; rank++)
            times[rank] = rows[i].one;
        if (rows[i].other.data > 0)
            times[rows[i].first] = rows[i].other;
        const int found = straggler_find(times, rows[i].ranks, 10, slow);
        assert_int_equal(found, __builtin_popcount((unsigned)rows[i].slow));
        for (int rank = 0; rank < rows[i].ranks; rank++)
            bits |= slow[rank] << rank;
        assert_int_equal(bits, rows[i].slow);
    }
}

/* On a GPU the compute time contains the waits for other ranks. */
TEST(without_known_waits_only_data_count)
{
    struct rank_times times[RANKS];
    bool slow[RANKS];
    for (int rank = 0; rank < RANKS; rank++)
        times[rank] = (struct rank_times){.compute = 10};
    times[3] = (struct rank_times){.data = 3, .compute = 7};
    times[4].compute = 12;
    assert_int_equal(straggler_find(times, RANKS, 10, slow), 1);
    assert_true(slow[3]);
}

/* Two nodes. */
static const char *host_of(int rank)
{
    return rank < RANKS / 2 ? "node1" : "node2";
}

static bool window_of(struct straggler *straggler, int slow_rank)
{
    usual(straggler->window, RANKS);
    if (slow_rank >= 0)
        straggler->window[slow_rank].compute += 3;
    straggler->seconds = 10;
    straggler->steps = 10;
    return straggler_update(straggler);
}

TEST(verdict_needs_windows_in_a_row)
{
    struct straggler straggler;
    straggler_open(&straggler, &(struct comm){.size = RANKS}, host_of);
    assert_false(window_of(&straggler, 6));
    assert_false(window_of(&straggler, 6));
    assert_false(window_of(&straggler, -1)); /* counted as noise */
    assert_false(window_of(&straggler, 6));
    assert_false(window_of(&straggler, 5));
    assert_false(window_of(&straggler, 6));
    assert_false(window_of(&straggler, 6));
    assert_true(window_of(&straggler, 6));
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(straggler.windows_slow[rank] >= STRAGGLER_WINDOWS, rank == 6);
    assert_false(window_of(&straggler, -1));
    straggler_close(&straggler);
}

/* Returns the log of rank 0 after four windows with these times. */
static const char *log_of(const struct rank_times *times)
{
    static char text[4096];
    struct straggler straggler;
    FILE *file = tmpfile();
    int console = dup(STDOUT_FILENO);
    assert_non_null(file);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    int errors = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    straggler_open(&straggler, &(struct comm){.size = RANKS}, host_of);
    for (int window = 0; window < STRAGGLER_WINDOWS + 1; window++)
        straggler_follow(&straggler, times, 10, 100);
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

TEST(rank_and_node_are_named_once)
{
    struct rank_times times[RANKS];
    usual(times, RANKS);
    assert_string_equal(log_of(times), "");
    times[5] = (struct rank_times){.data = 3.5, .compute = 6, .waiting = 0.5};
    const char *log = log_of(times);
    assert_has(log, "rank 5 on node2 delays the other ranks by 30 %");
    assert_has(log, "data wait 35.0 ms, compute 60.0 ms, communication 5.0 ms");
    assert_has(log, "data.workers");
    assert_int_equal(strlen(strchr(log, '\n')), 1); /* one line */
    usual(times, RANKS);
    for (int rank = 4; rank < RANKS; rank++)
        times[rank] = (struct rank_times){.data = 0.5, .compute = 9, .waiting = 0.5};
    log = log_of(times);
    assert_has(log, "node2 with all its ranks, such as rank 4, delays");
    assert_has(log, "monitor.csv");
    assert_int_equal(strlen(strchr(log, '\n')), 1);
}

int main(void)
{
    log_open(0, LOG_INFO);
    return TESTS_RUN();
}
