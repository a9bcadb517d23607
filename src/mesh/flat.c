// SPDX-License-Identifier: BSD-3-Clause
/* Flat buffers: memory, initial values, and the copies that the model reads. Collectives are in
 * flat_gather.c. */
#include "mesh/flat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "device/exact_sum.h"
#include "mesh/reduction.h"
#include "mesh/unit.h"

enum { FLAT_ALIGNMENT = 16 }; /* elements; of tensors in a unit and of shards */
_Static_assert(FLAT_ALIGNMENT % EXACT_BLOCK == 0, "a part begins within a block of a sum");

static const double running_momentum = 0.1; /* PyTorch's default */

const char *const flat_vector_name[FLAT_VECTORS] = {"master", "moment1", "moment2", "average"};

float *flat_vector_memory(const struct flat_buffer *buffer, enum flat_vector vector)
{
    float *const memory[FLAT_VECTORS] = {buffer->master, buffer->moment1, buffer->moment2,
                                         buffer->average};
    return memory[vector];
}

/* True if the model reads the masters themselves. */
static bool flat_shares_master(const struct flat_model *flat)
{
    return flat->type == TYPE_FP32 && flat->mesh->shard->size == 1;
}

int64_t flat_shard_count(int64_t count, int shards)
{
    int64_t step = (int64_t)FLAT_ALIGNMENT * shards;
    return round_up_division(count, step) * FLAT_ALIGNMENT;
}

void flat_open(struct flat_model *flat, const struct unit *units, int unit_count, struct mesh *mesh,
               struct device *device, struct stream *stream, enum data_type type, int moments,
               bool averaged, bool training)
{
    bool sharded = mesh->shard->size > 1;
    *flat = (struct flat_model){.mesh = mesh,
                                .device = device,
                                .stream = stream,
                                .type = type,
                                .count = unit_count,
                                .moments = moments,
                                .averaged = averaged,
                                .training = training,
                                .reduction = &reduction_scatter,
                                .slots_weights = sharded && mesh->shard_weights,
                                .gradients_in_slots = training && sharded && mesh->shard_gradients,
                                .low_precision_reduce = training && mesh->reduce_compute &&
                                                        mesh->world->size > 1 && type != TYPE_FP32};
    flat->buffers = allocate((size_t)unit_count, sizeof *flat->buffers);
    flat->updates = allocate((size_t)unit_count, sizeof *flat->updates);
    mesh->shard_data->device = mesh->replica_data->device = device->backend;
    flat->norm_ready = device->backend->event_open(device);
    flat->sums_ready = device->backend->event_open(device);
    bool adapts = false;
    int tensors = 0;
    for (int i = 0; i < unit_count; i++) {
        const struct unit *unit = &units[i];
        const int64_t part = flat_shard_count(unit->count, mesh->shard->size);
        const int64_t begin = part * mesh->shard->rank, padded = part * mesh->shard->size;
        int64_t parameters_end = padded; /* the offset of the running statistics, if any */
        bool learns = false;
        for (int t = unit->tensor_count - 1; t >= 0; t--) {
            const struct unit_tensor *tensor = &unit->tensors[t];
            learns = learns || tensor->trainable;
            adapts = adapts || tensor->adapts;
            tensors = (int)larger(tensors, tensor->index + 1);
            if (tensor->kind == TENSOR_STATE)
                parameters_end = tensor->offset;
        }
        flat->buffers[i] = (struct flat_buffer){
            .unit = unit,
            .padded = padded,
            .shard_count = part,
            .shard_begin = begin,
            .stride = padded,
            .parameter_count = larger(0, smaller(part, parameters_end - begin)),
            .learns = learns,
            .ready = device->backend->event_open(device)};
    }
    flat->norm_count = training && adapts ? tensors : 0;
    flat_orthogonal_open(flat);
}

void flat_close(struct flat_model *flat)
{
    for (int i = 0; i < flat->count; i++) {
        free(flat->buffers[i].segments);
        free(flat->buffers[i].owner);
        flat->device->backend->event_close(flat->buffers[i].ready);
    }
    flat->device->backend->event_close(flat->norm_ready);
    flat->device->backend->event_close(flat->sums_ready);
    free(flat->buffers);
    free(flat->updates);
    free(flat->partials.parts);
    *flat = (struct flat_model){0};
}

