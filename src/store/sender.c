/* Passes over the folder, one after another, until the run is over. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* gettid */
#endif
#include "store/sender.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"
#include "core/thread.h"

/* Between two looks; after a failure, growing; after a refusal, which time may put right, too. */
static const double look_seconds = 1, least_delay = 2, most_delay = 60, refused_delay = 120;
/* At the end a failure is tried again sooner, as somebody waits. */
static const double last_delay = 5;
/* A name server or a file system that does not answer must not keep a run from ending. */
static const double patience_seconds = 5;

struct store_sender {
    struct store_run *run;
    pthread_t thread;
    bool running;

    /* The thread's. */
    int failures;        /* in a row */
    double failed_since; /* clock */
    struct error error;  /* of the newest pass */
    struct error said;

    pthread_mutex_t mutex; /* for what follows */
    pthread_cond_t wake;
    bool last;      /* the run is over: send all, then end */
    bool stop;      /* end now */
    bool over;      /* the thread's work is done */
    bool abandoned; /* the sender belongs to the thread */
};

/* ---- the thread ---- */

/* Waits so long, or until the run is over. */
static void rest(struct store_sender *sender, double seconds)
{
    const double end = clock_now() + seconds;
    const struct timespec until = {.tv_sec = (time_t)end,
                                   .tv_nsec = (long)(1e9 * (end - floor(end)))};
    int waited = 0;
    pthread_mutex_lock(&sender->mutex);
    bool was_last = sender->last;
    while (!sender->stop && sender->last == was_last && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&sender->wake, &sender->mutex, &until);
    pthread_mutex_unlock(&sender->mutex);
}

/* Each trouble is said once, and its end. */
static void say_trouble(struct store_sender *sender, enum store_outcome outcome)
{
    if (outcome == STORE_DONE || outcome == STORE_CANCELLED) {
        char lasted[32];
        clock_format(clock_now() - sender->failed_since, lasted, sizeof lasted);
        if (sender->failures > 0 && outcome == STORE_DONE)
            log_info("upload: works again after %s", lasted);
        error_clear(&sender->said);
        return;
    }
    if (sender->failures == 0)
        sender->failed_since = clock_now();
    bool told = sender->said.kind != ERROR_NONE &&
                (outcome == STORE_LATER || strcmp(sender->said.text, sender->error.text) == 0);
    if (!told)
        log_warn("upload: %s: the run goes on, it will be tried again", sender->error.text);
    sender->said = sender->error;
}

/* One pass; how long to wait before the next. */
static double work(struct store_sender *sender, bool last, bool *done)
{
    struct store *store = store_run_store(sender->run);
    error_clear(&sender->error);
    enum store_outcome outcome = store_run_pass(sender->run, last, &sender->error);
    say_trouble(sender, outcome);
    *done = outcome == STORE_DONE || outcome == STORE_REFUSED || outcome == STORE_CANCELLED;
    sender->failures = outcome == STORE_DONE ? 0 : sender->failures + 1;
    if (outcome == STORE_REFUSED)
        return refused_delay;
    if (outcome == STORE_LATER)
        return store_backoff(store, sender->failures, least_delay, last ? last_delay : most_delay);
    return look_seconds;
}

static void sender_free(struct store_sender *sender)
{
    store_run_close(sender->run);
    pthread_cond_destroy(&sender->wake);
    pthread_mutex_destroy(&sender->mutex);
    free(sender);
}

static void *thread_main(void *argument)
{
    struct store_sender *sender = argument;
    bool done = false, last = false, stop = false;
#ifdef SYS_gettid
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19); /* of this thread alone, on Linux */
#endif
    while (!stop && !(last && done)) {
        pthread_mutex_lock(&sender->mutex);
        last = sender->last;
        stop = sender->stop;
        pthread_mutex_unlock(&sender->mutex);
        if (stop)
            break;
        double seconds = work(sender, last, &done);
        if (!(last && done))
            rest(sender, seconds);
    }
    pthread_mutex_lock(&sender->mutex);
    sender->over = true;
    bool abandoned = sender->abandoned;
    pthread_cond_broadcast(&sender->wake);
    pthread_mutex_unlock(&sender->mutex);
    if (abandoned)
        sender_free(sender);
    return NULL;
}

