// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/model_metadata.h"
#include "checkpoint/safetensors_stream.h"
#include "core/crc32c.h"
#include "core/file.h"
#include "mesh/unit.h"

static float *block_open(void)
{
    float *block = malloc(VECTOR_BLOCK * sizeof *block);
    ENSURE_MEMORY(block != NULL, "no memory to convert weights");
    return block;
}

/* Intersect a tensor with elements [begin, begin + count) of its unit: tensor elements [*first,
 * *first + *length), which begin at element *at of that range. */
static void tensor_overlap(const struct unit_tensor *tensor, int64_t begin, int64_t count,
                           int64_t *first, int64_t *at, int64_t *length)
{
    int64_t from = tensor->offset > begin ? tensor->offset : begin;
    int64_t tensor_end = tensor->offset + tensor->count, end = begin + count;
    int64_t to = tensor_end < end ? tensor_end : end;
    *first = from - tensor->offset;
    *at = from - begin;
    *length = to > from ? to - from : 0;
}

/* ---- checkpoint to safetensors ---- */

/* Tensors have the same order in both files, so the parts of each piece are appended. */
static void copy_vectors(int descriptor, const char *path,
                         const struct checkpoint_contents *contents, enum flat_vector kind,
                         struct safetensors_output *output, struct error *error)
{
    float *block = block_open();
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct checkpoint_layout *layout = &contents->layout[u];
        const struct unit *unit = &contents->units[u];
        int64_t end = layout->first_piece + layout->piece_count;
        for (int64_t p = layout->first_piece; p < end && error->kind == ERROR_NONE; p++) {
            const struct checkpoint_piece *piece = &contents->pieces[p];
            if (!checkpoint_piece_read(descriptor, path, contents, u, p, kind, block, error))
                break;
            for (int t = 0; t < unit->tensor_count; t++) {
                int64_t first, at, length;
                tensor_overlap(&unit->tensors[t], piece->begin, piece->count, &first, &at, &length);
                if (length > 0)
                    safetensors_output_append(output, block + at, length, error);
            }
        }
    }
    free(block);
}

bool convert_to_weights(const char *checkpoint, const char *weights, bool average,
                        struct error *error)
{
    struct checkpoint_contents contents;
    struct safetensors_output output;
    int descriptor = -1;
    if (checkpoint_file_read(checkpoint, &contents, error) &&
        (descriptor = open(checkpoint, O_RDONLY | O_CLOEXEC)) < 0)
        durable_unreadable(error, ERROR_CHECKPOINT, checkpoint, errno);
    if (descriptor >= 0 &&
        safetensors_output_open(&output, weights, contents.units, (int)contents.unit_count,
                                contents.metadata, error)) {
        bool averaged = average && contents.averaged;
        copy_vectors(descriptor, checkpoint, &contents, averaged ? FLAT_AVERAGE : FLAT_MASTER,
                     &output, error);
        error_defer(safetensors_output_close(&output, error));
    }
    if (descriptor >= 0)
        close(descriptor);
    checkpoint_contents_free(&contents);
    return error->kind == ERROR_NONE;
}

/* ---- safetensors to checkpoint ---- */

struct making {
    struct safetensors_input input;
    struct checkpoint_contents contents;
    uint64_t seed;
    float *block, *zeros;
    int descriptor;
    char part[PATH_MAX];
};

static void plan_contents(struct checkpoint_contents *contents, const struct convert_start *start)
{
    checkpoint_contents_open(contents, start->units, start->unit_count, start->model, "fp32",
                             start->deck);
    contents->state = training_state_begin(0, start->seed);
    contents->moments = start->moments;
    contents->averaged = start->averaged;
    contents->replica = contents->shard = 1;
    for (int64_t u = 0; u < contents->unit_count; u++) {
        struct checkpoint_layout *layout = &contents->layout[u];
        layout->first_piece = contents->piece_count;
        layout->piece_count = (layout->count + VECTOR_BLOCK - 1) / VECTOR_BLOCK;
        contents->piece_count += layout->piece_count;
    }
    contents->pieces = calloc((size_t)contents->piece_count, sizeof *contents->pieces);
    ENSURE_MEMORY(contents->pieces != NULL, "no memory for a checkpoint's plan");
}

/* Read a piece of a unit's parameters, with zeros between tensors. */
static void gather_piece(struct making *making, int64_t u, const struct checkpoint_piece *piece,
                         struct error *error)
{
    memset(making->block, 0, (size_t)piece->count * sizeof *making->block);
    for (int s = 0; s < making->input.source_count; s++) {
        struct safetensors_source *source = &making->input.source[s];
        int64_t first, at, length;
        tensor_overlap(source->tensor, piece->begin, piece->count, &first, &at, &length);
        if (source->u != u || length == 0)
            continue;
        if (source->kind == SOURCE_NONE)
            initial_draw(source->tensor, making->seed, first, length, making->block + at);
        else
            safetensors_input_read(&making->input, source, first, length, making->block + at,
                                   error);
    }
}

