// SPDX-License-Identifier: BSD-3-Clause
/* The backend "nccl" of comm.h: collectives on GPU memory. Each group has its own stream, which
 * waits for `after`, runs the collective and records an event. A stream that waits for a request
 * waits for that event; the host does not block. During graph capture, stream and event become part
 * of the graph. While the host waits for the GPU it checks that the collectives make progress
 * (watch.h). To find missing ranks it uses a separate MPI group. */
#include "collective.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "watch.h"

extern "C" {
#include "base/base.h"
#include "base/clock.h"
#include "options/option_types.h"
}

/* Collectives in flight; flat_gather.c has a few per unit at most. */
enum { REQUESTS = 1024 };

struct nccl_group;

struct comm_request {
    struct nccl_group *group;
    struct comm_call call;
    int64_t number; /* number of the collective in its group, from 1 */
    cudaEvent_t over;
    bool open;     /* started and not yet waited for */
    bool recorded; /* captured in a graph: the host cannot query the event */
};

struct nccl_group {
    struct comm comm;  /* first member: a struct comm of this backend is a nccl_group */
    struct comm *host; /* the same ranks over MPI, to find missing ranks */
    struct collective *collective;
    cudaStream_t stream;
    struct comm_request requests[REQUESTS]; /* collective n uses requests[n % REQUESTS] */
    int64_t started; /* number of the last one; 1 is the opening of the group */
    int64_t queued;  /* last one whose event is recorded */
    int64_t over;    /* last one that the host has seen complete */
    bool recorded;   /* a graph contains collectives of this group */
    bool connected;  /* for all-to-alls: all pairs of ranks */
    double progress; /* clock time when the last completion was seen */
    struct nccl_group *next;
};

/* Two locks. The thread that ends the job never releases them, because no thread may use an aborted
 * communicator. `lock` protects the list, requests and collective_error; `calls` serialises all
 * other calls on a communicator of the list, which may block. */
static struct {
    pthread_mutex_t lock, calls;
    struct nccl_group *first;
} watch = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, NULL};

/* State of a thread that waits for the GPU. */
static thread_local struct {
    double began, next_look;
} waiting;

static struct nccl_group *group_of(struct comm *comm)
{
    return (struct nccl_group *)comm;
}

/* ---- End of the job */

/* Return the time `seconds` from now, for calls with an absolute timeout. */
static struct timespec time_after(double seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double end = (double)now.tv_sec + (double)now.tv_nsec * 1e-9 + seconds;
    return {(time_t)end, (long)((end - (double)(time_t)end) * 1e9)};
}

/* Abort all groups, because a kernel of one may wait for a kernel of another. */
static void *abort_main(void *)
{
    enum { GROUPS_MOST = 16 };
    struct collective *collectives[GROUPS_MOST];
    int count = 0;
    for (struct nccl_group *group = watch.first; group != NULL && count < GROUPS_MOST;
         group = group->next)
        collectives[count++] = group->collective;
    pthread_mutex_lock(&watch.calls);
    if (count > 0)
        collective_abort(collectives, count);
    return NULL;
}

/* NCCL stops the kernels first, within milliseconds, but may then block (while collectives are in a
 * running graph, or in the network). It is therefore called in another thread, for at most 2 s. The
 * caller holds watch.lock. */
static void groups_abort(void)
{
    pthread_t thread;
    const struct timespec until = time_after(2);
    if (pthread_create(&thread, NULL, abort_main, NULL) == 0)
        (void)pthread_timedjoin_np(thread, NULL, &until);
}

/* ---- Guard: NCCL waits without a timeout for missing ranks while it connects, so a thread
 * supervises the time. */
struct guard {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    struct nccl_group *group;
    int64_t number;   /* of the collective that connects */
    const char *what; /* its description */
    double timeout;
};

/* A group that is being opened is not aborted, because NCCL does not allow it. While an all-to-all
 * connects no group is, because its call holds `watch.calls`. */
static void *guard_main(void *argument)
{
    struct guard *guard = (struct guard *)argument;
    const struct timespec until = time_after(guard->timeout);
    int result = 0;
    pthread_mutex_lock(&guard->lock);
    while (!guard->done && result == 0)
        result = pthread_cond_timedwait(&guard->changed, &guard->lock, &until);
    if (!guard->done) {
        pthread_mutex_lock(&watch.lock);
        comm_give_up(guard->group->host, guard->number, guard->what, guard->timeout, NULL,
                     groups_abort);
    }
    pthread_mutex_unlock(&guard->lock);
    return NULL;
}

