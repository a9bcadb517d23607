// SPDX-License-Identifier: BSD-3-Clause
/* Rank 0 reads the frame and compares it with the model. Then the ranks read the pieces and verify
 * their checksums: each piece is read by one of the ranks whose shards contain it, which sends it
 * to the others. If the folder is private to rank 0's node, rank 0 reads and broadcasts each piece.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "checkpoint/checkpoint_file.h"
#include "options/options.h"

/* ---- the frame ---- */

bool checkpoint_contents_read(const char *path, struct comm *world, int root,
                              struct checkpoint_contents *contents, struct error *error)
{
    memset(contents, 0, sizeof *contents);
    if (world->rank == root)
        error_defer(checkpoint_file_read(path, contents, error));
    if (!comm_agree(world, error))
        return false;
    comm_broadcast(world, contents, offsetof(struct checkpoint_contents, compute), COMM_BYTE, root);
    const size_t units = (size_t)contents->unit_count, pieces = (size_t)contents->piece_count;
    if (world->rank != root) {
        contents->layout = allocate(units, sizeof *contents->layout);
        contents->pieces = allocate(pieces, sizeof *contents->pieces);
    }
    comm_broadcast(world, contents->layout, (int64_t)(units * sizeof *contents->layout), COMM_BYTE,
                   root);
    comm_broadcast(world, contents->pieces, (int64_t)(pieces * sizeof *contents->pieces), COMM_BYTE,
                   root);
    for (int t = 0; t < CHECKPOINT_TEXTS; t++) {
        OWNED char *text = contents->text[t];
        contents->text[t] = comm_broadcast_text(world, text, root);
    }
    return true;
}

static bool tensors_equal(const struct unit_tensor *a, const struct unit_tensor *b)
{
    return strcmp(a->name, b->name) == 0 && a->dimensions == b->dimensions &&
           a->count == b->count && a->offset == b->offset && a->kind == b->kind &&
           memcmp(a->shape, b->shape, (size_t)a->dimensions * sizeof *a->shape) == 0;
}

/* Write tensor t of a unit as "NAME [2, 3]" to text; "none": there is no such tensor. */
static void tensor_text(const struct unit *unit, int t, char text[TENSOR_NAME + 64])
{
    char shape[64];
    snprintf(text, TENSOR_NAME + 64, "none");
    if (t >= unit->tensor_count)
        return;
    vector_shape_text(unit->tensors[t].shape, unit->tensors[t].dimensions, shape, sizeof shape);
    snprintf(text, TENSOR_NAME + 64, "%s %s", unit->tensors[t].name, shape);
}

/* Compare the tensors of a file with those of the model. Return false and describe the first
 * difference. */
static bool checkpoint_fits(const struct checkpoint_contents *contents,
                            const struct flat_model *flat, char *text, size_t size)
{
    static const struct unit none = {.name = "none"};
    char there[TENSOR_NAME + 64], here[sizeof there];
    for (int64_t u = 0; u < contents->unit_count || u < flat->count; u++) {
        const struct unit *theirs = u < contents->unit_count ? &contents->units[u] : &none;
        const struct unit *ours = u < flat->count ? flat->buffers[u].unit : &none;
        const int count = (int)smaller(theirs->tensor_count, ours->tensor_count);
        int t = 0;
        while (t < count && tensors_equal(&theirs->tensors[t], &ours->tensors[t]))
            t++;
        if (t == theirs->tensor_count && t == ours->tensor_count && theirs->count == ours->count &&
            strcmp(theirs->name, ours->name) == 0)
            continue;
        tensor_text(theirs, t, there);
        tensor_text(ours, t, here);
        snprintf(text, size, "its unit %s holds %s where this model's unit %s has %s", theirs->name,
                 there, ours->name, here);
        return false;
    }
    return true;
}

/* Check that a file is of this model and, unless only its weights are read, that its moments are
 * those of this run's optimizer, and the size of the grains. Adam and AdamW can exchange theirs. A
 * deck of a version with other options is not checked. options NULL: any. */