static struct comm *memory_group(const struct flat_model *flat)
{
    return flat->mesh->shard->size > 1 ? flat->mesh->shard : flat->mesh->replica;
}

void flat_use_shared_memory(struct flat_model *flat)
{
    ENSURE(flat->mesh->one_node, "only ranks of one node share memory");
    flat->shares_memory = true;
    flat->slots_weights = false;
}

bool flat_share(struct flat_model *flat, struct error *error)
{
    struct comm *group = memory_group(flat);
    if (flat->common_bytes + flat->area_bytes > 0)
        flat->node_memory =
            group->backend->share_memory(group, flat->common_bytes, flat->area_bytes, error);
    return comm_share_error(flat->mesh->world, error); /* the text names the rank */
}

void flat_unshare(struct flat_model *flat)
{
    struct comm *group = memory_group(flat);
    if (flat->node_memory != NULL)
        group->backend->release_memory(group);
    flat->node_memory = NULL;
    flat->shares_memory = false;
    flat->slots_weights = flat->mesh->shard->size > 1 && flat->mesh->shard_weights;
}

/* Takes `bytes` bytes of the shared memory, at offset base + *used. NULL while the arena measures.
 */
static void *shared_take(const struct flat_model *flat, size_t base, size_t bytes, size_t *used,
                         const struct arena *arena)
{
    const size_t begin = base + *used;
    ENSURE(arena_is_measuring(arena) || flat->node_memory != NULL,
           "no shared memory: call flat_share");
    *used = (size_t)round_up((int64_t)(*used + bytes), ARENA_ALIGNMENT);
    return flat->node_memory == NULL ? NULL : flat->node_memory + begin;
}

void *flat_gradient_take(struct flat_model *flat, bool sent, enum memory_class memory_class,
                         size_t bytes, struct arena *arena)
{
    const size_t area = flat->area_bytes * (size_t)memory_group(flat)->rank;
    if (!flat->shares_memory || !sent)
        return arena_take(arena, memory_class, bytes);
    arena_count_outside(arena, memory_class, bytes);
    return shared_take(flat, flat->common_bytes + area, bytes, &flat->area_used, arena);
}

static void *weights_take(struct flat_model *flat, struct flat_buffer *buffer, struct arena *arena)
{
    const size_t bytes = (size_t)buffer->padded * type_size(flat->type);
    if (flat_shares_master(flat))
        return buffer->master;
    if (flat->slots_weights)
        return NULL;
    if (!flat->shares_memory || flat->mesh->shard->size == 1)
        return arena_take(arena, MEMORY_WEIGHTS, bytes);
    arena_count_outside(arena, MEMORY_WEIGHTS, bytes / (size_t)flat->mesh->shard->size);
    return shared_take(flat, 0, bytes, &flat->common_used, arena);
}

int64_t flat_slot_elements(const struct flat_model *flat, int number)
{
    int64_t largest = 0;
    for (int i = number; i < flat->count; i += FLAT_SLOTS)
        largest = larger(largest, flat->buffers[i].padded);
    return largest;
}

