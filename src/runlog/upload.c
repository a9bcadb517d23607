// SPDX-License-Identifier: BSD-3-Clause
/* A pass over the run's folder copies what changed since it was last sent: the files of the folder
 * itself, then the checkpoints that last.h5 and best.h5 point to, then these pointers as last.txt
 * and best.txt, since remotes have no links. RUN/.upload.json lists the checkpoints that were sent,
 * so that only those are ever deleted. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* gettid */
#endif
#include "runlog/upload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "core/atomic_file.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/output_file.h"
#include "core/text.h"
#include "core/thread.h"
#include "runlog/rclone.h"

/* Seconds between two passes; between two tries after a failure, at first and at most. */
static const double pass_seconds = 1, retry_least = 2, retry_most = 60, retry_last = 5;
/* Sending log files takes at most a twentieth of the time. */
enum { REST = 20, TRIES = 3, NAME = 256, LAST = 0, LINKS = 2 };
static const char *const link_names[LINKS] = {"last", "best"};

struct version { /* a file's content changed if one of these did */
    int64_t bytes, modified, inode;
};

struct item {
    char name[NAME]; /* below the folder and below the remote */
    bool checkpoint, exists, sent;
    struct version now, sent_version;
};

struct upload {
    struct upload_setup setup;
    char folder[RCLONE_PATH], remote[RCLONE_PATH];
    struct rclone rclone;
    int lock;
    json_t *checkpoints; /* remote paths of checkpoints that were sent, as keys */
    struct item *item;
    int count;
    char target[LINKS][NAME];  /* checkpoints that the links point to; empty: none */
    char pointer[LINKS][NAME]; /* the same as last sent */
    double log_due;            /* clock: when log files are sent again */
    bool keeps_old;            /* deleting was refused */
    int files;                 /* sent so far */
    int64_t bytes;
    struct error trouble; /* of the newest pass; empty: none */
    int failures;         /* passes in a row */

    bool running;
    pthread_t thread;
    pthread_mutex_t mutex; /* of the rest */
    pthread_cond_t changed;
    bool last, over; /* the run has ended; the thread is done */
};

/* ---- the folder */

static void item_update(struct upload *upload, const char *name, bool checkpoint)
{
    char path[RCLONE_PATH + NAME];
    struct stat status;
    int n = 0;
    snprintf(path, sizeof path, "%s/%s", upload->folder, name);
    if (strlen(name) >= NAME || stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return;
    const int64_t modified = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
    while (n < upload->count && strcmp(upload->item[n].name, name) != 0)
        n++;
    if (n == upload->count) {
        upload->item = realloc(upload->item, (size_t)++upload->count * sizeof *upload->item);
        ENSURE(upload->item != NULL, "no memory for the list of a run's files");
        upload->item[n] = (struct item){.checkpoint = checkpoint};
        snprintf(upload->item[n].name, NAME, "%s", name);
    }
    struct item *item = &upload->item[n];
    item->exists = true;
    item->now = (struct version){status.st_size, modified, (int64_t)status.st_ino};
    if (memcmp(&item->now, &item->sent_version, sizeof item->now) != 0)
        item->sent = false;
}

/* Lists the files of the folder, without hidden and partial ones and core dumps, and the
 * checkpoints that the links point to. */
static bool items_update(struct upload *upload, struct error *error)
{
    char path[RCLONE_PATH + NAME];
    DIR *folder = opendir(upload->folder);
    if (folder == NULL)
        return error_set(error, ERROR_FILE, "cannot read the folder %s: %s", upload->folder,
                         strerror(errno));
    for (int n = 0; n < upload->count; n++)
        upload->item[n].exists = false;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *name = entry->d_name;
        if (name[0] != '.' && !text_ends_with(name, ".part") && strcmp(name, "core") != 0 &&
            strncmp(name, "core.", 5) != 0)
            item_update(upload, name, false);
    }
    closedir(folder);
    for (int n = 0; n < LINKS; n++) {
        char *target = upload->target[n], name[NAME + 16];
        snprintf(path, sizeof path, "%s/checkpoints/%s.h5", upload->folder, link_names[n]);
        ssize_t length = readlink(path, target, NAME - 16);
        target[length > 0 ? length : 0] = '\0';
        snprintf(name, sizeof name, "checkpoints/%s", target);
        if (target[0] != '\0' && strchr(target, '/') == NULL)
            item_update(upload, name, true);
    }
    return true;
}