static bool contents_check(const char *path, const struct checkpoint_contents *contents,
                           const struct flat_model *flat, const struct options *options,
                           bool weights_only, struct error *error)
{
    char difference[512], theirs[OPTION_TEXT] = "unknown", ours[OPTION_TEXT];
    bool other_optimizer = contents->moments != flat->moments;
    struct options saved;
    struct error ignored = {.kind = ERROR_NONE};
    if (options != NULL && strcmp(options->model.name, contents->model) != 0)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s is of model %s, this run's is %s; set model.name=%s or choose another "
                         "checkpoint",
                         path, contents->model, options->model.name, contents->model);
    if (!checkpoint_fits(contents, flat, difference, sizeof difference))
        return error_set(error, ERROR_CHECKPOINT,
                         "%s (model %s) does not fit: %s; set the model's name and shape as in the "
                         "deck saved in it%s",
                         path, contents->model, difference,
                         weights_only
                             ? ", or give weights as safetensors: their head and positions "
                               "may be of another size"
                             : "");
    if (weights_only)
        return true;
    options_default(&saved);
    if (options != NULL &&
        checkpoint_deck_parse(contents->text[TEXT_DECK], path, &saved, &ignored)) {
        const long long grain = options_grain(&saved, saved.train.global_batch);
        const long long our_grain = options_grain(options, options->train.global_batch);
        options_value_text(&saved, "optim.name", theirs, sizeof theirs);
        options_value_text(options, "optim.name", ours, sizeof ours);
        other_optimizer =
            other_optimizer ||
            ((contents->moments > 0 || flat->moments > 0) && strcmp(theirs, ours) != 0 &&
             (strncmp(theirs, "adam", 4) != 0 || strncmp(ours, "adam", 4) != 0));
        if (grain != our_grain && grain != 0 && our_grain != 0)
            return error_set(error, ERROR_CHECKPOINT,
                             "%s was made with grains of %lld samples, this run has %lld, which "
                             "changes the result; set train.grain=%lld",
                             path, grain, our_grain, grain);
    }
    if (other_optimizer)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s holds %lld moments a weight, of optim.name=%s, this run needs %d; set "
                         "optim as in the deck saved in it, or start a new run with these weights "
                         "in model.init",
                         path, (long long)contents->moments, theirs, flat->moments);
    return !flat->averaged || contents->averaged ||
           error_set(error, ERROR_CHECKPOINT,
                     "%s holds no moving average of the weights; set optim.ema=0 to continue "
                     "without one",
                     path);
}

/* ---- vectors ---- */

/* True if vectors of this kind are read to flat. */
static bool is_loaded(const struct flat_model *flat, enum flat_vector kind, bool weights_only)
{
    return flat_vector_memory(&flat->buffers[0], kind) != NULL &&
           (!weights_only || kind == FLAT_MASTER || kind == FLAT_AVERAGE);
}

/* The vectors of a file while they are read. */
struct vectors {
    const char *path;
    int descriptor; /* -1: this rank has not opened the file */
    const struct checkpoint_contents *contents;
    const struct flat_model *flat; /* NULL: the vectors are only verified */
    bool weights_only;
    float *own, *other; /* the block that this rank has read, and a block of another rank */
};

/* Advance to the next block whose kind is loaded (checkpoint_next). */
static bool vectors_next(const struct vectors *vectors, struct checkpoint_block *block)
{
    while (checkpoint_next(vectors->contents, block))
        if (vectors->flat == NULL || is_loaded(vectors->flat, block->kind, vectors->weights_only))
            return true;
    return false;
}

/* Read a block to `own`, unless an earlier one has failed. */
static void block_read(struct vectors *vectors, const struct checkpoint_block *block,
                       struct error *error)
{
    if (error->kind == ERROR_NONE && vectors->descriptor < 0) {
        vectors->descriptor = open(vectors->path, O_RDONLY | O_CLOEXEC);
        if (vectors->descriptor < 0)
            durable_unreadable(error, ERROR_CHECKPOINT, vectors->path, errno);
    }
    if (error->kind == ERROR_NONE)
        error_defer(checkpoint_block_read(vectors->descriptor, vectors->path, vectors->contents,
                                          block, vectors->own, error));
}

/* Set the first and the last shard that contain elements of a block. Return the shard of the rank
 * that reads block `n`, which is on replica n modulo the number of replicas. */
static int64_t reader_of(const struct vectors *vectors, const struct checkpoint_block *block,
                         int64_t n, int64_t *first, int64_t *last)
{
    const int64_t shard = vectors->flat->buffers[block->u].shard_count;
    *first = block->piece->begin / shard;
    *last = (block->piece->begin + block->piece->count - 1) / shard;
    return *first + n / vectors->flat->mesh->replica->size % (*last - *first + 1);
}

/* Collective over the ranks whose shards contain elements of block `n`. Its reader sends the other
 * shards their elements, and each of these ranks broadcasts them to its replicas. */
static void block_share(const struct vectors *vectors, const struct checkpoint_block *block,
                        int64_t n)
{
    const struct flat_model *flat = vectors->flat;
    const struct checkpoint_piece *piece = block->piece;
    struct comm *shards = flat->mesh->shard, *replicas = flat->mesh->replica;
    const int64_t shard = flat->buffers[block->u].shard_count;
    const int root = (int)(n % replicas->size);
    float *memory = vectors->other;
    int64_t first, last, length;
    const int reader = (int)reader_of(vectors, block, n, &first, &last);
    const int64_t begin =
        vector_overlap(piece->begin, piece->count, shards->rank * shard, shard, &length);
    if (length == 0)
        return;
    if (replicas->rank == root && shards->rank == reader) {
        for (int64_t to = first; to <= last; to++) {
            int64_t count;
            const int64_t part =
                vector_overlap(piece->begin, piece->count, to * shard, shard, &count);
            if (to != reader)
                comm_send(shards, vectors->own + (part - piece->begin),
                          (size_t)count * sizeof(float), (int)to);
        }
        memory = vectors->own + (begin - piece->begin);
    } else if (replicas->rank == root) {
        comm_receive(shards, memory, (size_t)length * sizeof *memory, reader);
    }
    comm_broadcast(replicas, memory, length, COMM_FP32, root);
    vector_store(flat, block->u, block->kind, begin, length, memory);
}

