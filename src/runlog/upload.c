// SPDX-License-Identifier: BSD-3-Clause
/* A pass copies the files of the run's folder, then the checkpoints that last.h5 and best.h5 point
 * to, then these links as last.txt and best.txt, since remotes have no links. rclone compares size
 * and time and sends what changed. RUN/.upload has the text files that were sent last; they name
 * the checkpoints to delete from the remote when others have been sent. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* gettid */
#endif
#include "runlog/upload.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic_file.h"
#include "core/clock.h"
#include "core/folder.h"
#include "core/log.h"
#include "core/text_file.h"
#include "core/thread.h"
#include "runlog/rclone.h"

static const double pass_seconds = 1, retry_seconds = 5;
/* Sending log files takes at most a twentieth of the time. */
enum { REST = 20, NAME = 256, LINKS = 2 };
static const char *const link_names[LINKS] = {"last", "best"};

struct upload {
    struct upload_setup setup;
    char remote[RCLONE_PATH];
    struct rclone rclone;
    char sent[LINKS][NAME]; /* targets of the links that this process has sent; empty: none */
    double log_due;         /* clock: when log files are sent again */
    struct error trouble;   /* of the newest pass */
    bool failing;

    bool running;
    pthread_t thread;
    atomic_bool run_ended, thread_done;
};

/* ---- one pass */

static enum rclone_outcome command_run(struct upload *upload, const char *const *words)
{
    return rclone_run(&upload->rclone, words, NULL, 0, &upload->trouble);
}

/* Copy the files of the folder, without hidden and partial ones and core dumps. */
static enum rclone_outcome log_send(struct upload *upload)
{
    const double start = clock_now();
    const char *const words[] = {"copy",
                                 "--max-depth=1",
                                 "--exclude=.*",
                                 "--exclude=*.part",
                                 "--exclude=core",
                                 "--exclude=core.*",
                                 upload->setup.folder,
                                 upload->remote,
                                 NULL};
    const enum rclone_outcome outcome = command_run(upload, words);
    upload->log_due = start + fmax(upload->setup.every, REST * (clock_now() - start));
    return outcome;
}

/* Read the targets of the links; empty: none. True if one differs from the target that was sent. */
static bool links_read(const struct upload *upload, char target[LINKS][NAME])
{
    bool changed = false;
    char path[FILE_PATH];
    for (int n = 0; n < LINKS; n++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s.h5", upload->setup.folder, link_names[n]);
        const ssize_t length = readlink(path, target[n], NAME - 1);
        target[n][length > 0 ? length : 0] = '\0';
        changed = changed || strcmp(target[n], upload->sent[n]) != 0;
    }
    return changed;
}

/* True if the checkpoints still exist: the run removes superseded ones. */
static bool targets_exist(const char *folder, char target[LINKS][NAME])
{
    char path[RCLONE_PATH];
    bool exist = true;
    for (int n = 0; n < LINKS; n++) {
        rclone_join(folder, target[n], path);
        exist = exist && access(path, R_OK) == 0;
    }
    return exist;
}

