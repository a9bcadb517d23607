// SPDX-License-Identifier: BSD-3-Clause
/* Rank 0 reads the frame and compares it with the model. Then all ranks together read all pieces to
 * verify their checksums, and only if all are valid each rank reads its shard: usually from the
 * page cache, as the file was just read. If the folder is private to rank 0's node, rank 0 reads
 * and broadcasts each piece. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint_read.h"
#include "config/options.h"
#include "core/file.h"

void checkpoint_contents_share(struct checkpoint_contents *contents, struct comm *world, int root)
{
    struct checkpoint_contents mine = *contents;
    comm_broadcast(world, contents, sizeof *contents, COMM_BYTE, root);
    contents->units_borrowed = mine.units_borrowed;
    contents->deck = mine.deck;
    contents->metadata = mine.metadata;
    contents->data = mine.data;
    contents->algorithms = mine.algorithms;
    contents->units = mine.units;
    contents->layout = mine.layout;
    contents->pieces = mine.pieces;
    if (world->rank != root) {
        contents->layout = calloc((size_t)contents->unit_count, sizeof *contents->layout);
        contents->pieces = calloc((size_t)contents->piece_count, sizeof *contents->pieces);
        ENSURE_MEMORY(contents->layout != NULL && contents->pieces != NULL,
                      "no memory for the tables of a checkpoint");
    }
    comm_broadcast(world, contents->layout,
                   contents->unit_count * (int64_t)sizeof *contents->layout, COMM_BYTE, root);
    comm_broadcast(world, contents->pieces,
                   contents->piece_count * (int64_t)sizeof *contents->pieces, COMM_BYTE, root);
}

static bool tensors_equal(const struct unit_tensor *a, const struct unit_tensor *b)
{
    if (strcmp(a->name, b->name) != 0 || a->dimensions != b->dimensions || a->count != b->count ||
        a->offset != b->offset || a->kind != b->kind)
        return false;
    for (int d = 0; d < a->dimensions; d++)
        if (a->shape[d] != b->shape[d])
            return false;
    return true;
}

/* Compare a unit of the file with the model's. Return false and describe the first difference. */
static bool compare_unit(const struct unit *theirs, const struct unit *ours, char *text,
                         size_t size)
{
    char there[64], here[64];
    if (strcmp(theirs->name, ours->name) != 0) {
        snprintf(text, size, "it holds unit %s where this model has %s", theirs->name, ours->name);
        return false;
    }
    for (int t = 0; t < theirs->tensor_count && t < ours->tensor_count; t++) {
        const struct unit_tensor *a = &theirs->tensors[t], *b = &ours->tensors[t];
        if (tensors_equal(a, b))
            continue;
        vector_shape_text(a->shape, a->dimensions, there, sizeof there);
        vector_shape_text(b->shape, b->dimensions, here, sizeof here);
        snprintf(text, size, "it holds %s %s where this model has %s %s", a->name, there, b->name,
                 here);
        return false;
    }
    if (theirs->tensor_count == ours->tensor_count && theirs->count == ours->count)
        return true;
    snprintf(text, size, "its unit %s has %d tensors, this model's has %d", theirs->name,
             theirs->tensor_count, ours->tensor_count);
    return false;
}

bool checkpoint_fits(const struct checkpoint_contents *contents, const struct flat_model *flat,
                     char *text, size_t size)
{
    for (int64_t u = 0; u < contents->unit_count && u < flat->count; u++)
        if (!compare_unit(&contents->units[u], flat->buffers[u].unit, text, size))
            return false;
    if (contents->unit_count == flat->count)
        return true;
    const bool lacks = contents->unit_count < flat->count;
    snprintf(text, size, "it has %lld units, this model has %d, and %s %s",
             (long long)contents->unit_count, flat->count, lacks ? "it lacks" : "no",
             lacks ? flat->buffers[contents->unit_count].unit->name
                   : contents->units[flat->count].name);
    return false;
}

