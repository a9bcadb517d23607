// SPDX-License-Identifier: BSD-3-Clause
/* Heartbeats: the reports of heartbeat_table.h, sent by the communication threads.
 *
 * About once per second each rank sends its report to rank 0, which answers with its own. So rank 0
 * has a table of all ranks, and each other rank a table of rank 0. Rank 0 prints who is silent,
 * missing or stalled, and ends the job if a limit is exceeded. If rank 0 is silent itself, the
 * first rank of another node prints that and ends the job, and later every rank does, so that no
 * process is left on a node that is cut off. A rank whose collective exceeds mesh.timeout without a
 * verdict of rank 0 ends the job, too.
 *
 * Cost: rank 0 receives one message of about 0.4 KB per rank and period, and answers each. Beyond
 * 1000 ranks the period grows with their number, up to a quarter of the heartbeat timeout: with
 * 8,192 ranks and 20 s it is 5 s, so rank 0 receives 1,640 messages per second and stores 8 MB. An
 * error of MPI counts as a missing message. */
#include "comm/internal.h"

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/heartbeat_table.h"

/* Tags of the communicator of heartbeats. The last message of a rank is its end message. */
enum { TAG_REPORT = 3, TAG_END = 4 };

static struct {
    bool open;
    MPI_Comm communicator;
    int rank, size;
    int deputy;                   /* the rank that prints that rank 0 is silent */
    bool first;                   /* no lower rank is on this host */
    bool warned;                  /* of silent ranks */
    double turned;                /* clock_now() of the last turn */
    double next;                  /* clock_now() of the next report */
    struct heartbeat_table table; /* of all ranks on rank 0, of rank 0 on other ranks */
    struct report sent;
    MPI_Request request; /* of sending it */
} heart;

static _Atomic double collective_timeout, heartbeat_timeout, stall_seconds;
static struct {
    pthread_mutex_t lock;
    struct comm_request request; /* of heartbeat_show; without a group: none */
} shown = {.lock = PTHREAD_MUTEX_INITIALIZER};

void comm_set_timeout(double seconds)
{
    collective_timeout = seconds;
}

double comm_timeout(void)
{
    return collective_timeout;
}

void comm_set_heartbeat_timeout(double seconds)
{
    heartbeat_timeout = seconds;
}

void comm_set_stall_warning(double seconds)
{
    stall_seconds = seconds;
}

void heartbeat_show(const struct comm_request *request)
{
    pthread_mutex_lock(&shown.lock);
    if (shown.request.what == NULL)
        shown.request = request != NULL ? *request : (struct comm_request){0};
    pthread_mutex_unlock(&shown.lock);
}

void heartbeat_open(int rank, int size)
{
    MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &heart.communicator));
    MPI_CHECK(MPI_Comm_set_errhandler(heart.communicator, MPI_ERRORS_RETURN));
    heart.rank = rank;
    heart.size = size;
    heart.deputy = 1;
    while (heart.deputy < size && strcmp(comm_host_of(heart.deputy), comm_host_of(0)) == 0)
        heart.deputy++;
    if (heart.deputy == size)
        heart.deputy = 1;
    heart.first = true;
    for (int lower = 0; lower < rank; lower++)
        heart.first = heart.first && strcmp(comm_host_of(lower), comm_host_of(rank)) != 0;
    heart.request = MPI_REQUEST_NULL;
    heart.turned = clock_now();
    heartbeat_table_open(&heart.table, rank == 0 ? size : 1, comm_host_of, heart.turned);
    heart.open = true;
}

/* UCX prints a warning for each message that is not received before MPI_Finalize: rank 0 receives
 * the messages of all ranks up to their end messages, then sends one to each. */
void heartbeat_close(void)
{
    struct report report;
    MPI_Status message;
    if (!heart.open)
        return;
    if (heart.rank != 0)
        MPI_CHECK(MPI_Send(NULL, 0, MPI_BYTE, 0, TAG_END, heart.communicator));
    for (int senders = heart.rank == 0 ? heart.size - 1 : 1; senders > 0;
         senders -= message.MPI_TAG == TAG_END)
        MPI_CHECK(MPI_Recv(&report, (int)sizeof report, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                           heart.communicator, &message));
    for (int rank = 1; heart.rank == 0 && rank < heart.size; rank++)
        MPI_CHECK(MPI_Send(NULL, 0, MPI_BYTE, rank, TAG_END, heart.communicator));
    MPI_CHECK(MPI_Wait(&heart.request, MPI_STATUS_IGNORE));
    MPI_CHECK(MPI_Comm_free(&heart.communicator));
    heart.open = false;
    heartbeat_table_close(&heart.table);
}

