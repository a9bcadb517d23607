// SPDX-License-Identifier: BSD-3-Clause
/* Collectives on flat buffers: gathers of weights, reductions of gradients, the norm, and checks
 * over all ranks. In a group of one they do nothing. With FSDP a gathered unit is freed here:
 * the slot of a released unit is taken by the next unit that uses it. */
#include "mesh/flat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "mesh/reduction.h"

void flat_gather_start(struct flat_model *flat, int unit)
{
    const struct device_backend *backend = flat->device->backend;
    struct flat_buffer *buffer = &flat->buffers[unit];
    struct flat_slot *slot = &flat->slots[unit % FLAT_SLOTS];
    struct comm *shard = flat->mesh->shard_data;
    if (buffer->whole || buffer->gathering != NULL || flat->weights_barrier != NULL)
        return;
    if (flat->shares_memory) {
        flat->weights_barrier = comm_start_all_reduce(shard, &flat->barrier_byte, 1, COMM_BYTE,
                                                      COMM_SUM, buffer->ready);
        return;
    }
    if (flat->slots_weights) { /* take the slot from its last unit and write this rank's part */
        if (slot->weights_unit >= 0 && slot->weights_unit != unit) {
            struct flat_buffer *before = &flat->buffers[slot->weights_unit];
            ENSURE(!before->used && before->gathering == NULL,
                   "cannot gather %s: its slot is in use by %s", buffer->unit->name,
                   before->unit->name);
            before->weights = NULL;
            before->whole = false;
        }
        slot->weights_unit = unit;
        buffer->weights = slot->weights;
        const size_t begin = (size_t)buffer->shard_begin * type_size(flat->type);
        backend->convert(flat->stream, flat->type, (unsigned char *)buffer->weights + begin,
                         TYPE_FP32, buffer->master, buffer->shard_count);
        backend->event_record(buffer->ready, flat->stream);
    }
    buffer->gathering = comm_start_all_gather(shard, buffer->weights, buffer->shard_count,
                                              comm_type_of[flat->type], buffer->ready);
}

void flat_gather_wait(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    flat_gather_start(flat, unit);
    if (flat->shares_memory && !buffer->whole) { /* one barrier for all units */
        flat->mesh->shard_data->backend->wait(flat->weights_barrier, flat->stream);
        flat->weights_barrier = NULL;
        for (int u = 0; u < flat->count; u++)
            flat->buffers[u].whole = true;
    }
    flat->mesh->shard_data->backend->wait(buffer->gathering, flat->stream);
    buffer->gathering = NULL;
    buffer->whole = buffer->used = true;
}

void flat_release(struct flat_model *flat, int unit)
{
    flat->buffers[unit].used = false;
}

/* Finishes the collective in progress and starts the unit's next one. All ranks call it for the
 * same units in the same order, as collectives require. */
static void reduction_advance(struct flat_model *flat, int unit)
{
    const struct gradient_reduction *reduction = flat->reduction;
    struct flat_buffer *buffer = &flat->buffers[unit];
    if (buffer->stage == REDUCTION_REPLICAS) {
        if (reduction->replicas_gather != NULL)
            reduction->replicas_gather(flat, unit);
        buffer->stage = REDUCTION_RESULT;
    }
    if (buffer->stage != REDUCTION_SHARDS)
        return;
    if (flat->mesh->shard->size > 1)
        reduction->shards_finish(flat, unit);
    buffer->reducing = NULL;
    if (flat->gradients_in_slots) {
        flat->slots[unit % FLAT_SLOTS].gradient_unit = -1;
        buffer->whole_gradient = NULL;
    }
    buffer->stage = REDUCTION_NONE;
    if (!buffer->last || flat->mesh->replica->size == 1)
        return;
    reduction->replicas_start(flat, unit);
    buffer->stage = REDUCTION_REPLICAS;
}

void flat_gradient_open(struct flat_model *flat, int unit, bool samples)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    struct flat_slot *slot = &flat->slots[unit % FLAT_SLOTS];
    /* Finish the reductions of the units that used this slot before, the oldest first. */
    for (int other = flat->count - 1; buffer->learns && other >= 0; other--)
        if (other % FLAT_SLOTS == unit % FLAT_SLOTS)
            reduction_advance(flat, other);
    if (buffer->learns && flat->gradients_in_slots) {
        ENSURE(slot->gradient_unit < 0, "no slot for the gradient of %s", buffer->unit->name);
        slot->gradient_unit = unit;
        buffer->whole_gradient = slot->whole_gradient;
    }
    flat->reduction->open(flat, buffer, samples);
}

