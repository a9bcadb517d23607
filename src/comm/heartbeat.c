// SPDX-License-Identifier: BSD-3-Clause
/* Heartbeats: find ranks whose node is down, whose network is cut or whose process is stopped.
 *
 * About once per second the communication thread of each rank sends its status to two monitor
 * ranks: rank 0 and the first rank of another node (rank 1 if there is only one node). When a rank
 * has sent nothing for longer than the heartbeat timeout, a monitor rank prints all silent ranks
 * and ends the job. Rank 0 acknowledges each heartbeat; a rank that receives no acknowledgement for
 * longer than the timeout ends itself, so that no process is left on a node that is cut off.
 *
 * Beyond 1000 ranks the period grows with their number, which bounds the load of rank 0. An error
 * of MPI counts as a missing message. */
#include "comm/internal.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"

enum { TAG_HEARTBEAT = 3, TAG_ACKNOWLEDGE = 4, TAG_END = 5 }; /* watch.c uses 1 and 2 */
enum { MONITORS = 2 };

/* The last heartbeat of one rank, as a monitor rank knows it. */
struct heard {
    _Atomic double at; /* clock_now() of its arrival */
    struct status status;
};

static struct {
    _Atomic bool open;
    MPI_Comm communicator;
    int rank, size;
    int monitor[MONITORS];
    bool is_monitor;
    _Atomic double timeout, period; /* seconds; timeout 0: off */
    _Atomic double turned;          /* clock_now() of the last turn */
    double next;                    /* clock_now() of the next heartbeat */
    double root_heard;              /* clock_now() of rank 0's last acknowledgement */
    struct {
        MPI_Request request;
        struct status status;
    } message[MONITORS];
    struct heard *heard; /* [size] on monitor ranks, else NULL */
} heart;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held during a turn */
static _Atomic double wanted_timeout;

void comm_set_heartbeat_timeout(double seconds)
{
    wanted_timeout = seconds;
}

void heartbeat_open(MPI_Comm communicator, int rank, int size)
{
    int second = 1;
    while (second < size && strcmp(comm_host_of(second), comm_host_of(0)) == 0)
        second++;
    heart.communicator = communicator;
    heart.rank = rank;
    heart.size = size;
    heart.monitor[0] = 0;
    heart.monitor[1] = second < size ? second : 1;
    heart.is_monitor = rank == 0 || rank == heart.monitor[1];
    heart.timeout = 0;
    heart.turned = clock_now();
    for (int m = 0; m < MONITORS; m++)
        heart.message[m].request = MPI_REQUEST_NULL;
    if (heart.is_monitor) {
        heart.heard = calloc((size_t)size, sizeof *heart.heard);
        ENSURE_MEMORY(heart.heard != NULL, "no memory for the heartbeats of %d ranks", size);
    }
    stall_open(rank, size);
    heart.open = true;
}

/* Receive all messages of `senders` ranks. The last message of a rank is its end message. */
static void messages_drain(int senders)
{
    struct status status;
    for (MPI_Status message; senders > 0; senders -= message.MPI_TAG == TAG_END)
        MPI_CHECK(MPI_Recv(&status, (int)sizeof status, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                           heart.communicator, &message));
}

/* Collective. Each rank sends an end message to the monitor ranks after its last heartbeat, then
 * rank 0 sends one to all ranks after its last acknowledgement. UCX prints a warning for each
 * message that is not received before MPI_Finalize. */
static void messages_end(void)
{
    MPI_Request end[MONITORS] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    for (int m = 0; heart.rank != 0 && m < MONITORS; m++)
        if (heart.monitor[m] != heart.rank)
            MPI_CHECK(MPI_Isend(NULL, 0, MPI_BYTE, heart.monitor[m], TAG_END, heart.communicator,
                                &end[m]));
    messages_drain(heart.is_monitor ? heart.size - 1 : 1);
    for (int rank = 1; heart.rank == 0 && rank < heart.size; rank++)
        MPI_CHECK(MPI_Send(NULL, 0, MPI_BYTE, rank, TAG_END, heart.communicator));
    for (int m = 0; m < MONITORS; m++) {
        MPI_CHECK(MPI_Wait(&end[m], MPI_STATUS_IGNORE));
        MPI_CHECK(MPI_Wait(&heart.message[m].request, MPI_STATUS_IGNORE));
    }
}

void heartbeat_close(void)
{
    pthread_mutex_lock(&lock);
    if (heart.open)
        messages_end();
    heart.open = false; /* heart.heard is kept: the signal thread may be reading it */
    pthread_mutex_unlock(&lock);
}

