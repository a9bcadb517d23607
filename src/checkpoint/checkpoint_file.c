// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "core/base.h"
#include "core/clock.h"
#include "core/file.h"

enum {
    WRITER_ALIGNMENT = 1024 /* elements: writers begin at multiples of 4 KiB of their shard */
};

void checkpoint_contents_open(struct checkpoint_contents *contents, const struct unit *units,
                              int unit_count, const char *model, const char *compute,
                              const char *deck)
{
    size_t count = (size_t)unit_count;
    *contents = (struct checkpoint_contents){.deck = allocate_copy(deck),
                                             .units = allocate(count, sizeof *contents->units),
                                             .units_borrowed = true,
                                             .unit_count = unit_count,
                                             .layout = allocate(count, sizeof *contents->layout)};
    snprintf(contents->model, sizeof contents->model, "%s", model);
    snprintf(contents->compute, sizeof contents->compute, "%s", compute);
    snprintf(contents->program, sizeof contents->program, "%s", PACKAGE_STRING);
    clock_stamp(contents->date, sizeof contents->date);
    memcpy(contents->units, units, count * sizeof *units);
    for (size_t u = 0; u < count; u++) {
        snprintf(contents->layout[u].name, TENSOR_NAME, "%s", units[u].name);
        contents->layout[u].count = units[u].count;
    }
}

bool checkpoint_has(const struct checkpoint_contents *contents, enum flat_vector kind)
{
    switch (kind) {
    case FLAT_MASTER:
        return true;
    case FLAT_MOMENT1:
        return contents->moments >= 1;
    case FLAT_MOMENT2:
        return contents->moments >= 2;
    default:
        return contents->averaged != 0;
    }
}

/* ---- pieces ---- */

/* The first element of writer `number` of `writers` in a shard of this length. */
static int64_t writer_begin(int64_t length, int64_t number, int64_t writers)
{
    if (number == writers)
        return length;
    return length * number / writers / WRITER_ALIGNMENT * WRITER_ALIGNMENT;
}

void checkpoint_range(int64_t count, int64_t shards, int64_t replicas, int64_t position,
                      int64_t *begin, int64_t *end)
{
    const int64_t replica = position % replicas, whole = flat_shard_count(count, (int)shards);
    const int64_t first = position / replicas * whole;
    const int64_t length = integer_clamp(count - first, 0, whole);
    *begin = first + writer_begin(length, replica, replicas);
    *end = first + writer_begin(length, replica + 1, replicas);
}

int *checkpoint_contents_divide(struct checkpoint_contents *contents)
{
    const int64_t ranks = contents->shard * contents->replica;
    size_t most = 0; /* each rank has at most one short piece per unit */
    for (int64_t u = 0; u < contents->unit_count; u++)
        most += (size_t)(contents->layout[u].count / VECTOR_BLOCK + ranks);
    contents->pieces = allocate(most, sizeof *contents->pieces);
    int *writer = allocate(most, sizeof *writer);
    for (int64_t u = 0; u < contents->unit_count; u++) {
        struct checkpoint_layout *layout = &contents->layout[u];
        layout->first_piece = contents->piece_count;
        for (int64_t position = 0; position < ranks; position++) {
            int64_t begin, end;
            checkpoint_range(layout->count, contents->shard, contents->replica, position, &begin,
                             &end);
            for (; begin < end; begin += VECTOR_BLOCK) {
                writer[contents->piece_count] = (int)position;
                contents->pieces[contents->piece_count++] = (struct checkpoint_piece){
                    .begin = begin, .count = smaller(end - begin, VECTOR_BLOCK)};
            }
        }
        layout->piece_count = contents->piece_count - layout->first_piece;
    }
    return writer;
}

bool checkpoint_next(const struct checkpoint_contents *contents, struct checkpoint_block *block)
{
    int64_t i = block->piece != NULL ? block->p - contents->layout[block->u].first_piece + 1 : 0;
    for (; block->u < contents->unit_count; block->u++, block->kind = 0)
        for (; block->kind < FLAT_VECTORS; block->kind++, i = 0) {
            const struct checkpoint_layout *layout = &contents->layout[block->u];
            if (!checkpoint_has(contents, block->kind) || i >= layout->piece_count)
                continue;
            block->p = layout->first_piece + i;
            block->piece = &contents->pieces[block->p];
            block->bytes = (size_t)block->piece->count * sizeof(float);
            block->offset =
                layout->offset[block->kind] + block->piece->begin * (int64_t)sizeof(float);
            return true;
        }
    return false;
}