void flat_allocate(struct flat_model *flat, struct arena *arena)
{
    const struct mesh *mesh = flat->mesh;
    const size_t size = type_size(flat->type);
    flat->common_used = flat->area_used = 0;
    for (int i = 0; i < flat->count; i++) {
        struct flat_buffer *buffer = &flat->buffers[i];
        const size_t count = (size_t)buffer->shard_count, part = count * sizeof(float);
        arena_for_unit(arena, i);
        buffer->whole = false;
        buffer->master = arena_take(arena, MEMORY_WEIGHTS, part);
        buffer->weights = weights_take(flat, buffer, arena);
        if (flat->averaged)
            buffer->average = arena_take(arena, MEMORY_OPTIMIZER, part);
        if (!flat->training)
            continue;
        flat->reduction->allocate(flat, buffer, arena);
        if (flat->low_precision_reduce && mesh->replica->size > 1)
            buffer->gradient_low = flat_gradient_take(flat, mesh->shard->size == 1,
                                                      MEMORY_GRADIENTS, count * size, arena);
        if (flat->moments > 0)
            buffer->moment1 = arena_take(arena, MEMORY_OPTIMIZER, part);
        if (flat->moments > 1)
            buffer->moment2 = arena_take(arena, MEMORY_OPTIMIZER, part);
    }
    arena_for_all(arena);
    for (int i = 0; i < FLAT_SLOTS; i++) {
        struct flat_slot *slot = &flat->slots[i];
        const size_t bytes = (size_t)flat_slot_elements(flat, i) * size;
        *slot = (struct flat_slot){.weights_unit = -1, .gradient_unit = -1};
        if (flat->slots_weights)
            slot->weights = arena_take(arena, MEMORY_GATHERED, bytes);
        flat->reduction->allocate_slot(flat, i, arena);
        if (flat->low_precision_reduce && mesh->shard->size > 1)
            slot->gradient_low = flat_gradient_take(flat, true, MEMORY_GATHERED, bytes, arena);
    }
    ENSURE(arena_is_measuring(arena) ||
               (flat->common_used == flat->common_bytes && flat->area_used == flat->area_bytes),
           "%zu + %zu bytes of shared memory, but %zu + %zu were measured", flat->common_used,
           flat->area_used, flat->common_bytes, flat->area_bytes);
    flat->common_bytes = flat->common_used;
    flat->area_bytes = flat->area_used;
    flat_orthogonal_allocate(flat, arena);
    flat->norms = arena_take(arena, MEMORY_BUFFERS, (size_t)flat->norm_count * sizeof *flat->norms);
    flat->norm_sum = arena_take(arena, MEMORY_BUFFERS, sizeof *flat->norm_sum);
    flat->norm_squared = arena_take(arena, MEMORY_BUFFERS, sizeof *flat->norm_squared);
    flat->nonfinite_index = arena_take(arena, MEMORY_BUFFERS, sizeof *flat->nonfinite_index);
    flat->hash = arena_take(arena, MEMORY_BUFFERS, sizeof *flat->hash);
}

bool flat_tensor_part(const struct flat_buffer *buffer, const struct unit_tensor *tensor,
                      int64_t *begin, int64_t *end)
{
    *begin = larger(tensor->offset - buffer->shard_begin, 0);
    *end = smaller(tensor->offset + tensor->count - buffer->shard_begin, buffer->shard_count);
    return *begin < *end;
}

double flat_running_weight(int64_t accumulate, int64_t pieces, int64_t micro)
{
    double keep = 1 - running_momentum, all = 1 - pow(keep, (double)accumulate);
    double these = 1 - pow(keep, (double)pieces);
    if (micro >= pieces)
        return 0;
    return all / these * running_momentum * pow(keep, (double)(pieces - 1 - micro));
}

void flat_set_segments(struct flat_model *flat, double weight_decay, int64_t accumulate)
{
    const double keep = pow(1 - running_momentum, (double)accumulate);
    for (int i = 0; i < flat->count; i++) {
        struct flat_buffer *buffer = &flat->buffers[i];
        const struct unit *unit = buffer->unit;
        struct update_segment *last = NULL;
        free(buffer->segments);
        buffer->segments = allocate((size_t)unit->tensor_count, sizeof *buffer->segments);
        buffer->segment_count = 0;
        for (int t = 0; t < unit->tensor_count; t++) {
            const struct unit_tensor *tensor = &unit->tensors[t];
            const bool runs = tensor->kind == TENSOR_STATE;
            struct update_segment next = {.weight_decay =
                                              tensor->decay && !runs ? (float)weight_decay : 0,
                                          .rate_scale = !tensor->trainable ? 0
                                                        : runs             ? 1
                                                               : (float)tensor->rate_scale,
                                          .running = runs,
                                          .matrix = tensor->matrix,
                                          .adapts = tensor->adapts,
                                          .tensor = tensor->adapts ? (int)tensor->index : 0,
                                          .keep = runs ? (float)keep : 0};
            if (!flat_tensor_part(buffer, tensor, &next.begin, &next.end))
                continue;
            /* Gaps between tensors contain zeros, which every update rule keeps. */
            if (last != NULL && last->weight_decay == next.weight_decay &&
                last->rate_scale == next.rate_scale && last->running == next.running &&
                last->matrix == next.matrix && !last->adapts && !next.adapts) {
                last->end = next.end;
            } else {
                last = &buffer->segments[buffer->segment_count++];
                *last = next;
            }
        }
    }
}

