// SPDX-License-Identifier: BSD-3-Clause
/* The folder of checkpoints: links, the newest valid file, pruning, and whether all nodes share it.
 * Only rank 0 lists the folder, since nodes may see different contents of a network file system for
 * a while. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint_file.h"
#include "options/options.h"

struct training_state training_state_begin(int64_t global_batch, uint64_t seed)
{
    return (struct training_state){.global_batch = global_batch,
                                   .seed = seed,
                                   .best_metric = NAN,
                                   .plateau_rate_factor = 1,
                                   .plateau_best = NAN};
}

void checkpoint_name(char name[CHECKPOINT_NAME], int64_t step)
{
    snprintf(name, CHECKPOINT_NAME, "step-%08lld.h5", (long long)step);
}

int64_t checkpoint_name_step(const char *path)
{
    const char *name = text_base_name(path);
    long long step = -1;
    int end = 0;
    return sscanf(name, "step-%lld.h5%n", &step, &end) == 1 && end > 0 && name[end] == '\0' ? step
                                                                                            : -1;
}

static int descending(const void *a, const void *b)
{
    const int64_t *left = a, *right = b;
    return (left[0] < right[0]) - (left[0] > right[0]);
}

/* Return the steps of the files step-N.h5 in a folder, the highest first, and -1 after the last
 * one; the caller frees it. A missing folder counts as empty. */
static int64_t *steps_list(const char *directory, struct error *error)
{
    size_t capacity = 0, count = 0;
    int64_t *steps = allocate_more(NULL, &capacity, count, sizeof *steps);
    DIR *folder = opendir(directory);
    if (folder == NULL && errno != ENOENT)
        durable_unreadable(error, ERROR_CHECKPOINT, directory, errno);
    for (const char *name; folder != NULL && (name = folder_next(&folder, directory)) != NULL;)
        if (checkpoint_name_step(name) >= 0) {
            steps[count++] = checkpoint_name_step(name);
            steps = allocate_more(steps, &capacity, count, sizeof *steps);
        }
    qsort(steps, count, sizeof *steps, descending);
    steps[count] = -1;
    return steps;
}

/* Return the path of the file of a step; the caller frees it. */
static char *step_path(const char *directory, int64_t step)
{
    char name[CHECKPOINT_NAME];
    checkpoint_name(name, step);
    return allocate_text("%s/%s", directory, name);
}

/* ---- the newest valid checkpoint ---- */

/* Collective. Verify a file. Return false if it is not the checkpoint that is searched; the error
 * is set if it is invalid. */
static bool file_verify(const char *path, const struct checkpoint_target *target,
                        struct comm *world, struct error *error)
{
    const char *model = target->options != NULL ? target->options->model.name : NULL;
    struct checkpoint_contents contents;
    bool good = checkpoint_contents_read(path, world, 0, &contents, error);
    if (good && model != NULL && strcmp(model, contents.model) != 0)
        good = error_set(error, ERROR_CHECKPOINT, "%s: it is of model %s, this run's is %s", path,
                         contents.model, model);
    good = good && (target->before == 0 || contents.state.step < target->before) &&
           checkpoint_vectors_read(path, target->writers != WRITERS_NODE0, world, &contents, NULL,
                                   false, error);
    checkpoint_contents_free(&contents);
    return good;
}

bool checkpoint_find(const struct checkpoint_target *target, struct comm *world, char *path,
                     size_t size, struct error *error)
{
    OWNED int64_t *steps = world->rank == 0 ? steps_list(target->directory, error) : NULL;
    bool more = comm_agree(world, error), found = false;
    for (int n = 0; more && !found && error->kind == ERROR_NONE; n++) {
        struct error trouble = {.kind = ERROR_NONE};
        memset(path, 0, size);
        if (world->rank == 0 && steps[n] >= 0) {
            OWNED char *next = step_path(target->directory, steps[n]);
            snprintf(path, size, "%s", next);
        }
        comm_broadcast(world, path, (int64_t)size, COMM_BYTE, 0);
        more = path[0] != '\0';
        found = more && file_verify(path, target, world, &trouble);
        if (trouble.kind == ERROR_MEMORY) /* of the machine: this checkpoint may be valid */
            *error = trouble;
        else if (trouble.kind != ERROR_NONE && world->rank == 0)
            log_warn("ignored: %s", trouble.text);
    }
    if (!found)
        path[0] = '\0';
    return found;
}

int64_t checkpoint_newest_step(const struct checkpoint_target *target, struct comm *world)
{
    struct error ignored = {.kind = ERROR_NONE};
    OWNED int64_t *steps = world->rank == 0 ? steps_list(target->directory, &ignored) : NULL;
    int64_t newest = world->rank == 0 ? steps[0] : -1;
    comm_broadcast(world, &newest, 1, COMM_INT64, 0);
    return newest;
}

