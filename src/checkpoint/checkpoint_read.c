// SPDX-License-Identifier: BSD-3-Clause
/* Rank 0 reads the frame and compares it with the model. Then each rank reads the pieces of its
 * shard and verifies their checksums. If the folder is private to rank 0's node, rank 0 reads and
 * broadcasts each piece. */
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

void checkpoint_layout_share(struct checkpoint_contents *contents, struct comm *world)
{
    comm_broadcast(world, contents->layout,
                   contents->unit_count * (int64_t)sizeof *contents->layout, COMM_BYTE, 0);
    comm_broadcast(world, &contents->bytes, 1, COMM_INT64, 0);
}

bool checkpoint_contents_read(const char *path, struct comm *world, int root,
                              struct checkpoint_contents *contents, struct error *error)
{
    memset(contents, 0, sizeof *contents);
    if (world->rank == root)
        error_defer(checkpoint_file_read(path, contents, error));
    if (!comm_agree(world, error))
        return false;
    comm_broadcast(world, contents, offsetof(struct checkpoint_contents, deck), COMM_BYTE, root);
    const size_t units = (size_t)contents->unit_count, pieces = (size_t)contents->piece_count;
    if (world->rank != root) {
        contents->layout = allocate(units, sizeof *contents->layout);
        contents->pieces = allocate(pieces, sizeof *contents->pieces);
    }
    comm_broadcast(world, contents->layout, (int64_t)(units * sizeof *contents->layout), COMM_BYTE,
                   root);
    comm_broadcast(world, contents->pieces, (int64_t)(pieces * sizeof *contents->pieces), COMM_BYTE,
                   root);
    return true;
}

static bool tensors_equal(const struct unit_tensor *a, const struct unit_tensor *b)
{
    return strcmp(a->name, b->name) == 0 && a->dimensions == b->dimensions &&
           a->count == b->count && a->offset == b->offset && a->kind == b->kind &&
           memcmp(a->shape, b->shape, (size_t)a->dimensions * sizeof *a->shape) == 0;
}

bool checkpoint_fits(const struct checkpoint_contents *contents, const struct flat_model *flat,
                     char *text, size_t size)
{
    char there[64], here[64];
    for (int64_t u = 0; u < contents->unit_count || u < flat->count; u++) {
        const struct unit *theirs = u < contents->unit_count ? &contents->units[u] : NULL;
        const struct unit *ours = u < flat->count ? flat->buffers[u].unit : NULL;
        if (theirs == NULL || ours == NULL || strcmp(theirs->name, ours->name) != 0) {
            snprintf(text, size, "it holds unit %s where this model has %s",
                     theirs != NULL ? theirs->name : "none", ours != NULL ? ours->name : "none");
            return false;
        }
        for (int t = 0; t < theirs->tensor_count && t < ours->tensor_count; t++) {
            const struct unit_tensor *a = &theirs->tensors[t], *b = &ours->tensors[t];
            if (tensors_equal(a, b))
                continue;
            vector_shape_text(a->shape, a->dimensions, there, sizeof there);
            vector_shape_text(b->shape, b->dimensions, here, sizeof here);
            snprintf(text, size, "it holds %s %s where this model has %s %s", a->name, there,
                     b->name, here);
            return false;
        }
        if (theirs->tensor_count != ours->tensor_count || theirs->count != ours->count) {
            const int common = (int)smaller(theirs->tensor_count, ours->tensor_count);
            const struct unit *longer = theirs->tensor_count > common ? theirs : ours;
            snprintf(text, size, "its unit %s has %d tensors, this model's %d; only one has %s",
                     ours->name, theirs->tensor_count, ours->tensor_count,
                     longer->tensor_count > common ? longer->tensors[common].name : "padding");
            return false;
        }
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
    char difference[512], theirs[OPTION_TEXT], ours[OPTION_TEXT];
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
    if (options != NULL && checkpoint_deck_parse(contents->deck, path, &saved, &ignored)) {
        const long long grain = options_grain(&saved, saved.train.global_batch);
        const long long our_grain = options_grain(options, options->train.global_batch);
        options_value_text(&saved, "optim.name", theirs, sizeof theirs);
        options_value_text(options, "optim.name", ours, sizeof ours);
        if ((contents->moments > 0 || flat->moments > 0) && strcmp(theirs, ours) != 0 &&
            (strncmp(theirs, "adam", 4) != 0 || strncmp(ours, "adam", 4) != 0))
            return error_set(error, ERROR_CHECKPOINT,
                             "%s holds the moments of optim.name=%s, not of %s; set optim.name=%s, "
                             "or start a new run with these weights in model.init",
                             path, theirs, ours, theirs);
        if (grain != our_grain && grain != 0 && our_grain != 0)
            return error_set(error, ERROR_CHECKPOINT,
                             "%s was made with grains of %lld samples, this run has %lld, which "
                             "changes the result; set train.grain=%lld",
                             path, grain, our_grain, grain);
    }
    if (contents->moments != flat->moments)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s holds %lld moments a weight, the optimizer of this run keeps %d; set "
                         "optim as in the deck saved in it",
                         path, (long long)contents->moments, flat->moments);
    return !flat->averaged || contents->averaged ||
           error_set(error, ERROR_CHECKPOINT,
                     "%s holds no moving average of the weights; set optim.ema=0 to continue "
                     "without one",
                     path);
}

