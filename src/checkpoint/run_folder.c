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
#include <jansson.h>
#include <limits.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "checkpoint/checkpoint_name.h"
#include "options/options.h"

static const char runs_folder[] = "runs", advice[] = "choose another by run.dir";

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

/* True if a run may resume from the folder: it has a complete checkpoint, or one may be in memory.
 */
static bool may_resume(const char *folder)
{
    char id[MEMORY_ID];
    return holds_checkpoints(folder) || memory_id(folder, id, NULL);
}

/* True if a run may resume from the folder, and the run in it is not finished. */
static bool is_unfinished(const char *folder)
{
    return may_resume(folder) && run_folder_finished_steps(folder) < 0;
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
    const long long format = json_integer_value(json_object_get(result, "format"));
    json_decref(result);
    if (format > RUN_FORMAT)
        return error_set(
            error, ERROR_USAGE,
            "%s has format %lld: continue the run with the newer version that has written it", path,
            format);
    if (is_object)
        return true;
    log_warn("%s is damaged: it is renamed to %s, and the run counts as not finished", path,
             text_base_name(aside));
    return durable_rename(path, aside, error);
}

/* ---- lock ---- */

/* Lock a folder. Return false without an error if another job holds the lock. On file systems
 * without locks this always succeeds. */
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
    if (flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
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

/* ---- choice of the folder ---- */

/* True if the deck in a folder makes a run learn the same as these options. */
static bool same_deck(const char *folder, const struct options *options)
{
    OWNED char *deck = allocate_text("%s/deck.ini", folder);
    struct options saved;
    struct error ignored = {0};
    options_default(&saved);
    return options_read_stored(deck, &saved, &ignored) && option_changes_nothing(&saved, options);
}

/* Find and lock the newest unfinished run with the same name and deck, from which a run may resume.
 * folder=NULL: only find one, with any deck. */
static bool find_unfinished(struct run_folder *folder, const struct options *options)
{
    const size_t length = strlen(options->run.name);
    char newest[NAME_MAX + 1] = "";
    struct error ignored = {0};
    DIR *entries = NULL;
    regex_t date;
    ENSURE_MEMORY(regcomp(&date, "^-[0-9]{8}-[0-9]{6}(-[0-9]+)?$", REG_EXTENDED | REG_NOSUB) == 0,
                  "no memory for a pattern");
    for (const char *name; (name = folder_next(&entries, runs_folder)) != NULL;) {
        OWNED char *path = allocate_text("%s/%s", runs_folder, name);
        struct run_folder candidate = {.locked = false};
        if (strncmp(name, options->run.name, length) != 0 ||
            regexec(&date, name + length, 0, NULL, 0) != 0 || strverscmp(name, newest) < 0 ||
            !is_unfinished(path) || (folder != NULL && !same_deck(path, options)))
            continue;
        if (folder == NULL) {
            snprintf(newest, sizeof newest, "%s", name);
            continue;
        }
        status_set_phase(PHASE_FOLDER_LOCK);
        if (!lock_folder(path, &candidate, &ignored))
            continue;
        if (!is_unfinished(path)) { /* another job has just finished it */
            run_folder_close(&candidate);
            continue;
        }
        run_folder_close(folder);
        folder->lock = candidate.lock;
        folder->locked = true;
        snprintf(folder->path, sizeof folder->path, "%s", path);
        snprintf(newest, sizeof newest, "%s", name);
    }
    regfree(&date);
    if (folder != NULL)
        folder->resuming = newest[0] != '\0' && holds_checkpoints(folder->path);
    return newest[0] != '\0';
}

bool run_folder_may_resume(const struct options *options)
{
    if (strcmp(options->checkpoint.resume, "auto") != 0)
        return strcmp(options->checkpoint.resume, "never") != 0;
    return options->run.dir[0] != '\0' ? may_resume(options->run.dir)
                                       : find_unfinished(NULL, options);
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
        folder->fresh = mkdir(folder->path, 0777) == 0;
        if (folder->fresh)
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
    const char *name = options->run.name, *given = options->run.dir;
    if (given[0] == '\0') {
        if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL)
            return error_set(error, ERROR_USAGE,
                             "run.name=%s: it becomes the name of a folder in %s/, so it may not "
                             "be empty, begin with a dot or hold a slash (run.dir takes a path)",
                             name, runs_folder);
        return strcmp(options->checkpoint.resume, "auto") == 0 && find_unfinished(folder, options)
                   ? result_check(folder->path, error)
                   : make_new(folder, options, error);
    }
    snprintf(folder->path, sizeof folder->path, "%s", given);
    if (strcmp(options->checkpoint.resume, "never") == 0 && holds_run(given))
        return error_set(error, ERROR_USAGE,
                         "run.dir: %s holds a run already: choose another folder, remove it, or "
                         "resume it with checkpoint.resume=auto",
                         given);
    if (!folder_make(given, advice, error))
        return false;
    if (!lock_folder(given, folder, error))
        return error_set(error, ERROR_USAGE,
                         "run.dir: another job is writing to %s: wait until it ends or choose "
                         "another folder",
                         given);
    folder->fresh = !holds_run(given) && !path_exists(given, "train.log");
    folder->resuming = holds_checkpoints(given);
    folder->finished_steps = run_folder_finished_steps(given);
    return result_check(given, error);
}

/* Make the folder on each node and write a test file, which shows quotas, read-only mounts and full
 * disks. Nodes that can write the file of rank 0 share its folder and do neither. Collective; an
 * error is the same on all ranks. */
static bool folder_probe(const struct run_folder *folder, const struct mesh *mesh,
                         struct error *error)
{
    enum { PROBE_BYTES = 4096 }; /* more than fits into an inode */
    char text[PROBE_BYTES + 1] = "";
    int64_t job = getpid();
    memset(text, ' ', PROBE_BYTES);
    comm_broadcast(mesh->world, &job, 1, COMM_INT64, 0);
    OWNED char *first = allocate_text("%s/.probe-%lld", folder->path, (long long)job);
    OWNED char *own = allocate_text("%s-%s", first, comm_host());
    if (mesh->world->rank == 0)
        error_defer(folder_make(folder->checkpoints, advice, error) &&
                    atomic_file_write(first, text, error));
    if (!comm_agree(mesh->world, error))
        return false;
    if (mesh->node->rank == 0 && access(first, W_OK) != 0 &&
        folder_make(folder->checkpoints, advice, error) && atomic_file_write(own, text, error))
        unlink(own);
    const bool good = comm_agree(mesh->world, error);
    if (mesh->world->rank == 0)
        unlink(first);
    return good;
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
        if (folder_probe(folder, mesh, error) && world->rank == 0) {
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
