// SPDX-License-Identifier: BSD-3-Clause
/* Rank 0 chooses the folder. The first rank of each node creates it, if it does not exist, and
 * writes a test file, so that a full or read-only disk is found at the start and not at the first
 * checkpoint.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strverscmp */
#endif
#include "checkpoint/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint_name.h"
#include "options/options.h"
#include "options/phase.h"

static const char runs_folder[] = "runs";

/* YYYYmmdd-HHMMSS */
enum { DATE_LENGTH = 15, LAST_SUFFIX = 999 };

/* ---- contents of a folder ---- */

static bool path_exists(const char *folder, const char *name)
{
    OWNED char *path = allocate_text("%s/%s", folder, name);
    struct stat status;
    return stat(path, &status) == 0;
}

/* True if the folder has a complete checkpoint. */
static bool holds_checkpoints(const char *folder)
{
    OWNED char *path = allocate_text("%s/checkpoints", folder);
    bool found = false;
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, path)) != NULL;)
        found = found || (name[0] != '.' && !text_ends_with(name, ".part"));
    return found;
}

/* True if a run may resume from the folder: it has a complete checkpoint, or one may be in memory.
 */
static bool may_resume(const char *folder)
{
    char id[MEMORY_ID];
    return holds_checkpoints(folder) || memory_id(folder, id, NULL);
}

static bool holds_run(const char *folder)
{
    return path_exists(folder, "deck.ini") || path_exists(folder, "metrics.csv") ||
           path_exists(folder, "result.json") || holds_checkpoints(folder);
}

int64_t run_folder_finished_steps(const char *folder)
{
    OWNED char *path = allocate_text("%s/result.json", folder);
    json_t *result = json_load_file(path, 0, NULL);
    const bool finished =
        json_is_object(result) && !json_is_false(json_object_get(result, "finished"));
    const int64_t steps = json_integer_value(json_object_get(result, "steps"));
    json_decref(result);
    return finished ? steps : -1;
}

/* Rename a damaged result.json. Fails if it is of a newer version. The folder must be locked. */
static bool result_check(const char *folder, struct error *error)
{
    OWNED char *path = allocate_text("%s/result.json", folder);
    OWNED char *aside = allocate_text("%s.damaged", path);
    if (access(path, F_OK) != 0)
        return true;
    OWNED char *text = text_file_read(path, NULL);
    if (text == NULL)
        return durable_unreadable(error, ERROR_FILE, path, errno);
    json_t *result = json_loads(text, 0, NULL);
    const bool is_object = json_is_object(result);
    const int64_t format = json_integer_value(json_object_get(result, "format"));
    const json_t *attempts = json_object_get(result, "attempts");
    const json_t *newest = json_array_get(attempts, json_array_size(attempts) - 1);
    const char *version = json_string_value(json_object_get(newest, "version"));
    if (format > RUN_FORMAT)
        error_set(error, ERROR_USAGE, "%s has format %lld: continue the run with vittrain %s", path,
                  (long long)format, version != NULL ? version : "of a newer version");
    json_decref(result);
    if (is_object)
        return error->kind == ERROR_NONE;
    log_warn("%s is damaged: it is renamed to %s, and the run counts as not finished", path,
             text_base_name(aside));
    return durable_rename(path, aside, error);
}

/* ---- lock ---- */

/* Lock a folder. Return false without an error if another job holds the lock, or has removed its
 * file meanwhile. On file systems without locks this always succeeds. */
static bool lock_folder(const char *path, struct run_folder *folder, struct error *error)
{
    OWNED char *name = allocate_text("%s/.lock", path);
    int lock = output_file_open(name, O_RDWR | O_CREAT);
    if (lock < 0 && errno == ELOOP)
        return durable_failed(error, "lock", name, errno);
    if (lock < 0)
        return error_set(error, ERROR_FILE,
                         "the run folder %s is not writable (%s): choose another by run.dir", path,
                         strerror(errno));
    struct stat file, named;
    if ((flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) || fstat(lock, &file) != 0 ||
        stat(name, &named) != 0 || file.st_ino != named.st_ino) {
        close(lock);
        return false;
    }
    folder->lock = lock;
    folder->locked = true;
    return true;
}

