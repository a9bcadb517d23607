// SPDX-License-Identifier: BSD-3-Clause
/* Orthogonalizes the directions of matrices for Muon. The directions of a unit are gathered in each
 * shard group. Each matrix has one owner among all ranks. A rank orthogonalizes the matrices that
 * it owns and sets all other elements to zero; the sum over all ranks is the result. With one
 * owner, all replicas get the same bits even if their devices use different matrix-product
 * algorithms. */
#include "mesh/flat.h"

#include <stdlib.h>

#include "base/allocate.h"
#include "base/base.h"
#include "mesh/reduction.h"

/* Size of a tensor as a matrix: one row per output. side: the smaller of both numbers. */
struct matrix {
    int64_t rows, columns, side;
};

static struct matrix matrix_of(const struct unit_tensor *tensor)
{
    int64_t rows = tensor->shape[0], columns = tensor->count / rows;
    return (struct matrix){rows, columns, smaller(rows, columns)};
}

/* Assigns each matrix to the rank that has the fewest FLOPs so far (greedy). */
void flat_orthogonal_open(struct flat_model *flat)
{
    const struct comm *shard = flat->mesh->shard, *replica = flat->mesh->replica;
    int ranks = shard->size * replica->size;
    double *work = allocate((size_t)ranks, sizeof *work);
    for (int i = 0; i < flat->count; i++) {
        struct flat_buffer *buffer = &flat->buffers[i];
        buffer->owner = allocate((size_t)buffer->unit->tensor_count, sizeof *buffer->owner);
        for (int t = 0; t < buffer->unit->tensor_count; t++) {
            const struct unit_tensor *tensor = &buffer->unit->tensors[t];
            int owner = 0;
            for (int rank = 1; rank < ranks; rank++)
                if (work[rank] < work[owner])
                    owner = rank;
            bool orthogonal = flat->training && tensor->matrix && tensor->trainable;
            buffer->owner[t] = orthogonal ? owner : -1;
            buffer->orthogonal = buffer->orthogonal || orthogonal;
            if (orthogonal) { /* FLOPs of one step of the iteration */
                double side = (double)matrix_of(tensor).side;
                work[owner] += 2 * side * (2 * (double)tensor->count + side * side);
            }
        }
    }
    free(work);
}

void flat_orthogonal_allocate(struct flat_model *flat, struct arena *arena)
{
    struct flat_orthogonal *work = &flat->orthogonal;
    int64_t padded = 0, count = 0, side = 0;
    size_t size = type_size(direction_type(flat->type));
    for (int i = 0; i < flat->count; i++) {
        const struct flat_buffer *buffer = &flat->buffers[i];
        padded = buffer->orthogonal ? larger(padded, buffer->padded) : padded;
        for (int t = 0; t < buffer->unit->tensor_count; t++)
            if (buffer->owner[t] >= 0) {
                count = larger(count, buffer->unit->tensors[t].count);
                side = larger(side, matrix_of(&buffer->unit->tensors[t]).side);
            }
    }
    if (padded == 0)
        return;
    for (int i = 0; i < ORTHOGONAL_SLOTS; i++)
        work->slot[i] = arena_take(arena, MEMORY_GATHERED, (size_t)padded * size);
    /* Two matrices in the direction's type, or one fp32 copy of the largest matrix. */
    work->iterate = arena_take(arena, MEMORY_BUFFERS, 2 * (size_t)count * size);
    work->gram = arena_take(arena, MEMORY_BUFFERS, (size_t)(side * side) * size);
    work->square = arena_take(arena, MEMORY_BUFFERS, (size_t)(side * side) * sizeof(float));
    work->norm_sum = arena_take(arena, MEMORY_BUFFERS, sizeof *work->norm_sum);
    work->norm_squared = arena_take(arena, MEMORY_BUFFERS, sizeof *work->norm_squared);
}