/* Start to measure silence from `now`. */
static void timeout_set(double seconds, double now)
{
    const double shortest = 1, ranks_per_second = 1000;
    heart.timeout = seconds;
    heart.period = fmin(fmax(shortest, heart.size / ranks_per_second), seconds / 4);
    heart.root_heard = heart.next = now;
    for (int rank = 0; heart.is_monitor && rank < heart.size; rank++)
        heart.heard[rank].at = now;
}

static void heartbeats_send(double now)
{
    if (now < heart.next)
        return;
    heart.next = now + heart.period;
    for (int m = 0; m < MONITORS; m++) {
        MPI_Request *request = &heart.message[m].request;
        int done = 1;
        if (heart.monitor[m] == heart.rank)
            continue;
        if (*request != MPI_REQUEST_NULL &&
            MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            *request = MPI_REQUEST_NULL;
        if (!done)
            continue; /* the monitor rank has not received the previous one */
        heart.message[m].status = status_read(now);
        if (MPI_Isend(&heart.message[m].status, (int)sizeof(struct status), MPI_BYTE,
                      heart.monitor[m], TAG_HEARTBEAT, heart.communicator, request) != MPI_SUCCESS)
            *request = MPI_REQUEST_NULL;
    }
}

/* Receive a message; false if none has arrived. */
static bool message_receive(int tag, void *data, size_t bytes, int *from)
{
    int arrived = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag, heart.communicator, &arrived, &status) != MPI_SUCCESS ||
        !arrived)
        return false;
    *from = status.MPI_SOURCE;
    return MPI_Recv(data, (int)bytes, MPI_BYTE, *from, tag, heart.communicator,
                    MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

/* Seconds without a heartbeat after which a rank is silent: three periods, at least 3 s. */
static double silence_limit(void)
{
    return 3 * fmax(heart.period, 1);
}

static void messages_receive(double now)
{
    int from = 0;
    struct status status;
    char empty = 0;
    while (heart.is_monitor && message_receive(TAG_HEARTBEAT, &status, sizeof status, &from)) {
        heart.heard[from].at = now;
        heart.heard[from].status = status;
        stall_update(from, &status, now, silence_limit());
        /* A small message to a rank with a recent heartbeat: MPI_Send does not block. */
        if (heart.rank == 0)
            MPI_Send(&empty, 1, MPI_BYTE, from, TAG_ACKNOWLEDGE, heart.communicator);
    }
    while (heart.rank != 0 && message_receive(TAG_ACKNOWLEDGE, &empty, 1, &from))
        heart.root_heard = now;
}

/* ---- silent ranks, on monitor ranks */

/* Seconds since the last heartbeat of a rank. */
static double silence_of(int rank, double now)
{
    return rank == heart.rank ? 0 : now - heart.heard[rank].at;
}

static double silence_longest(double now)
{
    double longest = 0;
    for (int rank = 0; rank < heart.size; rank++)
        longest = fmax(longest, silence_of(rank, now));
    return longest;
}

struct text {
    char *at;
    size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void text_add(struct text *text, const char *format,
                                                           ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->at + text->used, text->size - text->used, format, arguments);
    va_end(arguments);
    text->used += length > 0 ? (size_t)length : 0;
    if (text->used >= text->size)
        text->used = text->size - 1;
}

/* True if the rank is on `host` and has been silent for `least` seconds. */
static bool is_silent_on(int rank, double least, double now, const char *host)
{
    return silence_of(rank, now) >= least && strcmp(comm_host_of(rank), host) == 0;
}

/* Append "4-7 on node2", the silent ranks of the host of rank `first`. */
static void text_add_host(struct text *text, int first, double least, double now)
{
    const char *host = comm_host_of(first);
    for (int rank = first; rank < heart.size; rank++) {
        if (!is_silent_on(rank, least, now, host))
            continue;
        int last = rank;
        while (last + 1 < heart.size && is_silent_on(last + 1, least, now, host))
            last++;
        text_add(text, rank == first ? "%d" : ", %d", rank);
        if (last > rank)
            text_add(text, "-%d", last);
        rank = last;
    }
    text_add(text, " on %s", host);
}

/* Describe all ranks that have been silent for `least` seconds; false if no rank has. */
static bool silent_describe(double least, double now, char *buffer, size_t size)
{
    enum { STATUSES_MAX = 8 };
    int count = 0, first = -1, listed = 0;
    double longest = silence_longest(now);
    struct text text = {.at = buffer, .size = size};
    for (int rank = heart.size - 1; rank >= 0; rank--)
        if (silence_of(rank, now) >= least) {
            count++;
            first = rank;
        }
    if (count == 0)
        return false;
    text_add(&text, count == 1 ? "rank " : "ranks ");
    for (int rank = first; rank < heart.size; rank++) {
        int before = first; /* the first silent rank of the same host */
        while (!is_silent_on(before, least, now, comm_host_of(rank)) && before < rank)
            before++;
        if (before < rank || silence_of(rank, now) < least)
            continue;
        text_add(&text, rank == first ? "" : ", ");
        text_add_host(&text, rank, least, now);
    }
    text_add(&text, ": no heartbeat for %.1f s; last:", longest);
    for (int rank = first; rank < heart.size && listed < STATUSES_MAX; rank++) {
        char status[256];
        if (silence_of(rank, now) < least)
            continue;
        status_describe(&heart.heard[rank].status, status, sizeof status);
        text_add(&text, "%s rank %d in %s", listed++ > 0 ? ";" : "", rank, status);
    }
    return true;
}

void heartbeat_report_silent(void)
{
    char text[4096];
    if (!heart.open || heart.timeout <= 0 || !heart.is_monitor)
        return;
    /* Rank 0 reports unless it is silent itself. */
    double least = silence_limit(), now = heart.turned;
    if ((heart.rank == 0 || silence_of(0, now) >= least) &&
        silent_describe(least, now, text, sizeof text))
        fprintf(stderr, "vittrain: failure: %s; the launcher has ended the job\n", text);
}

/* Seconds that the second monitor rank waits for the first one to report. */
static const double PRECEDENCE = 3;

static _Noreturn void job_end(const char *text)
{
    if (text[0] != '\0')
        fprintf(stderr, "vittrain: failure: %s; see mesh.heartbeat_timeout\n", text);
    fflush(stderr);
    failure_end();
}

/* Silence in seconds after which a warning is printed. mesh.heartbeat_timeout ends the job. */
static const double WARNING_AFTER = 5;

/* Warn before the launcher notices a lost node: lines printed while it ends the job may be lost. */
static void silent_warn(double longest, double now)
{
    static bool warned;
    char text[3072];
    bool reports = heart.rank == 0 || silence_of(0, now) >= WARNING_AFTER;
    double least = fmax(WARNING_AFTER - 2 * heart.period, WARNING_AFTER / 2);
    if (!warned && reports && longest >= WARNING_AFTER &&
        silent_describe(least, now, text, sizeof text))
        log_alarm("%s", text);
    else if (warned && longest < WARNING_AFTER)
        log_alarm("heartbeats of all ranks arrive again");
    warned = longest >= WARNING_AFTER && (warned || reports);
}

/* On a monitor rank: end the job if a rank has been silent for too long. */
static void silent_check(double now)
{
    char text[4096];
    double longest = silence_longest(now);
    silent_warn(longest, now);
    if (longest < heart.timeout + (heart.rank == 0 ? 0 : PRECEDENCE))
        return;
    /* Ranks of one node fail together, but their last heartbeats arrived at different times. */
    double least = fmax(heart.timeout - 2 * heart.period, heart.timeout / 2);
    if (silent_describe(least, now, text, sizeof text))
        job_end(text);
}

/* End this rank if rank 0 has not acknowledged for too long: its node is cut off, or neither
 * monitor rank is left. The first rank of each node prints the reason. */
static void root_check(double now)
{
    char text[512] = "";
    double silence = now - heart.root_heard;
    const char *host = comm_host();
    int first = 0;
    if (heart.rank == 0 || silence < heart.timeout + 2 * PRECEDENCE)
        return;
    while (strcmp(comm_host_of(first), host) != 0)
        first++;
    if (first == heart.rank)
        snprintf(text, sizeof text,
                 "rank %d on %s: no heartbeat of rank 0 on %s for %.1f s: the ranks of %s end",
                 heart.rank, host, comm_host_of(0), silence, host);
    job_end(text);
}

void heartbeat_turn(double now)
{
    const double pause = 1;
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    if (heart.open) {
        /* This process was stopped itself, so its clock says nothing about the others. */
        double stopped = now - heart.turned > pause ? now - heart.turned : 0;
        heart.root_heard += stopped;
        for (int rank = 0; stopped > 0 && heart.is_monitor && rank < heart.size; rank++)
            heart.heard[rank].at = heart.heard[rank].at + stopped;
        stall_shift(stopped);
        heart.turned = now;
        if (heart.timeout != wanted_timeout)
            timeout_set(wanted_timeout, now);
        if (heart.timeout > 0)
            heartbeats_send(now);
        messages_receive(now);
        if (heart.timeout > 0 && heart.is_monitor)
            silent_check(now);
        if (heart.timeout > 0 && heart.rank == 0) {
            const struct status own = status_read(now);
            stall_update(0, &own, now, silence_limit());
            stall_check(now, silence_limit());
        }
        if (heart.timeout > 0)
            root_check(now);
    }
    pthread_mutex_unlock(&lock);
}