/* The text of the end overwrites that of the begin, which needs no disk space. */
void run_folder_mark(const struct run_folder *folder, bool ended)
{
    char text[64] = "";
    long long attempt = 0;
    if (pread(folder->lock, text, sizeof text - 1, 0) < 0 ||
        sscanf(text, "attempt %lld", &attempt) != 1)
        attempt = 0;
    const int length = snprintf(text, sizeof text, "attempt %lld %-8s\n", attempt + !ended,
                                ended ? "ended" : "running");
    if (pwrite(folder->lock, text, (size_t)length, 0) != length)
        log_warn("cannot write %s/.lock: %s", folder->path, strerror(errno));
}

void run_folder_close(struct run_folder *folder)
{
    if (folder->locked)
        close(folder->lock);
    folder->locked = false;
}

/* ---- temporary files of killed processes ---- */

/* True for a temporary file of a run or of tools/report.py: a probe, NAME.part with the NAME of one
 * of the run's files, or NAME.PID.part with that of a report's. */
static bool is_temporary(const char *name)
{
    static const char *const patterns[] = {
        "*_*_*_*.txt*",       ".probe-*",           "accuracy_plot.*",    "best.safetensors",
        "course.log*",        "deck.ini",           "exec_time.log*",     "hparams.yaml*",
        "imagenet.log*",      "metrics.csv",        "misclassified.json", "monitor*.csv",
        "receipt.csv",        "report.html*",       "result.json",        "step-*.h5",
        "training_metrics.*", "weights.safetensors"};
    char stem[NAME_MAX + 1];
    snprintf(stem, sizeof stem, "%s", name);
    bool part = text_ends_with(stem, ".part");
    if (part)
        stem[strlen(stem) - strlen(".part")] = '\0';
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (fnmatch(patterns[i], stem, 0) == 0)
            return part || strncmp(stem, ".probe-", strlen(".probe-")) == 0;
    return false;
}

void run_folder_discard(const struct run_folder *folder, struct comm *world, bool of_node)
{
    static const char *const patterns[] = {"train.log", "metrics.csv", "receipt.csv",
                                           "events.out.tfevents.*"};
    OWNED char *lock = allocate_text("%s/.lock", folder->path);
    DIR *entries = NULL;
    if (of_node && world->rank != 0) { /* a folder of this node has no files */
        rmdir(folder->checkpoints);
        if (folder->made)
            rmdir(folder->path);
    }
    comm_barrier(world); /* rank 0's lock outlasts the work of other nodes on a shared folder */
    if (world->rank != 0)
        return;
    log_info("%s: the files of this attempt are removed because it failed before its first step",
             folder->path);
    log_close();
    for (const char *name; (name = folder_next(&entries, folder->path)) != NULL;) {
        OWNED char *path = allocate_text("%s/%s", folder->path, name);
        for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
            if (fnmatch(patterns[i], name, 0) == 0)
                unlink(path);
    }
    rmdir(folder->checkpoints);
    unlink(lock); /* last: from here on, another job may use the folder */
    if (folder->made)
        rmdir(folder->path);
}

void run_folder_clean(const char *path)
{
    OWNED char *checkpoints = allocate_text("%s/checkpoints", path);
    output_file_clean(path, is_temporary);
    output_file_clean(checkpoints, is_temporary);
}

static const char advice[] = "choose another by run.dir";

