/* Flat buffers on the mesh: gathering weights, adding gradients, and what all ranks find out
 * together. In a group of one each of these is nothing. */
#include "mesh/flat.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/crc32c.h"

static const enum comm_type comm_type_of[] = {
    [TYPE_FP32] = COMM_FP32, [TYPE_BF16] = COMM_BF16, [TYPE_FP16] = COMM_BYTE};

void flat_gather_start(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    struct comm *shard = flat->mesh->shard;
    /* Bytes are moved, not added: fp16 needs no type of its own. */
    int64_t elements = buffer->shard_count * (flat->type == TYPE_FP16 ? 2 : 1);
    if (!buffer->whole && buffer->gathering == NULL)
        buffer->gathering = shard->backend->all_gather(shard, buffer->weights, elements,
                                                       comm_type_of[flat->type], flat->copied);
}

void flat_gather_wait(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    flat_gather_start(flat, unit);
    flat->mesh->shard->backend->wait(buffer->gathering, flat->stream);
    buffer->gathering = NULL;
    buffer->whole = true;
}

void flat_free(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    ENSURE(buffer->gathering == NULL, "%s is freed while it is gathered", buffer->unit->name);
    if (flat->mesh->free_after_use)
        buffer->whole = flat->mesh->shard->size == 1;
}

static bool unit_learns(const struct unit *unit)
{
    for (int t = 0; t < unit->tensor_count; t++)
        if (unit->tensors[t].trainable && unit->tensors[t].kind == TENSOR_PARAMETER)
            return true;
    return false;
}

void flat_reduce_start(struct flat_model *flat, int unit, struct event *ready)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    const struct device_backend *backend = flat->device->backend;
    struct comm *shard = flat->mesh->shard, *replica = flat->mesh->replica;
    ENSURE(!buffer->reduced, "the gradient of %s is already being added up", buffer->unit->name);
    if (!unit_learns(buffer->unit))
        return;
    enum data_type type = buffer->narrow != NULL ? flat->type : TYPE_FP32;
    unsigned char *sent = buffer->narrow != NULL ? buffer->narrow : (void *)buffer->gradient;
    ENSURE(type != TYPE_FP16, "fp16 cannot be added up");
    if (buffer->narrow != NULL) {
        backend->convert(flat->stream, type, sent, TYPE_FP32, buffer->gradient, buffer->padded);
        backend->event_record(ready, flat->stream);
    }
    buffer->reducing = shard->backend->reduce_scatter(shard, sent, buffer->shard_count,
                                                      comm_type_of[type], COMM_SUM, ready);
    /* Collectives run in the order they were started, so this one finds the shard group's sum. */
    buffer->reducing_replica =
        replica->backend->all_reduce(replica, sent + (size_t)buffer->shard_begin * type_size(type),
                                     buffer->shard_count, comm_type_of[type], COMM_SUM, ready);
    buffer->reduced = true;
}

void flat_reduce_wait(struct flat_model *flat)
{
    for (int i = flat->count - 1; i >= 0; i--) {
        struct flat_buffer *buffer = &flat->buffers[i];
        flat->mesh->shard->backend->wait(buffer->reducing, flat->stream);
        flat->mesh->replica->backend->wait(buffer->reducing_replica, flat->stream);
        if (buffer->narrow != NULL && buffer->reduced)
            flat->device->backend->convert(flat->stream, TYPE_FP32,
                                           buffer->gradient + buffer->shard_begin, flat->type,
                                           (unsigned char *)buffer->narrow +
                                               (size_t)buffer->shard_begin * type_size(flat->type),
                                           buffer->shard_count);
        buffer->reducing = buffer->reducing_replica = NULL;
        buffer->reduced = false;
    }
}

void flat_norm(struct flat_model *flat)
{
    const struct device_backend *backend = flat->device->backend;
    struct comm *shard = flat->mesh->shard;
    backend->zero(flat->stream, flat->norm_squared, sizeof *flat->norm_squared);
    for (int i = 0; i < flat->count; i++) {
        const struct flat_buffer *buffer = &flat->buffers[i];
        backend->sum_squares(flat->stream, buffer->gradient + buffer->shard_begin,
                             buffer->shard_count, flat->norm_squared);
    }
    if (shard->size == 1)
        return;
    backend->stream_synchronize(flat->stream);
    shard->backend->wait(
        shard->backend->all_reduce(shard, flat->norm_squared, 1, COMM_FP64, COMM_SUM, NULL),
        flat->stream);
}