static void request_describe(const struct comm_request *request, char *text, size_t size)
{
    static const char *const action[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                         "all-to-all", "sending",        "receiving"};
    int length = request->what != NULL
                     ? snprintf(text, size, "%s", request->what)
                     : snprintf(text, size, "%s of %lld %s", action[request->call.action],
                                (long long)request->call.count, comm_type_name(request->call.type));
    if (length > 0 && (size_t)length < size && request->sequence > 0)
        snprintf(text + length, size - (size_t)length, " (number %lld of a group of %d ranks)",
                 (long long)request->sequence, request->group->comm.size);
}

static struct report report_make(const struct comm_request *current, double waited, double now)
{
    const double timeout = collective_timeout;
    struct report report = {.status = status_read(now), .late = -1};
    groups_report(&report);
    pthread_mutex_lock(&shown.lock); /* the group of a shown request is open */
    const struct comm_request *other = &shown.request;
    if (other->group != NULL && (current == NULL || now - other->began > waited)) {
        current = other;
        waited = now - other->began;
    }
    if (current != NULL) {
        request_describe(current, report.what, sizeof report.what);
        report.group = current->group->identity;
        report.size = current->group->comm.size;
        report.sequence = current->sequence;
        report.peer = current->call.peer;
        report.waited = waited;
        if (timeout > 0)
            report.late = waited - timeout;
    }
    pthread_mutex_unlock(&shown.lock);
    return report;
}

