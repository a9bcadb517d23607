// SPDX-License-Identifier: BSD-3-Clause
/* Finds the newest complete checkpoint in the memory of the nodes. Nodes may have different files:
 * a node may be new, may have missed some attempts, or may have lost a file. Files of one
 * checkpoint have the same state and tables. A node has a piece if the checksum of the piece in its
 * file is right. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint_name.h"
#include "checkpoint/checkpoint_read.h"
#include "checkpoint/memory_checkpoint.h"
#include "checkpoint/memory_frame.h"
#include "core/allocate.h"
#include "core/crc32c.h"
#include "core/durable.h"
#include "core/folder.h"
#include "core/log.h"
#include "core/output_file.h"

/* ---- copying a frame ---- */

struct range {
    int64_t begin, end; /* bytes of the file */
};

static int ascending(const void *a, const void *b)
{
    const struct range *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

/* Return the ranges of the file that are not vectors. The caller frees them. */
static struct range *frame_ranges(const struct checkpoint_contents *contents, int64_t *count)
{
    struct range *range = allocate((size_t)contents->unit_count * FLAT_VECTORS + 1, sizeof *range);
    int64_t vectors = 0, end = 0;
    for (int64_t u = 0; u < contents->unit_count; u++)
        for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++) {
            const int64_t begin = contents->layout[u].offset[kind];
            if (begin >= 0)
                range[vectors++] = (struct range){begin, begin + contents->layout[u].count *
                                                                     (int64_t)sizeof(float)};
        }
    qsort(range, (size_t)vectors, sizeof *range, ascending);
    for (int64_t i = 0; i < vectors; i++) {
        const struct range vector = range[i];
        range[i] = (struct range){end, vector.begin};
        end = vector.end;
    }
    range[vectors] = (struct range){end, contents->bytes};
    *count = vectors + 1;
    return range;
}

bool memory_frame_share(struct comm *world, int root, const struct checkpoint_contents *contents,
                        int descriptor, const char *path, struct error *error)
{
    int64_t count = 0, bytes = 0;
    const bool is_root = world->rank == root;
    struct range *range = is_root ? frame_ranges(contents, &count) : NULL;
    comm_broadcast(world, &count, 1, COMM_INT64, root);
    range = is_root ? range : allocate((size_t)count, sizeof *range);
    comm_broadcast(world, range, count * (int64_t)sizeof *range, COMM_BYTE, root);
    for (int64_t i = 0; i < count; i++)
        bytes += range[i].end - range[i].begin;
    char *data = allocate((size_t)bytes, 1), *next = data;
    for (int64_t i = 0; is_root && i < count; next += range[i].end - range[i].begin, i++)
        if (error->kind == ERROR_NONE)
            error_defer(durable_read(descriptor, path, next,
                                     (size_t)(range[i].end - range[i].begin), range[i].begin,
                                     error));
    comm_broadcast(world, data, bytes, COMM_BYTE, root);
    next = data;
    for (int64_t i = 0; !is_root && descriptor >= 0 && i < count; i++) {
        const size_t length = (size_t)(range[i].end - range[i].begin);
        if (error->kind == ERROR_NONE)
            error_defer(durable_write(descriptor, path, next, length, range[i].begin, error));
        next += length;
    }
    if (!is_root && descriptor >= 0 && error->kind == ERROR_NONE &&
        ftruncate(descriptor, range[count - 1].end) != 0)
        error_set(error, ERROR_MEMORY, "cannot set the size of %s", path);
    free(data);
    free(range);
    return comm_agree(world, error);
}

/* ---- the files of all nodes ---- */

/* A checkpoint file on the node of a rank. Only the first rank of a node lists files. */
struct listed {
    int64_t step, identity; /* step -1: no file */
};

enum { LISTED_MOST = 3 }; /* files listed per node */

/* Checksum of the state and the tables, which differ between any two checkpoints. */
static int64_t identity_of(const struct checkpoint_contents *contents)
{
    uint32_t crc = crc32c_update(0, &contents->state, sizeof contents->state);
    crc = crc32c_update(crc, contents->layout,
                        (size_t)contents->unit_count * sizeof *contents->layout);
    return crc32c_update(crc, contents->pieces,
                         (size_t)contents->piece_count * sizeof *contents->pieces);
}