/* ---- one pass */

static void item_sent(struct upload *upload, struct item *item, const struct version *version)
{
    item->sent = true;
    item->sent_version = *version;
    upload->files++;
    upload->bytes += version->bytes;
}

/* Copies all changed log files with one command. */
static enum rclone_outcome log_send(struct upload *upload, struct error *error)
{
    char *names = calloc((size_t)upload->count + 1, NAME + 1);
    ENSURE(names != NULL, "no memory for the list of a run's files");
    double start = clock_now();
    size_t used = 0;
    for (int n = 0; n < upload->count; n++)
        if (upload->item[n].exists && !upload->item[n].sent && !upload->item[n].checkpoint)
            used += (size_t)sprintf(names + used, "%s\n", upload->item[n].name);
    enum rclone_outcome outcome = RCLONE_DONE;
    if (used > 0)
        outcome = rclone_run(
            &upload->rclone,
            (const char *[]){"copy", "--files-from-raw=-", upload->folder, upload->remote, NULL},
            names, NULL, 0, error);
    for (int n = 0; n < upload->count && outcome == RCLONE_DONE; n++) {
        struct item *item = &upload->item[n];
        if (item->exists && !item->sent && !item->checkpoint)
            item_sent(upload, item, &item->now);
    }
    upload->log_due = start + fmax(upload->setup.every, REST * (clock_now() - start));
    free(names);
    return outcome;
}

static void state_save(struct upload *upload)
{
    char path[FILE_PATH];
    struct error error = {.kind = ERROR_NONE};
    json_t *root = json_pack("{s:O}", "checkpoints", upload->checkpoints);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    ENSURE(text != NULL, "no memory for the list of uploads");
    snprintf(path, sizeof path, "%.*s/.upload.json", FILE_PATH - 32, upload->folder);
    if (!atomic_file_write(path, text, &error))
        log_warn("upload: %s; superseded checkpoints may stay on the remote", error.text);
    json_decref(root);
    free(text);
}

static enum rclone_outcome checkpoint_send(struct upload *upload, struct item *item,
                                           struct error *error)
{
    char path[RCLONE_PATH], object[RCLONE_PATH], lasted[32];
    const struct version version = item->now;
    double start = clock_now();
    rclone_join(upload->folder, item->name, path);
    rclone_join(upload->remote, item->name, object);
    enum rclone_outcome outcome = rclone_run(
        &upload->rclone, (const char *[]){"copyto", path, object, NULL}, NULL, NULL, 0, error);
    if (outcome != RCLONE_DONE && outcome != RCLONE_CANCELLED && access(path, F_OK) != 0) {
        error_clear(error); /* superseded and removed by the run meanwhile */
        return RCLONE_DONE;
    }
    if (outcome != RCLONE_DONE)
        return outcome;
    item_sent(upload, item, &version);
    clock_format(clock_now() - start, lasted, sizeof lasted);
    log_info("upload: sent %s (%.1f MiB, %s)", item->name, mib((size_t)version.bytes), lasted);
    json_object_set_new(upload->checkpoints, object, json_true());
    state_save(upload);
    return RCLONE_DONE;
}

/* Write the name of the text file that represents a link on the remote. */
static void pointer_name(int link, char name[static NAME])
{
    snprintf(name, NAME, "checkpoints/%s.txt", link_names[link]);
}

/* True if the text file on the remote does not name the link's target. */
static bool pointer_is_old(const struct upload *upload, int link)
{
    return strcmp(upload->target[link], upload->pointer[link]) != 0;
}

/* Sends the links as text files, each after the checkpoint that it points to. */
static enum rclone_outcome pointers_send(struct upload *upload, struct error *error)
{
    for (int n = 0; n < LINKS; n++) {
        char name[NAME], object[RCLONE_PATH], text[NAME + 1];
        const char *target = upload->target[n];
        bool sent = false;
        for (int i = 0; i < upload->count; i++)
            if (upload->item[i].checkpoint && strcmp(upload->item[i].name + 12, target) == 0)
                sent = upload->item[i].sent;
        if (!sent || !pointer_is_old(upload, n))
            continue;
        pointer_name(n, name);
        snprintf(text, sizeof text, "%s\n", target);
        rclone_join(upload->remote, name, object);
        enum rclone_outcome outcome = rclone_run(
            &upload->rclone, (const char *[]){"rcat", object, NULL}, text, NULL, 0, error);
        if (outcome != RCLONE_DONE)
            return outcome;
        memcpy(upload->pointer[n], target, NAME);
    }
    return RCLONE_DONE;
}