/* Returns the address of element `index` of a unit's directions. */
static void *direction_at(const struct flat_model *flat, int unit, int64_t index)
{
    unsigned char *slot = flat->orthogonal.slot[unit % ORTHOGONAL_SLOTS];
    return slot + (size_t)index * type_size(direction_type(flat->type));
}

void *flat_direction(const struct flat_model *flat, int unit)
{
    const struct flat_buffer *buffer = &flat->buffers[unit];
    return buffer->orthogonal ? direction_at(flat, unit, buffer->shard_begin) : NULL;
}

void flat_direction_start(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    struct comm *shard = flat->mesh->shard_data;
    if (!buffer->orthogonal)
        return;
    flat->device->backend->event_record(buffer->ready, flat->stream);
    buffer->gathering =
        comm_start_all_gather(shard, direction_at(flat, unit, 0), buffer->shard_count,
                              comm_type_of[direction_type(flat->type)], buffer->ready);
}

/* y = x . weight^T */
static void matrix_multiply(const struct flat_model *flat, int64_t rows, int64_t in, int64_t out,
                            const void *x, const void *weight, void *y)
{
    OPERATION_RUN(flat->device, flat->stream, linear_forward, .type = direction_type(flat->type),
                  .rows = rows, .in = in, .out = out, .rows_per_sample = 1, .x = x,
                  .weight = weight, .y = y);
}

/* gram = x x^T or, if x has more rows than columns, x^T x. */
static void gram_compute(const struct flat_model *flat, struct matrix matrix, const void *x)
{
    const struct device_backend *backend = flat->device->backend;
    enum data_type type = direction_type(flat->type);
    const struct linear_backward args = {.type = type,
                                         .rows = matrix.rows,
                                         .in = matrix.columns,
                                         .out = matrix.columns,
                                         .rows_per_sample = 1,
                                         .x = x,
                                         .dy = x,
                                         .dweight = flat->orthogonal.square,
                                         .overwrite = true};
    if (matrix.side == matrix.rows) {
        matrix_multiply(flat, matrix.rows, matrix.columns, matrix.rows, x, x,
                        flat->orthogonal.gram);
        return;
    }
    backend->linear_backward(flat->stream, &args);
    backend->convert(flat->stream, type, flat->orthogonal.gram, TYPE_FP32, args.dweight,
                     matrix.side * matrix.side);
}

/* next = scale * (a I + b gram + c gram^2) x with factor = {a, b, c}; if x has more rows than
 * columns, the polynomial of gram multiplies x from the right. */
static void iterate_once(const struct flat_model *flat, struct matrix matrix, const double *factor,
                         double scale, const void *x, void *next)
{
    const struct flat_orthogonal *work = &flat->orthogonal;
    enum data_type type = direction_type(flat->type);
    int64_t side = matrix.side;
    gram_compute(flat, matrix, x);
    matrix_multiply(flat, side, side, side, work->gram, work->gram, work->square);
    OPERATION_RUN(flat->device, flat->stream, matrix_sum, .type = type, .rows = side, .width = side,
                  .x = work->gram, .z = work->square, .x_factor = (float)(scale * factor[1]),
                  .z_factor = (float)(scale * factor[2]), .diagonal = (float)(scale * factor[0]),
                  .y = work->square);
    if (side == matrix.rows)
        OPERATION_RUN(flat->device, flat->stream, linear_backward, .type = type, .rows = side,
                      .in = matrix.columns, .out = side, .rows_per_sample = 1, .dy = work->square,
                      .weight = x, .dx = next);
    else
        matrix_multiply(flat, matrix.rows, side, side, x, work->square, next);
}