static bool check_model(const char *path, const struct checkpoint_contents *contents,
                        const struct flat_model *flat, const char *model, bool weights_only,
                        struct error *error)
{
    char difference[512];
    if (model != NULL && strcmp(model, contents->model) != 0)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s is of model %s, this run's is %s; set model.name=%s or choose another "
                         "checkpoint",
                         path, contents->model, model, contents->model);
    if (!checkpoint_fits(contents, flat, difference, sizeof difference))
        return error_set(error, ERROR_CHECKPOINT,
                         "%s (model %s) does not fit: %s; set the model's name and shape as in the "
                         "deck saved in it%s",
                         path, contents->model, difference,
                         weights_only
                             ? ", or give weights as safetensors: their head and positions "
                               "may be of another size"
                             : "");
    return true;
}

/* Check that the moments are those of this run's optimizer. Adam and AdamW can exchange theirs. */
static bool check_optimizer(const char *path, const struct options *saved,
                            const struct options *options, struct error *error)
{
    char theirs[OPTION_TEXT], ours[OPTION_TEXT];
    options_value_text(saved, "optim.name", theirs, sizeof theirs);
    options_value_text(options, "optim.name", ours, sizeof ours);
    if (strcmp(theirs, ours) == 0 ||
        (strncmp(theirs, "adam", 4) == 0 && strncmp(ours, "adam", 4) == 0))
        return true;
    return error_set(
        error, ERROR_CHECKPOINT,
        "%s holds the moments of optim.name=%s, not of %s; set optim.name=%s, or start "
        "a new run with these weights in model.init",
        path, theirs, ours, theirs);
}

static bool check_grain(const char *path, const struct options *saved,
                        const struct options *options, struct error *error)
{
    const long long theirs = options_grain(saved, saved->train.global_batch);
    const long long ours = options_grain(options, options->train.global_batch);
    return theirs == ours || theirs == 0 || ours == 0 ||
           error_set(error, ERROR_CHECKPOINT,
                     "%s was made with grains of %lld samples, this run has %lld, which changes "
                     "the result; set train.grain=%lld",
                     path, theirs, ours, theirs);
}

static bool check_deck(const char *path, const struct checkpoint_contents *contents,
                       const struct flat_model *flat, const struct options *options,
                       struct error *error)
{
    const bool has_moments = contents->moments > 0 || flat->moments > 0;
    struct options saved;
    struct error fault = {.kind = ERROR_NONE};
    options_default(&saved);
    if (options == NULL)
        return true;
    if (!checkpoint_deck_parse(contents->deck, path, &saved, &fault)) {
        error_clear(&fault); /* the deck is from a version with other options: not checked */
        return true;
    }
    return (!has_moments || check_optimizer(path, &saved, options, error)) &&
           check_grain(path, &saved, options, error);
}

static bool check_state(const char *path, const struct checkpoint_contents *contents,
                        const struct flat_model *flat, const struct options *options,
                        struct error *error)
{
    if (!check_deck(path, contents, flat, options, error))
        return false;
    if (contents->moments != flat->moments)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s holds %lld moments a weight, the optimizer of this run keeps %d; set "
                         "optim as in the deck saved in it",
                         path, (long long)contents->moments, flat->moments);
    if (flat->averaged && !contents->averaged)
        return error_set(error, ERROR_CHECKPOINT,
                         "%s holds no moving average of the weights; set optim.ema=0 to continue "
                         "without one",
                         path);
    return true;
}

/* ---- checksums ---- */

static int open_file(const char *path, struct error *error)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        durable_unreadable(error, ERROR_CHECKPOINT, path, errno);
    return descriptor;
}

