// SPDX-License-Identifier: BSD-3-Clause
/* checkpoint.resume and model.init from a remote. */
#include "train/retrieve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    char *names = allocate(1, LISTING);
    *outcome = rclone_run(&rclone, (const char *[]){"lsf", "--files-only", remote, NULL}, names,
                          LISTING, error);
    if (*outcome == RCLONE_MISSING) {
        error_clear(error);
        *outcome = RCLONE_DONE;
    }
    return names;
}

/* ---- one file */

/* Replace `file` by FOLDER/NAME with the name that the text file FOLDER/POINTER holds; false
 * without one. */
static bool pointer_follow(char file[RCLONE_PATH], const char *folder, const char *pointer)
{
    struct rclone rclone = {.seconds = listing_seconds};
    struct error ignored = {.kind = ERROR_NONE};
    char path[RCLONE_PATH], name[256];
    rclone_join(folder, pointer, path);
    const enum rclone_outcome outcome =
        rclone_run(&rclone, (const char *[]){"cat", path, NULL}, name, sizeof name, &ignored);
    name[strcspn(name, "\r\n")] = '\0';
    if (outcome != RCLONE_DONE || name[0] == '\0' || strchr(name, '/') != NULL)
        return false;
    rclone_join(folder, name, file);
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

/* Insert the log of earlier attempts before the log of this attempt, which is already open. */
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

/* Copy tables, events and the log from the remote, except files that the folder has. */
static void log_files_get(struct trainer *trainer, const char *remote)
{
    struct rclone rclone = {.label = "log files"};
    struct error trouble = {.kind = ERROR_NONE};
    char earlier[RCLONE_PATH], log[RCLONE_PATH];
    const char *const words[] = {"copy",         "--max-depth=1",      "--ignore-existing",
                                 "--exclude=.*", "--exclude=*.h5",     "--exclude=*.safetensors",
                                 remote,         trainer->folder.path, NULL};
    const enum rclone_outcome outcome = rclone_run(&rclone, words, NULL, 0, &trouble);
    rclone_join(remote, "train.log", log);
    rclone_join(trainer->folder.path, "train.log.earlier", earlier);
    if (outcome == RCLONE_DONE && rclone_get(&rclone, log, earlier, &trouble) == RCLONE_DONE) {
        rclone_join(trainer->folder.path, "train.log", log);
        logs_join(earlier, log);
    }
    if (trouble.kind != ERROR_NONE)
        log_warn("%s; the tables begin with this attempt", trouble.text);
}

/* Copy the checkpoints of the remote that the folder does not have: those that last.txt and
 * best.txt name, unless other programs have added some. A server that cannot be reached is only a
 * warning if the folder has a checkpoint. */
static void checkpoints_get(struct trainer *trainer, const char *remote, bool has_local,
                            struct error *error)
{
    struct rclone rclone = {.label = "checkpoints"};
    struct error trouble = {.kind = ERROR_NONE};
    enum rclone_outcome outcome;
    char from[RCLONE_PATH];
    rclone_join(remote, "checkpoints", from);
    char *names = folder_list(from, &outcome, &trouble);
    const char *const copy[] = {"copy",
                                "--size-only",
                                "--max-depth=1",
                                "--include=step-*.h5",
                                from,
                                trainer->folder.checkpoints,
                                NULL};
    if (outcome == RCLONE_DONE && strstr(names, "step-") != NULL)
        outcome = rclone_run(&rclone, copy, NULL, 0, &trouble);
    if (outcome == RCLONE_UNREACHABLE && has_local)
        log_warn("%s; continuing from the run's own folder", trouble.text);
    else if (outcome != RCLONE_DONE)
        error_set(error, trouble.kind, "checkpoint.resume: %s", trouble.text);
    free(names);
}

bool retrieve_newest(struct trainer *trainer, const char *remote, struct error *error)
{
    struct comm *world = trainer->run.world;
    const bool held_run = trainer->folder.resuming;
    if (held_run && !trainer_find_local(trainer, error))
        return false;
    const double timeout = comm_timeout();
    comm_set_timeout(0);
    if (world->rank == 0 && rclone_check(remote, "checkpoint.resume", error))
        checkpoints_get(trainer, remote, trainer->checkpoints.resume_path[0] != '\0', error);
    const bool good = comm_agree(world, error) && trainer_find_local(trainer, error);
    const bool found = trainer->checkpoints.resume_path[0] != '\0';
    if (good && !held_run && found && world->rank == 0)
        log_files_get(trainer, remote);
    if (good && !found)
        log_info("no checkpoint in %s yet: starting from step 0", remote);
    comm_agree(world, error); /* the other ranks wait for rank 0 */
    comm_set_timeout(timeout);
    return good;
}
