// SPDX-License-Identifier: BSD-3-Clause
/* The two reductions of gradients: a reduce-scatter in the shard group and an all-reduce in the
 * replica group, in fp32 or in the compute type; and partial sums, which are added in the order of
 * a tree (flat.h). */
#include "mesh/reduction.h"

#include <stdlib.h>

#include "base/allocate.h"
#include "base/base.h"

const enum comm_type comm_type_of[] = {
    [TYPE_FP32] = COMM_FP32, [TYPE_BF16] = COMM_BF16, [TYPE_FP16] = COMM_FP16};

/* Set elements begin..end - 1 of the whole gradient to zero. */
static void gradient_zero(const struct flat_model *flat, const struct flat_buffer *buffer,
                          int64_t begin, int64_t end)
{
    if (begin < end)
        flat->device->backend->zero(flat->stream, buffer->whole_gradient + begin,
                                    (size_t)(end - begin) * sizeof(float));
}

/* Set all elements to zero that no operation of a backward pass writes. begin: first element of the
 * partial sum, or 0. */
static void gradient_zero_gaps(const struct flat_model *flat, const struct flat_buffer *buffer,
                               int64_t begin)
{
    int64_t end = begin;
    for (int t = 0; t < buffer->unit->tensor_count; t++) {
        const struct unit_tensor *tensor = &buffer->unit->tensors[t];
        if (!tensor->trainable)
            continue;
        gradient_zero(flat, buffer, end, begin + tensor->offset);
        end = begin + tensor->offset + tensor->count;
    }
    gradient_zero(flat, buffer, end, begin + buffer->stride);
}

/* ---- reduce-scatter and all-reduce */

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

/* ---- partial sums: their numbers */

enum { BLOCK_ALIGNMENT = 16 }; /* elements */

/* Cuts the grains of ranks first..first + count - 1 into subtrees. */
static int ranks_cut(const struct flat_model *flat, int64_t total, int first, int count,
                     struct subtree tree[TREE_PARTS])
{
    const int ranks = flat->mesh->world->size;
    int64_t begin, end, length;
    cut_evenly(total, ranks, first, &begin, &length);
    cut_evenly(total, ranks, first + count - 1, &end, &length);
    return tree_cut(begin, end + length, total, tree);
}

/* Cuts the grains of a rank in one pass into subtrees. */
static int pass_cut(const struct flat_model *flat, int64_t total, int rank, int64_t pass,
                    struct subtree tree[TREE_PARTS])
{
    int64_t begin, length, part, count;
    cut_evenly(total, flat->mesh->world->size, rank, &begin, &length);
    cut_evenly(length, flat->partials.passes, pass, &part, &count);
    return tree_cut(begin + part, begin + part + count, total, tree);
}

/* Returns the maximum number of partial sums that a rank stores during a step. */
static int rank_measure(const struct flat_model *flat, int64_t total, int rank)
{
    struct tree_pool pool = {.total = total};
    struct subtree tree[TREE_PARTS];
    int most = 0, count = 1;
    for (int64_t pass = 0; pass < flat->partials.passes && count > 0; pass++) {
        count = pass_cut(flat, total, rank, pass, tree); /* empty passes come last */
        most = pool.count + count > most ? pool.count + count : most;
        for (int i = 0; i < count; i++)
            tree_pool_insert(&pool, tree[i], 0, NULL, NULL);
    }
    return most;
}

/* Updates the maxima for a global batch of `total` grains. */
static void batch_measure(struct flat_model *flat, int64_t total)
{
    struct flat_partials *partials = &flat->partials;
    const int shards = flat->mesh->shard->size, ranks = flat->mesh->world->size;
    struct subtree tree[TREE_PARTS];
    int64_t from_replicas = 0;
    /* Ranks from `total` on have no grains. */
    for (int group = 0; group < ranks && group < total; group += shards) {
        int reduced = ranks_cut(flat, total, group, shards, tree);
        int64_t from_shards = 0;
        for (int rank = group; rank < group + shards && rank < total; rank++) {
            partials->whole = (int)larger(partials->whole, rank_measure(flat, total, rank));
            from_shards += ranks_cut(flat, total, rank, 1, tree);
        }
        partials->reduced = (int)larger(partials->reduced, reduced);
        partials->from_shards = (int)larger(partials->from_shards, from_shards);
        from_replicas += reduced;
    }
    partials->from_replicas = (int)larger(partials->from_replicas, from_replicas);
}

