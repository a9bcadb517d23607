// SPDX-License-Identifier: BSD-3-Clause
#include "comm/heartbeat_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/log.h"
#include "base/text.h"
#include "options/phase.h"

void watch_open(struct watch *watch, int size, const char *(*host_of)(int rank), double now)
{
    *watch = (struct watch){.size = size, .period = 1, .silence = 3, .host_of = host_of};
    watch->rank = allocate((size_t)size, sizeof *watch->rank);
    for (int rank = 0; rank < size; rank++)
        watch->rank[rank].received = watch->rank[rank].changed = now;
}

void watch_close(struct watch *watch)
{
    free(watch->rank);
    *watch = (struct watch){0};
}

double watch_silence(const struct watch *watch, int rank, double now)
{
    return now - watch->rank[rank].received;
}

double watch_longest_silence(const struct watch *watch, double now)
{
    double longest = 0;
    for (int rank = 0; rank < watch->size; rank++)
        longest = fmax(longest, watch_silence(watch, rank, now));
    return longest;
}

static bool is_silent(const struct watch *watch, int rank, double now)
{
    return watch_silence(watch, rank, now) >= watch->silence;
}

void watch_store(struct watch *watch, int rank, const struct report *report, double now)
{
    struct watched *one = &watch->rank[rank];
    const bool changed = report->status.activity != one->report.status.activity;
    if (one->named && changed) {
        log_alarm("stalled: rank %d on %s continues after %.1f s", rank, watch->host_of(rank),
                  now - one->changed);
        one->named = false;
    }
    if (changed || is_silent(watch, rank, now))
        one->changed = now;
    one->report = *report;
    one->received = now;
}

void watch_shift(struct watch *watch, double seconds)
{
    for (int rank = 0; rank < watch->size; rank++) {
        watch->rank[rank].received += seconds;
        watch->rank[rank].changed += seconds;
    }
}

/* Write "rank 1 on node1 (in backward, step 46, for 0.5 s; in no collective), ranks 4-7 on node2
 * (...)": the chosen ranks. Consecutive ones of a host are one item, with what the first did. The
 * silence is written if it has lasted for `silence` seconds. */
static void chosen_write(const struct watch *watch, double silence, double now, FILE *text)
{
    enum { ITEMS = 8 };
    int items = 0, more = 0;
    for (int rank = 0, end; rank < watch->size; rank = end) {
        struct watched one = watch->rank[rank];
        const char *host = watch->host_of(rank);
        char doing[256];
        double longest = watch_silence(watch, rank, now);
        end = rank + 1;
        if (!one.chosen)
            continue;
        while (end < watch->size && watch->rank[end].chosen &&
               strcmp(watch->host_of(end), host) == 0)
            longest = fmax(longest, watch_silence(watch, end++, now));
        if (items++ >= ITEMS) {
            more += end - rank;
            continue;
        }
        fprintf(text, "%srank%s %d", items > 1 ? ", " : "", end > rank + 1 ? "s" : "", rank);
        if (end > rank + 1)
            fprintf(text, "-%d", end - 1);
        fprintf(text, " on %s (", host);
        if (longest >= silence)
            fprintf(text, "no heartbeat for %.1f s; last ", longest);
        else
            one.report.status.seconds += now - one.received;
        status_describe(&one.report.status, doing, sizeof doing);
        fprintf(text, "in %s; in %s)", doing,
                one.report.what[0] != '\0' ? one.report.what : "no collective");
    }
    if (more > 0)
        fprintf(text, " and %d more", more);
}

char *watch_silent(const struct watch *watch, double limit, double now)
{
    const double least =
        fmax(fmax(limit - 2 * watch->period, limit / 2), fmin(limit, watch->silence));
    struct text_stream text;
    if (watch_longest_silence(watch, now) < limit)
        return NULL;
    for (int rank = 0; rank < watch->size; rank++)
        watch->rank[rank].chosen = watch_silence(watch, rank, now) >= least;
    chosen_write(watch, least, now, text_stream_open(&text));
    return text_stream_close(&text);
}

/* Return the rank's membership of the group, or NULL. */
static const struct report_group *member_find(const struct report *report, int64_t identity)
{
    for (int64_t i = 0; i < report->groups; i++)
        if (report->member[i].identity == identity)
            return &report->member[i];
    return NULL;
}