static void guard_begin(struct guard *guard, struct nccl_group *group, int64_t number,
                        const char *what)
{
    guard->group = group;
    guard->number = number;
    guard->what = what;
    guard->timeout = comm_timeout();
    guard->done = false;
    if (guard->timeout <= 0)
        return;
    ENSURE(pthread_mutex_init(&guard->lock, NULL) == 0 &&
               pthread_cond_init(&guard->changed, NULL) == 0 &&
               pthread_create(&guard->thread, NULL, guard_main, guard) == 0,
           "cannot start a thread");
}

static void guard_end(struct guard *guard)
{
    if (guard->timeout <= 0)
        return;
    pthread_mutex_lock(&guard->lock);
    guard->done = true;
    pthread_cond_signal(&guard->changed);
    pthread_mutex_unlock(&guard->lock);
    pthread_join(guard->thread, NULL);
    pthread_cond_destroy(&guard->changed);
    pthread_mutex_destroy(&guard->lock);
}

/* ---- Collectives */
static void call_describe(const struct comm_request *request, char *text, size_t size)
{
    static const char *const names[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                        "all-to-all"};
    snprintf(text, size, "GPU %s of %lld %s%s", names[request->call.action],
             (long long)request->call.count, comm_type_name(request->call.type),
             request->recorded ? ", or an earlier one in a graph," : "");
}

/* End the job because of this request. The caller holds watch.lock. */
static void group_give_up(struct nccl_group *group, const struct comm_request *request,
                          double seconds, const char *failed)
{
    char what[160], why[1200];
    call_describe(request, what, sizeof what);
    if (failed != NULL)
        snprintf(why, sizeof why,
                 "%s; a rank or the network may have failed: set NCCL_DEBUG=INFO for details",
                 failed);
    comm_give_up(group->host, request->number, what, seconds, failed != NULL ? why : NULL,
                 groups_abort);
}

static struct comm_request *request_take(struct nccl_group *group, const struct comm_call *call)
{
    pthread_mutex_lock(&watch.lock);
    struct comm_request *request = &group->requests[++group->started % REQUESTS];
    ENSURE(!request->open, "%d collectives in flight", REQUESTS);
    request->call = *call;
    request->number = group->started;
    request->open = true;
    pthread_mutex_unlock(&watch.lock);
    comm_entered(group->host, request->number);
    return request;
}

/* Run the call; return what failed. An all-to-all waits for ranks that exchange messages for the
 * first time. All pairs have done so once every rank had values to send. */
static const char *request_run(struct nccl_group *group, const struct comm_request *request)
{
    const bool connects = request->call.action == COMM_ALL_TO_ALL && !group->connected;
    char what[160];
    struct guard guard;
    call_describe(request, what, sizeof what);
    if (connects)
        guard_begin(&guard, group, request->number, what);
    pthread_mutex_lock(&watch.calls);
    const char *failed = collective_run(group->collective, &request->call, group->stream);
    pthread_mutex_unlock(&watch.calls);
    if (connects) {
        guard_end(&guard);
        group->connected = true;
        for (int rank = 0; rank < group->comm.size; rank++)
            group->connected = group->connected && request->call.parts[rank] > 0;
    }
    return failed;
}

static struct comm_request *group_start(struct comm *comm, const struct comm_call *call)
{
    struct nccl_group *group = group_of(comm);
    enum cudaStreamCaptureStatus capture;
    ENSURE(call->action < COMM_SEND, "transfers between two GPUs are not supported");
    struct comm_request *request = request_take(group, call);
    if (call->after != NULL)
        CUDA_CHECK(cudaStreamWaitEvent(group->stream, call->after->handle, 0));
    CUDA_CHECK(cudaStreamIsCapturing(group->stream, &capture));
    request->recorded = capture == cudaStreamCaptureStatusActive;
    group->recorded = group->recorded || request->recorded;
    const char *failed = request_run(group, request);
    if (failed != NULL) {
        pthread_mutex_lock(&watch.lock);
        group_give_up(group, request, 0, failed);
    }
    CUDA_CHECK(cudaEventRecord(request->over, group->stream));
    pthread_mutex_lock(&watch.lock);
    group->queued = request->number;
    pthread_mutex_unlock(&watch.lock);
    return request;
}