bool checkpoint_block_read(int descriptor, const char *path,
                           const struct checkpoint_contents *contents,
                           const struct checkpoint_block *block, float *to, struct error *error)
{
    if (!durable_read(descriptor, path, to, block->bytes, block->offset, error))
        return false;
    return crc32c_update(0, to, block->bytes) == block->piece->crc[block->kind] ||
           error_set(error, ERROR_CHECKPOINT,
                     "%s is damaged: the checksum of bytes %lld to %lld is wrong (%s of unit %s); "
                     "use another checkpoint",
                     path, (long long)block->offset,
                     (long long)block->offset + (long long)block->bytes - 1,
                     flat_vector_name[block->kind], contents->layout[block->u].name);
}

bool checkpoint_tables_write(int descriptor, const char *path,
                             const struct checkpoint_contents *contents, struct error *error)
{
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct checkpoint_layout *layout = &contents->layout[u];
        if (!durable_write(descriptor, path, contents->pieces + layout->first_piece,
                           (size_t)layout->piece_count * sizeof *contents->pieces,
                           layout->table_offset, error))
            return false;
    }
    return true;
}

void checkpoint_contents_free(struct checkpoint_contents *contents)
{
    for (int64_t unit = 0; !contents->units_borrowed && unit < contents->unit_count; unit++)
        if (contents->units != NULL)
            free(contents->units[unit].tensors);
    free(contents->units);
    free(contents->layout);
    free(contents->pieces);
    free(contents->deck);
    free(contents->metadata);
    free(contents->data);
    free(contents->algorithms);
    memset(contents, 0, sizeof *contents);
}

/* ---- vectors of a model ---- */

void vector_shape_text(const int64_t *shape, int dimensions, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < dimensions && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d > 0 ? ", " : "",
                                 (long long)shape[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

int64_t vector_overlap(int64_t begin, int64_t count, int64_t other, int64_t other_count,
                       int64_t *length)
{
    const int64_t first = larger(begin, other);
    *length = larger(smaller(begin + count, other + other_count) - first, 0);
    return first;
}

int *vector_ranks(const struct mesh *mesh)
{
    struct comm *world = mesh->world;
    int64_t *position = allocate((size_t)world->size, sizeof *position);
    int *ranks = allocate((size_t)world->size, sizeof *ranks);
    position[world->rank] = mesh->shard->rank * (int64_t)mesh->replica->size + mesh->replica->rank;
    comm_all_gather(world, position, 1, COMM_INT64);
    for (int rank = 0; rank < world->size; rank++) {
        ENSURE(position[rank] >= 0 && position[rank] < world->size,
               "the mesh does not fill the world");
        ranks[position[rank]] = rank;
    }
    free(position);
    return ranks;
}

void vector_store(const struct flat_model *flat, int64_t u, enum flat_vector kind, int64_t begin,
                  int64_t count, const float *block)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    int64_t length;
    const int64_t first =
        vector_overlap(begin, count, buffer->shard_begin, buffer->shard_count, &length);
    if (length == 0)
        return;
    flat->device->backend->copy(flat->stream,
                                flat_vector_memory(buffer, kind) + (first - buffer->shard_begin),
                                block + (first - begin), (size_t)length * sizeof(float));
    flat->device->backend->stream_synchronize(flat->stream);
}

void vector_copy_start(const struct flat_model *flat, int64_t u, enum flat_vector kind,
                       int64_t begin, int64_t count, float *block)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    const float *memory = flat_vector_memory(buffer, kind);
    int64_t first = begin - buffer->shard_begin;
    ENSURE(memory != NULL && first >= 0 && first + count <= buffer->shard_count,
           "unit %s: this rank has no %s [%lld]", buffer->unit->name, flat_vector_name[kind],
           (long long)begin);
    if (count > 0)
        flat->device->backend->copy(flat->stream, block, memory + first,
                                    (size_t)count * sizeof(float));
}

void vector_copy(const struct flat_model *flat, int64_t u, enum flat_vector kind, int64_t begin,
                 int64_t count, float *block)
{
    vector_copy_start(flat, u, kind, begin, count, block);
    flat->device->backend->stream_synchronize(flat->stream);
}

void vector_reset_ema(const struct flat_model *flat)
{
    for (int u = 0; flat->averaged && u < flat->count; u++) {
        const struct flat_buffer *buffer = &flat->buffers[u];
        flat->device->backend->copy(flat->stream, buffer->average, buffer->master,
                                    (size_t)buffer->shard_count * sizeof(float));
    }
    flat->device->backend->stream_synchronize(flat->stream);
}