/* Deletes the checkpoints that were sent from this folder and that no pointer names any more. */
static enum rclone_outcome superseded_delete(struct upload *upload, struct error *error)
{
    char prefix[RCLONE_PATH];
    const char *object;
    json_t *value;
    void *next;
    if (upload->keeps_old || upload->target[LAST][0] == '\0')
        return RCLONE_DONE;
    rclone_join(upload->remote, "checkpoints/", prefix);
    json_object_foreach_safe(upload->checkpoints, next, object, value)
    {
        bool wanted = strncmp(object, prefix, strlen(prefix)) != 0;
        for (int n = 0; n < LINKS; n++) {
            if (pointer_is_old(upload, n))
                return RCLONE_DONE;
            wanted = wanted || strcmp(object + strlen(prefix), upload->target[n]) == 0;
        }
        if (wanted)
            continue;
        enum rclone_outcome outcome = rclone_run(
            &upload->rclone, (const char *[]){"deletefile", object, NULL}, NULL, NULL, 0, error);
        if (outcome == RCLONE_LATER || outcome == RCLONE_CANCELLED)
            return outcome;
        upload->keeps_old = outcome == RCLONE_REFUSED;
        if (upload->keeps_old)
            log_warn("upload: superseded checkpoints stay on the remote: %s", error->text);
        error_clear(error);
        if (upload->keeps_old)
            return RCLONE_DONE;
        json_object_del(upload->checkpoints, object);
        state_save(upload);
    }
    return RCLONE_DONE;
}

/* `all`: log files that are not due, too. After each checkpoint the folder is read again, so that
 * the newest one is sent next and those in between are left out. */
static enum rclone_outcome upload_pass(struct upload *upload, bool all)
{
    struct error *error = &upload->trouble;
    enum rclone_outcome outcome = RCLONE_DONE;
    error_clear(error);
    if (!items_update(upload, error))
        return RCLONE_REFUSED;
    if (all || clock_now() >= upload->log_due)
        outcome = log_send(upload, error);
    while (outcome == RCLONE_DONE) {
        struct item *item = NULL;
        outcome = pointers_send(upload, error);
        for (int n = 0; n < upload->count && item == NULL; n++)
            if (upload->item[n].checkpoint && upload->item[n].exists && !upload->item[n].sent)
                item = &upload->item[n];
        if (item == NULL || outcome != RCLONE_DONE)
            break;
        outcome = checkpoint_send(upload, item, error);
        if (!items_update(upload, error))
            return RCLONE_REFUSED;
    }
    return outcome == RCLONE_DONE ? superseded_delete(upload, error) : outcome;
}

static void name_append(char *names, size_t size, const char *name)
{
    size_t used = strlen(names);
    snprintf(names + used, size - used, "%s%s", used > 0 ? ", " : "", name);
}

/* Count and name the files that are not sent. The lines about uploads themselves, which train.log
 * gets at the end, do not count. */
static int missing_list(struct upload *upload, char *names, size_t size, int64_t *bytes)
{
    struct error ignored = {.kind = ERROR_NONE};
    int count = 0;
    names[0] = '\0';
    *bytes = 0;
    items_update(upload, &ignored);
    for (int n = 0; n < upload->count; n++) {
        const struct item *item = &upload->item[n];
        bool grew = strcmp(item->name, "train.log") == 0 && item->sent_version.inode > 0;
        if (!item->exists || item->sent || grew)
            continue;
        count++;
        *bytes += item->now.bytes;
        name_append(names, size, item->name);
    }
    const bool pointers_only = count == 0; /* a link waits for its checkpoint */
    for (int n = 0; n < LINKS && pointers_only; n++) {
        char name[NAME];
        if (!pointer_is_old(upload, n))
            continue;
        count++;
        pointer_name(n, name);
        name_append(names, size, name);
    }
    return count;
}

/* ---- opening */