static void report_send(const struct report *report, double now)
{
    int done = 1;
    if (now < heart.next)
        return;
    heart.next = now + heart.table.period;
    if (heart.request != MPI_REQUEST_NULL &&
        MPI_Test(&heart.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        heart.request = MPI_REQUEST_NULL;
    if (!done)
        return; /* rank 0 has not received the previous one */
    heart.sent = *report;
    const size_t bytes =
        offsetof(struct report, member) + (size_t)report->groups * sizeof report->member[0];
    if (MPI_Isend(&heart.sent, (int)bytes, MPI_BYTE, 0, TAG_REPORT, heart.communicator,
                  &heart.request) != MPI_SUCCESS)
        heart.request = MPI_REQUEST_NULL;
}

/* Receive a report; false if none has arrived. */
static bool report_receive(struct report *report, int *from)
{
    int arrived = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_REPORT, heart.communicator, &arrived, &status) !=
            MPI_SUCCESS ||
        !arrived)
        return false;
    *from = status.MPI_SOURCE;
    return MPI_Recv(report, (int)sizeof *report, MPI_BYTE, *from, TAG_REPORT, heart.communicator,
                    MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

/* own: rank 0's report, without its groups the answer. */
static void reports_exchange(const struct report *own, double now)
{
    struct report report;
    int from;
    if (heart.rank == 0)
        heartbeat_table_store(&heart.table, 0, own, now);
    else
        report_send(own, now);
    while (report_receive(&report, &from)) {
        heartbeat_table_store(&heart.table, from, &report, now);
        /* A small message to a rank with a recent report: MPI_Send does not block. */
        if (heart.rank == 0)
            MPI_Send(own, (int)offsetof(struct report, member), MPI_BYTE, from, TAG_REPORT,
                     heart.communicator);
    }
}

/* Print the reason, once per host, and end the job. */
static _Noreturn void job_end(const char *text, const char *option)
{
    if (heart.first || heart.rank == heart.deputy)
        fprintf(stderr, "vittrain: failure: %s; see mesh.%s\n", text, option);
    fflush(stderr);
    failure_end();
}

/* Warn before the launcher notices a lost node: lines printed while it ends the job may be lost. */
static void silent_warn(double now)
{
    const double after = fmax(5, 3 * heart.table.period);
    const bool silent = heartbeat_table_longest_silence(&heart.table, now) >= after;
    OWNED char *text =
        silent && !heart.warned ? heartbeat_table_silent(&heart.table, after, now) : NULL;
    if (text != NULL)
        log_alarm("%s", text);
    else if (!silent && heart.warned)
        log_alarm("heartbeats of %s arrive again", heart.rank == 0 ? "all ranks" : "rank 0");
    heart.warned = silent;
}

static void stalled_warn(double now)
{
    const double steps = 10, step = status_step_seconds(), least = stall_seconds;
    const double timeout = collective_timeout;
    char end[64] = "", *text = NULL;
    if (least > 0 && step > 0)
        text = heartbeat_table_stalled(&heart.table, fmax(least, steps * step), now);
    if (timeout > 0)
        snprintf(end, sizeof end, "; the run ends after mesh.timeout=%g s", timeout);
    if (text != NULL)
        log_alarm("%s; the median step takes %.3g s%s", text, step, end);
    free(text);
}

/* Return the seconds by which a rank that finds the same failure as lower ranks waits for them. */
static double report_delay(int rank)
{
    return 0.5 * (rank < 10 ? rank : 10);
}

/* End the job if a limit is exceeded; print warnings. */
static void table_read(const struct report *own, double now)
{
    /* Seconds after the timeout. Rank 0 comes first, then the rank that reports rank 0, then others
     * that receive nothing from rank 0. A verdict of rank 0 takes up to `silence` + 2 s. */
    const double timeout = heartbeat_timeout, unheard = 4 * heart.table.silence;
    const double precedence = heart.rank == 0              ? 0
                              : heart.rank == heart.deputy ? 3
                                                           : 3 + report_delay(heart.rank);
    const char *text = heart.rank == 0 ? heartbeat_table_missing(&heart.table, now) : NULL;
    if (text != NULL)
        job_end(text, "timeout");
    if (heart.rank != 0 && own->late > unheard + report_delay(heart.rank)) {
        char alone[512];
        snprintf(alone, sizeof alone,
                 "rank %d on %s: %s has waited for %.1f s; rank 0 on %s does not report who is "
                 "missing",
                 heart.rank, comm_host(), own->what, own->waited, comm_host_of(0));
        job_end(alone, "timeout");
    }
    if (timeout <= 0)
        return;
    text = heartbeat_table_silent(&heart.table, timeout + precedence, now);
    if (text != NULL)
        job_end(text, "heartbeat_timeout");
    if (heart.rank == 0 || heart.rank == heart.deputy)
        silent_warn(now);
    if (heart.rank == 0)
        stalled_warn(now);
}

/* Return the seconds between the reports of a rank. */
static double period_now(void)
{
    const double shortest = 1, ranks_per_second = 1000, timeout = heartbeat_timeout;
    const double ranks = (double)comm_scaled_ranks(heart.size);
    const double period = fmax(shortest, ranks / ranks_per_second);
    return timeout > 0 ? fmin(period, timeout / 4) : period;
}

void heartbeat_turn(const struct comm_request *current, double waited, double now)
{
    const double every = 0.2, pause = 1, shortest = 3;
    if (!heart.open || now < heart.turned + every)
        return;
    /* This process was stopped itself, so its clock says nothing about the others. */
    if (now - heart.turned > pause)
        heartbeat_table_shift(&heart.table, now - heart.turned);
    heart.turned = now;
    heart.table.period = period_now();
    heart.table.silence = fmax(3 * heart.table.period, shortest);
    const struct report report = report_make(current, waited, now);
    reports_exchange(&report, now);
    table_read(&report, now);
}

void comm_give_up(struct comm *comm, int64_t number, const char *what, double seconds,
                  const char *why, void (*before_end)(void))
{
    ENSURE(comm->backend == &comm_mpi, "heartbeats need a group of MPI");
    const struct comm_request request = {.group = (struct group *)comm,
                                         .what = what,
                                         .sequence = number,
                                         .began = clock_now() - seconds};
    if (why == NULL) {
        heartbeat_show(&request);
        before_end();
        for (;;)
            pause(); /* a turn of some rank ends the job */
    }
    char text[REPORT_WHAT];
    request_describe(&request, text, sizeof text);
    /* NCCL's error on the other ranks, after one has aborted its communicators, comes after the
     * message of rank 0. */
    const bool later = strstr(why, "remote process") != NULL;
    const double delay =
        later ? 3 + 5 * period_now() + report_delay(comm->rank) : report_delay(comm->rank + 1);
    usleep((useconds_t)(delay * 1e6));
    fprintf(stderr, "vittrain: failure: rank %d on %s: %s failed after %.1f s: %s\n", heart.rank,
            comm_host(), text, seconds, why);
    fflush(stderr);
    before_end();
    failure_end();
}
