// SPDX-License-Identifier: BSD-3-Clause
/* Time limits. A watchdog thread ends checks that take too long, because MPI waits forever for a
 * node that it cannot reach. File accesses, which may hang on a dead server, run in a thread that
 * can be abandoned. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/launcher.h"
#include "tools/doctor/doctor.h"

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    bool open, stop;
    bool reported; /* last_words was called; later results are ignored */
    char what[128];
    double start, seconds, grace;
    int rank; /* -1: not yet known */
    void (*last_words)(const char *what, double seconds);
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .rank = -1};

static _Noreturn void give_up(void)
{
    char who[32] = "";
    if (watch.rank >= 0)
        snprintf(who, sizeof who, "rank %d on ", watch.rank);
    fprintf(
        stderr,
        "vittrain: failure: %s%s: doctor: %s did not finish within %.0f s: check that all nodes "
        "are up and reach each other over MPI's interface (OMPI_MCA_btl_tcp_if_include)\n",
        who, comm_host(), watch.what, watch.seconds);
    fflush(stderr);
    _exit(ERROR_PEER);
}

static void *watch_main(void *unused)
{
    (void)unused;
    for (;;) {
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
        pthread_mutex_lock(&watch.lock);
        double late = clock_now() - watch.start - watch.seconds;
        bool stop = watch.stop, speak = !stop && late > 0 && !watch.reported;
        watch.reported = watch.reported || speak;
        pthread_mutex_unlock(&watch.lock);
        if (stop)
            return NULL;
        if (speak && watch.last_words != NULL)
            watch.last_words(watch.what, watch.seconds);
        /* Before MPI has started, nothing else ends the job. */
        double wait = watch.rank >= 0 ? watch.grace : 0;
        if (late > wait + (launcher_rank() > 0 ? watch.grace : 0))
            give_up();
    }
}

void doctor_watch(const char *what, double seconds)
{
    pthread_mutex_lock(&watch.lock);
    bool reported = watch.reported;
    if (!reported)
        snprintf(watch.what, sizeof watch.what, "%s", what);
    watch.start = reported ? watch.start : clock_now();
    watch.seconds = reported ? watch.seconds : seconds;
    pthread_mutex_unlock(&watch.lock);
    if (reported)
        give_up();
}

void doctor_watch_open(double patience, double grace)
{
    watch.grace = grace;
    doctor_watch("starting MPI", patience);
    ENSURE_MEMORY(pthread_create(&watch.thread, NULL, watch_main, NULL) == 0,
                  "no thread to limit the time of checks");
    watch.open = true;
}

void doctor_watch_speaker(int rank, void (*last_words)(const char *what, double seconds))
{
    pthread_mutex_lock(&watch.lock);
    watch.rank = rank;
    watch.last_words = rank == 0 ? last_words : NULL;
    pthread_mutex_unlock(&watch.lock);
}

void doctor_watch_close(void)
{
    pthread_mutex_lock(&watch.lock);
    watch.stop = true;
    pthread_mutex_unlock(&watch.lock);
    if (watch.open)
        pthread_join(watch.thread, NULL);
    watch.open = watch.stop = false;
}

/* The side that changes the state last frees the structure. */
enum { BOUNDED_RUNNING, BOUNDED_DONE, BOUNDED_ABANDONED };

struct bounded {
    atomic_int state;
    void (*work)(void *);
    void *argument;
};

static void *bounded_main(void *argument)
{
    struct bounded *bounded = argument;
    bounded->work(bounded->argument);
    if (atomic_exchange(&bounded->state, BOUNDED_DONE) == BOUNDED_ABANDONED)
        free(bounded);
    return NULL;
}

bool doctor_bounded(void (*work)(void *), void *argument, double seconds)
{
    pthread_t thread;
    double end = clock_now() + seconds;
    struct bounded *bounded = allocate(1, sizeof *bounded);
    *bounded = (struct bounded){.work = work, .argument = argument};
    ENSURE_MEMORY(pthread_create(&thread, NULL, bounded_main, bounded) == 0,
                  "no thread for a check");
    while (atomic_load(&bounded->state) == BOUNDED_RUNNING && clock_now() < end)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    if (atomic_exchange(&bounded->state, BOUNDED_ABANDONED) == BOUNDED_RUNNING) {
        pthread_detach(thread);
        return false;
    }
    pthread_join(thread, NULL);
    free(bounded);
    return true;
}
