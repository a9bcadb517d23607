// SPDX-License-Identifier: BSD-3-Clause
#include "comm/heartbeat_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

void heartbeat_table_open(struct heartbeat_table *table, int size, const char *(*host_of)(int rank),
                          double now)
{
    *table = (struct heartbeat_table){.size = size, .period = 1, .silence = 3, .host_of = host_of};
    table->rank = allocate((size_t)size, sizeof *table->rank);
    for (int rank = 0; rank < size; rank++)
        table->rank[rank].received = table->rank[rank].changed = now;
}

void heartbeat_table_close(struct heartbeat_table *table)
{
    free(table->rank);
    *table = (struct heartbeat_table){0};
}

double heartbeat_table_silence(const struct heartbeat_table *table, int rank, double now)
{
    return now - table->rank[rank].received;
}

double heartbeat_table_longest_silence(const struct heartbeat_table *table, double now)
{
    double longest = 0;
    for (int rank = 0; rank < table->size; rank++)
        longest = fmax(longest, heartbeat_table_silence(table, rank, now));
    return longest;
}

static bool is_silent(const struct heartbeat_table *table, int rank, double now)
{
    return heartbeat_table_silence(table, rank, now) >= table->silence;
}

void heartbeat_table_store(struct heartbeat_table *table, int rank, const struct report *report,
                           double now)
{
    struct watched *one = &table->rank[rank];
    const bool changed = report->status.activity != one->report.status.activity;
    if (one->named && changed) {
        log_alarm("stalled: rank %d on %s continues after %.1f s", rank, table->host_of(rank),
                  now - one->changed);
        one->named = false;
    }
    if (changed || is_silent(table, rank, now))
        one->changed = now;
    one->report = *report;
    one->received = now;
}

void heartbeat_table_shift(struct heartbeat_table *table, double seconds)
{
    for (int rank = 0; rank < table->size; rank++) {
        table->rank[rank].received += seconds;
        table->rank[rank].changed += seconds;
    }
}

/* Write "rank 1 on node1 (in backward, step 46, for 0.5 s; in no collective), ranks 4-7 on node2
 * (...)": the chosen ranks. Consecutive ones of a host are one item, with what the first did. The
 * silence is written if it has lasted for `silence` seconds. */
static void chosen_write(const struct heartbeat_table *table, double silence, double now,
                         FILE *text)
{
    enum { ITEMS = 8 };
    int items = 0, more = 0;
    for (int rank = 0, end; rank < table->size; rank = end) {
        struct watched one = table->rank[rank];
        const char *host = table->host_of(rank);
        char doing[256];
        double longest = heartbeat_table_silence(table, rank, now);
        end = rank + 1;
        if (!one.chosen)
            continue;
        while (end < table->size && table->rank[end].chosen &&
               strcmp(table->host_of(end), host) == 0)
            longest = fmax(longest, heartbeat_table_silence(table, end++, now));
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

char *heartbeat_table_silent(const struct heartbeat_table *table, double limit, double now)
{
    const double least =
        fmax(fmax(limit - 2 * table->period, limit / 2), fmin(limit, table->silence));
    struct text_stream text;
    if (heartbeat_table_longest_silence(table, now) < limit)
        return NULL;
    for (int rank = 0; rank < table->size; rank++)
        table->rank[rank].chosen = heartbeat_table_silence(table, rank, now) >= least;
    chosen_write(table, least, now, text_stream_open(&text));
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
static bool missing_choose(const struct heartbeat_table *table, int waiting, double now)
{
    const struct watched *one = &table->rank[waiting];
    const double since = one->received - one->report.late, longest = table->silence + 2;
    int64_t unknown = one->report.size; /* members whose last report is older than the group */
    bool settled = true, caused = false;
    int missing = 0;
    for (int rank = 0; rank < table->size; rank++)
        unknown -= member_find(&table->rank[rank].report, one->report.group) != NULL;
    for (int rank = 0; rank < table->size; rank++) {
        struct watched *other = &table->rank[rank];
        const struct report_group *member = member_find(&other->report, one->report.group);
        const bool silent = is_silent(table, rank, now);
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
static bool is_repeated(const struct heartbeat_table *table, int rank)
{
    const struct report *report = &table->rank[rank].report;
    for (int lower = 0; lower < rank && report->sequence > 0; lower++) {
        const struct report *other = &table->rank[lower].report;
        if (other->what[0] != '\0' && other->late >= 0 && other->group == report->group &&
            other->sequence == report->sequence)
            return true;
    }
    return false;
}

char *heartbeat_table_missing(const struct heartbeat_table *table, double now)
{
    for (int rank = 0; rank < table->size; rank++) {
        const struct report *report = &table->rank[rank].report;
        if (report->what[0] == '\0' || report->late < 0 || is_repeated(table, rank) ||
            !missing_choose(table, rank, now))
            continue;
        bool missing = false;
        for (int other = 0; other < table->size; other++)
            missing = missing || table->rank[other].chosen;
        struct text_stream text;
        FILE *stream = text_stream_open(&text);
        fprintf(stream, "rank %d on %s: %s has waited for %.1f s; %s", rank, table->host_of(rank),
                report->what, report->waited,
                missing ? "missing: " : "all ranks have started it, but no data arrives");
        chosen_write(table, table->silence, now, stream);
        return text_stream_close(&text);
    }
    return NULL;
}

/* Checkpoints, weights and results take as long as the disk needs. */
static bool phase_is_watched(int phase)
{
    return phase >= PHASE_DATA && phase <= PHASE_TEST;
}

char *heartbeat_table_stalled(const struct heartbeat_table *table, double limit, double now)
{
    int stalled = 0, waiting = 0;
    struct text_stream text;
    for (int rank = 0; rank < table->size; rank++) {
        struct watched *one = &table->rank[rank];
        const struct status *status = &one->report.status;
        const bool unchanged =
            !is_silent(table, rank, now) && one->received - one->changed >= limit;
        one->chosen =
            unchanged && status->waits == 0 && phase_is_watched(status->phase) && !one->named;
        waiting += unchanged && status->waits != 0;
        stalled += one->chosen;
    }
    if (stalled == 0 || waiting == 0)
        return NULL;
    for (int rank = 0; rank < table->size; rank++)
        table->rank[rank].named = table->rank[rank].named || table->rank[rank].chosen;
    FILE *stream = text_stream_open(&text);
    fprintf(stream, "stalled: ");
    chosen_write(table, table->silence, now, stream);
    fprintf(stream, "; %d rank%s wait%s for %s", waiting, waiting == 1 ? "" : "s",
            waiting == 1 ? "s" : "", stalled == 1 ? "it" : "them");
    return text_stream_close(&text);
}
