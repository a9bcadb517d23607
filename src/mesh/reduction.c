// SPDX-License-Identifier: BSD-3-Clause
/* The reduction of gradients by a reduce-scatter in the shard group and an all-reduce in the
 * replica group, in fp32 or in the compute type. */
#include "mesh/reduction.h"

const enum comm_type comm_type_of[] = {
    [TYPE_FP32] = COMM_FP32, [TYPE_BF16] = COMM_BF16, [TYPE_FP16] = COMM_FP16};

static void scatter_allocate(struct flat_model *flat, struct flat_buffer *buffer,
                             struct arena *arena)
{
    const bool whole = !flat->gradients_in_slots;
    size_t bytes = (size_t)(whole ? buffer->padded : buffer->shard_count) * sizeof(float);
    float *memory = flat_gradient_take(flat, whole && !flat->low_precision_reduce, MEMORY_GRADIENTS,
                                       bytes, arena);
    buffer->whole_gradient = whole ? memory : NULL;
    buffer->gradient = whole && memory != NULL ? memory + buffer->shard_begin : memory;
}

static void scatter_allocate_slot(struct flat_model *flat, int number, struct arena *arena)
{
    size_t bytes = (size_t)flat_slot_elements(flat, number) * sizeof(float);
    if (flat->gradients_in_slots)
        flat->slots[number].whole_gradient =
            flat_gradient_take(flat, !flat->low_precision_reduce, MEMORY_GATHERED, bytes, arena);
}

static void scatter_open(struct flat_model *flat, struct flat_buffer *buffer, bool samples)
{
    const bool first = flat->gradients_in_slots || buffer->empty;
    buffer->overwrites = samples && first;
    if (!buffer->learns || !first)
        return;
    if (samples)
        gradient_zero_gaps(flat, buffer, 0);
    else
        gradient_zero(flat, buffer, 0, buffer->padded);
}

static void scatter_close(struct flat_model *flat, struct flat_buffer *buffer)
{
    buffer->empty = buffer->empty && flat->gradients_in_slots;
}

static void scatter_start(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    const struct device_backend *backend = flat->device->backend;
    struct comm *shard = flat->mesh->shard_data;
    enum data_type type = flat->low_precision_reduce ? flat->type : TYPE_FP32;
    void *sent = buffer->whole_gradient;
    if (flat->low_precision_reduce) {
        sent = flat->slots[unit % FLAT_SLOTS].gradient_low;
        backend->convert(flat->stream, type, sent, TYPE_FP32, buffer->whole_gradient,
                         buffer->padded);
    }
    backend->event_record(buffer->ready, flat->stream);
    buffer->reducing = comm_start_reduce_scatter(shard, sent, buffer->shard_count,
                                                 comm_type_of[type], COMM_SUM, buffer->ready);
}

/* Adds this rank's part of the sum to `gradient`. */
static void scatter_finish(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    const struct device_backend *backend = flat->device->backend;
    float *part = buffer->whole_gradient + buffer->shard_begin;
    flat->mesh->shard_data->backend->wait(buffer->reducing, flat->stream);
    if (flat->low_precision_reduce) {
        const unsigned char *low = flat->slots[unit % FLAT_SLOTS].gradient_low;
        backend->convert(flat->stream, TYPE_FP32, part, flat->type,
                         low + (size_t)buffer->shard_begin * type_size(flat->type),
                         buffer->shard_count);
    }
    if (!flat->gradients_in_slots)
        return;
    if (buffer->empty)
        backend->copy(flat->stream, buffer->gradient, part,
                      (size_t)buffer->shard_count * sizeof *part);
    else
        backend->add(flat->stream, buffer->gradient, part, buffer->shard_count);
    buffer->empty = false;
}

static void all_reduce_start(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    const struct device_backend *backend = flat->device->backend;
    struct comm *replica = flat->mesh->replica_data;
    enum data_type type = flat->low_precision_reduce ? flat->type : TYPE_FP32;
    void *sent = buffer->gradient;
    if (flat->low_precision_reduce) {
        sent = buffer->gradient_low;
        backend->convert(flat->stream, type, sent, TYPE_FP32, buffer->gradient,
                         buffer->shard_count);
    }
    backend->event_record(buffer->ready, flat->stream);
    buffer->reducing = comm_start_all_reduce(replica, sent, buffer->shard_count, comm_type_of[type],
                                             COMM_SUM, buffer->ready);
}

const struct gradient_reduction reduction_scatter = {.allocate = scatter_allocate,
                                                     .allocate_slot = scatter_allocate_slot,
                                                     .open = scatter_open,
                                                     .close = scatter_close,
                                                     .shards_start = scatter_start,
                                                     .shards_finish = scatter_finish,
                                                     .replicas_start = all_reduce_start};
