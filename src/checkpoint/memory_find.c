// SPDX-License-Identifier: BSD-3-Clause
/* Finds the newest complete checkpoint in the memory of the nodes. Nodes may have different files:
 * a node may be new, may have missed some attempts, or may have lost a file. Files of one
 * checkpoint have the same state and tables. A node has a piece if the checksum of the piece in its
 * file is right. */
#include <errno.h>
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
#include "core/file.h"
#include "core/folder.h"
#include "core/log.h"

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
        error_set(error, ERROR_MEMORY, "cannot set the size of %s: %s", path, strerror(errno));
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

/* Return a checksum that identifies a checkpoint: of its state, which has elapsed times, and its
 * tables. */
static int64_t identity_of(const struct checkpoint_contents *contents)
{
    uint32_t crc = crc32c_update(0, &contents->state, sizeof contents->state);
    crc = crc32c_update(crc, contents->layout,
                        (size_t)contents->unit_count * sizeof *contents->layout);
    return crc32c_update(crc, contents->pieces,
                         (size_t)contents->piece_count * sizeof *contents->pieces);
}

/* List up to LISTED_MOST valid checkpoint files of a folder. Those that cannot be read are logged.
 */
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

/* The pieces of a checkpoint, as arrays with one element per piece. */
struct pieces {
    int64_t *source; /* the lowest rank that found it valid; the number of ranks: none */
    int64_t *lacks;  /* 1: this rank found that its node's file lacks it */
    int64_t *reads;  /* 1: its elements belong to a shard of a rank of this node */
};

/* Collective. Verify all pieces in the file of each node. The ranks of a node divide the pieces
 * among them. `here`: false on nodes without a file of this checkpoint. */
static void pieces_verify(const char *path, bool here, const struct checkpoint_contents *contents,
                          const struct mesh *mesh, const struct pieces *pieces)
{
    const struct comm *node = mesh->node;
    const int file = here ? output_file_open(path, O_RDONLY) : -1;
    float *block = allocate(VECTOR_BLOCK, sizeof *block);
    for (int64_t u = 0; u < contents->unit_count; u++)
        for (int64_t i = 0; i < contents->layout[u].piece_count; i++) {
            const int64_t p = contents->layout[u].first_piece + i;
            struct error ignored = {.kind = ERROR_NONE};
            pieces->source[p] = mesh->world->size;
            if (p % node->size != node->rank)
                continue;
            for (enum flat_vector kind = 0; kind < FLAT_VECTORS && file >= 0; kind++)
                if (checkpoint_has(contents, kind) && ignored.kind == ERROR_NONE)
                    error_defer(
                        checkpoint_piece_read(file, path, contents, u, p, kind, block, &ignored));
            pieces->lacks[p] = file < 0 || ignored.kind != ERROR_NONE;
            if (pieces->lacks[p] == 0)
                pieces->source[p] = mesh->world->rank;
        }
    comm_all_reduce(mesh->world, pieces->source, contents->piece_count, COMM_INT64, COMM_MIN);
    if (file >= 0)
        close(file);
    free(block);
}

/* Collective. Set pieces->reads. */
static void pieces_choose(const struct checkpoint_contents *contents, const struct mesh *mesh,
                          const struct pieces *pieces)
{
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct checkpoint_layout *layout = &contents->layout[u];
        const int64_t length = flat_shard_count(layout->count, mesh->shard->size);
        const int64_t begin = mesh->shard->rank * length;
        for (int64_t p = layout->first_piece; p < layout->first_piece + layout->piece_count; p++)
            pieces->reads[p] = contents->pieces[p].begin < begin + length &&
                               contents->pieces[p].begin + contents->pieces[p].count > begin;
    }
    comm_all_reduce(mesh->node, pieces->reads, contents->piece_count, COMM_INT64, COMM_MAX);
}

/* Copy piece p from the file of rank `from` to the file of rank `to`. Does nothing on other
 * ranks. */