/* True if files can be written below the remote: writes and deletes a small one. */
static bool write_check(struct upload *upload, struct error *error)
{
    char object[RCLONE_PATH];
    struct error trouble = {.kind = ERROR_NONE}, ignored = {.kind = ERROR_NONE};
    upload->rclone.seconds = 30;
    rclone_join(upload->remote, ".check", object);
    enum rclone_outcome outcome = rclone_run(
        &upload->rclone, (const char *[]){"rcat", object, NULL}, "vittrain\n", NULL, 0, &trouble);
    if (outcome == RCLONE_DONE)
        rclone_run(&upload->rclone, (const char *[]){"deletefile", object, NULL}, NULL, NULL, 0,
                   &ignored);
    upload->rclone.seconds = 0;
    if (outcome == RCLONE_REFUSED || outcome == RCLONE_MISSING)
        return error_set(error, trouble.kind, "%s: %s", upload->setup.option, trouble.text);
    if (outcome == RCLONE_LATER)
        log_warn("%s: %s; continuing, the upload is tried again", upload->setup.option,
                 trouble.text);
    return true;
}

struct upload *upload_open(const struct upload_setup *setup, struct error *error)
{
    char lock[RCLONE_PATH + 32], state[RCLONE_PATH + 32];
    struct upload *upload = calloc(1, sizeof *upload);
    ENSURE(upload != NULL, "no memory for uploads");
    upload->setup = *setup;
    upload->lock = -1;
    upload->rclone =
        (struct rclone){.rate = setup->rate, .label = setup->shows_progress ? "upload" : NULL};
    snprintf(upload->folder, sizeof upload->folder, "%s", setup->folder);
    snprintf(lock, sizeof lock, "%s/.upload.lock", upload->folder);
    snprintf(state, sizeof state, "%s/.upload.json", upload->folder);
    char *path = realpath(setup->folder, NULL);
    const char *remote = setup->remote;
    size_t length = strlen(remote);
    bool whole = length > 0 && strchr("/:", remote[length - 1]) == NULL &&
                 (strncmp(remote, "s3://", 5) != 0 || strchr(remote + 5, '/') != NULL);
    if (path == NULL)
        error_set(error, ERROR_FILE, "%s: %s; name the folder of a run", setup->folder,
                  strerror(errno));
    else if (rclone_check(remote, setup->option, error)) {
        if (whole)
            snprintf(upload->remote, sizeof upload->remote, "%s", remote);
        else
            rclone_join(remote, strrchr(path, '/') + 1, upload->remote);
        upload->lock = output_file_open(lock, O_RDWR | O_CREAT);
        if (upload->lock < 0)
            error_set(error, ERROR_FILE, "%s: %s; make the folder writable", lock, strerror(errno));
        else if (flock(upload->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
            error_set(error, ERROR_USAGE, "another process uploads %s: wait until it ends",
                      upload->folder);
    }
    free(path);
    json_t *root = json_load_file(state, 0, NULL), *known = json_object_get(root, "checkpoints");
    upload->checkpoints = json_is_object(known) ? json_incref(known) : json_object();
    json_decref(root);
    if (error->kind == ERROR_NONE && write_check(upload, error)) {
        log_info("upload: to %s", upload->remote);
        return upload;
    }
    upload_close(upload, 0);
    return NULL;
}

/* ---- the thread */

/* Waits for a change of `last` or of `over`, or for the end of the time. Called with the mutex. */
static void change_wait(struct upload *upload, double seconds)
{
    const double end = clock_now() + seconds;
    const struct timespec until = {.tv_sec = (time_t)end,
                                   .tv_nsec = (long)(1e9 * (end - floor(end)))};
    const bool last = upload->last, over = upload->over;
    int waited = 0;
    while (upload->last == last && upload->over == over && waited != ETIMEDOUT &&
           !atomic_load(&upload->rclone.cancelled))
        waited = pthread_cond_timedwait(&upload->changed, &upload->mutex, &until);
}

/* Each trouble is logged once, and so is its end. Returns the seconds until the next pass. */
static double trouble_log(struct upload *upload, enum rclone_outcome outcome, bool last)
{
    if (outcome == RCLONE_DONE) {
        if (upload->failures > 0)
            log_info("upload: works again");
        upload->failures = 0;
        return pass_seconds;
    }
    if (outcome != RCLONE_CANCELLED && upload->failures++ == 0)
        log_warn("upload: %s; the run continues, the upload is tried again", upload->trouble.text);
    double delay = ldexp(retry_least, upload->failures < 8 ? upload->failures - 1 : 7);
    return fmin(delay, last ? retry_last : retry_most);
}

static void *thread_main(void *argument)
{
    struct upload *upload = argument;
    bool done = false;
#ifdef SYS_gettid
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19); /* of this thread and its children */
#endif
    pthread_mutex_lock(&upload->mutex);
    while (!done) {
        bool last = upload->last;
        pthread_mutex_unlock(&upload->mutex);
        enum rclone_outcome outcome = upload_pass(upload, last);
        double delay = trouble_log(upload, outcome, last);
        pthread_mutex_lock(&upload->mutex);
        done = atomic_load(&upload->rclone.cancelled) || (last && outcome != RCLONE_LATER);
        if (!done && upload->last == last)
            change_wait(upload, delay);
    }
    upload->over = true;
    pthread_cond_broadcast(&upload->changed);
    pthread_mutex_unlock(&upload->mutex);
    return NULL;
}

void upload_start(struct upload *upload)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&upload->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&upload->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    int failure = thread_start(&upload->thread, "upload", thread_main, upload);
    upload->running = failure == 0;
    if (failure != 0)
        log_warn("cannot start the thread for uploads: %s; use `vittrain upload %s %s` afterwards",
                 strerror(failure), upload->folder, upload->remote);
}

