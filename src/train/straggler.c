// SPDX-License-Identifier: BSD-3-Clause
/* Detects stragglers from the times of all ranks at each log interval. */
#include "train/straggler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* Share of the step above which a rank is slow. */
static const double SHARE_SLOW = 0.1;
/* The minimum length of a window. */
static const double WINDOW_SECONDS = 3;
enum { WINDOW_STEPS = 5 };
/* The minimum time between warnings. */
static const double WARNING_SECONDS = 300;

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

/* ---- slow ranks */

/* True if the time of waiting for other ranks is known. */
static bool waiting_is_known(const struct rank_times *times, int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        if (times[rank].waiting > 0)
            return true;
    return false;
}

static double own_work(const struct rank_times *times, bool known)
{
    return times->data + (known ? times->compute : 0);
}

enum part { PART_DATA, PART_COMPUTE, PART_WAITING, PART_WORK };

/* The median of one part of the times over all ranks. */
static double part_median(const struct rank_times *times, int ranks, enum part part)
{
    bool known = waiting_is_known(times, ranks);
    double *values = allocate((size_t)ranks, sizeof *values);
    for (int rank = 0; rank < ranks; rank++)
        values[rank] = (const double[]){[PART_DATA] = times[rank].data,
                                        [PART_COMPUTE] = times[rank].compute,
                                        [PART_WAITING] = times[rank].waiting,
                                        [PART_WORK] = own_work(&times[rank], known)}[part];
    /* The lower median: if half of the ranks are slow, it is the time of a fast rank. */
    values_sort(values, ranks);
    double middle = values[(ranks - 1) / 2];
    free(values);
    return middle;
}

int straggler_find(const struct rank_times *times, int ranks, double seconds, bool *slow)
{
    bool known = waiting_is_known(times, ranks);
    double middle = part_median(times, ranks, PART_WORK);
    int count = 0;
    for (int rank = 0; rank < ranks; rank++) {
        slow[rank] = own_work(&times[rank], known) - middle > SHARE_SLOW * seconds;
        count += slow[rank];
    }
    return count;
}

bool straggler_update(struct straggler *straggler)
{
    bool *slow = allocate((size_t)straggler->ranks, sizeof *slow), found = false;
    straggler_find(straggler->window, straggler->ranks, straggler->seconds, slow);
    for (int rank = 0; rank < straggler->ranks; rank++) {
        straggler->windows_slow[rank] = slow[rank] ? straggler->windows_slow[rank] + 1 : 0;
        found = found || straggler->windows_slow[rank] >= STRAGGLER_WINDOWS;
    }
    free(slow);
    return found;
}

/* ---- the warning */

static bool is_named(const struct straggler *straggler, int rank)
{
    return straggler->windows_slow[rank] >= STRAGGLER_WINDOWS;
}

/* True if this rank's host has several ranks, all of them slow, and other hosts exist. */
static bool is_whole_node(const struct straggler *straggler, int rank)
{
    int here = 0;
    for (int other = 0; other < straggler->ranks; other++)
        if (strcmp(straggler->host_of(other), straggler->host_of(rank)) == 0) {
            here++;
            if (!is_named(straggler, other))
                return false;
        }
    return here > 1 && here < straggler->ranks;
}

static bool is_first_of_host(const struct straggler *straggler, int rank)
{
    for (int other = 0; other < rank; other++)
        if (is_named(straggler, other) &&
            strcmp(straggler->host_of(other), straggler->host_of(rank)) == 0)
            return false;
    return true;
}

/* Warn of at most NAMED ranks; a slow node counts as one. */
static void stragglers_warn(const struct straggler *straggler)
{
    enum { NAMED = 4 };
    const struct rank_times *times = straggler->window;
    const int ranks = straggler->ranks;
    const bool known = waiting_is_known(times, ranks);
    const double data = part_median(times, ranks, PART_DATA);
    const double compute = part_median(times, ranks, PART_COMPUTE);
    const double waiting = part_median(times, ranks, PART_WAITING);
    const double work = part_median(times, ranks, PART_WORK);
    const double step = 1e3 / (double)straggler->steps; /* to milliseconds per step */
    int warned = 0;
    for (int rank = 0; rank < ranks && warned < NAMED; rank++) {
        const struct rank_times *own = &times[rank];
        const char *host = straggler->host_of(rank);
        const bool loads = own->data - data > own->compute - compute;
        char who[160];
        if (!is_named(straggler, rank))
            continue;
        snprintf(who, sizeof who, "rank %d on %s", rank, host);
        if (is_whole_node(straggler, rank)) {
            if (!is_first_of_host(straggler, rank))
                continue;
            snprintf(who, sizeof who, "%s with all its ranks, such as rank %d,", host, rank);
        }
        log_warn("slow: %s delays the other ranks by %.0f %% of each step: data wait %.1f ms, "
                 "compute %.1f ms, communication %.1f ms per step; the median rank: %.1f, %.1f, "
                 "%.1f; check %s",
                 who, 100 * (own_work(own, known) - work) / straggler->seconds, step * own->data,
                 step * own->compute, step * own->waiting, step * data, step * compute,
                 step * waiting,
                 loads ? "its disk and data.workers"
                       : "its cores (monitor.csv) and their clock, or other programs there");
        warned++;
    }
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
    double now = clock_now();
    if (straggler_update(straggler) &&
        (straggler->logged_at == 0 || now > straggler->logged_at + WARNING_SECONDS)) {
        stragglers_warn(straggler);
        straggler->logged_at = now;
    }
    memset(straggler->window, 0, (size_t)straggler->ranks * sizeof *straggler->window);
    straggler->seconds = 0;
    straggler->steps = 0;
}