/* Send the links as text files, and delete the checkpoints that only the earlier ones name. */
static enum rclone_outcome links_send(struct upload *upload, char target[LINKS][NAME],
                                      const char *checkpoints)
{
    char folder[FILE_PATH], path[FILE_PATH + 16], text[NAME + 1], object[RCLONE_PATH];
    char *earlier[LINKS];
    snprintf(folder, sizeof folder, "%s/.upload", upload->setup.folder);
    bool good = folder_make(folder, "make it writable", &upload->trouble);
    for (int n = 0; n < LINKS; n++) {
        snprintf(path, sizeof path, "%s/%s.txt", folder, link_names[n]);
        snprintf(text, sizeof text, "%.*s\n", NAME - 1, target[n]);
        earlier[n] = text_file_read(path, NULL);
        good = good && (target[n][0] == '\0' || atomic_file_write(path, text, &upload->trouble));
    }
    const enum rclone_outcome outcome =
        good ? command_run(upload, (const char *[]){"copy", folder, checkpoints, NULL})
             : RCLONE_FAILED;
    for (int n = 0; n < LINKS; n++) {
        if (earlier[n] != NULL)
            earlier[n][strcspn(earlier[n], "\n")] = '\0';
        if (outcome == RCLONE_DONE && earlier[n] != NULL && strcmp(earlier[n], target[0]) != 0 &&
            strcmp(earlier[n], target[1]) != 0) {
            rclone_join(checkpoints, earlier[n], object);
            if (command_run(upload, (const char *[]){"deletefile", object, NULL}) == RCLONE_FAILED)
                log_warn("upload: a superseded checkpoint stays on the remote: %s",
                         upload->trouble.text);
            error_clear(&upload->trouble);
        }
        free(earlier[n]);
    }
    return outcome;
}

static enum rclone_outcome checkpoints_send(struct upload *upload)
{
    char target[LINKS][NAME], filter[LINKS][NAME + 16], from[RCLONE_PATH], to[RCLONE_PATH];
    if (!links_read(upload, target))
        return RCLONE_DONE;
    rclone_join(upload->setup.folder, "checkpoints", from);
    rclone_join(upload->remote, "checkpoints", to);
    for (int n = 0; n < LINKS; n++)
        snprintf(filter[n], sizeof filter[n], "--include=/%s",
                 target[target[n][0] != '\0' ? n : 0]);
    enum rclone_outcome outcome = command_run(
        upload, (const char *[]){"copy", "--max-depth=1", filter[0], filter[1], from, to, NULL});
    if (outcome != RCLONE_CANCELLED && !targets_exist(from, target))
        return RCLONE_DONE; /* the next pass sends the newer ones */
    if (outcome == RCLONE_DONE)
        log_info("upload: sent checkpoints/%s", target[0]);
    if (outcome == RCLONE_DONE)
        outcome = links_send(upload, target, to);
    if (outcome == RCLONE_DONE)
        memcpy(upload->sent, target, sizeof target);
    return outcome;
}

/* all: log files that are not due, too. */
static enum rclone_outcome upload_pass(struct upload *upload, bool all)
{
    enum rclone_outcome outcome = RCLONE_DONE;
    error_clear(&upload->trouble);
    if (all || clock_now() >= upload->log_due)
        outcome = log_send(upload);
    return outcome == RCLONE_DONE ? checkpoints_send(upload) : outcome;
}

/* ---- opening */

/* Set upload->remote: `remote`, or the folder's name below it. */
static bool remote_complete(struct upload *upload, const char *remote, struct error *error)
{
    const size_t length = strlen(remote);
    const bool whole = length > 0 && strchr("/:", remote[length - 1]) == NULL &&
                       (strncmp(remote, "s3://", 5) != 0 || strchr(remote + 5, '/') != NULL);
    char *path = realpath(upload->setup.folder, NULL);
    if (path == NULL)
        return error_set(error, ERROR_FILE, "%s: %s; name the folder of a run",
                         upload->setup.folder, strerror(errno));
    if (whole)
        snprintf(upload->remote, sizeof upload->remote, "%s", remote);
    else
        rclone_join(remote, strrchr(path, '/') + 1, upload->remote);
    free(path);
    return true;
}

struct upload *upload_open(const struct upload_setup *setup, struct error *error)
{
    struct upload *upload = allocate(1, sizeof *upload);
    upload->setup = *setup;
    upload->rclone.rate = setup->rate;
    upload->rclone.label = setup->shows_progress ? "upload" : NULL;
    bool good = remote_complete(upload, setup->remote, error) &&
                rclone_check(setup->remote, setup->option, error);
    if (good) {
        upload->rclone.seconds = 30;
        const enum rclone_outcome outcome = log_send(upload);
        upload->rclone.seconds = 0;
        good = outcome == RCLONE_DONE || outcome == RCLONE_UNREACHABLE ||
               error_set(error, ERROR_NETWORK, "%s: %s", setup->option, upload->trouble.text);
        if (outcome == RCLONE_UNREACHABLE)
            log_warn("%s: %s; continuing, the upload is tried again", setup->option,
                     upload->trouble.text);
        else if (good)
            log_info("upload: to %s", upload->remote);
    }
    if (good)
        return upload;
    free(upload);
    return NULL;
}