void flat_gradient_close(struct flat_model *flat, int unit, bool last)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    ENSURE(buffer->stage == REDUCTION_NONE, "the gradient of %s is already being reduced",
           buffer->unit->name);
    if (!buffer->learns)
        return;
    flat->reduction->close(flat, buffer);
    if (!last && !flat->gradients_in_slots)
        return;
    buffer->last = last;
    buffer->stage = REDUCTION_SHARDS;
    if (flat->mesh->shard->size > 1)
        flat->reduction->shards_start(flat, unit);
    else
        reduction_advance(flat, unit);
}

void flat_reduce_wait(struct flat_model *flat)
{
    const struct device_backend *backend = flat->device->backend;
    for (enum reduction_stage stage = REDUCTION_SHARDS; stage <= REDUCTION_REPLICAS; stage++)
        for (int unit = flat->count - 1; unit >= 0; unit--)
            reduction_advance(flat, unit);
    for (int unit = flat->count - 1; unit >= 0; unit--) {
        struct flat_buffer *buffer = &flat->buffers[unit];
        if (buffer->stage == REDUCTION_RESULT) {
            flat->mesh->replica_data->backend->wait(buffer->reducing, flat->stream);
            buffer->reducing = NULL;
            if (flat->low_precision_reduce)
                backend->convert(flat->stream, TYPE_FP32, buffer->gradient, flat->type,
                                 buffer->gradient_low, buffer->shard_count);
        }
        buffer->stage = REDUCTION_NONE;
        if (buffer->empty) /* frozen */
            backend->zero(flat->stream, buffer->gradient,
                          (size_t)buffer->shard_count * sizeof(float));
        buffer->empty = false;
    }
}

/* Queues an all-reduce (sum) of `count` 8-byte numbers in device memory. ready: this event is
 * recorded before it. */
static void sums_reduce(const struct flat_model *flat, struct comm *group, void *sums,
                        int64_t count, enum comm_type type, struct event *ready)
{
    if (group->size == 1)
        return;
    flat->device->backend->event_record(ready, flat->stream);
    group->backend->wait(comm_start_all_reduce(group, sums, count, type, COMM_SUM, ready),
                         flat->stream);
}

void flat_norm(struct flat_model *flat)
{
    const struct device_backend *backend = flat->device->backend;
    backend->zero(flat->stream, flat->norm_sum, sizeof *flat->norm_sum);
    for (int i = 0; i < flat->count; i++) {
        const struct flat_buffer *buffer = &flat->buffers[i];
        backend->sum_squares(flat->stream, buffer->gradient, buffer->parameter_count,
                             flat->norm_sum);
    }
    sums_reduce(flat, flat->mesh->shard_data, flat->norm_sum,
                sizeof *flat->norm_sum / sizeof(int64_t), COMM_INT64, flat->norm_ready);
    backend->sum_value(flat->stream, flat->norm_sum, flat->norm_squared);
    if (flat->counted != NULL)
        flat_add_sums(flat, flat->counted, 1);
}

void flat_norms_sum(const struct flat_model *flat)
{
    const int64_t words = flat->norm_count * (int64_t)(sizeof *flat->norms / sizeof(int64_t));
    sums_reduce(flat, flat->mesh->shard_data, flat->norms, words, COMM_INT64, flat->norm_ready);
}

void flat_add_sums(const struct flat_model *flat, double *sums, int64_t count)
{
    sums_reduce(flat, flat->mesh->shard_data, sums, count, COMM_FP64, flat->sums_ready);
    sums_reduce(flat, flat->mesh->replica_data, sums, count, COMM_FP64, flat->sums_ready);
}

/* ---- hashes of the state */

/* Adds the hash of this rank's part of a tensor to *flat->hash, if the model has the vector. The
 * vector's number is the highest byte of the keys. */
static void part_hash(const struct flat_model *flat, const struct flat_buffer *buffer,
                      const struct unit_tensor *tensor, enum flat_vector vector)
{
    enum { VECTOR_SHIFT = 56 };
    const float *values = flat_vector_memory(buffer, vector);
    int64_t begin, end;
    if (values == NULL || !flat_tensor_part(buffer, tensor, &begin, &end))
        return;
    OPERATION_RUN(flat->device, flat->stream, hash, .count = end - begin, .values = values + begin,
                  .key = (((uint64_t)vector + 1) << VECTOR_SHIFT) +
                         (uint64_t)(buffer->shard_begin + begin),
                  .sum = flat->hash);
}