/* ---- vectors ---- */

/* True if this rank reads the block: to verify it, or for its shard. */
static bool reads_block(const struct checkpoint_block *block, bool by_all, const struct comm *world,
                        const struct flat_model *flat)
{
    int64_t length;
    if (!by_all)
        return world->rank == 0;
    if (flat == NULL)
        return block->p % world->size == world->rank;
    const struct flat_buffer *buffer = &flat->buffers[block->u];
    vector_overlap(block->piece->begin, block->piece->count, buffer->shard_begin,
                   buffer->shard_count, &length);
    return length > 0;
}

/* Zero the padding after the unit's last element. */
static void padding_clear(const struct flat_model *flat, int u, enum flat_vector kind)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    const int64_t used =
        integer_clamp(buffer->unit->count - buffer->shard_begin, 0, buffer->shard_count);
    if (used < buffer->shard_count)
        flat->device->backend->zero(flat->stream, flat_vector_memory(buffer, kind) + used,
                                    (size_t)(buffer->shard_count - used) * sizeof(float));
}

bool checkpoint_vectors_read(const char *path, bool by_all, struct comm *world,
                             const struct checkpoint_contents *contents,
                             const struct flat_model *flat, unsigned wanted, struct error *error)
{
    const bool reads = by_all || world->rank == 0;
    const int descriptor = reads ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    OWNED float *staging = allocate(VECTOR_BLOCK, sizeof *staging);
    if (reads && descriptor < 0)
        durable_unreadable(error, ERROR_CHECKPOINT, path, errno);
    for (struct checkpoint_block block = {.u = 0}; checkpoint_next(contents, &block);) {
        if ((wanted >> block.kind & 1) == 0)
            continue;
        const bool reads_it = reads_block(&block, by_all, world, flat);
        if (reads_it && error->kind == ERROR_NONE)
            error_defer(checkpoint_block_read(descriptor, path, contents, &block, staging, error));
        if (flat != NULL && !by_all)
            comm_broadcast(world, staging, block.piece->count, COMM_FP32, 0);
        if (flat != NULL && (reads_it || !by_all))
            vector_store(flat, block.u, block.kind, block.piece->begin, block.piece->count,
                         staging);
    }
    for (int u = 0; flat != NULL && u < flat->count; u++)
        for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++)
            if (wanted >> kind & 1)
                padding_clear(flat, u, kind);
    if (flat != NULL)
        flat->device->backend->stream_synchronize(flat->stream);
    if (descriptor >= 0)
        close(descriptor);
    return comm_agree(world, error);
}

/* The state kinds to load, as a bit mask. */
static unsigned wanted_vectors(const struct checkpoint_contents *contents,
                               const struct flat_model *flat, bool weights_only)
{
    unsigned wanted = flat->averaged && contents->averaged ? 1u << FLAT_AVERAGE : 0;
    for (int moment = 0; !weights_only && moment < flat->moments; moment++)
        wanted |= 1u << (FLAT_MOMENT1 + moment);
    return wanted | 1u << FLAT_MASTER;
}

/* Collective. True if all ranks see the same file, by size and modification time. */
static bool seen_by_all(const char *path, struct comm *world)
{
    struct stat file = {.st_size = -1};
    stat(path, &file);
    const int64_t seen[] = {file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec};
    return comm_same(world, seen, sizeof seen) && file.st_size >= 0;
}

/* Collective. Use the matrix product algorithms of the run that wrote the file. */
static void algorithms_adopt(const struct checkpoint_contents *contents,
                             const struct flat_model *flat)
{
    const struct device_backend *backend = flat->device->backend;
    if (backend->choices_adopt == NULL)
        return;
    const char *mine = contents->algorithms != NULL ? contents->algorithms : "";
    OWNED char *text = comm_broadcast_text(flat->mesh->world, mine, 0);
    backend->choices_adopt(flat->device, text);
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
    good = good && comm_agree(world, error);
    if (good) {
        const unsigned wanted = wanted_vectors(&contents, flat, weights_only);
        good = checkpoint_vectors_read(path, by_all, world, &contents, flat, wanted, error);
    }
    if (good && !contents.averaged)
        vector_reset_ema(flat);
    if (good && !weights_only)
        algorithms_adopt(&contents, flat);
    if (good && state != NULL)
        *state = contents.state;
    checkpoint_contents_free(&contents);
    return good;
}

bool checkpoint_read_deck(const char *path, struct comm *world, struct training_state *state,
                          char **deck, struct error *error)
{
    struct checkpoint_contents contents;
    const bool good = checkpoint_contents_read(path, world, 0, &contents, error);
    *deck = NULL;
    if (good) {
        *state = contents.state;
        *deck = comm_broadcast_text(world, contents.deck, 0);
    }
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