/* List the checkpoint files in a folder. Invalid files are logged and left out. */
static void folder_list(const char *folder, struct listed *listed)
{
    int count = 0;
    DIR *entries = NULL;
    if (!memory_folder_is_own(folder))
        return;
    for (const char *name; (name = folder_next(&entries, folder)) != NULL;) {
        char path[256 + NAME_MAX];
        struct checkpoint_contents contents = {.unit_count = 0};
        struct error ignored = {.kind = ERROR_NONE};
        struct stat status;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (count < LISTED_MOST && checkpoint_name_step(name) >= 0 && lstat(path, &status) == 0 &&
            S_ISREG(status.st_mode) && checkpoint_file_read(path, &contents, &ignored) &&
            contents.state.step == checkpoint_name_step(name))
            listed[count++] = (struct listed){contents.state.step, identity_of(&contents)};
        else if (ignored.kind != ERROR_NONE)
            log_warn("%s: ignored: %s", comm_host(), ignored.text);
        checkpoint_contents_free(&contents);
    }
}

static int newest_first(const void *a, const void *b)
{
    const struct listed *left = a, *right = b;
    if (left->step != right->step)
        return left->step > right->step ? -1 : 1;
    return (left->identity > right->identity) - (left->identity < right->identity);
}

/* Return the step in the file `reached`, 0 without a valid file. */
static int64_t reached_read(const char *folder)
{
    char path[256];
    int64_t step = 0;
    snprintf(path, sizeof path, "%s/" MEMORY_REACHED, folder);
    const int file = memory_folder_is_own(folder) ? output_file_open(path, O_RDONLY) : -1;
    if (file >= 0 && durable_pread(file, &step, sizeof step, 0) != sizeof step)
        step = 0;
    if (file >= 0)
        close(file);
    return step;
}

/* ---- one checkpoint ---- */

/* Collective. Create a file with only the frame, copied from rank `root`, on each node that has no
 * file of this checkpoint. `creates`: true on the first rank of such a node. */
static bool frame_spread(struct comm *world, int root, bool creates, const char *path,
                         struct error *error)
{
    struct checkpoint_contents contents = {.unit_count = 0};
    char folder[256];
    int descriptor = -1;
    if (world->rank == root && checkpoint_file_read(path, &contents, error))
        descriptor = output_file_open(path, O_RDONLY);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (creates) {
        mkdir(folder, 0700);
        unlink(path);
        descriptor = memory_folder_is_own(folder) ? durable_create(path, error) : -1;
    }
    const bool good = comm_agree(world, error) &&
                      memory_frame_share(world, root, &contents, descriptor, path, error);
    if (descriptor >= 0)
        close(descriptor);
    checkpoint_contents_free(&contents);
    return good;
}

/* Collective. Verify all pieces in the file of each node. The ranks of a node divide the pieces
 * among them. Return for each piece the lowest rank that found it valid, or the number of ranks if
 * no node has it. *everywhere: true if all nodes have all pieces. */
static int *sources_find(const char *path, const struct checkpoint_contents *contents,
                         struct comm *world, struct comm *node, bool *everywhere)
{
    const int64_t count = contents->piece_count;
    int64_t *rank = allocate((size_t)count + 1, sizeof *rank);
    int *sources = allocate((size_t)count, sizeof *sources);
    float *block = allocate(VECTOR_BLOCK, sizeof *block);
    const int file = output_file_open(path, O_RDONLY);
    int64_t lacks = 0;
    for (int64_t u = 0; u < contents->unit_count; u++)
        for (int64_t i = 0; i < contents->layout[u].piece_count; i++) {
            const int64_t p = contents->layout[u].first_piece + i;
            struct error ignored = {.kind = ERROR_NONE};
            rank[p] = world->size;
            if (p % node->size != node->rank)
                continue;
            for (enum flat_vector kind = 0; kind < FLAT_VECTORS && file >= 0; kind++)
                if (checkpoint_has(contents, kind) && ignored.kind == ERROR_NONE)
                    error_defer(
                        checkpoint_piece_read(file, path, contents, u, p, kind, block, &ignored));
            if (file >= 0 && ignored.kind == ERROR_NONE)
                rank[p] = world->rank;
            lacks += rank[p] == world->size;
        }
    comm_all_reduce(world, rank, count, COMM_INT64, COMM_MIN);
    comm_all_reduce(world, &lacks, 1, COMM_INT64, COMM_MAX);
    for (int64_t p = 0; p < count; p++)
        sources[p] = (int)rank[p];
    *everywhere = lacks == 0;
    if (file >= 0)
        close(file);
    free(block);
    free(rank);
    return sources;
}