/* Choose the ranks that the collective of rank `waiting` lacks. Return false while this is not
 * known: a rank may have changed since its report, or all missing ranks wait themselves, so that
 * the cause is another collective. `longest` seconds after the timeout, choose by what is known. */
static bool missing_choose(const struct watch *watch, int waiting, double now)
{
    const struct watched *one = &watch->rank[waiting];
    const double since = one->received - one->report.late, longest = watch->silence + 2;
    int64_t unknown = one->report.size; /* members whose last report is older than the group */
    bool settled = true, caused = false;
    int missing = 0;
    for (int rank = 0; rank < watch->size; rank++)
        unknown -= member_find(&watch->rank[rank].report, one->report.group) != NULL;
    for (int rank = 0; rank < watch->size; rank++) {
        struct watched *other = &watch->rank[rank];
        const struct report_group *member = member_find(&other->report, one->report.group);
        const bool silent = is_silent(watch, rank, now);
        if (member == NULL)
            other->chosen = silent && unknown > 0;
        else if (one->report.sequence == 0)
            other->chosen = member->rank == one->report.peer;
        else
            other->chosen = silent || member->entered < one->report.sequence;
        settled = settled && (silent || other->received >= since);
        missing += other->chosen;
        caused = caused || (other->chosen && (silent || other->report.what[0] == '\0'));
    }
    return one->report.late >= longest || (settled && (caused || missing == 0));
}

/* True if a lower rank waits in the same collective, for which the answer is the same. */
static bool is_repeated(const struct watch *watch, int rank)
{
    const struct report *report = &watch->rank[rank].report;
    for (int lower = 0; lower < rank && report->sequence > 0; lower++) {
        const struct report *other = &watch->rank[lower].report;
        if (other->what[0] != '\0' && other->late >= 0 && other->group == report->group &&
            other->sequence == report->sequence)
            return true;
    }
    return false;
}

char *watch_missing(const struct watch *watch, double now)
{
    for (int rank = 0; rank < watch->size; rank++) {
        const struct report *report = &watch->rank[rank].report;
        if (report->what[0] == '\0' || report->late < 0 || is_repeated(watch, rank) ||
            !missing_choose(watch, rank, now))
            continue;
        bool missing = false;
        for (int other = 0; other < watch->size; other++)
            missing = missing || watch->rank[other].chosen;
        struct text_stream text;
        FILE *stream = text_stream_open(&text);
        fprintf(stream, "rank %d on %s: %s has waited for %.1f s; %s", rank, watch->host_of(rank),
                report->what, report->waited,
                missing ? "missing: " : "all ranks have started it, but no data arrives");
        chosen_write(watch, watch->silence, now, stream);
        return text_stream_close(&text);
    }
    return NULL;
}

/* Checkpoints, weights and results take as long as the disk needs. */
static bool phase_is_watched(int phase)
{
    return phase >= PHASE_DATA && phase <= PHASE_TEST;
}

char *watch_stalled(const struct watch *watch, double limit, double now)
{
    int stalled = 0, waiting = 0;
    struct text_stream text;
    for (int rank = 0; rank < watch->size; rank++) {
        struct watched *one = &watch->rank[rank];
        const struct status *status = &one->report.status;
        const bool unchanged =
            !is_silent(watch, rank, now) && one->received - one->changed >= limit;
        one->chosen =
            unchanged && status->waits == 0 && phase_is_watched(status->phase) && !one->named;
        waiting += unchanged && status->waits != 0;
        stalled += one->chosen;
    }
    if (stalled == 0 || waiting == 0)
        return NULL;
    for (int rank = 0; rank < watch->size; rank++)
        watch->rank[rank].named = watch->rank[rank].named || watch->rank[rank].chosen;
    FILE *stream = text_stream_open(&text);
    fprintf(stream, "stalled: ");
    chosen_write(watch, watch->silence, now, stream);
    fprintf(stream, "; %d rank%s wait%s for %s", waiting, waiting == 1 ? "" : "s",
            waiting == 1 ? "s" : "", stalled == 1 ? "it" : "them");
    return text_stream_close(&text);
}