static void thread_open(struct store_sender *sender)
{
    int failure = thread_start(&sender->thread, thread_main, sender);
    sender->running = failure == 0;
    if (failure != 0)
        log_warn("no thread for uploads (%s): all is sent at the end", strerror(failure));
}

struct store_sender *store_sender_open(struct store_run *run)
{
    pthread_condattr_t attributes;
    struct store_sender *sender = calloc(1, sizeof *sender);
    ENSURE(sender != NULL, "no memory for uploads");
    sender->run = run;
    pthread_mutex_init(&sender->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&sender->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    thread_open(sender);
    return sender;
}

/* ---- the end ---- */

/* Is the thread's work done within so many seconds? */
static bool wait_over(struct store_sender *sender, double seconds)
{
    const double end = clock_now() + seconds;
    const struct timespec until = {.tv_sec = (time_t)end,
                                   .tv_nsec = (long)(1e9 * (end - floor(end)))};
    int waited = 0;
    while (!sender->over && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&sender->wake, &sender->mutex, &until);
    return sender->over;
}

/* Without a thread all is done here, once; false: the thread hangs. */
static bool thread_end(struct store_sender *sender, double seconds)
{
    char limit[32];
    if (!sender->running) {
        bool done;
        if (seconds > 0)
            work(sender, true, &done);
        return true;
    }
    pthread_mutex_lock(&sender->mutex);
    sender->last = seconds > 0;
    sender->stop = seconds <= 0;
    pthread_cond_broadcast(&sender->wake);
    bool over = seconds > 0 && wait_over(sender, fmin(1, seconds));
    if (!over && seconds > 1) {
        clock_format(seconds, limit, sizeof limit);
        log_info("upload: waiting for what is still to be sent, %s at most", limit);
        over = wait_over(sender, seconds - 1);
    }
    if (!over) {
        sender->stop = true;
        pthread_cond_broadcast(&sender->wake);
        store_cancel(store_run_store(sender->run));
        over = wait_over(sender, patience_seconds);
    }
    sender->abandoned = !over;
    pthread_mutex_unlock(&sender->mutex);
    if (over)
        pthread_join(sender->thread, NULL);
    else
        pthread_detach(sender->thread);
    return over;
}

static void say_end(struct store_sender *sender)
{
    struct store_run *run = sender->run;
    char names[512];
    int files;
    int64_t bytes, missing_bytes;
    store_run_sent(run, &files, &bytes);
    int missing = store_run_missing(run, names, sizeof names, &missing_bytes);
    if (missing == 0) {
        log_info("upload: all of the run is in %s (%d files sent, %.1f MiB)", store_run_url(run),
                 files, mib((size_t)bytes));
        return;
    }
    log_warn("upload: %d files of the run (%.1f MiB) are not in %s: %s; %s; send them by `vittrain "
             "upload %s %s`",
             missing, mib((size_t)missing_bytes), store_run_url(run), names,
             sender->error.kind != ERROR_NONE ? sender->error.text : "there was no more time",
             store_run_folder(run), store_run_url(run));
}

void store_sender_close(struct store_sender *sender, double seconds)
{
    if (sender == NULL)
        return;
    char url[STORE_URL], folder[STORE_PATH];
    snprintf(url, sizeof url, "%s", store_run_url(sender->run));
    snprintf(folder, sizeof folder, "%s", store_run_folder(sender->run));
    if (thread_end(sender, seconds)) {
        say_end(sender);
        sender_free(sender);
    } else
        log_warn("upload: the store or the network does not answer: send what is missing by "
                 "`vittrain upload %s %s`",
                 folder, url);
}