static void matrix_orthogonalize(const struct flat_model *flat, const struct newton_schulz *rule,
                                 const struct unit_tensor *tensor, void *direction)
{
    const struct device_backend *backend = flat->device->backend;
    const struct flat_orthogonal *work = &flat->orthogonal;
    enum data_type type = direction_type(flat->type);
    struct matrix matrix = matrix_of(tensor);
    unsigned char *second =
        (unsigned char *)work->iterate + (size_t)tensor->count * type_size(type);
    backend->convert(flat->stream, TYPE_FP32, work->iterate, type, direction, tensor->count);
    backend->zero(flat->stream, work->norm_sum, sizeof *work->norm_sum);
    backend->sum_squares(flat->stream, work->iterate, tensor->count, work->norm_sum);
    backend->sum_value(flat->stream, work->norm_sum, work->norm_squared);
    OPERATION_RUN(flat->device, flat->stream, matrix_sum, .type = type, .rows = matrix.rows,
                  .width = matrix.columns, .x = direction, .x_factor = 1,
                  .norm_squared = work->norm_squared, .epsilon = (float)rule->epsilon,
                  .y = work->iterate);
    for (int step = 0; step < NEWTON_SCHULZ_STEPS; step++) {
        bool last = step == NEWTON_SCHULZ_STEPS - 1;
        double scale = last ? rule->scale(matrix.rows, matrix.columns) : 1;
        void *x = step % 2 == 0 ? work->iterate : second;
        void *next = last ? direction : step % 2 == 0 ? second : work->iterate;
        iterate_once(flat, matrix, rule->factors[step], scale, x, next);
    }
}

/* Orthogonalizes this rank's matrices of a unit and sets all other elements to zero. */
static void unit_orthogonalize(const struct flat_model *flat, int unit,
                               const struct newton_schulz *rule)
{
    const struct flat_buffer *buffer = &flat->buffers[unit];
    const struct device_backend *backend = flat->device->backend;
    const struct comm *shard = flat->mesh->shard, *replica = flat->mesh->replica;
    int rank = replica->rank * shard->size + shard->rank;
    size_t size = type_size(direction_type(flat->type));
    int64_t end = 0;
    for (int t = 0; t < buffer->unit->tensor_count; t++) {
        const struct unit_tensor *tensor = &buffer->unit->tensors[t];
        if (buffer->owner[t] != rank)
            continue;
        backend->zero(flat->stream, direction_at(flat, unit, end),
                      (size_t)(tensor->offset - end) * size);
        matrix_orthogonalize(flat, rule, tensor, direction_at(flat, unit, tensor->offset));
        end = tensor->offset + tensor->count;
    }
    backend->zero(flat->stream, direction_at(flat, unit, end),
                  (size_t)(buffer->padded - end) * size);
}

void flat_orthogonalize(struct flat_model *flat, int unit, const struct newton_schulz *rule)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    struct comm *shard = flat->mesh->shard_data;
    if (!buffer->orthogonal)
        return;
    shard->backend->wait(buffer->gathering, flat->stream);
    buffer->gathering = NULL;
    unit_orthogonalize(flat, unit, rule);
    flat->device->backend->event_record(buffer->ready, flat->stream);
    buffer->reducing = comm_start_reduce_scatter(
        shard, direction_at(flat, unit, 0), buffer->shard_count,
        comm_type_of[direction_type(flat->type)], COMM_SUM, buffer->ready);
}

void flat_direction_sum(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    struct comm *replica = flat->mesh->replica_data;
    if (!buffer->orthogonal)
        return;
    flat->mesh->shard_data->backend->wait(buffer->reducing, flat->stream);
    flat->device->backend->event_record(buffer->ready, flat->stream);
    buffer->reducing =
        comm_start_all_reduce(replica, flat_direction(flat, unit), buffer->shard_count,
                              comm_type_of[direction_type(flat->type)], COMM_SUM, buffer->ready);
}

void flat_direction_wait(struct flat_model *flat, int unit)
{
    struct flat_buffer *buffer = &flat->buffers[unit];
    flat->mesh->replica_data->backend->wait(buffer->reducing, flat->stream);
    buffer->reducing = NULL;
}