/* Collective. In each round every replica reads another block. Then the ranks exchange the blocks
 * of the round. */
static void vectors_load(struct vectors *vectors, struct error *error)
{
    const struct mesh *mesh = vectors->flat->mesh;
    struct checkpoint_block block = {.u = 0}, own;
    for (int64_t n = 0, first, last; vectors_next(vectors, &block); n++) {
        if (n % mesh->replica->size == 0) {
            int ahead = 0;
            for (own = block; ahead < mesh->replica->rank && vectors_next(vectors, &own);)
                ahead++;
            if (ahead == mesh->replica->rank &&
                reader_of(vectors, &own, n + ahead, &first, &last) == mesh->shard->rank)
                block_read(vectors, &own, error);
        }
        block_share(vectors, &block, n);
    }
}

/* Zero the padding after the last element of each unit. */
static void padding_zero(const struct flat_model *flat, bool weights_only)
{
    for (int u = 0; u < flat->count; u++)
        for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++) {
            const struct flat_buffer *buffer = &flat->buffers[u];
            const int64_t used =
                integer_clamp(buffer->unit->count - buffer->shard_begin, 0, buffer->shard_count);
            if (is_loaded(flat, kind, weights_only) && used < buffer->shard_count)
                flat->device->backend->zero(flat->stream, flat_vector_memory(buffer, kind) + used,
                                            (size_t)(buffer->shard_count - used) * sizeof(float));
        }
    flat->device->backend->stream_synchronize(flat->stream);
}

bool checkpoint_vectors_read(const char *path, bool by_all, struct comm *world,
                             const struct checkpoint_contents *contents,
                             const struct flat_model *flat, bool weights_only, struct error *error)
{
    OWNED float *own = allocate(VECTOR_BLOCK, sizeof *own);
    OWNED float *other = allocate(flat != NULL && by_all ? VECTOR_BLOCK : 0, sizeof *other);
    struct vectors vectors = {.path = path,
                              .descriptor = -1,
                              .contents = contents,
                              .flat = flat,
                              .weights_only = weights_only,
                              .own = own,
                              .other = other};
    struct checkpoint_block block = {.u = 0};
    if (flat != NULL && by_all)
        vectors_load(&vectors, error);
    else
        for (int64_t n = 0; vectors_next(&vectors, &block); n++) {
            if (world->rank == (by_all ? n % world->size : 0))
                block_read(&vectors, &block, error);
            if (flat == NULL)
                continue;
            comm_broadcast(world, own, block.piece->count, COMM_FP32, 0);
            vector_store(flat, block.u, block.kind, block.piece->begin, block.piece->count, own);
        }
    if (flat != NULL)
        padding_zero(flat, weights_only);
    if (vectors.descriptor >= 0)
        close(vectors.descriptor);
    return comm_agree(world, error);
}

/* Collective. True if all ranks see the same file, by size and modification time. */
static bool seen_by_all(const char *path, struct comm *world)
{
    struct stat file = {.st_size = -1};
    stat(path, &file);
    const int64_t seen[] = {file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec};
    return comm_same(world, seen, sizeof seen) && file.st_size >= 0;
}

bool checkpoint_read(const char *path, const struct checkpoint_target *target,
                     struct flat_model *flat, struct training_state *state, bool weights_only,
                     struct error *error)
{
    struct comm *world = flat->mesh->world;
    const bool by_all = target->writers == WRITERS_ALL ||
                        (target->writers == WRITERS_AUTO && seen_by_all(path, world));
    struct checkpoint_contents contents;
    bool good = checkpoint_contents_read(path, world, 0, &contents, error);
    if (good && world->rank == 0)
        error_defer(contents_check(path, &contents, flat, target->options, weights_only, error));
    good = good && comm_agree(world, error) &&
           checkpoint_vectors_read(path, by_all, world, &contents, flat, weights_only, error);
    if (good && !contents.averaged)
        vector_reset_ema(flat);
    if (good && !weights_only && flat->device->backend->choices_adopt != NULL)
        flat->device->backend->choices_adopt(flat->device, contents.text[TEXT_ALGORITHMS]);
    if (good && state != NULL)
        *state = contents.state;
    checkpoint_contents_free(&contents);
    return good;
}

bool checkpoint_deck_parse(const char *text, const char *path, struct options *options,
                           struct error *error)
{
    struct error fault = {.kind = ERROR_NONE};
    return options_read_text(text, path, options, &fault) ||
           error_set(error, ERROR_CHECKPOINT, "the deck in %s", fault.text);
}