bool checkpoint_contents_verify(const char *path, enum writers_choice writers, struct comm *world,
                                const struct checkpoint_contents *contents, unsigned wanted,
                                struct error *error)
{
    int sharers = writers == WRITERS_NODE0 ? 1 : world->size;
    int descriptor = world->rank < sharers ? open_file(path, error) : -1;
    float *staging = malloc(VECTOR_BLOCK * sizeof(float));
    ENSURE_MEMORY(staging != NULL, "no memory to check a checkpoint");
    for (int64_t u = 0; descriptor >= 0 && u < contents->unit_count; u++) {
        const struct checkpoint_layout *layout = &contents->layout[u];
        int64_t end = layout->first_piece + layout->piece_count;
        for (int64_t p = layout->first_piece; error->kind == ERROR_NONE && p < end; p++)
            for (enum flat_vector kind = 0; p % sharers == world->rank && kind < FLAT_VECTORS;
                 kind++)
                if ((wanted >> kind & 1) != 0 && layout->offset[kind] >= 0 &&
                    error->kind == ERROR_NONE)
                    error_defer(checkpoint_piece_read(descriptor, path, contents, u, p, kind,
                                                      staging, error));
    }
    free(staging);
    if (descriptor >= 0)
        close(descriptor);
    return comm_agree(world, error);
}

/* ---- vectors ---- */

struct loading {
    const char *path;
    const struct checkpoint_contents *contents;
    const struct flat_model *flat;
    float *staging;
    int descriptor; /* -1: this rank does not read */
    bool by_all;    /* each rank reads its shard; else rank 0 broadcasts pieces */
};

/* Read part of a vector, from the file or by broadcast from rank 0, and store it. */
static void load_block(const struct loading *loading, int u, enum flat_vector kind, int64_t begin,
                       int64_t count, struct error *error)
{
    struct comm *world = loading->flat->mesh->world;
    const int64_t offset = loading->contents->layout[u].offset[kind];
    if (loading->descriptor >= 0 && error->kind == ERROR_NONE)
        error_defer(durable_read(loading->descriptor, loading->path, loading->staging,
                                 (size_t)count * sizeof(float),
                                 offset + begin * (int64_t)sizeof(float), error));
    if (!loading->by_all)
        comm_broadcast(world, loading->staging, count, COMM_FP32, 0);
    vector_store(loading->flat, u, kind, begin, count, loading->staging);
}

static void load_vector(const struct loading *loading, int u, enum flat_vector kind,
                        struct error *error)
{
    const struct flat_model *flat = loading->flat;
    const struct flat_buffer *buffer = &flat->buffers[u];
    const struct checkpoint_layout *layout = &loading->contents->layout[u];
    const struct checkpoint_piece *pieces = &loading->contents->pieces[layout->first_piece];
    int64_t begin = buffer->shard_begin, end = begin + buffer->shard_count;
    end = end < buffer->unit->count ? end : buffer->unit->count;
    for (; loading->by_all && begin < end; begin += VECTOR_BLOCK) {
        const int64_t count = end - begin < VECTOR_BLOCK ? end - begin : VECTOR_BLOCK;
        load_block(loading, u, kind, begin, count, error);
    }
    for (int64_t p = 0; !loading->by_all && p < layout->piece_count; p++)
        load_block(loading, u, kind, pieces[p].begin, pieces[p].count, error);
    vector_clear_padding(flat, u, kind);
}

/* Collective. */
static bool load_vectors(const char *path, bool by_all, const struct checkpoint_contents *contents,
                         const struct flat_model *flat, unsigned wanted, struct error *error)
{
    struct comm *world = flat->mesh->world;
    struct loading loading = {.path = path, .contents = contents, .flat = flat, .by_all = by_all};
    loading.descriptor = by_all || world->rank == 0 ? open_file(path, error) : -1;
    loading.staging = calloc(VECTOR_BLOCK, sizeof(float));
    ENSURE_MEMORY(loading.staging != NULL, "no memory to read a checkpoint");
    for (int u = 0; u < flat->count; u++)
        for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++)
            if (wanted >> kind & 1)
                load_vector(&loading, u, kind, error);
    flat->device->backend->stream_synchronize(flat->stream);
    free(loading.staging);
    if (loading.descriptor >= 0)
        close(loading.descriptor);
    return comm_agree(world, error);
}

