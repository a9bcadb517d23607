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
        end = rank + 1;
        if (!table->rank[rank].chosen)
            continue;
        struct watched one = table->rank[rank];
        const char *host = table->host_of(rank);
        char doing[256];
        double longest = heartbeat_table_silence(table, rank, now);
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

/* A member of a group: its rank in the group, and the number of the last collective that it has
 * started. In the list of late ranks, `number` is the collective for which the rank waits. */
struct entry {
    int64_t group, number, entered;
    int rank;
};

static int ascending(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* The members of all groups when the table is evaluated. */
struct members {
    const struct heartbeat_table *table;
    struct entry *entry; /* [count], ascending */
    int64_t count;
    int64_t silent; /* number of silent ranks */
    double oldest;  /* arrival of the oldest report of the other ranks */
    double now;
};

static void members_open(struct members *members, const struct heartbeat_table *table, double now)
{
    struct entry *entry = allocate((size_t)table->size * REPORT_GROUPS, sizeof *entry);
    *members = (struct members){.table = table, .entry = entry, .oldest = INFINITY, .now = now};
    for (int rank = 0; rank < table->size; rank++) {
        const struct report *report = &table->rank[rank].report;
        if (is_silent(table, rank, now))
            members->silent++;
        else
            members->oldest = fmin(members->oldest, table->rank[rank].received);
        for (const struct report_group *in = report->member; in < &report->member[report->groups];
             in++)
            entry[members->count++] = (struct entry){in->identity, in->rank, in->entered, rank};
    }
    qsort(entry, (size_t)members->count, sizeof *entry, ascending);
}

/* Return the first entry of this group that has at least this number, or the entry after it. */
static struct entry *members_find(const struct members *members, int64_t group, int64_t number)
{
    const struct entry key = {.group = group, .number = number, .rank = -1};
    int64_t begin = 0, end = members->count;
    while (begin < end) {
        const int64_t middle = begin + (end - begin) / 2;
        if (ascending(&members->entry[middle], &key) < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return &members->entry[begin];
}

/* True if the collective or message of `report` waits for this member of its group. */
static bool is_missing(const struct members *members, const struct report *report,
                       const struct entry *member)
{
    return report->sequence == 0 ? member->number == report->peer
                                 : is_silent(members->table, member->rank, members->now) ||
                                       member->entered < report->sequence;
}

/* True if the reports show for which ranks rank `waiting` waits. They do not while another rank may
 * have started the collective after its last report. They do not either if all missing ranks wait
 * in other collectives, one of which is the cause. `longest` seconds after the timeout the answer
 * is always true. */
static bool missing_is_known(const struct members *members, int waiting)
{
    const struct heartbeat_table *table = members->table;
    const struct watched *one = &table->rank[waiting];
    const struct report *report = &one->report;
    const double since = one->received - report->late, longest = table->silence + 2;
    const struct entry *begin = members_find(members, report->group, 0);
    const struct entry *end = members_find(members, report->group + 1, 0);
    int64_t unknown = end - begin < report->size ? members->silent : 0; /* silent ranks */
    bool complete = true;
    if (report->late >= longest || members->oldest < since)
        return report->late >= longest;
    for (const struct entry *member = begin; member < end && unknown > 0; member++)
        unknown -= is_silent(table, member->rank, members->now);
    if (unknown == 0 && report->sequence == 0) {
        begin = members_find(members, report->group, report->peer);
        end = members_find(members, report->group, report->peer + 1);
    }
    for (; begin < end && unknown == 0; begin++)
        if (is_missing(members, report, begin)) {
            complete = false;
            unknown += is_silent(table, begin->rank, members->now) ||
                       table->rank[begin->rank].report.what[0] == '\0';
        }
    return complete || unknown > 0;
}

/* Choose the ranks for which rank `waiting` waits. Silent ranks may be members whose last report is
 * older than the group. Return true if any rank is chosen. */
static bool missing_choose(const struct members *members, int waiting)
{
    const struct heartbeat_table *table = members->table;
    const struct report *report = &table->rank[waiting].report;
    const struct entry *begin = members_find(members, report->group, 0);
    const struct entry *end = members_find(members, report->group + 1, 0);
    const bool unknown = end - begin < report->size;
    bool missing = false;
    for (int rank = 0; rank < table->size; rank++)
        table->rank[rank].chosen = unknown && is_silent(table, rank, members->now);
    for (; begin < end; begin++)
        table->rank[begin->rank].chosen = is_missing(members, report, begin);
    for (int rank = 0; rank < table->size; rank++)
        missing = missing || table->rank[rank].chosen;
    return missing;
}

char *heartbeat_table_missing(const struct heartbeat_table *table, double now)
{
    OWNED struct entry *late = allocate((size_t)table->size, sizeof *late);
    int count = 0, first = table->size;
    struct members members;
    struct text_stream text;
    for (int rank = 0; rank < table->size; rank++) {
        const struct report *report = &table->rank[rank].report;
        if (report->what[0] != '\0' && report->late >= 0)
            late[count++] = (struct entry){report->group, report->sequence, 0, rank};
    }
    if (count == 0)
        return NULL;
    members_open(&members, table, now);
    qsort(late, (size_t)count, sizeof *late, ascending);
    for (int i = 0; i < count; i++) {
        /* The result is the same for all ranks in a collective. */
        const bool repeated = i > 0 && late[i].number > 0 && late[i].group == late[i - 1].group &&
                              late[i].number == late[i - 1].number;
        if (!repeated && late[i].rank < first && missing_is_known(&members, late[i].rank))
            first = late[i].rank;
    }
    if (first < table->size) {
        const struct report *report = &table->rank[first].report;
        FILE *stream = text_stream_open(&text);
        fprintf(stream, "rank %d on %s: %s has waited for %.1f s; %s", first, table->host_of(first),
                report->what, report->waited,
                missing_choose(&members, first) ? "missing: "
                                                : "all ranks have started it, but no data arrives");
        chosen_write(table, table->silence, now, stream);
    }
    free(members.entry);
    return first < table->size ? text_stream_close(&text) : NULL;
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