/* ---- links and pruning ---- */

/* Point a link to the file of a step. */
static bool make_link(const char *directory, int64_t step, const char *link_name,
                      struct error *error)
{
    OWNED char *path = allocate_text("%s/%s", directory, link_name);
    OWNED char *part = allocate_text("%s.part", path), *file = step_path(directory, step);
    unlink(part);
    if (symlink(text_base_name(file), part) != 0)
        return durable_failed(error, "link", path, errno);
    if (durable_rename(part, path, error))
        return true;
    unlink(part);
    return false;
}

/* True if last.h5 or best.h5 points to the file of a step. */
static bool is_linked(const char *directory, int64_t step)
{
    static const char *const links[] = {"last.h5", "best.h5"};
    bool linked = false;
    for (int n = 0; n < 2; n++) {
        char name[NAME_MAX + 1] = "";
        OWNED char *path = allocate_text("%s/%s", directory, links[n]);
        linked = linked ||
                 (readlink(path, name, sizeof name - 1) > 0 && checkpoint_name_step(name) == step);
    }
    return linked;
}

void checkpoint_prune(const char *directory, int64_t best_step, int64_t keep)
{
    struct error ignored = {.kind = ERROR_NONE};
    OWNED int64_t *steps = steps_list(directory, &ignored);
    DIR *folder = NULL;
    for (int64_t n = 0; keep > 0 && steps[n] >= 0; n++) {
        OWNED char *path = step_path(directory, steps[n]);
        if (n >= keep && steps[n] != best_step && !is_linked(directory, steps[n]))
            unlink(path);
    }
    for (const char *name; (name = folder_next(&folder, directory)) != NULL;) {
        OWNED char *path = allocate_text("%s/%s", directory, name);
        if (text_ends_with(name, ".h5.part"))
            unlink(path);
    }
}

bool checkpoint_publish(const char *directory, int64_t step, bool best, int64_t best_step,
                        int64_t keep, struct error *error)
{
    if (!make_link(directory, step, "last.h5", error) ||
        (best && !make_link(directory, step, "best.h5", error)))
        return false;
    checkpoint_prune(directory, best_step, keep);
    return true;
}

bool checkpoint_links_restore(const char *directory, int64_t step, int64_t best_step,
                              struct error *error)
{
    OWNED int64_t *steps = steps_list(directory, error);
    bool last = false, good = error->kind == ERROR_NONE;
    checkpoint_prune(directory, best_step, 0);
    for (int64_t n = 0; good && steps[n] >= 0; n++) {
        if (steps[n] > step)
            continue;
        good = (last || make_link(directory, steps[n], "last.h5", error)) &&
               (steps[n] != best_step || make_link(directory, steps[n], "best.h5", error));
        last = true;
    }
    return good;
}

/* ---- a folder shared by all nodes ---- */

/* Names, devices and mount tables are not reliable: rank 0 creates a file, and one rank of each
 * node looks whether it could write it. */
bool checkpoint_probe(const char *directory, struct comm *world, enum writers_choice asked,
                      enum writers_choice *decided, struct error *error)
{
    int64_t job = (int64_t)(clock_wall() * 1e6) ^ ((int64_t)getpid() << 40);
    comm_broadcast(world, &job, 1, COMM_INT64, 0);
    OWNED char *path = allocate_text("%s/.probe-%llx", directory, (unsigned long long)job);
    const int file =
        world->rank == 0 ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : 0;
    if (file < 0)
        durable_failed(error, "create", path, errno);
    if (!comm_agree(world, error))
        return false;
    struct comm *node = world->backend->split_node(world);
    int64_t shared = asked != WRITERS_NODE0 && (node->rank > 0 || access(path, W_OK) == 0);
    node->backend->close(node);
    comm_all_reduce(world, &shared, 1, COMM_INT64, COMM_MIN);
    if (world->rank == 0) {
        close(file);
        unlink(path);
    }
    *decided = shared ? WRITERS_ALL : WRITERS_NODE0;
    if (asked == WRITERS_ALL && !shared)
        error_set(error, ERROR_USAGE,
                  "the folder %s is not shared by all nodes; set "
                  "checkpoint.writers=auto or node0, or run.dir to a shared folder",
                  directory);
    if (asked == WRITERS_AUTO && !shared)
        log_info("%s is not shared by all nodes: %s writes the checkpoints of all ranks", directory,
                 comm_host());
    return comm_agree(world, error);
}
