// SPDX-License-Identifier: BSD-3-Clause
/* The table of heartbeats with the newest report of each rank, from which rank 0 reads who is
 * silent (sends no reports), who is missing (others wait for it in a collective for longer than
 * mesh.timeout) and who is stalled (sends reports, but makes no progress while others wait). The
 * readings depend on the table and the time only. heartbeat.c sends and receives the reports. */
#ifndef VITTRAIN_COMM_HEARTBEAT_TABLE_H
#define VITTRAIN_COMM_HEARTBEAT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* The report of a rank. Its groups show to whom a waiting rank's number of a collective applies. */
enum { REPORT_GROUPS = 32, REPORT_WHAT = 128 };
struct report {
    struct status status;
    char what[REPORT_WHAT]; /* the collective or message in progress; "": none */
    int64_t group, size;    /* identity and number of ranks of its group */
    int64_t sequence;       /* its number in the group, from 1; 0: a message to or from `peer` */
    int64_t peer;           /* rank in the group */
    double waited;          /* seconds since data arrived or left */
    double late;            /* seconds by which it has exceeded mesh.timeout; negative before */
    int64_t groups;
    struct report_group {
        int64_t identity;    /* equal on all ranks of the group */
        int64_t rank;        /* of the sender in the group */
        int64_t entered;     /* the last collective that it started */
    } member[REPORT_GROUPS]; /* the oldest groups; of further ones no missing rank is named */
};

/* Newest report of a rank. */
struct watched {
    struct report report;
    double received; /* clock: its arrival */
    double changed;  /* clock: the first arrival of a status with this activity */
    bool named;      /* as stalled */
    bool chosen;     /* by the reading in progress */
};

struct heartbeat_table {
    int size;
    double period;  /* seconds between the reports of a rank */
    double silence; /* seconds without a report after which a rank is silent */
    const char *(*host_of)(int rank);
    struct watched *rank; /* [size] */
};

void heartbeat_table_open(struct heartbeat_table *table, int size, const char *(*host_of)(int rank),
                          double now);
void heartbeat_table_close(struct heartbeat_table *table);

/* Store a report. Logs that a rank named as stalled continues. */
void heartbeat_table_store(struct heartbeat_table *table, int rank, const struct report *report,
                           double now);

/* Exclude a time in which this process was stopped. */
void heartbeat_table_shift(struct heartbeat_table *table, double seconds);

/* Return the seconds since the last report of the rank, or of the rank that is silent longest. */
double heartbeat_table_silence(const struct heartbeat_table *table, int rank, double now);
double heartbeat_table_longest_silence(const struct heartbeat_table *table, double now);

/* The readings: return a text that names ranks and hosts, which the caller frees, or NULL.
 * heartbeat_table_silent: the ranks without a report for `limit` seconds, if there is any, and
 * those that are about to reach it: the ranks of a node fail together, but their last reports
 * arrived at different times. heartbeat_table_missing: the first late collective whose missing
 * ranks are known, and these ranks: they are silent or have not started it, and at least one of
 * them waits for no other rank. heartbeat_table_stalled: the ranks whose status has not changed for
 * `limit` seconds, in a phase of a step or evaluation, while they wait for no rank, and the status
 * of a rank that waits has not changed for as long. Each is named once until it continues. */
char *heartbeat_table_silent(const struct heartbeat_table *table, double limit, double now);
char *heartbeat_table_missing(const struct heartbeat_table *table, double now);
char *heartbeat_table_stalled(const struct heartbeat_table *table, double limit, double now);

#endif
