/* Blocks of a model's vectors on their way to and from files. Everything is staged through host
 * memory in blocks of a few MiB, so that no rank ever holds the whole model and the masters may lie
 * on a device. */
#include "checkpoint/vectors.h"

#include <stdlib.h>

#include "core/error.h"

const char *const vector_name[VECTOR_KINDS] = {"master", "moment1", "moment2", "average"};

float *vector_memory(const struct flat_buffer *buffer, enum vector_kind kind)
{
    switch (kind) {
    case VECTOR_MASTER:
        return buffer->master;
    case VECTOR_MOMENT1:
        return buffer->moment1;
    case VECTOR_MOMENT2:
        return buffer->moment2;
    default:
        return buffer->average;
    }
}

int *vector_ranks(const struct mesh *mesh)
{
    struct comm *world = mesh->world;
    int64_t *place = calloc((size_t)world->size, sizeof *place);
    int *ranks = calloc((size_t)world->size, sizeof *ranks);
    ENSURE(place != NULL && ranks != NULL, "no memory for a list of ranks");
    place[world->rank] = mesh->shard->rank * (int64_t)mesh->replica->size + mesh->replica->rank;
    comm_all_gather(world, place, 1, COMM_INT64);
    for (int rank = 0; rank < world->size; rank++) {
        ENSURE(place[rank] >= 0 && place[rank] < world->size, "the mesh does not fill the world");
        ranks[place[rank]] = rank;
    }
    free(place);
    return ranks;
}

/* What of [begin, begin + count) lies in shard number `shard`: its first element; *length may be 0.
 */
static int64_t overlap(const struct flat_buffer *buffer, int64_t shard_begin, int64_t begin,
                       int64_t count, int64_t *length)
{
    int64_t end = begin + count, shard_end = shard_begin + buffer->shard_count;
    int64_t first = begin > shard_begin ? begin : shard_begin;
    int64_t last = end < shard_end ? end : shard_end;
    *length = last > first ? last - first : 0;
    return first;
}

static void copy_start(const struct flat_model *flat, float *to, const float *from, int64_t count)
{
    if (count > 0)
        flat->device->backend->copy(flat->stream, to, from, (size_t)count * sizeof(float));
}

static void copy(const struct flat_model *flat, float *to, const float *from, int64_t count)
{
    copy_start(flat, to, from, count);
    if (count > 0)
        flat->device->backend->stream_synchronize(flat->stream);
}

void vector_keep(const struct flat_model *flat, int u, enum vector_kind kind, int64_t begin,
                 int64_t count, const float *block)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    int64_t length, first = overlap(buffer, buffer->shard_begin, begin, count, &length);
    if (length > 0)
        copy(flat, vector_memory(buffer, kind) + (first - buffer->shard_begin),
             block + (first - begin), length);
}

/* This rank's element `begin` of a unit's vector; it holds `count` from there. */
static const float *vector_at(const struct flat_model *flat, int u, enum vector_kind kind,
                              int64_t begin, int64_t count)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    const float *memory = vector_memory(buffer, kind);
    int64_t first = begin - buffer->shard_begin;
    ENSURE(memory != NULL && first >= 0 && first + count <= buffer->shard_count,
           "unit %s: this rank has no %s [%lld]", buffer->unit->name, vector_name[kind],
           (long long)begin);
    return memory + first;
}

void vector_take(const struct flat_model *flat, int u, enum vector_kind kind, int64_t begin,
                 int64_t count, float *block)
{
    copy(flat, block, vector_at(flat, u, kind, begin, count), count);
}

void vector_take_start(const struct flat_model *flat, int u, enum vector_kind kind, int64_t begin,
                       int64_t count, float *block)
{
    copy_start(flat, block, vector_at(flat, u, kind, begin, count), count);
}

void vector_clear_padding(const struct flat_model *flat, int u, enum vector_kind kind)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    int64_t used = buffer->unit->count - buffer->shard_begin;
    used = used < 0 ? 0 : used;
    if (used < buffer->shard_count)
        flat->device->backend->zero(flat->stream, vector_memory(buffer, kind) + used,
                                    (size_t)(buffer->shard_count - used) * sizeof(float));
}

void vector_restart_average(const struct flat_model *flat)
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
        first = overlap(buffer, shard * buffer->shard_count, begin, count, &length);
        if (length == 0)
            continue;
        float *part = block + (first - begin);
        size_t bytes = (size_t)length * sizeof(float);
        if (owner == world->rank)
            vector_take(flat, u, VECTOR_MASTER, first, length, part);
        if (owner == world->rank && owner != 0)
            comm_send(world, part, bytes, 0);
        else if (world->rank == 0 && owner != 0)
            comm_receive(world, part, bytes, owner);
    }
}