static void put_unit(struct making *making, int64_t u, struct error *error)
{
    const struct checkpoint_contents *contents = &making->contents;
    const struct checkpoint_layout *layout = &contents->layout[u];
    struct checkpoint_piece *pieces = contents->pieces + layout->first_piece;
    for (int64_t p = 0; p < layout->piece_count && error->kind == ERROR_NONE; p++) {
        struct checkpoint_piece *piece = &pieces[p];
        int64_t begin = p * VECTOR_BLOCK, left = layout->count - begin;
        *piece = (struct checkpoint_piece){.begin = begin,
                                           .count = left < VECTOR_BLOCK ? left : VECTOR_BLOCK};
        size_t bytes = (size_t)piece->count * sizeof(float);
        gather_piece(making, u, piece, error);
        for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++) {
            bool weights = kind == FLAT_MASTER || kind == FLAT_AVERAGE;
            const float *block = weights ? making->block : making->zeros;
            if (!checkpoint_has(contents, kind) || error->kind != ERROR_NONE)
                continue;
            piece->crc[kind] = crc32c_update(0, block, bytes);
            error_defer(durable_write(
                making->descriptor, making->part, block, bytes,
                checkpoint_piece_offset(contents, u, kind, layout->first_piece + p), error));
        }
    }
    if (error->kind == ERROR_NONE)
        error_defer(durable_write(making->descriptor, making->part, pieces,
                                  (size_t)layout->piece_count * sizeof *pieces,
                                  layout->table_offset, error));
}

static void make_checkpoint(struct making *making, const char *path, struct error *error)
{
    if (!checkpoint_file_create(making->part, &making->contents, error) ||
        (making->descriptor = durable_open(making->part, error)) < 0)
        return;
    making->block = block_open();
    making->zeros = block_open();
    memset(making->zeros, 0, VECTOR_BLOCK * sizeof *making->zeros);
    for (int64_t u = 0; u < making->contents.unit_count; u++)
        put_unit(making, u, error);
    free(making->block);
    free(making->zeros);
    bool good = error->kind == ERROR_NONE && durable_sync(making->descriptor, making->part, error);
    if (durable_close(making->descriptor, making->part, error) && good)
        error_defer(durable_rename(making->part, path, error));
}

/* Copy the metadata of the weights, or those in `start` if the weights name no architecture. */
static bool take_metadata(struct checkpoint_contents *contents, const char *weights,
                          const struct convert_start *start, struct error *error)
{
    struct model_metadata metadata;
    if (!model_metadata_read_text(weights, &contents->metadata, error))
        return false;
    model_metadata_parse(contents->metadata, &metadata);
    if (metadata.model.name[0] == '\0') {
        free(contents->metadata);
        contents->metadata = strdup(start->metadata);
        ENSURE_MEMORY(contents->metadata != NULL, "no memory for a checkpoint's plan");
    }
    model_metadata_free(&metadata);
    return true;
}

bool convert_to_checkpoint(const char *weights, const char *checkpoint,
                           const struct convert_start *start, struct error *error)
{
    struct making making = {.seed = start->seed};
    if (snprintf(making.part, sizeof making.part, "%s.part", checkpoint) >= (int)sizeof making.part)
        return error_set(error, ERROR_FILE, "the name %s is too long", checkpoint);
    safetensors_input_list(&making.input, weights, start->units, start->unit_count, true);
    plan_contents(&making.contents, start);
    if (safetensors_input_open(&making.input, error) &&
        take_metadata(&making.contents, weights, start, error)) {
        make_checkpoint(&making, checkpoint, error);
        if (error->kind != ERROR_NONE)
            unlink(making.part);
    }
    safetensors_input_close(&making.input);
    checkpoint_contents_free(&making.contents);
    return error->kind == ERROR_NONE;
}

int64_t convert_classes(const char *weights, struct error *error)
{
    struct safetensors_header header = {.count = 0};
    int64_t classes = 0;
    int descriptor = open(weights, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        durable_unreadable(error, ERROR_CHECKPOINT, weights, errno);
    else if (safetensors_header_read(descriptor, weights, &header, error)) {
        const struct safetensors_entry *head = safetensors_find(&header, "head.weight");
        classes = head != NULL && head->dimensions == 2 ? head->shape[0] : 0;
    }
    safetensors_header_free(&header);
    if (descriptor >= 0)
        close(descriptor);
    return classes;
}
