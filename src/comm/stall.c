// SPDX-License-Identifier: BSD-3-Clause
/* Stalled ranks: processes that are alive, but whose main thread makes no progress while other
 * ranks wait for it. Rank 0 compares the statuses of all heartbeats. The limit is the
 * larger of mesh.stall_warning and ten times the median step. A rank is stalled if its status has
 * not changed for the limit, it does not wait for other ranks itself, and the status of a rank that
 * waits has not changed for the limit either. The rule applies in the phases of a step and of an
 * evaluation, once the median step is known. If all ranks compute or load data for a long time,
 * none waits, so none is stalled. */
#include "comm/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/phase.h"
#include "core/log.h"
#include "core/status.h"

/* The newest status of one rank. */
struct watched {
    struct status status;
    double received; /* clock: its arrival */
    double changed;  /* clock: the first arrival of a status with this activity */
    bool reported;
};

static struct {
    struct watched *rank; /* [size] on rank 0, else NULL */
    int size;
} stall;

static _Atomic double wanted_seconds;

void comm_set_stall_warning(double seconds)
{
    wanted_seconds = seconds;
}

void stall_open(int rank, int size)
{
    stall.size = size;
    if (rank != 0)
        return;
    stall.rank = calloc((size_t)size, sizeof *stall.rank);
    ENSURE_MEMORY(stall.rank != NULL, "no memory for the statuses of %d ranks", size);
}

void stall_update(int rank, const struct status *status, double now, double silence)
{
    struct watched *one = stall.rank != NULL ? &stall.rank[rank] : NULL;
    if (one == NULL)
        return;
    bool was_silent = now - one->received > silence; /* a stopped process; see heartbeat.c */
    if (status->activity != one->status.activity || was_silent) {
        if (one->reported && status->activity != one->status.activity) {
            log_alarm("stalled: rank %d on %s continues after %.1f s", rank, comm_host_of(rank),
                      now - one->changed);
            one->reported = false;
        }
        one->changed = now;
    }
    one->status = *status;
    one->received = now;
}

void stall_shift(double seconds)
{
    for (int rank = 0; stall.rank != NULL && rank < stall.size; rank++) {
        stall.rank[rank].received += seconds;
        stall.rank[rank].changed += seconds;
    }
}

static bool phase_is_watched(int phase)
{
    switch (phase) {
    case PHASE_DATA:
    case PHASE_FORWARD:
    case PHASE_BACKWARD:
    case PHASE_REDUCE:
    case PHASE_UPDATE:
    case PHASE_RECORDED:
    case PHASE_REPORT:
    case PHASE_EVALUATION:
    case PHASE_TEST:
        return true;
    default: /* checkpoints, weights and results take as long as the disk needs */
        return false;
    }
}

/* True if the rank's heartbeats arrive and show the same status for `limit` seconds. */
static bool is_unchanged(const struct watched *one, double limit, double now, double silence)
{
    return one->received > 0 && now - one->received <= silence &&
           one->received - one->changed >= limit;
}

static bool is_stalled(const struct watched *one, double limit, double now, double silence)
{
    return is_unchanged(one, limit, now, silence) && one->status.waits == 0 &&
           phase_is_watched(one->status.phase);
}

/* Report the stalled ranks that are not reported yet, in one line. */
static void stalled_report(double limit, double now, double silence, int waiting, double step)
{
    enum { NAMED = 8 };
    char list[2048] = "", end[64] = "";
    int count = 0;
    for (int rank = 0; rank < stall.size; rank++) {
        struct watched *one = &stall.rank[rank];
        size_t used = strlen(list);
        if (one->reported || !is_stalled(one, limit, now, silence))
            continue;
        one->reported = true;
        if (count++ >= NAMED)
            continue;
        char doing[192];
        one->status.seconds += now - one->received;
        status_describe(&one->status, doing, sizeof doing);
        snprintf(list + used, sizeof list - used, "%srank %d on %s in %s", count > 1 ? "; " : "",
                 rank, comm_host_of(rank), doing);
    }
    if (count > NAMED)
        snprintf(list + strlen(list), sizeof list - strlen(list), "; and %d more", count - NAMED);
    if (comm_timeout() > 0)
        snprintf(end, sizeof end, "; the run ends after mesh.timeout=%g s", comm_timeout());
    if (count > 0)
        log_alarm("stalled: %s; %d rank%s wait%s for %s; the median step takes %.3g s%s", list,
                  waiting, waiting == 1 ? "" : "s", waiting == 1 ? "s" : "",
                  count == 1 ? "it" : "them", step, end);
}

void stall_check(double now, double silence)
{
    const double steps = 10, step = status_step_seconds();
    const double least = wanted_seconds, limit = fmax(least, steps * step);
    int waiting = 0;
    if (stall.rank == NULL || least <= 0 || step <= 0)
        return;
    for (int rank = 0; rank < stall.size; rank++)
        waiting += stall.rank[rank].status.waits != 0 &&
                   is_unchanged(&stall.rank[rank], limit, now, silence);
    if (waiting > 0)
        stalled_report(limit, now, silence, waiting, step);
}
