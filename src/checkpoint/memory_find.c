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

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/memory_checkpoint.h"
#include "core/allocate.h"
#include "core/base.h"
#include "core/file.h"
#include "core/log.h"

/* ---- copying a frame ---- */

/* A vector: bytes of the file. */
struct range {
    int64_t begin, end;
};

static int ascending(const void *a, const void *b)
{
    const struct range *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

bool memory_frame_share(struct comm *world, int root, const struct checkpoint_contents *contents,
                        int descriptor, const char *path, struct error *error)
{
    struct range *vector =
        allocate((size_t)contents->unit_count * FLAT_VECTORS + 1, sizeof *vector);
    int64_t vectors = 0, begin = 0, total = 0;
    for (int64_t u = 0; u < contents->unit_count; u++)
        for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++) {
            const struct checkpoint_layout *layout = &contents->layout[u];
            const int64_t bytes = layout->count * (int64_t)sizeof(float);
            if (checkpoint_has(contents, kind))
                vector[vectors++] =
                    (struct range){layout->offset[kind], layout->offset[kind] + bytes};
        }
    qsort(vector, (size_t)vectors, sizeof *vector, ascending);
    vector[vectors++] = (struct range){contents->bytes, contents->bytes};
    for (int64_t i = 0; i < vectors; begin = vector[i++].end)
        total += larger(vector[i].begin - begin, 0);
    char *data = allocate((size_t)total, 1);
    for (int turn = 0; turn < 2; turn++) { /* read on rank `root`, write on the others */
        char *next = data;
        begin = 0;
        if (turn == 1)
            comm_broadcast(world, data, total, COMM_BYTE, root);
        for (int64_t i = 0; i < vectors; begin = vector[i++].end) {
            const size_t bytes = (size_t)larger(vector[i].begin - begin, 0);
            if (turn == 0 && world->rank == root && error->kind == ERROR_NONE)
                error_defer(durable_read(descriptor, path, next, bytes, begin, error));
            if (turn == 1 && world->rank != root && descriptor >= 0 && error->kind == ERROR_NONE)
                error_defer(durable_write(descriptor, path, next, bytes, begin, error));
            next += bytes;
        }
    }
    free(data);
    if (world->rank != root && descriptor >= 0 && error->kind == ERROR_NONE &&
        ftruncate(descriptor, contents->bytes) != 0)
        error_set(error, ERROR_MEMORY, "cannot set the size of %s: %s", path, strerror(errno));
    free(vector);
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

/* Collective. Verify all pieces in the file of each node. The ranks of a node divide the pieces
 * among them. `here`: false on nodes without a file of this checkpoint.
 * - source[pieces]: the lowest rank that found the piece valid; the number of ranks: none
 * - lacks[pieces]: this rank found that its node's file lacks the piece */
static void pieces_verify(const char *path, bool here, const struct checkpoint_contents *contents,
                          const struct mesh *mesh, int64_t *source, bool *lacks)
{
    const struct comm *node = mesh->node;
    const int file = here ? output_file_open(path, O_RDONLY) : -1;
    float *memory = allocate(VECTOR_BLOCK, sizeof *memory);
    struct error ignored = {.kind = ERROR_NONE};
    for (struct checkpoint_block block = {.u = 0}; checkpoint_next(contents, &block);)
        if (block.p % node->size == node->rank && !lacks[block.p])
            lacks[block.p] =
                file < 0 || !checkpoint_block_read(file, path, contents, &block, memory, &ignored);
    for (int64_t p = 0; p < contents->piece_count; p++)
        source[p] =
            p % node->size == node->rank && !lacks[p] ? mesh->world->rank : mesh->world->size;
    comm_all_reduce(mesh->world, source, contents->piece_count, COMM_INT64, COMM_MIN);
    if (file >= 0)
        close(file);
    free(memory);
}

/* Collective. Return [pieces]: 1 if elements of the piece belong to a shard of a rank of this node.
 * The caller frees it. */
static int64_t *pieces_choose(const struct checkpoint_contents *contents, const struct mesh *mesh)
{
    int64_t *reads = allocate((size_t)contents->piece_count, sizeof *reads);
    for (struct checkpoint_block block = {.u = 0}; checkpoint_next(contents, &block);) {
        const int64_t shard = flat_shard_count(contents->layout[block.u].count, mesh->shard->size);
        int64_t length;
        vector_overlap(block.piece->begin, block.piece->count, mesh->shard->rank * shard, shard,
                       &length);
        reads[block.p] = length > 0;
    }
    comm_all_reduce(mesh->node, reads, contents->piece_count, COMM_INT64, COMM_MAX);
    return reads;
}

/* Copy a block from the file of rank `from` to the file of rank `to`. Does nothing on other
 * ranks. */
static void block_copy(int file, const char *path, const struct checkpoint_contents *contents,
                       const struct checkpoint_block *block, struct comm *world, int from, int to,
                       float *memory, struct error *error)
{
    if (world->rank == from) {
        if (error->kind == ERROR_NONE)
            error_defer(checkpoint_block_read(file, path, contents, block, memory, error));
        comm_send(world, memory, block->bytes, to);
    } else if (world->rank == to) {
        comm_receive(world, memory, block->bytes, from);
        if (error->kind == ERROR_NONE)
            error_defer(durable_write(file, path, memory, block->bytes, block->offset, error));
    }
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
                         const struct mesh *mesh, const int64_t *source, const bool *lacks,
                         struct error *error)
{
    struct comm *world = mesh->world;
    const int64_t count = contents->piece_count;
    int64_t *reads = pieces_choose(contents, mesh);
    char *wanted = allocate((size_t)world->size * (size_t)count, 1); /* [ranks, pieces] */
    float *memory = allocate(VECTOR_BLOCK, sizeof *memory);
    for (int64_t p = 0; p < count; p++)
        wanted[world->rank * count + p] = lacks[p] && reads[p] != 0;
    comm_all_gather(world, wanted, count, COMM_BYTE);
    const int file = output_file_open(path, O_RDWR);
    if (file < 0)
        durable_unreadable(error, ERROR_CHECKPOINT, path, errno);
    struct checkpoint_block block = {.u = 0};
    for (bool good = comm_agree(world, error); good && checkpoint_next(contents, &block);)
        for (int rank = 0; rank < world->size; rank++)
            if (wanted[rank * count + block.p] != 0)
                block_copy(file, path, contents, &block, world, (int)source[block.p], rank, memory,
                           error);
    if (file >= 0)
        close(file);
    free(memory);
    free(wanted);
    free(reads);
    return comm_agree(world, error);
}

/* Collective. Verify the checkpoint. If each piece is valid on some node, create the missing files
 * and copy the pieces that the ranks of their nodes read, and return true. Else no file is changed.
 * After an error files may be incomplete. */
static bool checkpoint_complete(const char *path, bool here, int root, const struct mesh *mesh,
                                struct error *error)
{
    struct checkpoint_contents contents;
    bool complete = checkpoint_contents_read(path, mesh->world, root, &contents, error);
    if (complete) {
        int64_t *source = allocate((size_t)contents.piece_count, sizeof *source);
        bool *lacks = allocate((size_t)contents.piece_count, sizeof *lacks);
        pieces_verify(path, here, &contents, mesh, source, lacks);
        for (int64_t p = 0; p < contents.piece_count; p++)
            complete = complete && source[p] < mesh->world->size;
        complete = complete && frame_spread(path, here, root, &contents, mesh, error) &&
                   pieces_fetch(path, &contents, mesh, source, lacks, error);
        free(source);
        free(lacks);
    }
    checkpoint_contents_free(&contents);
    return complete;
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

bool memory_find(const char *id, const struct mesh *mesh, struct memory_found *found,
                 struct error *error)
{
    struct comm *world = mesh->world;
    char folder[128];
    const int count = world->size * LISTED_MOST;
    struct listed *listed = allocate((size_t)count, sizeof *listed), *sorted;
    struct listed *mine = &listed[world->rank * LISTED_MOST];
    int64_t reached = 0, exists = 0;
    memset(found, 0, sizeof *found);
    memory_folder(id, folder, sizeof folder);
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
        log_warn("ignored: checkpoint in memory of step %lld: %s", (long long)sorted[i].step,
                 trouble.kind != ERROR_NONE ? trouble.text : "some pieces are on no node");
    }
    found->reached = reached;
    found->exists = exists != 0;
    free(sorted);
    free(listed);
    return error->kind == ERROR_NONE;
}
