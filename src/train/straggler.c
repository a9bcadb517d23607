// SPDX-License-Identifier: BSD-3-Clause
/* Detects stragglers from the times of all ranks at each log interval. */
#include "train/straggler.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* Share of the step above which a rank is slow. */
static const double SHARE_SLOW = 0.1;
/* The minimum length of a window. */
static const double WINDOW_SECONDS = 3;
enum { WINDOW_STEPS = 5 };
/* The minimum time between warnings, and the maximum number of ranks in one. */
static const double WARNING_SECONDS = 300;
enum { NAMED = 4 };

void straggler_open(struct straggler *straggler, const struct comm *world,
                    const char *(*host_of)(int rank))
{
    size_t ranks = (size_t)world->size;
    *straggler = (struct straggler){.ranks = world->size, .rank = world->rank, .host_of = host_of};
    straggler->window = allocate(ranks, sizeof *straggler->window);
    straggler->windows_slow = allocate(ranks, sizeof *straggler->windows_slow);
}

void straggler_close(struct straggler *straggler)
{
    free(straggler->window);
    free(straggler->windows_slow);
    memset(straggler, 0, sizeof *straggler);
}

static void straggler_warn(const struct straggler *straggler, int rank, double late,
                           const struct rank_times *median)
{
    const struct rank_times *own = &straggler->window[rank];
    const double step = 1e3 / (double)straggler->steps; /* to milliseconds per step */
    const bool loads = own->data - median->data > own->compute - median->compute;
    log_warn("slow: rank %d on %s delays the other ranks by %.0f %% of each step: data wait %.1f "
             "ms, compute %.1f ms, communication %.1f ms per step; the median rank: %.1f, %.1f, "
             "%.1f; check %s",
             rank, straggler->host_of(rank), 100 * late / straggler->seconds, step * own->data,
             step * own->compute, step * own->waiting, step * median->data, step * median->compute,
             step * median->waiting,
             loads ? "its disk and data.workers"
                   : "its cores (monitor.csv) and their clock, or other programs there");
}

/* Finds the slow ranks of the window. */
static void window_end(struct straggler *straggler)
{
    const struct rank_times *times = straggler->window;
    const int ranks = straggler->ranks;
    const double now = clock_now();
    const bool warns = straggler->logged_at == 0 || now > straggler->logged_at + WARNING_SECONDS;
    double *work = allocate(2 * (size_t)ranks, sizeof *work), *sorted = work + ranks;
    bool knows_waiting = false;
    int median = 0, named = 0;
    for (int rank = 0; rank < ranks; rank++)
        knows_waiting = knows_waiting || times[rank].waiting > 0;
    for (int rank = 0; rank < ranks; rank++)
        work[rank] = sorted[rank] = times[rank].data + (knows_waiting ? times[rank].compute : 0);
    /* The lower median: if half of the ranks are slow, it is a fast rank. */
    values_sort(sorted, ranks);
    while (work[median] != sorted[(ranks - 1) / 2])
        median++;
    for (int rank = 0; rank < ranks; rank++) {
        const double late = work[rank] - work[median];
        int *windows = &straggler->windows_slow[rank];
        *windows = late > SHARE_SLOW * straggler->seconds ? *windows + 1 : 0;
        if (*windows >= STRAGGLER_WINDOWS && warns && named++ < NAMED) {
            straggler_warn(straggler, rank, late, &times[median]);
            straggler->logged_at = now;
        }
    }
    free(work);
}

void straggler_follow(struct straggler *straggler, const struct rank_times *times, double seconds,
                      int64_t steps)
{
    if (straggler->ranks < 2 || straggler->rank != 0)
        return;
    for (int rank = 0; rank < straggler->ranks; rank++) {
        straggler->window[rank].data += times[rank].data;
        straggler->window[rank].compute += times[rank].compute;
        straggler->window[rank].waiting += times[rank].waiting;
    }
    straggler->seconds += seconds;
    straggler->steps += steps;
    if (straggler->seconds < WINDOW_SECONDS || straggler->steps < WINDOW_STEPS)
        return;
    window_end(straggler);
    memset(straggler->window, 0, (size_t)straggler->ranks * sizeof *straggler->window);
    straggler->seconds = 0;
    straggler->steps = 0;
}