/* CRC32C of a stretch of device memory, through a piece of host memory. */
static int64_t stretch_crc(const struct flat_model *flat, const float *values, int64_t count,
                           float *chunk, int64_t chunk_count)
{
    const struct device_backend *backend = flat->device->backend;
    uint32_t crc = 0;
    for (int64_t begin = 0; begin < count; begin += chunk_count) {
        int64_t part = count - begin < chunk_count ? count - begin : chunk_count;
        size_t bytes = (size_t)part * sizeof *values;
        backend->copy(flat->stream, chunk, values + begin, bytes);
        backend->stream_synchronize(flat->stream);
        crc = crc32c_update(crc, chunk, bytes);
    }
    return crc;
}

static int tensor_count(const struct flat_model *flat)
{
    int count = 0;
    for (int i = 0; i < flat->count; i++)
        count += flat->buffers[i].unit->tensor_count;
    return count;
}

/* The sums of this rank's part of each tensor of the model; what is not here has the sum 0. */
static void tensor_crcs(const struct flat_model *flat, int64_t *crc)
{
    enum { CHUNK = 1 << 18 };
    float *chunk = malloc(CHUNK * sizeof *chunk);
    ENSURE(chunk != NULL, "no memory to compare weights");
    for (int i = 0; i < flat->count; i++) {
        const struct flat_buffer *buffer = &flat->buffers[i];
        for (int t = 0; t < buffer->unit->tensor_count; t++) {
            int64_t begin, end;
            bool here = flat_tensor_part(buffer, &buffer->unit->tensors[t], &begin, &end);
            *crc++ =
                here ? stretch_crc(flat, buffer->master + begin, end - begin, chunk, CHUNK) : 0;
        }
    }
    free(chunk);
}

static const struct unit_tensor *tensor_at(const struct flat_model *flat, int number)
{
    int unit = 0;
    while (number >= flat->buffers[unit].unit->tensor_count)
        number -= flat->buffers[unit++].unit->tensor_count;
    return &flat->buffers[unit].unit->tensors[number];
}

bool flat_check_same(struct flat_model *flat, struct error *error)
{
    struct comm *world = flat->mesh->world;
    int count = tensor_count(flat), first = 0;
    int64_t *own = calloc(2 * (size_t)count + 1, sizeof *own), *leader = own + count;
    ENSURE(own != NULL, "no memory to compare weights");
    tensor_crcs(flat, own);
    for (int t = 0; t < count; t++)
        leader[t] = own[t];
    comm_broadcast(flat->mesh->replica, leader, count, COMM_INT64, 0);
    while (first < count && own[first] == leader[first])
        first++;
    free(own);
    /* The first tensor that differs anywhere, then the lowest rank where it does; 0 says none. */
    int64_t tensor = count - first;
    comm_all_reduce(world, &tensor, 1, COMM_INT64, COMM_MAX);
    int64_t rank = tensor > 0 && tensor == count - first ? world->size - world->rank : 0;
    comm_all_reduce(world, &rank, 1, COMM_INT64, COMM_MAX);
    if (tensor == 0)
        return true;
    return error_set(error, ERROR_INTERNAL,
                     "the ranks' weights are no longer the same: rank %lld holds other bits in %s "
                     "(memory or network fault, or ranks run different programs)",
                     (long long)(world->size - rank), tensor_at(flat, count - (int)tensor)->name);
}

/* The first value of a tensor that is not finite, as an index in the whole tensor, or -1. */
static int64_t tensor_find_nonfinite(const struct flat_model *flat,
                                     const struct flat_buffer *buffer,
                                     const struct unit_tensor *tensor, bool gradients)
{
    const struct device_backend *backend = flat->device->backend;
    const float *values = gradients ? buffer->gradient + buffer->shard_begin : buffer->master;
    int64_t begin, end, index = -1;
    if (!flat_tensor_part(buffer, tensor, &begin, &end))
        return -1;
    const struct nonfinite search = {.type = TYPE_FP32,
                                     .count = end - begin,
                                     .values = values + begin,
                                     .index = flat->nonfinite_index};
    backend->nonfinite(flat->stream, &search);
    backend->copy(flat->stream, &index, flat->nonfinite_index, sizeof index);
    backend->stream_synchronize(flat->stream);
    return index < 0 ? -1 : index + begin + buffer->shard_begin - tensor->offset;
}

bool flat_find_nonfinite(struct flat_model *flat, bool gradients, char *text, size_t size)
{
    int64_t found = -1;
    for (int i = 0; i < flat->count && found < 0; i++) {
        const struct flat_buffer *buffer = &flat->buffers[gradients ? flat->count - 1 - i : i];
        int tensors = buffer->unit->tensor_count;
        for (int t = 0; t < tensors && found < 0; t++) {
            const struct unit_tensor *tensor =
                &buffer->unit->tensors[gradients ? tensors - 1 - t : t];
            found = tensor_find_nonfinite(flat, buffer, tensor, gradients);
            if (found >= 0)
                snprintf(text, size, "%s[%lld]", tensor->name, (long long)found);
        }
    }
    return found >= 0;
}
