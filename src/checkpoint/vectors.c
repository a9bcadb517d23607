// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/vectors.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"

void vector_shape_text(const int64_t *shape, int dimensions, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < dimensions && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d > 0 ? ", " : "",
                                 (long long)shape[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

int *vector_ranks(const struct mesh *mesh)
{
    struct comm *world = mesh->world;
    int64_t *position = calloc((size_t)world->size, sizeof *position);
    int *ranks = calloc((size_t)world->size, sizeof *ranks);
    ENSURE_MEMORY(position != NULL && ranks != NULL, "no memory for a list of ranks");
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

/* Intersect [begin, begin + count) with the shard that begins at shard_begin. Return its first
 * element; *length may be 0. */
static int64_t shard_overlap(const struct flat_buffer *buffer, int64_t shard_begin, int64_t begin,
                             int64_t count, int64_t *length)
{
    int64_t end = begin + count, shard_end = shard_begin + buffer->shard_count;
    int64_t first = begin > shard_begin ? begin : shard_begin;
    int64_t last = end < shard_end ? end : shard_end;
    *length = last > first ? last - first : 0;
    return first;
}

void vector_store(const struct flat_model *flat, int u, enum flat_vector kind, int64_t begin,
                  int64_t count, const float *block)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    int64_t length, first = shard_overlap(buffer, buffer->shard_begin, begin, count, &length);
    if (length == 0)
        return;
    flat->device->backend->copy(flat->stream,
                                flat_vector_memory(buffer, kind) + (first - buffer->shard_begin),
                                block + (first - begin), (size_t)length * sizeof(float));
    flat->device->backend->stream_synchronize(flat->stream);
}

void vector_copy_start(const struct flat_model *flat, int u, enum flat_vector kind, int64_t begin,
                       int64_t count, float *block)
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

void vector_copy(const struct flat_model *flat, int u, enum flat_vector kind, int64_t begin,
                 int64_t count, float *block)
{
    vector_copy_start(flat, u, kind, begin, count, block);
    flat->device->backend->stream_synchronize(flat->stream);
}

void vector_clear_padding(const struct flat_model *flat, int u, enum flat_vector kind)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    int64_t used = buffer->unit->count - buffer->shard_begin;
    used = used < 0 ? 0 : used;
    if (used < buffer->shard_count)
        flat->device->backend->zero(flat->stream, flat_vector_memory(buffer, kind) + used,
                                    (size_t)(buffer->shard_count - used) * sizeof(float));
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

void vector_gather(const struct flat_model *flat, const int *ranks, int u, int64_t begin,
                   int64_t count, float *block)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    struct comm *world = flat->mesh->world;
    int replicas = flat->mesh->replica->size;
    for (int shard = 0; shard < flat->mesh->shard->size; shard++) {
        int64_t length, first;
        int owner = ranks[shard * replicas];
        first = shard_overlap(buffer, shard * buffer->shard_count, begin, count, &length);
        if (length == 0)
            continue;
        float *part = block + (first - begin);
        size_t bytes = (size_t)length * sizeof(float);
        if (owner == world->rank)
            vector_copy(flat, u, FLAT_MASTER, first, length, part);
        if (owner == world->rank && owner != 0)
            comm_send(world, part, bytes, 0);
        else if (world->rank == 0 && owner != 0)
            comm_receive(world, part, bytes, owner);
    }
}
