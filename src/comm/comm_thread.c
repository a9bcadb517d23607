// SPDX-License-Identifier: BSD-3-Clause
/* The communication thread: one per process. It runs requests in the order in which they were
 * started, so that the gradients of one unit are reduced while the next unit computes. It shares
 * the cores with computing threads, so it sleeps instead of spinning. */
#include "comm/internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t queued, done;
    struct comm_request *first, *last; /* queue of requests that have not started */
    struct comm_request *unused;       /* free list: no allocation in a step */
    bool open, stop;
    double busy, exposed;
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

/* Wait for the next request; NULL: stop. */
static struct comm_request *request_take(void)
{
    enum { TURN_NANOSECONDS = 200 * 1000 * 1000 };
    pthread_mutex_lock(&progress.lock);
    while (progress.first == NULL && !progress.stop) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += TURN_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&progress.queued, &progress.lock, &until);
        if (progress.first == NULL) {
            pthread_mutex_unlock(&progress.lock);
            heartbeat_turn(NULL, 0, clock_now());
            pthread_mutex_lock(&progress.lock);
        }
    }
    struct comm_request *request = progress.first;
    if (request != NULL)
        progress.first = request->next;
    pthread_mutex_unlock(&progress.lock);
    return request;
}

/* Request a short scheduler time slice (Linux 6.12 and later; ignored by others). The thread runs
 * for microseconds at a time and would otherwise wait for the end of a computing thread's slice
 * (3 ms) at each wake-up. */
static void thread_wake_quickly(void)
{
    /* struct sched_attr of the kernel, whose header conflicts with that of older glibc. */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0)
        return;
    attributes.runtime = 100 * 1000;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static void *thread_main(void *argument)
{
    unsigned char *scratch = argument;
    struct comm_request *request;
    thread_wake_quickly();
    while ((request = request_take()) != NULL) {
        progress_wait_event(request);
        request->began = clock_now();
        if (request->sequence > 0)
            request->group->entered = request->sequence;
        request->scratch = scratch;
        transport_run(request);
        double end = clock_now();
        pthread_mutex_lock(&progress.lock);
        progress.busy += end - request->began;
        request->done = true;
        pthread_cond_broadcast(&progress.done);
        pthread_mutex_unlock(&progress.lock);
        heartbeat_turn(NULL, 0, end);
    }
    free(scratch);
    return NULL;
}

void progress_open(void)
{
    pthread_condattr_t monotonic;
    ENSURE(pthread_condattr_init(&monotonic) == 0 &&
               pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
               pthread_cond_init(&progress.queued, &monotonic) == 0,
           "cannot set up the communication thread");
    pthread_condattr_destroy(&monotonic);
    const size_t huge_page = (size_t)2 << 20; /* see cpu_allocate */
    void *scratch = aligned_alloc(huge_page, SCRATCH_BYTES);
    ENSURE_MEMORY(scratch != NULL, "no memory for the communication thread");
    madvise(scratch, SCRATCH_BYTES, MADV_HUGEPAGE);
    /* New threads inherit the timer slack. With the default, a sleep of 20 us takes 70 us. */
    prctl(PR_SET_TIMERSLACK, 1000);
    int failed = thread_start(&progress.thread, "communication", thread_main, scratch);
    ENSURE_MEMORY(failed == 0, "no thread for communication: %s", strerror(failed));
    progress.open = true;
}

void progress_close(void)
{
    if (!progress.open)
        return;
    pthread_mutex_lock(&progress.lock);
    ENSURE(progress.first == NULL,
           "a collective was not waited for before the end of communication");
    progress.stop = true;
    pthread_cond_signal(&progress.queued);
    pthread_mutex_unlock(&progress.lock);
    pthread_join(progress.thread, NULL);
    pthread_cond_destroy(&progress.queued);
    while (progress.unused != NULL) {
        struct comm_request *request = progress.unused;
        progress.unused = request->next;
        free(request);
    }
    progress.open = progress.stop = false;
}