/* Collective. True if each piece of this checkpoint is valid on some node. Then set `sources` and
 * `step` of `found`. */
static bool is_complete(const char *path, struct comm *world, struct comm *node,
                        struct memory_found *found, struct error *error)
{
    struct checkpoint_contents contents = {.unit_count = 0};
    bool everywhere, complete = true;
    if (world->rank == 0)
        error_defer(checkpoint_file_read(path, &contents, error));
    if (comm_agree(world, error)) {
        checkpoint_contents_share(&contents, world);
        int *sources = sources_find(path, &contents, world, node, &everywhere);
        for (int64_t p = 0; p < contents.piece_count; p++)
            complete = complete && sources[p] < world->size;
        if (complete)
            *found = (struct memory_found){.sources = everywhere ? NULL : sources,
                                           .step = contents.state.step};
        if (!complete || everywhere)
            free(sources);
    }
    checkpoint_contents_free(&contents);
    return complete && error->kind == ERROR_NONE;
}

/* Collective. Verify the checkpoint `wanted`, of which at least one node has a file. True if it is
 * complete; then set `found`. */
static bool candidate_try(const char *folder, const struct listed *listed,
                          const struct listed *wanted, struct comm *world, struct comm *node,
                          struct memory_found *found, struct error *error)
{
    char name[CHECKPOINT_NAME], path[sizeof found->path];
    int root = -1;
    checkpoint_name(name, wanted->step);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    bool here = false;
    for (int i = 0; i < world->size * LISTED_MOST; i++)
        if (memcmp(&listed[i], wanted, sizeof *wanted) == 0) {
            root = root < 0 ? i / LISTED_MOST : root;
            here = here || i / LISTED_MOST == world->rank;
        }
    if (!frame_spread(world, root, node->rank == 0 && !here, path, error) ||
        !is_complete(path, world, node, found, error))
        return false;
    snprintf(found->path, sizeof found->path, "%s", path);
    return true;
}

bool memory_find(const char *id, struct comm *world, struct comm *node, struct memory_found *found,
                 char *report, size_t report_size, struct error *error)
{
    char folder[128];
    const int count = world->size * LISTED_MOST;
    struct listed *listed = allocate((size_t)count, sizeof *listed), *sorted;
    struct listed *mine = &listed[world->rank * LISTED_MOST];
    int64_t reached = 0, exists = 0;
    *found = (struct memory_found){.sources = NULL};
    report[0] = '\0';
    checkpoint_memory_folder(id, folder, sizeof folder);
    for (int i = 0; i < LISTED_MOST; i++)
        mine[i].step = -1;
    if (node->rank == 0) {
        folder_list(folder, mine);
        reached = reached_read(folder);
        exists = memory_folder_is_own(folder);
    }
    comm_all_reduce(world, &reached, 1, COMM_INT64, COMM_MAX);
    comm_all_reduce(world, &exists, 1, COMM_INT64, COMM_MAX);
    comm_all_gather(world, listed, LISTED_MOST * (int64_t)sizeof *listed, COMM_BYTE);
    sorted = allocate((size_t)count, sizeof *sorted);
    memcpy(sorted, listed, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, newest_first);
    for (int i = 0;
         i < count && sorted[i].step >= 0 && found->path[0] == '\0' && error->kind == ERROR_NONE;
         i++) {
        struct error trouble = {.kind = ERROR_NONE};
        if (i > 0 && memcmp(&sorted[i], &sorted[i - 1], sizeof *sorted) == 0)
            continue;
        if (candidate_try(folder, listed, &sorted[i], world, node, found, &trouble))
            continue;
        if (trouble.kind == ERROR_MEMORY)
            *error = trouble;
        const size_t used = strlen(report);
        snprintf(report + used, report_size - used, "step %lld in memory: %s\n",
                 (long long)sorted[i].step,
                 trouble.kind != ERROR_NONE ? trouble.text : "the nodes lack some pieces of it");
    }
    found->reached = reached;
    found->exists = exists != 0;
    free(sorted);
    free(listed);
    return error->kind == ERROR_NONE;
}