/* The state kinds to load, as a bit mask. */
static unsigned wanted_vectors(const struct checkpoint_contents *contents,
                               const struct flat_model *flat, bool weights_only)
{
    unsigned wanted = 1u << FLAT_MASTER;
    if (!weights_only && flat->moments >= 1)
        wanted |= 1u << FLAT_MOMENT1;
    if (!weights_only && flat->moments >= 2)
        wanted |= 1u << FLAT_MOMENT2;
    if (flat->averaged && contents->averaged)
        wanted |= 1u << FLAT_AVERAGE;
    return wanted;
}

/* Collective. True if all ranks see the same file, by size and modification time. */
static bool seen_by_all(const char *path, struct comm *world)
{
    struct stat file = {.st_size = -1};
    stat(path, &file);
    const int64_t mine[] = {file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec};
    int64_t first[] = {mine[0], mine[1], mine[2]}, same;
    comm_broadcast(world, first, 3, COMM_INT64, 0);
    same = mine[0] >= 0 && memcmp(first, mine, sizeof mine) == 0;
    comm_all_reduce(world, &same, 1, COMM_INT64, COMM_MIN);
    return same != 0;
}

/* Collective. Use the matrix product algorithms of the run that wrote the file. */
static void algorithms_adopt(const struct checkpoint_contents *contents,
                             const struct flat_model *flat)
{
    const struct device_backend *backend = flat->device->backend;
    if (backend->choices_adopt == NULL)
        return;
    const char *mine = contents->algorithms != NULL ? contents->algorithms : "";
    char *text = comm_broadcast_text(flat->mesh->world, mine, 0);
    backend->choices_adopt(flat->device, text);
    free(text);
}

bool checkpoint_read(const char *path, const struct checkpoint_target *target,
                     struct flat_model *flat, struct training_state *state, bool weights_only,
                     struct error *error)
{
    struct comm *world = flat->mesh->world;
    enum writers_choice readers = target->writers;
    if (readers == WRITERS_AUTO)
        readers = seen_by_all(path, world) ? WRITERS_ALL : WRITERS_NODE0;
    struct checkpoint_contents contents = {.unit_count = 0};
    if (world->rank == 0 && checkpoint_file_read(path, &contents, error) &&
        check_model(path, &contents, flat, target->model, weights_only, error) && !weights_only)
        check_state(path, &contents, flat, target->options, error);
    bool good = comm_agree(world, error);
    if (good) {
        checkpoint_contents_share(&contents, world, 0);
        unsigned wanted = wanted_vectors(&contents, flat, weights_only);
        good = (target->verified ||
                checkpoint_contents_verify(path, readers, world, &contents, wanted, error)) &&
               load_vectors(path, readers == WRITERS_ALL, &contents, flat, wanted, error);
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

bool checkpoint_read_state(const char *path, struct comm *world, struct training_state *state,
                           struct error *error)
{
    struct checkpoint_contents contents = {.unit_count = 0};
    if (world->rank == 0)
        error_defer(checkpoint_file_read(path, &contents, error));
    bool good = comm_agree(world, error);
    *state = contents.state;
    comm_broadcast(world, state, sizeof *state, COMM_BYTE, 0);
    checkpoint_contents_free(&contents);
    return good;
}

bool checkpoint_read_deck(const char *path, struct comm *world, char **deck_text,
                          struct error *error)
{
    struct checkpoint_contents contents = {.unit_count = 0};
    *deck_text = NULL;
    if (world->rank == 0)
        error_defer(checkpoint_file_read(path, &contents, error));
    bool good = comm_agree(world, error);
    if (good)
        *deck_text = comm_broadcast_text(world, contents.deck, 0);
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