static void thread_end(struct upload *upload, double seconds)
{
    char names[512], limit[32];
    int64_t bytes;
    const double until = clock_now() + seconds;
    pthread_mutex_lock(&upload->mutex);
    atomic_store(&upload->rclone.cancelled, seconds <= 0);
    upload->last = seconds > 0;
    pthread_cond_broadcast(&upload->changed);
    if (seconds > 0 && !upload->over)
        change_wait(upload, fmin(1, seconds));
    if (seconds > 1 && !upload->over) {
        clock_format(seconds, limit, sizeof limit);
        log_info("upload: waiting up to %s for the files that are not sent yet", limit);
        change_wait(upload, until - clock_now());
    }
    atomic_store(&upload->rclone.cancelled, true);
    pthread_cond_broadcast(&upload->changed);
    pthread_mutex_unlock(&upload->mutex);
    pthread_join(upload->thread, NULL);
    pthread_cond_destroy(&upload->changed);
    pthread_mutex_destroy(&upload->mutex);
    int missing = missing_list(upload, names, sizeof names, &bytes);
    if (missing == 0)
        log_info("upload: all of the run is in %s (%d files sent, %.1f MiB)", upload->remote,
                 upload->files, mib((size_t)upload->bytes));
    else
        log_warn("upload: %d files of the run (%.1f MiB) are not in %s: %s: %s; send them with "
                 "`vittrain upload %s %s`",
                 missing, mib((size_t)bytes), upload->remote, names,
                 upload->trouble.kind != ERROR_NONE ? upload->trouble.text : "out of time",
                 upload->folder, upload->remote);
}

void upload_close(struct upload *upload, double seconds)
{
    if (upload == NULL)
        return;
    if (upload->running)
        thread_end(upload, seconds);
    if (upload->lock >= 0)
        close(upload->lock);
    json_decref(upload->checkpoints);
    free(upload->item);
    free(upload);
}

void upload_all(struct upload *upload, struct error *error)
{
    char names[512];
    int64_t bytes;
    for (int tries = 0; tries < TRIES; tries++) {
        int before = upload->files;
        if (upload_pass(upload, true) != RCLONE_LATER)
            break;
        if (upload->files > before)
            tries = 0;
        log_warn("upload: %s; trying again", upload->trouble.text);
        nanosleep(&(struct timespec){.tv_sec = (time_t)retry_least << tries}, NULL);
    }
    int missing = missing_list(upload, names, sizeof names, &bytes);
    if (missing == 0 && upload->trouble.kind == ERROR_NONE) {
        log_info("%s is in %s: %d files, %.1f MiB", upload->folder, upload->remote, upload->files,
                 mib((size_t)upload->bytes));
        return;
    }
    error_set(error, ERROR_NETWORK,
              "%d files (%.1f MiB) are not in %s: %s: %s; start the command again", missing,
              mib((size_t)bytes), upload->remote, names, upload->trouble.text);
}
