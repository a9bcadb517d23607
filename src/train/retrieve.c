// SPDX-License-Identifier: BSD-3-Clause
/* checkpoint.resume and model.init from a remote. */
#include "train/retrieve.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_name.h"
#include "core/folder.h"
#include "core/log.h"
#include "core/output_file.h"
#include "core/text.h"
#include "runlog/rclone.h"

enum { LISTING = 1 << 20 };
static const double listing_seconds = 30;

/* Lists the files of a remote folder, one name per line; the caller frees the text. A missing
 * folder is an empty one. */
static char *folder_list(const char *remote, enum rclone_outcome *outcome, struct error *error)
{
    struct rclone rclone = {.seconds = listing_seconds};
    char *names = calloc(1, LISTING);
    ENSURE(names != NULL, "no memory for a listing");
    *outcome = rclone_run(&rclone, (const char *[]){"lsf", "--files-only", remote, NULL}, NULL,
                          names, LISTING, error);
    if (*outcome == RCLONE_MISSING) {
        error_clear(error);
        *outcome = RCLONE_DONE;
    }
    return names;
}

/* ---- one file */

/* Replaces `remote` by the file that the pointer (FOLDER/best.txt) names; false without one. */
static bool pointer_follow(char remote[RCLONE_PATH], const char *folder, const char *pointer)
{
    struct rclone rclone = {.seconds = listing_seconds};
    struct error ignored = {.kind = ERROR_NONE};
    char path[RCLONE_PATH], name[256];
    rclone_join(folder, pointer, path);
    if (rclone_run(&rclone, (const char *[]){"cat", path, NULL}, NULL, name, sizeof name,
                   &ignored) != RCLONE_DONE)
        return false;
    name[strcspn(name, "\r\n")] = '\0';
    if (name[0] == '\0' || strchr(name, '/') != NULL)
        return false;
    rclone_join(folder, name, remote);
    return true;
}

/* Replace `remote` by a run's file of the best weights, in the order of weights_file_find. */
static void weights_find(char remote[RCLONE_PATH], const char *run, struct error *error)
{
    static const char *const weights[] = {"best.safetensors", "weights.safetensors"};
    enum rclone_outcome outcome;
    char folder[RCLONE_PATH], *names = folder_list(run, &outcome, error);
    int i = 0;
    while (i < 2 && strstr(names, weights[i]) == NULL)
        i++;
    free(names);
    rclone_join(run, "checkpoints", folder);
    if (i < 2 || (!pointer_follow(remote, folder, "best.txt") &&
                  !pointer_follow(remote, folder, "last.txt")))
        rclone_join(run, weights[i < 2 ? i : 1], remote);
}

static void file_get(struct trainer *trainer, const char *remote, char *path, size_t size,
                     struct error *error)
{
    struct rclone rclone = {.label = text_base_name(remote)};
    char file[RCLONE_PATH], parent[RCLONE_PATH], folder[OPTION_TEXT + 32];
    const char *name = text_base_name(remote);
    snprintf(file, sizeof file, "%s", remote);
    snprintf(parent, sizeof parent, "%.*s", (int)(name - remote), remote);
    if (strcmp(name, "best.h5") == 0 || strcmp(name, "last.h5") == 0)
        pointer_follow(file, parent, strcmp(name, "best.h5") == 0 ? "best.txt" : "last.txt");
    else if (!rclone_is_file(remote))
        weights_find(file, remote, error);
    snprintf(folder, sizeof folder, "%s/retrieved", trainer->folder.path);
    if (snprintf(path, size, "%s/%s", folder, text_base_name(file)) >= (int)size)
        error_set(error, ERROR_USAGE, "%s/%s: the path is too long", folder, text_base_name(file));
    else if (error->kind == ERROR_NONE && folder_make(folder, "choose another run.dir", error)) {
        log_info("copying %s to %s", file, path);
        rclone_get(&rclone, file, path, error);
    }
}

bool retrieve_file(struct trainer *trainer, const char *remote, const char *option, char *path,
                   size_t size, struct error *error)
{
    struct comm *world = trainer->run.world;
    double timeout = comm_timeout();
    comm_set_timeout(0);
    memset(path, 0, size);
    if (world->rank == 0 && rclone_check(remote, option, error))
        file_get(trainer, remote, path, size, error);
    bool good = comm_agree(world, error);
    comm_broadcast(world, path, (int64_t)size, COMM_BYTE, 0);
    comm_set_timeout(timeout);
    return good;
}

/* ---- the newest checkpoint */

/* Returns the newest step below `limit` in a listing and copies its name; -1: none. */
static int64_t newest_find(const char *names, int64_t limit, char newest[256])
{
    int64_t best = -1;
    for (const char *line = names; *line != '\0'; line += strcspn(line, "\n") + 1) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(line, "\n"), line);
        int64_t step = checkpoint_name_step(name);
        if (step > best && step < limit) {
            best = step;
            memcpy(newest, name, sizeof name);
        }
        if (strchr(line, '\n') == NULL)
            break;
    }
    return best;
}

/* Puts the log of earlier attempts before this attempt's, which is already open. */
static void logs_join(const char *earlier, const char *path)
{
    char chunk[4096];
    size_t got;
    struct error ignored = {.kind = ERROR_NONE};
    FILE *to = output_file_stream(earlier, "a"), *from = output_file_stream(path, "r");
    bool good = to != NULL && from != NULL;
    while (good && (got = fread(chunk, 1, sizeof chunk, from)) > 0)
        good = fwrite(chunk, 1, got, to) == got;
    if (from != NULL)
        fclose(from);
    good = (to == NULL || fclose(to) == 0) && good;
    if (!good || rename(earlier, path) != 0)
        unlink(earlier);
    else if (!log_to_file(path, &ignored))
        log_warn("%s", ignored.text);
}

