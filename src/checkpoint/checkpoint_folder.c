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
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- the list of files ---- */

struct listed {
    char name[NAME_MAX + 1];
    char points_to[NAME_MAX + 1]; /* target of a link; empty for a file */
    int64_t number;               /* of step-NUMBER.h5, else -1; in checkpoint_find the step */
    struct timespec changed;
};

struct listing {
    struct listed *entry;
    size_t capacity;
    int count;
};

static int newest_first(const void *a, const void *b)
{
    const struct listed *left = a, *right = b;
    if (left->number != right->number)
        return left->number > right->number ? -1 : 1;
    if (left->changed.tv_sec != right->changed.tv_sec)
        return left->changed.tv_sec > right->changed.tv_sec ? -1 : 1;
    if (left->changed.tv_nsec != right->changed.tv_nsec)
        return left->changed.tv_nsec > right->changed.tv_nsec ? -1 : 1;
    return strcmp(left->name, right->name);
}

static void listing_sort(struct listing *listing)
{
    if (listing->count > 0)
        qsort(listing->entry, (size_t)listing->count, sizeof *listing->entry, newest_first);
}

/* List the checkpoints, links and parts in a folder, the newest step first; a missing folder counts
 * as empty. */
static bool list_folder(const char *directory, struct listing *listing, struct error *error)
{
    DIR *folder = opendir(directory);
    if (folder == NULL)
        return errno == ENOENT || durable_unreadable(error, ERROR_CHECKPOINT, directory, errno);
    for (const char *name; (name = folder_next(&folder, directory)) != NULL;) {
        OWNED char *path = allocate_text("%s/%s", directory, name);
        struct stat file;
        if (!(text_ends_with(name, ".h5") || text_ends_with(name, ".h5.part")) ||
            lstat(path, &file) != 0)
            continue;
        listing->entry = allocate_more(listing->entry, &listing->capacity, (size_t)listing->count,
                                       sizeof *listing->entry);
        struct listed *entry = &listing->entry[listing->count++];
        snprintf(entry->name, sizeof entry->name, "%s", name);
        const ssize_t length = S_ISLNK(file.st_mode)
                                   ? readlink(path, entry->points_to, sizeof entry->points_to - 1)
                                   : 0;
        entry->points_to[length < 0 ? 0 : length] = '\0';
        entry->number = checkpoint_name_step(name);
        entry->changed = file.st_mtim;
    }
    listing_sort(listing);
    return true;
}

static bool is_link(const struct listed *entry)
{
    return entry->points_to[0] != '\0';
}

/* ---- the newest valid checkpoint ---- */

/* Keep the files with a valid frame, newest first, and log the others. ERROR_MEMORY is a fault of
 * the machine, not of a file: the newest checkpoint may be valid. */
static bool keep_candidates(const struct checkpoint_target *target, struct listing *listing,
                            struct error *error)
{
    const char *directory = target->directory;
    const char *model = target->options != NULL ? target->options->model.name : NULL;
    int kept = 0;
    for (int n = 0; n < listing->count && error->kind == ERROR_NONE; n++) {
        struct listed *entry = &listing->entry[n];
        struct checkpoint_contents contents = {.unit_count = 0};
        struct error trouble = {.kind = ERROR_NONE};
        OWNED char *path = allocate_text("%s/%s", directory, entry->name);
        if (is_link(entry))
            continue;
        if (text_ends_with(entry->name, ".part"))
            log_warn("ignored: %s: it was not written completely", path);
        else if (!checkpoint_file_read(path, &contents, &trouble)) {
            if (trouble.kind == ERROR_MEMORY)
                *error = trouble;
            else
                log_warn("ignored: %s", trouble.text);
        } else if (model != NULL && strcmp(model, contents.model) != 0)
            log_warn("ignored: %s: it is of model %s, this run's is %s", path, contents.model,
                     model);
        else if (target->before == 0 || contents.state.step < target->before) {
            entry->number = contents.state.step;
            listing->entry[kept++] = *entry;
        }
        checkpoint_contents_free(&contents);
    }
    listing->count = kept;
    listing_sort(listing); /* by the steps in the files */
    return error->kind == ERROR_NONE;
}