/* Write a test file: permissions do not show quotas, read-only mounts and full disks. */
static bool try_writing(const char *folder, struct error *error)
{
    static const char block[4096];
    OWNED char *path = allocate_text("%s/.probe-%s-%ld", folder, comm_host(), (long)getpid());
    int file = durable_create(path, error);
    if (file < 0)
        return false;
    bool good =
        durable_write(file, path, block, sizeof block, 0, error) && durable_sync(file, path, error);
    good = durable_close(file, path, error) && good;
    unlink(path);
    return good;
}

/* ---- choice of the folder ---- */

/* Use run.dir. */
static bool use_given(struct run_folder *folder, const struct options *options, struct error *error)
{
    snprintf(folder->path, sizeof folder->path, "%s", options->run.dir);
    if (strcmp(options->checkpoint.resume, "never") == 0 && holds_run(folder->path))
        return error_set(error, ERROR_USAGE,
                         "run.dir: %s holds a run already: choose another folder, remove it, or "
                         "resume it with checkpoint.resume=auto",
                         folder->path);
    const bool exists = access(folder->path, F_OK) == 0;
    if (!folder_make(folder->path, advice, error))
        return false;
    if (!lock_folder(folder->path, folder, error))
        return error_set(error, ERROR_USAGE,
                         "run.dir: another job is writing to %s: wait until it ends or choose "
                         "another folder",
                         folder->path);
    folder->made = !exists;
    folder->fresh = !holds_run(folder->path) && !path_exists(folder->path, "train.log");
    folder->resuming = holds_checkpoints(folder->path);
    folder->finished_steps = run_folder_finished_steps(folder->path);
    return true;
}

/* Return the next name NAME-DATE or NAME-DATE-SUFFIX in runs/ of an unfinished run that may resume,
 * or NULL. */
static const char *runs_next(DIR **entries, const char *run_name)
{
    static const char digits[] = "0123456789";
    const size_t length = strlen(run_name);
    for (const char *name; (name = folder_next(entries, runs_folder)) != NULL;) {
        OWNED char *path = allocate_text("%s/%s", runs_folder, name);
        const char *date = name + length;
        if (strncmp(name, run_name, length) != 0 || date[0] != '-' ||
            strspn(date + 1, digits) != 8 || date[9] != '-' || strspn(date + 10, digits) != 6)
            continue;
        const char *suffix = date + 1 + DATE_LENGTH;
        const bool numbered =
            suffix[0] == '-' && suffix[1] != '\0' && suffix[1 + strspn(suffix + 1, digits)] == '\0';
        if ((suffix[0] == '\0' || numbered) && may_resume(path) &&
            run_folder_finished_steps(path) < 0)
            return name;
    }
    return NULL;
}

/* True if the deck in a folder makes a run learn the same as these options. */
static bool same_deck(const char *folder, const struct options *options)
{
    OWNED char *deck = allocate_text("%s/deck.ini", folder);
    struct options saved;
    struct error ignored = {0};
    options_default(&saved);
    return options_read_stored(deck, &saved, &ignored) && option_changes_nothing(&saved, options);
}

/* Find and lock the newest unfinished run with the same name and deck. */
static bool find_unfinished(struct run_folder *folder, const struct options *options)
{
    char newest[NAME_MAX + 1] = "";
    struct error ignored = {0};
    DIR *entries = NULL;
    for (const char *name; (name = runs_next(&entries, options->run.name)) != NULL;) {
        OWNED char *path = allocate_text("%s/%s", runs_folder, name);
        struct run_folder candidate = {.locked = false};
        if (strverscmp(name, newest) < 0 || !same_deck(path, options))
            continue;
        status_set_phase(PHASE_FOLDER_LOCK);
        if (!lock_folder(path, &candidate, &ignored))
            continue;
        /* Another job may have just finished it. */
        if (!may_resume(path) || run_folder_finished_steps(path) >= 0) {
            run_folder_close(&candidate);
            continue;
        }
        run_folder_close(folder);
        folder->lock = candidate.lock;
        folder->locked = true;
        snprintf(folder->path, sizeof folder->path, "%s", path);
        snprintf(newest, sizeof newest, "%s", name);
    }
    folder->resuming = newest[0] != '\0' && holds_checkpoints(folder->path);
    return newest[0] != '\0';
}