static void group_wait(struct comm_request *request, struct stream *stream)
{
    if (request == NULL)
        return;
    ENSURE(request->open, "second wait for a request");
    if (stream != NULL)
        CUDA_CHECK(cudaStreamWaitEvent(stream->handle, request->over, 0));
    else
        cuda_wait_for(request->over);
    request->open = false;
}

static void group_describe_transport(const struct comm *, char *text, size_t size)
{
    collective_library(text, size);
}

static void group_use_memory(struct comm *comm, void *memory, size_t bytes)
{
    pthread_mutex_lock(&watch.calls);
    collective_use_memory(group_of(comm)->collective, memory, bytes);
    pthread_mutex_unlock(&watch.calls);
}

/* ---- Supervision */

/* Advance to the first collective that the GPU has not completed; false if all are complete.
 * Captured collectives cannot be queried. A query that fails is no completion. */
static bool group_advance(struct nccl_group *group, double now)
{
    if (group->over < group->started - REQUESTS)
        group->over = group->started - REQUESTS;
    while (group->over < group->queued) {
        const struct comm_request *next = &group->requests[(group->over + 1) % REQUESTS];
        if (!next->recorded && cudaEventQuery(next->over) != cudaSuccess)
            return true;
        group->over++;
        group->progress = now;
    }
    return false;
}

static void group_look(struct nccl_group *group, double now)
{
    const double timeout = comm_timeout();
    const bool waits = group_advance(group, now);
    const double since = group->progress > waiting.began ? group->progress : waiting.began;
    const int64_t number = waits ? group->over + 1 : group->started;
    const struct comm_request *request = &group->requests[number % REQUESTS];
    const char *failed = collective_error(group->collective);
    const bool late = (waits || group->recorded) && timeout > 0 && now - since > timeout;
    if (failed == NULL && !late)
        return;
    group_give_up(group, request, now - since, failed);
}

void watch_begin(void)
{
    const double delay = 0.01;
    waiting.began = clock_now();
    waiting.next_look = waiting.began + delay;
}

void watch_turn(void)
{
    const double often = 0.01;
    const double now = clock_now();
    if (now < waiting.next_look)
        return;
    pthread_mutex_lock(&watch.lock);
    waiting.next_look = now + often;
    for (struct nccl_group *group = watch.first; group != NULL; group = group->next)
        group_look(group, now);
    pthread_mutex_unlock(&watch.lock);
}

/* Needs no lock: only the calling thread opens and closes groups. */
void watch_drain(void)
{
    for (struct nccl_group *group = watch.first; group != NULL; group = group->next) {
        const struct comm_request *last = &group->requests[group->queued % REQUESTS];
        if (group->queued > 1 && !last->recorded)
            cuda_wait_for(last->over);
    }
}

static void watch_enter(struct nccl_group *group)
{
    pthread_mutex_lock(&watch.lock);
    group->next = watch.first;
    watch.first = group;
    pthread_mutex_unlock(&watch.lock);
}

static void watch_leave(struct nccl_group *group)
{
    pthread_mutex_lock(&watch.lock);
    struct nccl_group **link = &watch.first;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    pthread_mutex_unlock(&watch.lock);
}

/* ---- Opening */

static const char opening[] = "NCCL's start";

/* Return the number of roots (collective.h): one per 128 ranks if NCCL supports several. One root
 * would accept a connection of each rank, one after the other. Collective. */
static int roots_agree(const struct nccl_group *group)
{
    enum { ROOT_RANKS = 128 };
    int64_t roots = round_up_division(comm_scaled_ranks(group->comm.size), ROOT_RANKS);
    roots = collective_has_roots() ? smaller(roots, group->comm.size) : 1;
    comm_broadcast(group->host, &roots, 1, COMM_INT64, 0);
    return (int)roots;
}

