/* Finds ranks that hold the others up, from the times that all ranks give at each log interval. */
#include "train/straggler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"

/* What is slow: by so much of the step. */
static const double SHARE_SLOW = 0.1;
/* A window is so long at least; several in a row make a verdict, which is no noise then. */
static const double WINDOW_SECONDS = 3;
enum { WINDOW_STEPS = 5 };
/* What was said is not said again so soon. */
static const double QUIET_SECONDS = 300;

void straggler_open(struct straggler *straggler, const struct comm *world,
                    const char *(*host_of)(int rank))
{
    size_t ranks = (size_t)world->size;
    *straggler = (struct straggler){.ranks = world->size, .rank = world->rank, .host_of = host_of};
    straggler->window = calloc(ranks, sizeof *straggler->window);
    straggler->windows_slow = calloc(ranks, sizeof *straggler->windows_slow);
    ENSURE(straggler->window != NULL && straggler->windows_slow != NULL,
           "no memory for the times of %zu ranks", ranks);
}

void straggler_close(struct straggler *straggler)
{
    free(straggler->window);
    free(straggler->windows_slow);
    memset(straggler, 0, sizeof *straggler);
}

/* ---- who is slow */

static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The lower one of two: with half of the ranks slow they are slow, not the others fast. */
static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[(count - 1) / 2];
}

/* Does the device tell how long it waits for other ranks? */
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

static double part_of(const struct rank_times *times, enum part part, bool known)
{
    switch (part) {
    case PART_DATA:
        return times->data;
    case PART_COMPUTE:
        return times->compute;
    case PART_WAITING:
        return times->waiting;
    case PART_WORK:
        break;
    }
    return own_work(times, known);
}

/* Of all ranks. */
static double part_median(const struct rank_times *times, int ranks, enum part part)
{
    bool known = waiting_is_known(times, ranks);
    double *values = malloc((size_t)ranks * sizeof *values);
    ENSURE(values != NULL, "no memory to compare %d ranks", ranks);
    for (int rank = 0; rank < ranks; rank++)
        values[rank] = part_of(&times[rank], part, known);
    double middle = median(values, ranks);
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

bool straggler_judge(struct straggler *straggler)
{
    bool *slow = calloc((size_t)straggler->ranks, sizeof *slow), speaks = false;
    ENSURE(slow != NULL, "no memory to compare %d ranks", straggler->ranks);
    straggler_find(straggler->window, straggler->ranks, straggler->seconds, slow);
    for (int rank = 0; rank < straggler->ranks; rank++) {
        straggler->windows_slow[rank] = slow[rank] ? straggler->windows_slow[rank] + 1 : 0;
        speaks = speaks || straggler->windows_slow[rank] >= STRAGGLER_WINDOWS;
    }
    free(slow);
    return speaks;
}

/* ---- what is said */

static bool is_named(const struct straggler *straggler, int rank)
{
    return straggler->windows_slow[rank] >= STRAGGLER_WINDOWS;
}

/* Are all ranks of this rank's host slow, and are there several, and others? */
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

static const char *advice(const struct rank_times *own, const struct rank_times *middle)
{
    return own->data - middle->data > own->compute - middle->compute
               ? "its disk and data.workers"
               : "its cores and their clock (monitor.csv), or other programs there";
}

static void rank_say(const struct straggler *straggler, int rank, const struct rank_times *middle,
                     double work)
{
    const struct rank_times *own = &straggler->window[rank];
    bool known = waiting_is_known(straggler->window, straggler->ranks);
    double step = 1e3 / (double)straggler->steps; /* to milliseconds a step */
    char who[160];
    snprintf(who, sizeof who, "rank %d on %s", rank, straggler->host_of(rank));
    if (is_whole_node(straggler, rank))
        snprintf(who, sizeof who, "%s with all its ranks, such as rank %d,",
                 straggler->host_of(rank), rank);
    log_warn("slow: %s holds the others up, by %.0f %% of each step: data wait %.1f ms, "
             "compute %.1f ms, communication %.1f ms a step; the median rank: %.1f, %.1f, %.1f; "
             "look at %s",
             who, 100 * (own_work(own, known) - work) / straggler->seconds, step * own->data,
             step * own->compute, step * own->waiting, step * middle->data, step * middle->compute,
             step * middle->waiting, advice(own, middle));
}

/* The slowest node's ranks as one, and at most a few. */
static void stragglers_say(struct straggler *straggler)
{
    enum { NAMED = 4 };
    int said = 0;
    const struct rank_times *times = straggler->window;
    int ranks = straggler->ranks;
    const struct rank_times middle = {.data = part_median(times, ranks, PART_DATA),
                                      .compute = part_median(times, ranks, PART_COMPUTE),
                                      .waiting = part_median(times, ranks, PART_WAITING)};
    double work = part_median(times, ranks, PART_WORK);
    for (int rank = 0; rank < straggler->ranks && said < NAMED; rank++)
        if (is_named(straggler, rank) &&
            (!is_whole_node(straggler, rank) || is_first_of_host(straggler, rank))) {
            rank_say(straggler, rank, &middle, work);
            said++;
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
    if (straggler_judge(straggler) &&
        (straggler->said_at == 0 || now > straggler->said_at + QUIET_SECONDS)) {
        stragglers_say(straggler);
        straggler->said_at = now;
    }
    memset(straggler->window, 0, (size_t)straggler->ranks * sizeof *straggler->window);
    straggler->seconds = 0;
    straggler->steps = 0;
}