/* Copies tables, events and the log from the remote, except files that the folder has. */
static void log_files_get(struct trainer *trainer, const char *remote, const char *names)
{
    struct rclone rclone = {.label = "log files"};
    struct error trouble = {.kind = ERROR_NONE};
    const char *folder = trainer->folder.path;
    char path[RCLONE_PATH], log[RCLONE_PATH], *wanted = calloc(1, strlen(names) + 2);
    ENSURE(wanted != NULL, "no memory for a listing");
    size_t used = 0;
    bool has_log = false;
    for (const char *line = names; *line != '\0'; line += strcspn(line, "\n") + 1) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(line, "\n"), line);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        bool is_log = strcmp(name, "train.log") == 0;
        has_log = has_log || is_log;
        if (!is_log && name[0] != '.' && strcmp(name, "result.json") != 0 &&
            !rclone_is_file(name) && access(path, F_OK) != 0)
            used += (size_t)sprintf(wanted + used, "%s\n", name);
        if (strchr(line, '\n') == NULL)
            break;
    }
    if (used > 0)
        rclone_run(&rclone, (const char *[]){"copy", "--files-from-raw=-", remote, folder, NULL},
                   wanted, NULL, 0, &trouble);
    if (has_log) {
        rclone_join(remote, "train.log", log);
        snprintf(path, sizeof path, "%s/train.log.earlier", folder);
        if (rclone_get(&rclone, log, path, &trouble) == RCLONE_DONE) {
            snprintf(log, sizeof log, "%s/train.log", folder);
            logs_join(path, log);
        }
    }
    if (trouble.kind != ERROR_NONE)
        log_warn("%s; the tables begin with this attempt", trouble.text);
    free(wanted);
}

/* Collective. Tries the checkpoints of the remote that are newer than the folder's, newest first.
 * `names`: listings of the remote and of its folder checkpoints (rank 0 only). */
static bool candidates_try(struct trainer *trainer, const char *remote, char *const names[2],
                           struct error *error)
{
    struct comm *world = trainer->run.world;
    const int64_t local = checkpoint_name_step(trainer->checkpoints.resume_path);
    int64_t step = INT64_MAX;
    for (bool first = true;; first = false) {
        struct rclone rclone = {.cancelled = false};
        struct error trouble = {.kind = ERROR_NONE};
        char name[2][256] = {""}, folder[RCLONE_PATH], object[RCLONE_PATH], path[RCLONE_PATH];
        if (world->rank == 0) {
            int64_t found[2];
            for (int n = 0; n < 2; n++)
                found[n] = newest_find(names[n], step, name[n]);
            const int from = found[1] >= found[0];
            step = found[from] > local ? found[from] : -1;
            rclone_join(remote, from == 1 ? "checkpoints/" : "", folder);
            snprintf(path, sizeof path, "%s/%s", trainer->folder.checkpoints, name[from]);
            rclone_join(folder, name[from], object);
            rclone.label = name[from];
            enum rclone_outcome outcome =
                step >= 0 ? rclone_get(&rclone, object, path, &trouble) : RCLONE_DONE;
            if (outcome == RCLONE_REFUSED)
                *error = trouble;
            else if (outcome != RCLONE_DONE)
                log_warn("skipped: %s", trouble.text);
        }
        comm_broadcast(world, &step, 1, COMM_INT64, 0);
        if (!comm_agree(world, error))
            return false;
        if (step < 0)
            return first || trainer->checkpoints.resume_path[0] != '\0' ||
                   error_set(error, ERROR_CHECKPOINT,
                             "cannot resume from %s: no valid checkpoint (see the lines above); "
                             "name one with checkpoint.resume",
                             remote);
        if (!trainer_find_local(trainer, error))
            return false;
        if (checkpoint_name_step(trainer->checkpoints.resume_path) >= step)
            return true;
    }
}

bool retrieve_newest(struct trainer *trainer, const char *remote, struct error *error)
{
    struct comm *world = trainer->run.world;
    const bool held_run = trainer->folder.resuming;
    char *names[2] = {NULL, NULL}, path[RCLONE_PATH];
    if (held_run && !trainer_find_local(trainer, error))
        return false;
    const int64_t local = checkpoint_name_step(trainer->checkpoints.resume_path);
    double timeout = comm_timeout();
    comm_set_timeout(0);
    if (world->rank == 0 && rclone_check(remote, "checkpoint.resume", error)) {
        struct error trouble = {.kind = ERROR_NONE};
        enum rclone_outcome outcome = RCLONE_DONE;
        rclone_join(remote, "checkpoints", path);
        names[0] = folder_list(remote, &outcome, &trouble);
        names[1] = outcome == RCLONE_DONE ? folder_list(path, &outcome, &trouble) : calloc(1, 1);
        ENSURE(names[1] != NULL, "no memory for a listing");
        if (outcome == RCLONE_LATER && local >= 0)
            log_warn("%s; continuing from the run's own folder", trouble.text);
        else if (outcome != RCLONE_DONE)
            error_set(error, trouble.kind, "checkpoint.resume: %s", trouble.text);
    }
    bool good = comm_agree(world, error) && candidates_try(trainer, remote, names, error);
    if (good && !held_run && trainer->checkpoints.resume_path[0] != '\0' && world->rank == 0)
        log_files_get(trainer, remote, names[0]);
    if (good && trainer->checkpoints.resume_path[0] == '\0')
        log_info("no checkpoint in %s yet: starting from step 0", remote);
    comm_agree(world, error); /* the other ranks wait for rank 0 */
    free(names[0]);
    free(names[1]);
    comm_set_timeout(timeout);
    return good;
}