/* Return the ids of all roots, to be freed by the caller; NULL if NCCL cannot start. Collective. */
static unsigned char *ids_gather(const struct nccl_group *group, int roots, struct error *error)
{
    unsigned char *ids = (unsigned char *)allocate((size_t)roots, COLLECTIVE_ID_BYTES);
    const char *failed = NULL;
    for (int root = 0; root < roots; root++) {
        int64_t first, count;
        cut_evenly(group->comm.size, roots, root, &first, &count);
        if (group->comm.rank == first)
            failed = collective_id(ids + root * COLLECTIVE_ID_BYTES);
    }
    if (failed != NULL)
        error_set(error, ERROR_PEER, "%s does not start: %s; set NCCL_DEBUG=INFO for details",
                  opening, failed);
    if (!comm_agree(group->host, error)) {
        free(ids);
        return NULL;
    }
    /* Each id is zero on all ranks except its root. */
    comm_all_reduce(group->host, ids, roots * (COLLECTIVE_ID_BYTES / (int64_t)sizeof(int64_t)),
                    COMM_INT64, COMM_SUM);
    return ids;
}

/* Return false if NCCL cannot start. Later failures, which other ranks may not notice, end the job.
 */
static bool group_connect(struct nccl_group *group, struct error *error)
{
    struct guard guard;
    const int roots = roots_agree(group);
    unsigned char *ids = ids_gather(group, roots, error);
    if (ids == NULL)
        return false;
    comm_entered(group->host, group->started = group->queued = group->over = 1);
    const double begin = clock_now();
    guard_begin(&guard, group, 1, opening);
    const char *failed =
        collective_open(ids, roots, group->comm.rank, group->comm.size, &group->collective);
    guard_end(&guard);
    free(ids);
    if (failed != NULL) {
        pthread_mutex_lock(&watch.lock);
        comm_give_up(group->host, 1, opening, clock_now() - begin, failed, groups_abort);
    }
    return true;
}

/* The stream has priority over others: a collective that starts late delays all ranks. */
static void group_open_stream(struct nccl_group *group)
{
    int least = 0, greatest = 0;
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_CHECK(cudaStreamCreateWithPriority(&group->stream, cudaStreamNonBlocking, greatest));
    for (int i = 0; i < REQUESTS; i++) {
        group->requests[i].group = group;
        CUDA_CHECK(cudaEventCreateWithFlags(&group->requests[i].over, cudaEventDisableTiming));
    }
}

static void group_close(struct comm *comm)
{
    struct nccl_group *group = group_of(comm);
    cudaEvent_t last = group->requests[0].over;
    CUDA_CHECK(cudaEventRecord(last, group->stream));
    cuda_wait_for(last);
    watch_leave(group);
    for (int i = 0; i < REQUESTS; i++) {
        ENSURE(!group->requests[i].open,
               "a group of GPUs is closed before a collective has completed");
        CUDA_CHECK(cudaEventDestroy(group->requests[i].over));
    }
    collective_close(group->collective);
    CUDA_CHECK(cudaStreamDestroy(group->stream));
    group->host->backend->close(group->host);
    free(group);
}

static const struct comm_backend comm_nccl = {
    .start = group_start,
    .wait = group_wait,
    .describe_transport = group_describe_transport,
    .use_memory = group_use_memory,
    .close = group_close,
};

/* For two groups whose collectives overlap; called before they are opened. Their kernels could wait
 * for each other unless they start in the same order on all ranks. With this variable, which
 * src/comm/mpi.c sets to 1, NCCL starts them, including captured ones, in the order of the host's
 * calls, which is the same on all ranks. */
extern "C" bool nccl_keep_order(struct error *error)
{
    enum { LEAST_VERSION = 22600 };
    static const char variable[] = "NCCL_LAUNCH_ORDER_IMPLICIT";
    char library[64];
    const char *order = getenv(variable);
    if (order != NULL && strcmp(order, "0") == 0)
        return true;
    collective_library(library, sizeof library);
    if (collective_version() < LEAST_VERSION)
        return error_set(error, ERROR_USAGE,
                         "hsdp may deadlock on GPUs with %s, which does not order the collectives "
                         "of two groups: use NCCL 2.26 or newer, or another mesh.strategy; or set "
                         "%s=0 to try",
                         library, variable);
    return true;
}

extern "C" struct comm *nccl_open(struct comm *host, struct error *error)
{
    struct nccl_group *group = (struct nccl_group *)allocate(1, sizeof *group);
    group->comm.backend = &comm_nccl;
    group->comm.rank = host->rank;
    group->comm.size = host->size;
    comm_barrier(host); /* the watch finds missing ranks here, but not inside a split */
    group->host = host->backend->split(host, 0, host->rank);
    if (!group_connect(group, error)) {
        group->host->backend->close(group->host);
        free(group);
        return NULL;
    }
    group_open_stream(group);
    watch_enter(group);
    return &group->comm;
}