struct comm_request *progress_request(const struct comm_request *wanted)
{
    ENSURE(wanted->call.after == NULL || wanted->group->comm.device != NULL,
           "a collective waits for an event, but its group has no device");
    pthread_mutex_lock(&progress.lock);
    struct comm_request *request = progress.unused;
    if (request != NULL)
        progress.unused = request->next;
    pthread_mutex_unlock(&progress.lock);
    if (request == NULL)
        request = allocate(1, sizeof *request);
    *request = *wanted;
    return request;
}

void progress_release(struct comm_request *request)
{
    pthread_mutex_lock(&progress.lock);
    request->next = progress.unused;
    progress.unused = request;
    pthread_mutex_unlock(&progress.lock);
}

void progress_wait_event(const struct comm_request *request)
{
    if (request->call.after != NULL)
        request->group->comm.device->event_synchronize(request->call.after);
}

void progress_copy(const struct comm_request *request, struct stream *stream)
{
    const struct device_backend *device = request->group->comm.device;
    const size_t bytes = (size_t)request_bytes(request);
    ENSURE(stream == NULL || device != NULL, "a copy on a stream, but the group has no device");
    if (stream == NULL)
        progress_wait_event(request);
    else if (request->call.after != NULL)
        device->stream_wait(stream, request->call.after);
    for (int part = 0; part < request->call.parts[0]; part++) {
        void *into = part_received(request, part), *from = part_sent(request, 0, part);
        if (stream == NULL)
            memcpy(into, from, bytes);
        else
            device->copy(stream, into, from, bytes);
    }
}

struct comm_request *progress_start(const struct comm_request *wanted)
{
    struct comm_request *request = progress_request(wanted);
    pthread_mutex_lock(&progress.lock);
    if (progress.first == NULL)
        progress.first = request;
    else
        progress.last->next = request;
    progress.last = request;
    pthread_cond_signal(&progress.queued);
    pthread_mutex_unlock(&progress.lock);
    return request;
}

void progress_wait(struct comm_request *request)
{
    if (request == NULL)
        return;
    pthread_mutex_lock(&progress.lock);
    if (!request->done) {
        double start = clock_now();
        status_set_waiting(true);
        while (!request->done)
            pthread_cond_wait(&progress.done, &progress.lock);
        status_set_waiting(false);
        progress.exposed += clock_now() - start;
    }
    pthread_mutex_unlock(&progress.lock);
    progress_release(request);
}

void progress_count(double seconds)
{
    pthread_mutex_lock(&progress.lock);
    progress.busy += seconds;
    progress.exposed += seconds;
    pthread_mutex_unlock(&progress.lock);
}

void comm_times(double *busy, double *exposed)
{
    pthread_mutex_lock(&progress.lock);
    *busy = progress.busy;
    *exposed = progress.exposed;
    pthread_mutex_unlock(&progress.lock);
}

bool idle_sleep(struct idle *idle)
{
    /* After some polls, sleep for a fraction of the time waited so far: the delay is at most that
     * fraction, and a long wait costs almost no CPU time. sched_yield() could lose a whole slice.
     */
    enum { POLLS = 20 };
    const double shortest = 20e-6, longest = 1e-3, part = 0.125;
    if (idle->turns++ < POLLS)
        return false;
    idle->now = clock_now();
    if (idle->turns == POLLS + 1)
        idle->since = idle->now;
    double seconds = (idle->now - idle->since) * part;
    seconds = seconds < shortest ? shortest : seconds > longest ? longest : seconds;
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
    return true;
}

void progress_idle(struct idle *idle, bool moved)
{
    enum { MOVES = 64 };
    if (moved) {
        idle->turns = 0;
        if (++idle->moves % MOVES == 0)
            heartbeat_turn(idle->request, 0, clock_now());
    } else if (idle_sleep(idle)) {
        heartbeat_turn(idle->request, idle->now - idle->since, idle->now);
    }
}