static void piece_copy(int file, const char *path, const struct checkpoint_contents *contents,
                       struct comm *world, int64_t u, int64_t p, int from, int to,
                       struct error *error)
{
    float *block =
        world->rank == from || world->rank == to ? allocate(VECTOR_BLOCK, sizeof *block) : NULL;
    const size_t bytes = (size_t)contents->pieces[p].count * sizeof *block;
    for (enum flat_vector kind = 0; block != NULL && kind < FLAT_VECTORS; kind++) {
        if (!checkpoint_has(contents, kind))
            continue;
        if (world->rank == from) {
            if (error->kind == ERROR_NONE)
                error_defer(checkpoint_piece_read(file, path, contents, u, p, kind, block, error));
            comm_send(world, block, bytes, to);
        } else {
            comm_receive(world, block, bytes, from);
            if (error->kind == ERROR_NONE)
                error_defer(durable_write(file, path, block, bytes,
                                          checkpoint_piece_offset(contents, u, kind, p), error));
        }
    }
    free(block);
}

/* Collective. Copy the frame from rank `root` to a new file on each node that has no file of this
 * checkpoint. A file of another one with the same name is removed. */
static bool frame_spread(const char *path, bool here, int root,
                         const struct checkpoint_contents *contents, const struct mesh *mesh,
                         struct error *error)
{
    char folder[256];
    int descriptor = -1;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (mesh->world->rank == root) {
        descriptor = output_file_open(path, O_RDONLY);
    } else if (mesh->node->rank == 0 && !here) {
        mkdir(folder, 0700);
        unlink(path);
        descriptor = memory_folder_is_own(folder) ? durable_create(path, error) : -1;
    }
    const bool good = comm_agree(mesh->world, error) &&
                      memory_frame_share(mesh->world, root, contents, descriptor, path, error);
    if (descriptor >= 0)
        close(descriptor);
    return good;
}

/* Collective. Copy from other nodes each piece that ranks of this node read and that is missing or
 * damaged in its file. All ranks have the same order, so that blocking transfers between them
 * cannot deadlock. */
static bool pieces_fetch(const char *path, const struct checkpoint_contents *contents,
                         const struct mesh *mesh, const struct pieces *pieces, struct error *error)
{
    struct comm *world = mesh->world;
    const int64_t count = contents->piece_count;
    char *wanted = allocate((size_t)world->size * (size_t)count, 1); /* [ranks, pieces] */
    for (int64_t p = 0; p < count; p++)
        wanted[world->rank * count + p] = pieces->lacks[p] != 0 && pieces->reads[p] != 0;
    comm_all_gather(world, wanted, count, COMM_BYTE);
    const int file = output_file_open(path, O_RDWR);
    if (file < 0)
        durable_unreadable(error, ERROR_CHECKPOINT, path, errno);
    const bool good = comm_agree(world, error);
    for (int64_t u = 0; good && u < contents->unit_count; u++)
        for (int64_t i = 0; i < contents->layout[u].piece_count; i++) {
            const int64_t p = contents->layout[u].first_piece + i;
            for (int rank = 0; rank < world->size; rank++)
                if (wanted[rank * count + p] != 0)
                    piece_copy(file, path, contents, world, u, p, (int)pieces->source[p], rank,
                               error);
        }
    if (file >= 0)
        close(file);
    free(wanted);
    return comm_agree(world, error);
}

/* Collective. Verify the checkpoint. If each piece is valid on some node, create the missing files
 * and copy the pieces that the ranks of their nodes read, and return true. Else no file is changed.
 * After an error files may be incomplete. */
