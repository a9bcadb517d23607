// SPDX-License-Identifier: BSD-3-Clause
/* The watch: finds the ranks that a collective waits for. A rank whose collective takes longer than
 * the timeout asks the other ranks of the group how far they are. Their communication threads
 * answer, both when idle and while they wait for messages. A rank is missing if it has not started
 * the collective or does not answer. If ranks wait for each other in several groups, the rank that
 * reports first is one that knows of a missing rank that does not wait itself. */
#include "comm/internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/status.h"

enum { TAG_QUESTION = 1, TAG_ANSWER = 2 }; /* heartbeat.c uses 3 to 5 */

/* Seconds in which the rank that reports must end the job before another rank reports, too. A busy
 * mpirun takes more than a second for that. */
static const double grace = 5;

/* The answer to a question, which is the identity of a group. */
struct answer {
    int64_t identity;
    int64_t entered; /* the last collective of that group that the rank started */
    bool inside;     /* that collective is still running */
    bool waits;      /* some collective or message is in progress */
    char doing[128];
    struct status status;
};

static MPI_Comm watch_communicator = MPI_COMM_NULL;
static _Atomic double watch_timeout;

void watch_open(int rank)
{
    MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &watch_communicator));
    MPI_CHECK(MPI_Comm_set_errhandler(watch_communicator, MPI_ERRORS_RETURN));
    heartbeat_open(watch_communicator, rank, world_size());
}

void watch_close(void)
{
    heartbeat_close();
    if (watch_communicator != MPI_COMM_NULL)
        MPI_CHECK(MPI_Comm_free(&watch_communicator));
}

void comm_set_timeout(double seconds)
{
    watch_timeout = seconds;
}

double comm_timeout(void)
{
    return watch_timeout;
}

void comm_entered(struct comm *comm, int64_t number)
{
    ENSURE(comm->backend == &comm_mpi, "the watch needs a group of MPI");
    ((struct group *)comm)->entered = number;
}

static void request_describe(const struct comm_request *request, char *text, size_t size)
{
    static const char *const action[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                         "all-to-all", "sending",        "receiving"};
    int length = request->what != NULL
                     ? snprintf(text, size, "%s", request->what)
                     : snprintf(text, size, "%s of %lld %s", action[request->action],
                                (long long)request->count, comm_type_name(request->type));
    if (length > 0 && (size_t)length < size && request->sequence > 0)
        snprintf(text + length, size - (size_t)length, " (number %lld of a group of %d ranks)",
                 (long long)request->sequence, request->group->comm.size);
}

/* Receive a question if there is one. Called by the communication thread and by comm_give_up. */
static bool question_take(int *asker, int64_t *identity)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int there = 0;
    MPI_Status status;
    pthread_mutex_lock(&lock);
    MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, TAG_QUESTION, watch_communicator, &there, &status));
    if (there) {
        *asker = status.MPI_SOURCE;
        MPI_CHECK(MPI_Recv(identity, 1, MPI_INT64_T, *asker, TAG_QUESTION, watch_communicator,
                           MPI_STATUS_IGNORE));
    }
    pthread_mutex_unlock(&lock);
    return there != 0;
}

void watch_turn(const struct comm_request *current)
{
    int asker = 0;
    int64_t identity = 0;
    while (question_take(&asker, &identity)) {
        struct answer answer = {.identity = identity,
                                .entered = groups_entered(identity),
                                .doing = "no collective",
                                .status = status_read(clock_now())};
        if (current != NULL) {
            answer.waits = true;
            answer.inside = current->group->identity == identity && current->sequence > 0;
            request_describe(current, answer.doing, sizeof answer.doing);
        }
        /* Small enough for MPI_Send not to block. */
        MPI_CHECK(
            MPI_Send(&answer, (int)sizeof answer, MPI_BYTE, asker, TAG_ANSWER, watch_communicator));
    }
}