bool run_folder_may_resume(const struct options *options)
{
    bool found = false;
    DIR *entries = NULL;
    if (strcmp(options->checkpoint.resume, "auto") != 0)
        return strcmp(options->checkpoint.resume, "never") != 0;
    if (options->run.dir[0] != '\0')
        return may_resume(options->run.dir);
    while (runs_next(&entries, options->run.name) != NULL)
        found = true;
    return found;
}

/* Create runs/NAME-DATE. If two jobs choose the same name, mkdir fails for one of them. */
static bool make_new(struct run_folder *folder, const struct options *options, struct error *error)
{
    char date[DATE_LENGTH + 1];
    const time_t now = time(NULL);
    struct tm local;
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    if (!folder_make(runs_folder, advice, error))
        return false;
    for (int suffix = 1; suffix <= LAST_SUFFIX; suffix++) {
        OWNED char *tail = suffix > 1 ? allocate_text("-%d", suffix) : allocate_copy("");
        int length = snprintf(folder->path, sizeof folder->path, "%s/%s-%s%s", runs_folder,
                              options->run.name, date, tail);
        if (length >= (int)sizeof folder->path)
            return error_set(error, ERROR_USAGE, "run.name is too long: shorten it");
        folder->made = folder->fresh = mkdir(folder->path, 0777) == 0;
        if (folder->made)
            return lock_folder(folder->path, folder, error);
        if (errno != EEXIST)
            break;
    }
    return error_set(error, ERROR_FILE, "cannot create the folder %s: %s; %s", folder->path,
                     strerror(errno), advice);
}

static bool decide_folder(struct run_folder *folder, const struct options *options,
                          struct error *error)
{
    const char *name = options->run.name;
    if (options->run.dir[0] != '\0')
        return use_given(folder, options, error) && result_check(folder->path, error);
    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL)
        return error_set(error, ERROR_USAGE,
                         "run.name=%s: it becomes the name of a folder in %s/, so it may not be "
                         "empty, begin with a dot or hold a slash (run.dir takes a path)",
                         name, runs_folder);
    if (strcmp(options->checkpoint.resume, "auto") == 0 && find_unfinished(folder, options))
        return result_check(folder->path, error);
    return make_new(folder, options, error);
}

/* ---- the interface ---- */

bool run_folder_save_deck(const struct run_folder *folder, const struct options *options,
                          struct error *error)
{
    OWNED char *text = options_to_run_deck(options);
    return run_folder_write(folder, "deck.ini", text, error);
}

bool run_folder_open(struct run_folder *folder, struct mesh *mesh, const struct options *options,
                     struct error *error)
{
    struct comm *world = mesh->world;
    *folder = (struct run_folder){.finished_steps = -1};
    if (world->rank == 0)
        decide_folder(folder, options, error);
    if (comm_agree(world, error)) {
        comm_broadcast(world, folder, sizeof *folder, COMM_BYTE, 0);
        folder->locked = folder->locked && world->rank == 0;
        snprintf(folder->checkpoints, sizeof folder->checkpoints, "%s/checkpoints", folder->path);
        if (mesh->node->rank == 0 && folder_make(folder->checkpoints, advice, error) &&
            try_writing(folder->path, error) && world->rank == 0) {
            OWNED char *path = allocate_text("%s/train.log", folder->path);
            run_folder_mark(folder, false);
            error_defer(log_to_file(path, error));
        }
        if (comm_agree(world, error))
            return true;
    }
    run_folder_close(folder);
    return false;
}

bool run_folder_write(const struct run_folder *folder, const char *name, const char *text,
                      struct error *error)
{
    OWNED char *path = allocate_text("%s/%s", folder->path, name);
    return atomic_file_write(path, text, error);
}