/* Draws the initial values of elements begin..begin + count - 1 of this rank's part. */
static void buffer_draw(const struct flat_buffer *buffer, uint64_t seed, int64_t begin,
                        int64_t count, float *values)
{
    memset(values, 0, (size_t)count * sizeof *values);
    for (int t = 0; t < buffer->unit->tensor_count; t++) {
        const struct unit_tensor *tensor = &buffer->unit->tensors[t];
        int64_t first, end;
        if (!flat_tensor_part(buffer, tensor, &first, &end))
            continue;
        first = larger(first, begin);
        end = smaller(end, begin + count);
        if (first < end)
            initial_draw(tensor, seed, first + buffer->shard_begin - tensor->offset, end - first,
                         values + (first - begin));
    }
}

void flat_initialize(struct flat_model *flat, uint64_t seed)
{
    enum { CHUNK = 1 << 18 }; /* a multiple of 4 that fits into the cache */
    const struct device_backend *backend = flat->device->backend;
    float *chunk = allocate(CHUNK, sizeof *chunk);
    for (int i = 0; i < flat->count; i++) {
        const struct flat_buffer *buffer = &flat->buffers[i];
        const size_t part = (size_t)buffer->shard_count * sizeof *chunk;
        for (int64_t begin = 0; begin < buffer->shard_count; begin += CHUNK) {
            const int64_t count = smaller(CHUNK, buffer->shard_count - begin);
            buffer_draw(buffer, seed, begin, count, chunk);
            backend->copy(flat->stream, buffer->master + begin, chunk,
                          (size_t)count * sizeof *chunk);
            backend->stream_synchronize(flat->stream);
        }
        if (buffer->average != NULL)
            backend->copy(flat->stream, buffer->average, buffer->master, part);
        if (buffer->moment1 != NULL)
            backend->zero(flat->stream, buffer->moment1, part);
        if (buffer->moment2 != NULL)
            backend->zero(flat->stream, buffer->moment2, part);
        if (buffer->whole_gradient != NULL)
            backend->zero(flat->stream, buffer->whole_gradient,
                          (size_t)buffer->padded * sizeof *chunk);
    }
    free(chunk);
    flat_begin_gradients(flat);
}

void flat_begin_gradients(struct flat_model *flat)
{
    for (int i = 0; i < flat->count; i++)
        flat->buffers[i].empty = flat->training;
    if (flat->counted != NULL)
        flat->device->backend->zero(flat->stream, flat->counted, sizeof *flat->counted);
}

void flat_updated(struct flat_model *flat)
{
    for (int i = 0; i < flat->count; i++) {
        flat->buffers[i].whole = flat->mesh->shard->size == 1;
        flat->device->backend->event_record(flat->buffers[i].ready, flat->stream);
    }
}

void flat_refresh(struct flat_model *flat)
{
    bool copies = !flat_shares_master(flat) && !flat->slots_weights;
    if (flat->shares_memory) /* other ranks may still read the old weights */
        comm_barrier(flat->mesh->shard);
    for (int i = 0; i < flat->count && copies; i++) {
        const struct flat_buffer *buffer = &flat->buffers[i];
        unsigned char *copy = buffer->weights;
        flat->device->backend->convert(flat->stream, flat->type,
                                       copy + (size_t)buffer->shard_begin * type_size(flat->type),
                                       TYPE_FP32, buffer->master, buffer->shard_count);
    }
    flat_updated(flat);
}

void flat_swap_average(struct flat_model *flat)
{
    if (!flat->averaged)
        return;
    for (int i = 0; i < flat->count; i++) {
        struct flat_buffer *buffer = &flat->buffers[i];
        float *average = buffer->average;
        buffer->average = buffer->master;
        buffer->master = average;
        if (flat_shares_master(flat))
            buffer->weights = average;
    }
    flat_refresh(flat);
}

const void *flat_weight(const struct flat_model *flat, int unit, int tensor)
{
    const struct flat_buffer *buffer = &flat->buffers[unit];
    size_t offset = (size_t)buffer->unit->tensors[tensor].offset;
    return (const unsigned char *)buffer->weights + offset * type_size(flat->type);
}

float *flat_gradient(const struct flat_model *flat, int unit, int tensor)
{
    const struct flat_buffer *buffer = &flat->buffers[unit];
    const struct unit_tensor *described = &buffer->unit->tensors[tensor];
    return described->trainable && flat->training ? buffer->whole_gradient + described->offset
                                                  : NULL;
}