void flat_use_grains(struct flat_model *flat, int64_t most_grains, int64_t passes, bool spare)
{
    const int shards = flat->mesh->shard->size, replicas = flat->mesh->replica->size;
    ENSURE(flat->training && !flat->low_precision_reduce && most_grains > 0 && passes > 0,
           "no partial sums of %lld grains in %lld passes", (long long)most_grains,
           (long long)passes);
    flat->reduction = &reduction_partial;
    flat->gradients_in_slots = flat->gradients_in_slots && passes == 1;
    flat->partials =
        (struct flat_partials){.most_grains = most_grains, .passes = passes, .spare = spare};
    flat->partials.parts = allocate((size_t)(shards + replicas), sizeof *flat->partials.parts);
    for (int64_t total = 1; total <= most_grains; total++)
        batch_measure(flat, total);
    for (int i = 0; i < flat->count; i++) {
        struct flat_buffer *buffer = &flat->buffers[i];
        buffer->block = round_up(round_up_division(buffer->shard_count, replicas), BLOCK_ALIGNMENT);
        if (shards == 1) /* partial sums are sent to replicas in `replicas` blocks */
            buffer->stride = buffer->block * replicas;
    }
    flat_begin_pass(flat, most_grains, 0);
}

void flat_begin_pass(struct flat_model *flat, int64_t total, int64_t pass)
{
    struct flat_partials *partials = &flat->partials;
    const struct comm *shard = flat->mesh->shard, *replica = flat->mesh->replica;
    const int first = replica->rank * shard->size;
    if (partials->most_grains == 0)
        return;
    ENSURE(total > 0 && total <= partials->most_grains, "%lld grains, at most %lld",
           (long long)total, (long long)partials->most_grains);
    if (pass == 0) {
        for (int i = 0; i < flat->count; i++)
            flat->buffers[i].pool = (struct tree_pool){.total = total};
        for (int i = 0; i < shard->size; i++)
            partials->parts[i] = ranks_cut(flat, total, first + i, 1, partials->tree);
        for (int i = 0; i < replica->size; i++)
            partials->parts[shard->size + i] =
                ranks_cut(flat, total, i * shard->size, shard->size, partials->tree);
    }
    partials->total = total;
    partials->count = pass_cut(flat, total, first + shard->rank, pass, partials->tree);
}

void flat_spare_open(struct flat_model *flat, int unit, bool samples)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    ENSURE(flat->partials.spare && buffer->stage == REDUCTION_NONE,
           "no spare memory for the gradient of %s", buffer->unit->name);
    flat->partials.slot[0] = flat->gradients_in_slots ? 0 : flat->partials.whole;
    if (flat->gradients_in_slots && buffer->learns)
        buffer->whole_gradient = flat->slots[unit % FLAT_SLOTS].whole_gradient;
    buffer->overwrites = samples;
}

void flat_spare_close(struct flat_model *flat, int unit)
{
    if (flat->gradients_in_slots)
        flat->buffers[unit].whole_gradient = NULL;
}

/* ---- memory */

static void partial_allocate(struct flat_model *flat, struct flat_buffer *buffer,
                             struct arena *arena)
{
    const int replicas = flat->mesh->replica->size;
    int64_t reduced =
        replicas > 1 ? flat->partials.reduced * buffer->block * replicas : buffer->shard_count;
    int64_t sums = flat->partials.whole + (flat->partials.spare ? 1 : 0);
    int64_t whole = buffer->learns ? sums * buffer->stride : 0;
    int64_t elements = flat->gradients_in_slots ? reduced : larger(whole, reduced);
    buffer->gradient = arena_take(arena, MEMORY_GRADIENTS, (size_t)elements * sizeof(float));
    buffer->whole_gradient = buffer->learns && !flat->gradients_in_slots ? buffer->gradient : NULL;
}

static void partial_allocate_slot(struct flat_model *flat, int number, struct arena *arena)
{
    const struct flat_partials *partials = &flat->partials;
    struct flat_slot *slot = &flat->slots[number];
    int64_t stride = 0, part = 0, block = 0;
    for (int i = number; i < flat->count; i += FLAT_SLOTS) {
        const struct flat_buffer *buffer = &flat->buffers[i];
        stride = larger(stride, buffer->stride);
        part = larger(part, buffer->shard_count);
        block = larger(block, buffer->block);
    }
    if (flat->gradients_in_slots)
        slot->whole_gradient =
            arena_take(arena, MEMORY_GATHERED, (size_t)(partials->whole * stride) * sizeof(float));
    if (flat->mesh->shard->size > 1)
        slot->from_shards = arena_take(arena, MEMORY_GATHERED,
                                       (size_t)(partials->from_shards * part) * sizeof(float));
    if (flat->mesh->replica->size > 1)
        slot->from_replicas = arena_take(arena, MEMORY_GATHERED,
                                         (size_t)(partials->from_replicas * block) * sizeof(float));
}

/* ---- additions */

/* Partial sums of `count` elements each, without gaps between them. */
struct sums {
    const struct flat_model *flat;
    float *memory;
    int64_t count;
};

static void sums_add(void *context, int into, int from)
{
    const struct sums *sums = context;
    sums->flat->device->backend->add(sums->flat->stream, sums->memory + into * sums->count,
                                     sums->memory + from * sums->count, sums->count);
}