/* ---- the thread */

/* Wait until `seconds` have passed, or a flag is set. */
static void flag_wait(atomic_bool *flag, double seconds)
{
    const double until = clock_now() + seconds;
    while (!atomic_load(flag) && clock_now() < until)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

/* Log the first of several failures, and their end. */
static void trouble_log(struct upload *upload, bool failed)
{
    if (failed && !upload->failing)
        log_warn("upload: %s; the run continues, the upload is tried again", upload->trouble.text);
    if (!failed && upload->failing)
        log_info("upload: successful again");
    upload->failing = failed;
}

static void *thread_main(void *argument)
{
    struct upload *upload = argument;
#ifdef SYS_gettid
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19); /* of this thread and its children */
#endif
    while (!atomic_load(&upload->thread_done)) {
        const bool last = atomic_load(&upload->run_ended);
        const enum rclone_outcome outcome = upload_pass(upload, last);
        const bool cancelled = atomic_load(&upload->rclone.cancelled);
        if (!cancelled)
            trouble_log(upload, outcome != RCLONE_DONE);
        if (cancelled || (last && outcome == RCLONE_DONE))
            atomic_store(&upload->thread_done, true);
        else
            flag_wait(last ? &upload->rclone.cancelled : &upload->run_ended,
                      outcome == RCLONE_DONE ? pass_seconds : retry_seconds);
    }
    return NULL;
}

void upload_start(struct upload *upload)
{
    const int failure = thread_start(&upload->thread, "upload", thread_main, upload);
    upload->running = failure == 0;
    if (failure != 0)
        log_warn("cannot start the thread for uploads: %s; use `vittrain upload %s %s` afterwards",
                 strerror(failure), upload->setup.folder, upload->remote);
}

static void thread_end(struct upload *upload, double seconds)
{
    char limit[32];
    atomic_store(&upload->rclone.cancelled, seconds <= 0);
    atomic_store(&upload->run_ended, true);
    flag_wait(&upload->thread_done, fmin(1, seconds));
    if (seconds > 1 && !atomic_load(&upload->thread_done)) {
        clock_format(seconds, limit, sizeof limit);
        log_info("upload: waiting up to %s for the files that are not sent yet", limit);
        flag_wait(&upload->thread_done, seconds - 1);
    }
    const bool complete = seconds > 0 && atomic_load(&upload->thread_done);
    atomic_store(&upload->rclone.cancelled, true);
    pthread_join(upload->thread, NULL);
    if (complete)
        log_info("upload: all of the run is in %s", upload->remote);
    else
        log_warn("upload: not all files of the run are in %s: %s; send them with `vittrain upload "
                 "%s %s`",
                 upload->remote,
                 upload->trouble.kind != ERROR_NONE ? upload->trouble.text : "out of time",
                 upload->setup.folder, upload->remote);
}

void upload_close(struct upload *upload, double seconds)
{
    if (upload == NULL)
        return;
    if (upload->running)
        thread_end(upload, seconds);
    free(upload);
}

void upload_all(struct upload *upload, struct error *error)
{
    if (upload_pass(upload, true) == RCLONE_DONE)
        log_info("%s is in %s", upload->setup.folder, upload->remote);
    else
        error_set(error, ERROR_NETWORK,
                  "not all files of %s are in %s: %s; start the command again",
                  upload->setup.folder, upload->remote, upload->trouble.text);
}