bool checkpoint_find(const struct checkpoint_target *target, struct comm *world, char *path,
                     size_t size, struct error *error)
{
    const bool by_all = target->writers != WRITERS_NODE0;
    struct listing listing = {.count = 0};
    int64_t count;
    bool found = false;
    if (world->rank == 0 && list_folder(target->directory, &listing, error))
        error_defer(keep_candidates(target, &listing, error));
    if (!comm_agree(world, error))
        listing.count = 0;
    count = listing.count;
    comm_broadcast(world, &count, 1, COMM_INT64, 0);
    for (int64_t n = 0; n < count && !found && error->kind == ERROR_NONE; n++) {
        struct checkpoint_contents contents;
        struct error trouble = {.kind = ERROR_NONE};
        memset(path, 0, size);
        if (world->rank == 0)
            snprintf(path, size, "%s/%s", target->directory, listing.entry[n].name);
        comm_broadcast(world, path, (int64_t)size, COMM_BYTE, 0);
        found = checkpoint_contents_read(path, world, 0, &contents, &trouble) &&
                checkpoint_vectors_read(path, by_all, world, &contents, NULL,
                                        (1u << FLAT_VECTORS) - 1, &trouble);
        checkpoint_contents_free(&contents);
        if (trouble.kind == ERROR_MEMORY)
            *error = trouble;
        else if (!found && world->rank == 0)
            log_warn("ignored: %s", trouble.text);
    }
    if (!found)
        path[0] = '\0';
    free(listing.entry);
    return found;
}

int64_t checkpoint_newest_step(const struct checkpoint_target *target, struct comm *world)
{
    struct listing listing = {.count = 0};
    struct error ignored = {.kind = ERROR_NONE};
    if (world->rank == 0)
        list_folder(target->directory, &listing, &ignored);
    int64_t newest = listing.count > 0 ? listing.entry[0].number : -1;
    free(listing.entry);
    comm_broadcast(world, &newest, 1, COMM_INT64, 0);
    return newest;
}

/* ---- links and pruning ---- */

static bool make_link(const char *directory, const char *name, const char *link_name,
                      struct error *error)
{
    OWNED char *path = allocate_text("%s/%s", directory, link_name);
    OWNED char *part = allocate_text("%s.part", path);
    unlink(part);
    if (symlink(name, part) != 0)
        return durable_failed(error, "link", path, errno);
    if (durable_rename(part, path, error))
        return true;
    unlink(part);
    return false;
}

static bool is_linked(const struct listing *listing, const char *name)
{
    for (int n = 0; n < listing->count; n++)
        if (strcmp(listing->entry[n].points_to, name) == 0)
            return true;
    return false;
}

/* Remove a file unless another process reads it (weights_file_hold). */
static void file_remove(const char *path)
{
    const int file = output_file_open(path, O_RDWR);
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        unlink(path);
    if (file >= 0)
        close(file);
}

void checkpoint_prune(const char *directory, int64_t best_step, int64_t keep)
{
    struct listing listing = {.count = 0};
    struct error error = {.kind = ERROR_NONE};
    int64_t seen = 0;
    list_folder(directory, &listing, &error);
    for (int n = 0; n < listing.count; n++) {
        const struct listed *entry = &listing.entry[n];
        OWNED char *path = allocate_text("%s/%s", directory, entry->name);
        bool stale = text_ends_with(entry->name, ".part");
        bool surplus = entry->number >= 0 && !is_link(entry) && keep > 0 && ++seen > keep &&
                       entry->number != best_step && !is_linked(&listing, entry->name);
        if (stale || surplus)
            file_remove(path);
    }
    free(listing.entry);
}

bool checkpoint_publish(const char *directory, const char *name, bool best, int64_t best_step,
                        int64_t keep, struct error *error)
{
    if (!make_link(directory, name, "last.h5", error) ||
        (best && !make_link(directory, name, "best.h5", error)))
        return false;
    checkpoint_prune(directory, best_step, keep);
    return true;
}

bool checkpoint_links_restore(const char *directory, int64_t step, int64_t best_step,
                              struct error *error)
{
    struct listing listing = {.count = 0};
    bool last = false, good = list_folder(directory, &listing, error);
    if (good)
        checkpoint_prune(directory, best_step, 0);
    for (int n = 0; good && n < listing.count; n++) {
        const struct listed *entry = &listing.entry[n];
        if (is_link(entry) || entry->number < 0 || entry->number > step)
            continue;
        good = (last || make_link(directory, entry->name, "last.h5", error)) &&
               (entry->number != best_step || make_link(directory, entry->name, "best.h5", error));
        last = true;
    }
    free(listing.entry);
    return good;
}

/* ---- a folder shared by all nodes ---- */

bool checkpoint_probe(const char *directory, struct comm *world, enum writers_choice asked,
                      enum writers_choice *decided, struct error *error)
{
    int owner;
    if (!folder_owner(world, directory, &owner, error))
        return false;
    int64_t shared = owner == 0 && asked != WRITERS_NODE0;
    comm_all_reduce(world, &shared, 1, COMM_INT64, COMM_MIN);
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