/* Returns *flat->hash and sets it to zero. Waits for the stream. */
static uint64_t hash_take(const struct flat_model *flat)
{
    const struct device_backend *backend = flat->device->backend;
    uint64_t hash;
    backend->copy(flat->stream, &hash, flat->hash, sizeof hash);
    backend->zero(flat->stream, flat->hash, sizeof hash);
    backend->stream_synchronize(flat->stream);
    return hash;
}

void flat_hash(const struct flat_model *flat, uint64_t *hash)
{
    hash_take(flat);
    for (int i = 0; i < flat->count; i++) {
        const struct flat_buffer *buffer = &flat->buffers[i];
        for (enum flat_vector vector = FLAT_MASTER; vector < FLAT_VECTORS; vector++) {
            for (int t = 0; t < buffer->unit->tensor_count; t++)
                part_hash(flat, buffer, &buffer->unit->tensors[t], vector);
            if (vector == FLAT_MASTER)
                hash[i] = hash_take(flat);
        }
        hash[flat->count + i] = hash_take(flat);
    }
    comm_all_reduce(flat->mesh->shard, hash, 2 * (int64_t)flat->count, COMM_INT64, COMM_SUM);
}

bool flat_check_same(struct flat_model *flat, struct error *error)
{
    struct comm *world = flat->mesh->world;
    int count = 0, first = 0;
    for (int i = 0; i < flat->count; i++)
        count += flat->buffers[i].unit->tensor_count;
    int64_t *own = allocate(2 * (size_t)count, sizeof *own), *leader = own + count, *hash = own;
    hash_take(flat);
    for (int i = 0; i < flat->count; i++)
        for (int t = 0; t < flat->buffers[i].unit->tensor_count; t++) {
            part_hash(flat, &flat->buffers[i], &flat->buffers[i].unit->tensors[t], FLAT_MASTER);
            *hash++ = (int64_t)hash_take(flat);
        }
    for (int t = 0; t < count; t++)
        leader[t] = own[t];
    comm_broadcast(flat->mesh->replica, leader, count, COMM_INT64, 0);
    while (first < count && own[first] == leader[first])
        first++;
    free(own);
    /* The first tensor that differs on any rank, then the lowest rank with it; 0: none. */
    int64_t tensor = count - first;
    comm_all_reduce(world, &tensor, 1, COMM_INT64, COMM_MAX);
    int64_t rank = tensor > 0 && tensor == count - first ? world->size - world->rank : 0;
    comm_all_reduce(world, &rank, 1, COMM_INT64, COMM_MAX);
    if (tensor == 0)
        return true;
    const struct flat_buffer *buffer = flat->buffers;
    first = count - (int)tensor;
    for (; first >= buffer->unit->tensor_count; buffer++)
        first -= buffer->unit->tensor_count;
    return error_set(
        error, ERROR_INTERNAL,
        "the weights of the ranks differ: rank %lld holds other bits in %s (memory or network "
        "fault, or different programs)",
        (long long)(world->size - rank), buffer->unit->tensors[first].name);
}

bool flat_find_nonfinite(struct flat_model *flat, bool gradients, char *text, size_t size)
{
    const struct device_backend *backend = flat->device->backend;
    for (int i = 0; i < flat->count; i++) {
        const struct flat_buffer *buffer = &flat->buffers[gradients ? flat->count - 1 - i : i];
        const float *values = gradients ? buffer->gradient : buffer->master;
        const int tensors = buffer->unit->tensor_count;
        for (int t = 0; t < tensors; t++) {
            const struct unit_tensor *tensor =
                &buffer->unit->tensors[gradients ? tensors - 1 - t : t];
            int64_t begin, end, index = -1;
            if (!flat_tensor_part(buffer, tensor, &begin, &end))
                continue;
            OPERATION_RUN(flat->device, flat->stream, nonfinite, .type = TYPE_FP32,
                          .count = end - begin, .values = values + begin,
                          .index = flat->nonfinite_index);
            backend->copy(flat->stream, &index, flat->nonfinite_index, sizeof index);
            backend->stream_synchronize(flat->stream);
            if (index < 0)
                continue;
            snprintf(text, size, "%s[%lld]", tensor->name,
                     (long long)(index + begin + buffer->shard_begin - tensor->offset));
            return true;
        }
    }
    return false;
}