static void watch_sleep(void)
{
    heartbeat_turn(clock_now());
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

/* Ask all other ranks of the group. answers[rank].identity stays 0 if a rank does not answer. */
static void watch_ask(const struct comm_request *request, struct answer *answers)
{
    const double patience = 2;
    const struct group *group = request->group;
    int open = 0, *world_rank = group_world_ranks(group);
    for (int rank = 0; rank < group->comm.size; rank++)
        if (rank != group->comm.rank) {
            /* MPI_Send may block: UCX connects only while the other rank calls MPI. */
            MPI_Request sent;
            MPI_CHECK(MPI_Isend(&group->identity, 1, MPI_INT64_T, world_rank[rank], TAG_QUESTION,
                                watch_communicator, &sent));
            MPI_CHECK(MPI_Request_free(&sent));
            open++;
        }
    for (double start = clock_now(); open > 0 && clock_now() < start + patience;) {
        watch_turn(request);
        for (int rank = 0; rank < group->comm.size; rank++) {
            int there = 0, from = world_rank[rank];
            MPI_CHECK(MPI_Iprobe(from, TAG_ANSWER, watch_communicator, &there, MPI_STATUS_IGNORE));
            if (!there)
                continue;
            MPI_CHECK(MPI_Recv(&answers[rank], (int)sizeof answers[rank], MPI_BYTE, from,
                               TAG_ANSWER, watch_communicator, MPI_STATUS_IGNORE));
            open--;
        }
        watch_sleep();
    }
    free(world_rank);
}

static bool is_missing(const struct comm_request *request, const struct answer *answers, int rank)
{
    if (rank == request->group->comm.rank)
        return false;
    if (request->sequence == 0)
        return rank == request->peer;
    return answers[rank].identity == 0 || answers[rank].entered < request->sequence;
}

/* Write "rank 2 on node7 (in no collective; ...), rank 3 on node8 (does not answer)". */
static void watch_list_missing(const struct comm_request *request, const struct answer *answers,
                               char *text, size_t size)
{
    const struct group *group = request->group;
    size_t used = 0;
    int *world_rank = group_world_ranks(group);
    text[0] = '\0';
    for (int rank = 0; rank < group->comm.size && used < size; rank++) {
        bool silent = answers[rank].identity == 0;
        if (!is_missing(request, answers, rank))
            continue;
        char doing[256], place[512] = "does not answer";
        status_describe(&answers[rank].status, doing, sizeof doing);
        if (!silent)
            snprintf(place, sizeof place, "in %s; in %s", answers[rank].doing, doing);
        int length =
            snprintf(text + used, size - used, "%srank %d on %s (%s)", used > 0 ? ", " : "",
                     world_rank[rank], comm_host_of(world_rank[rank]), place);
        used += length > 0 ? (size_t)length : 0;
    }
    free(world_rank);
}

/* True if another rank should report: a lower rank waits in the same collective (and may have
 * posted later exchanges), or all missing ranks wait themselves, for a rank of another group. */
static bool watch_defers(const struct comm_request *request, const struct answer *answers)
{
    const struct comm *comm = &request->group->comm;
    bool missing = false, cause = false;
    for (int rank = 0; rank < comm->size; rank++) {
        if (rank < comm->rank && answers[rank].inside && answers[rank].entered >= request->sequence)
            return true;
        if (is_missing(request, answers, rank)) {
            missing = true;
            cause = cause || !answers[rank].waits;
        }
    }
    return missing && !cause;
}

/* why: the error of a failed collective, or NULL to report missing ranks. */
static void watch_report(const struct comm_request *request, double waited, const char *missing,
                         const char *why)
{
    char what[192], since[32];
    int self = world_rank();
    time_t start = time(NULL) - (time_t)waited;
    struct tm calendar;
    request_describe(request, what, sizeof what);
    strftime(since, sizeof since, "%H:%M:%S", localtime_r(&start, &calendar));
    if (why != NULL)
        fprintf(stderr, "vittrain: failure: rank %d on %s: %s failed after %.1f s (since %s): %s\n",
                self, comm_host_of(self), what, waited, since, why);
    else
        fprintf(stderr,
                "vittrain: failure: rank %d on %s: %s has waited for %.1f s (since %s); %s%s; see "
                "mesh.timeout%s\n",
                self, comm_host_of(self), what, waited, since,
                missing[0] != '\0' ? "missing: " : "all ranks have started it, but no data arrives",
                missing, request->what != NULL ? "; NCCL_DEBUG=INFO prints what NCCL does" : "");
    fflush(stderr);
}

/* Return the seconds that a rank waits before it reports: 0.5 s for each lower rank that may
 * report, at most 5 s. The lowest of them reports first and ends the job. */
static double report_delay(int lower_ranks)
{
    return 0.5 * (lower_ranks < 10 ? lower_ranks : 10);
}

void watch_check(const struct comm_request *request, double waited)
{
    static char missing[4096];
    const struct group *group = request->group;
    if (watch_timeout <= 0 || waited < watch_timeout)
        return;
    struct answer *answers = calloc((size_t)group->comm.size, sizeof *answers);
    ENSURE_MEMORY(answers != NULL, "no memory for the answers of %d ranks", group->comm.size);
    watch_ask(request, answers);
    watch_list_missing(request, answers, missing, sizeof missing);
    bool later = watch_defers(request, answers);
    const double patience = grace + report_delay(group->comm.rank);
    for (double start = clock_now(); later && clock_now() < start + patience; watch_sleep())
        watch_turn(request);
    watch_report(request, waited, missing, NULL);
    failure_end();
}

/* `why`: an error of the library, maybe a consequence of another rank's end; NULL: a timeout. */
void comm_give_up(struct comm *comm, int64_t number, const char *what, double seconds,
                  const char *why, void (*before_end)(void))
{
    static char missing[4096];
    ENSURE(comm->backend == &comm_mpi, "the watch needs a group of MPI");
    const struct comm_request request = {
        .group = (struct group *)comm, .what = what, .sequence = number};
    struct answer *answers = calloc((size_t)comm->size, sizeof *answers);
    ENSURE_MEMORY(answers != NULL, "no memory for the answers of %d ranks", comm->size);
    /* NCCL's error on the other ranks, after one has aborted its communicators */
    bool later = why != NULL && strstr(why, "remote process") != NULL;
    if (why == NULL) {
        watch_ask(&request, answers);
        watch_list_missing(&request, answers, missing, sizeof missing);
        for (int rank = 0; rank < comm->rank; rank++) /* the lowest that waits reports */
            later = later || !is_missing(&request, answers, rank);
    }
    const double patience = later         ? grace + report_delay(comm->rank)
                            : why != NULL ? report_delay(comm->rank + 1)
                                          : 0;
    for (double start = clock_now(); clock_now() < start + patience; watch_sleep())
        watch_turn(&request);
    watch_report(&request, seconds, missing, why);
    before_end();
    failure_end();
}