static bool checkpoint_complete(const char *path, bool here, int root, const struct mesh *mesh,
                                struct error *error)
{
    struct comm *world = mesh->world;
    struct checkpoint_contents contents = {.unit_count = 0};
    bool complete = true;
    if (world->rank == root)
        error_defer(checkpoint_file_read(path, &contents, error));
    if (comm_agree(world, error)) {
        checkpoint_contents_share(&contents, world, root);
        const size_t count = (size_t)contents.piece_count;
        const struct pieces pieces = {.source = allocate(count, sizeof(int64_t)),
                                      .lacks = allocate(count, sizeof(int64_t)),
                                      .reads = allocate(count, sizeof(int64_t))};
        pieces_verify(path, here, &contents, mesh, &pieces);
        pieces_choose(&contents, mesh, &pieces);
        for (int64_t p = 0; p < contents.piece_count; p++)
            complete = complete && pieces.source[p] < world->size;
        complete = complete && frame_spread(path, here, root, &contents, mesh, error) &&
                   pieces_fetch(path, &contents, mesh, &pieces, error);
        free(pieces.source);
        free(pieces.lacks);
        free(pieces.reads);
    }
    checkpoint_contents_free(&contents);
    return complete && error->kind == ERROR_NONE;
}

/* Collective. Verify the checkpoint `wanted`, of which at least one node has a file. True if it is
 * complete; then set `found`. */
static bool candidate_try(const char *folder, const struct listed *listed,
                          const struct listed *wanted, const struct mesh *mesh,
                          struct memory_found *found, struct error *error)
{
    char name[CHECKPOINT_NAME], path[sizeof found->path];
    int root = -1;
    int64_t here = 0;
    checkpoint_name(name, wanted->step);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (int i = 0; i < mesh->world->size * LISTED_MOST; i++)
        if (memcmp(&listed[i], wanted, sizeof *wanted) == 0) {
            root = root < 0 ? i / LISTED_MOST : root;
            here = here != 0 || i / LISTED_MOST == mesh->world->rank;
        }
    comm_all_reduce(mesh->node, &here, 1, COMM_INT64, COMM_MAX);
    if (!checkpoint_complete(path, here != 0, root, mesh, error))
        return false;
    snprintf(found->path, sizeof found->path, "%s", path);
    found->step = wanted->step;
    return true;
}

bool memory_find(const char *id, const struct mesh *mesh, struct memory_found *found, char *report,
                 size_t report_size, struct error *error)
{
    struct comm *world = mesh->world;
    char folder[128];
    const int count = world->size * LISTED_MOST;
    struct listed *listed = allocate((size_t)count, sizeof *listed), *sorted;
    struct listed *mine = &listed[world->rank * LISTED_MOST];
    int64_t reached = 0, exists = 0;
    memset(found, 0, sizeof *found);
    report[0] = '\0';
    checkpoint_memory_folder(id, folder, sizeof folder);
    for (int i = 0; i < LISTED_MOST; i++)
        mine[i].step = -1;
    if (mesh->node->rank == 0) {
        folder_list(folder, mine);
        reached = reached_read(folder);
        exists = access(folder, F_OK) == 0;
        if (exists && !memory_folder_is_own(folder))
            error_set(error, ERROR_FILE,
                      "checkpoint.memory: %s exists, but is not a private folder of this user; "
                      "remove it",
                      folder);
    }
    comm_all_reduce(world, &reached, 1, COMM_INT64, COMM_MAX);
    comm_all_reduce(world, &exists, 1, COMM_INT64, COMM_MAX);
    comm_agree(world, error);
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
        if (candidate_try(folder, listed, &sorted[i], mesh, found, &trouble))
            continue;
        if (trouble.kind == ERROR_MEMORY)
            *error = trouble;
        const size_t used = strlen(report);
        snprintf(report + used, report_size - used, "checkpoint in memory of step %lld: %s\n",
                 (long long)sorted[i].step,
                 trouble.kind != ERROR_NONE ? trouble.text : "some pieces are on no node");
    }
    found->reached = reached;
    found->exists = exists != 0;
    free(sorted);
    free(listed);
    return error->kind == ERROR_NONE;
}