/* The partial sums of the pass follow those of earlier passes. */
static void partial_open(struct flat_model *flat, struct flat_buffer *buffer, bool samples)
{
    buffer->overwrites = samples;
    for (int i = 0; buffer->learns && i < flat->partials.count; i++) {
        flat->partials.slot[i] = buffer->pool.count + i;
        gradient_zero_gaps(flat, buffer, flat->partials.slot[i] * buffer->stride);
    }
}

/* Adds the partial sums of the pass to those of earlier passes and moves the remaining ones to the
 * first slots, in order. */
static void partial_close(struct flat_model *flat, struct flat_buffer *buffer)
{
    struct sums sums = {flat, buffer->whole_gradient, buffer->stride};
    struct tree_pool *pool = &buffer->pool;
    const int first = pool->count;
    for (int i = 0; i < flat->partials.count; i++)
        tree_pool_insert(pool, flat->partials.tree[i], first + i, sums_add, &sums);
    for (int i = 0; i < pool->count; i++) {
        if (pool->waiting[i].slot != i)
            flat->device->backend->copy(flat->stream, sums.memory + i * sums.count,
                                        sums.memory + pool->waiting[i].slot * sums.count,
                                        (size_t)sums.count * sizeof(float));
        pool->waiting[i].slot = i;
    }
    buffer->empty = false;
}

/* Adds the partial sums that the members of a group sent. Member m sent those of `ranks` ranks from
 * rank first + m * ranks. Returns the remaining partial sums. */
static struct tree_pool received_add(struct sums *sums, int members, int first, int ranks)
{
    const int64_t total = sums->flat->partials.total;
    struct tree_pool pool = {.total = total};
    struct subtree tree[TREE_PARTS];
    int slot = 0;
    for (int member = 0; member < members; member++) {
        int count = ranks_cut(sums->flat, total, first + member * ranks, ranks, tree);
        for (int i = 0; i < count; i++)
            tree_pool_insert(&pool, tree[i], slot++, sums_add, sums);
    }
    return pool;
}

/* ---- exchanges */

static void partial_shards_start(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    struct comm *shard = flat->mesh->shard_data;
    flat->device->backend->event_record(buffer->ready, flat->stream);
    buffer->reducing = comm_start_all_to_all(
        shard, buffer->whole_gradient, buffer->stride, flat->partials.parts,
        flat->slots[unit % FLAT_SLOTS].from_shards, buffer->shard_count, COMM_FP32, buffer->ready);
}

/* `gradient` gets the partial sums of the group, block * replicas elements apart. */
static void partial_shards_finish(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    const struct mesh *mesh = flat->mesh;
    const int shards = mesh->shard->size;
    struct sums sums = {flat, flat->slots[unit % FLAT_SLOTS].from_shards, buffer->shard_count};
    mesh->shard_data->backend->wait(buffer->reducing, flat->stream);
    const struct tree_pool pool = received_add(&sums, shards, mesh->replica->rank * shards, 1);
    for (int i = 0; i < pool.count; i++)
        flat->device->backend->copy(
            flat->stream, buffer->gradient + i * buffer->block * mesh->replica->size,
            sums.memory + pool.waiting[i].slot * sums.count, (size_t)sums.count * sizeof(float));
}

static void partial_replicas_start(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    const struct mesh *mesh = flat->mesh;
    struct comm *replica = mesh->replica_data;
    flat->device->backend->event_record(buffer->ready, flat->stream);
    buffer->reducing = comm_start_all_to_all(
        replica, buffer->gradient, buffer->block * replica->size,
        flat->partials.parts + mesh->shard->size, flat->slots[unit % FLAT_SLOTS].from_replicas,
        buffer->block, COMM_FP32, buffer->ready);
}

static void partial_replicas_gather(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    struct comm *replica = flat->mesh->replica_data;
    struct sums sums = {flat, flat->slots[unit % FLAT_SLOTS].from_replicas, buffer->block};
    replica->backend->wait(buffer->reducing, flat->stream);
    const struct tree_pool pool = received_add(&sums, replica->size, 0, flat->mesh->shard->size);
    flat->device->backend->copy(flat->stream, buffer->gradient + replica->rank * sums.count,
                                sums.memory + pool.waiting[0].slot * sums.count,
                                (size_t)sums.count * sizeof(float));
    flat->device->backend->event_record(buffer->ready, flat->stream);
    buffer->reducing =
        comm_start_all_gather(replica, buffer->gradient, sums.count, COMM_FP32, buffer->ready);
}

const struct gradient_reduction reduction_partial = {.allocate = partial_allocate,
                                                     .allocate_slot = partial_allocate_slot,
                                                     .open = partial_open,
                                                     .close = partial_close,
                                                     .shards_start = partial_shards_start,
                                                     .shards_finish = partial_shards_finish,
                                                     .replicas_start = partial_replicas_start,
                                                     .replicas_gather = partial_replicas_gather};
