// SPDX-License-Identifier: BSD-3-Clause
/* Orthogonalizes the directions of matrices for Muon. The directions of a unit are gathered in each
 * shard group. Each matrix has one owner among all ranks. A rank orthogonalizes the matrices that
 * it owns and sets all other elements to zero; the sum over all ranks is the result. With one
 * owner, all replicas get the same bits even if their devices use different matrix-product
 * algorithms. */
#include "mesh/flat.h"

#include <math.h>
#include <stdlib.h>

#include "base/allocate.h"
#include "base/base.h"
#include "mesh/reduction.h"

/* Coefficients of the Newton-Schulz iteration, as in timm.optim.muon. */
enum { NEWTON_SCHULZ_STEPS = 5 };
static const double muon_factors[NEWTON_SCHULZ_STEPS][3] = {{4.0848, -6.8946, 2.9270},
                                                            {3.9505, -6.3029, 2.6377},
                                                            {3.7418, -5.5913, 2.3037},
                                                            {2.8769, -3.1427, 1.2046},
                                                            {2.8366, -3.0525, 1.2012}};

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

/* next = scale * (a I + b gram + c gram^2) x with factor = {a, b, c} and gram = x x^T. If x has
 * more rows than columns, gram = x^T x, whose polynomial multiplies x from the right. */
static void iterate_once(const struct flat_model *flat, struct matrix matrix, const double *factor,
                         double scale, const void *x, void *next)
{
    const struct flat_orthogonal *work = &flat->orthogonal;
    const enum data_type type = direction_type(flat->type);
    const int64_t side = matrix.side;
    const bool left = side == matrix.rows;
    if (left) {
        matrix_multiply(flat, side, matrix.columns, side, x, x, work->gram);
    } else {
        OPERATION_RUN(flat->device, flat->stream, linear_backward, .type = type,
                      .rows = matrix.rows, .in = side, .out = side, .rows_per_sample = 1, .x = x,
                      .dy = x, .dweight = work->square, .overwrite = true);
        flat->device->backend->convert(flat->stream, type, work->gram, TYPE_FP32, work->square,
                                       side * side);
    }
    matrix_multiply(flat, side, side, side, work->gram, work->gram, work->square);
    OPERATION_RUN(flat->device, flat->stream, matrix_sum, .type = type, .rows = side, .width = side,
                  .x = work->gram, .z = work->square, .x_factor = (float)(scale * factor[1]),
                  .z_factor = (float)(scale * factor[2]), .diagonal = (float)(scale * factor[0]),
                  .y = work->square);
    if (left)
        OPERATION_RUN(flat->device, flat->stream, linear_backward, .type = type, .rows = side,
                      .in = matrix.columns, .out = side, .rows_per_sample = 1, .dy = work->square,
                      .weight = x, .dx = next);
    else
        matrix_multiply(flat, matrix.rows, side, side, x, work->square, next);
}

static void matrix_orthogonalize(const struct flat_model *flat, double epsilon,
                                 enum muon_scale_choice scale, const struct unit_tensor *tensor,
                                 void *direction)
{
    const struct device_backend *backend = flat->device->backend;
    const struct flat_orthogonal *work = &flat->orthogonal;
    enum data_type type = direction_type(flat->type);
    struct matrix matrix = matrix_of(tensor);
    /* The factor of the result: as in the function muon_update of KellerJordan/Muon (Jordan et al.
     * 2024), or such that the root mean square is about 0.2, like AdamW's (Liu et al. 2025). */
    const double factor = scale == MUON_SCALE_ORIGINAL
                              ? sqrt(fmax(1, (double)matrix.rows / (double)matrix.columns))
                              : 0.2 * sqrt((double)larger(matrix.rows, matrix.columns));
    unsigned char *second =
        (unsigned char *)work->iterate + (size_t)tensor->count * type_size(type);
    backend->convert(flat->stream, TYPE_FP32, work->iterate, type, direction, tensor->count);
    backend->zero(flat->stream, work->norm_sum, sizeof *work->norm_sum);
    backend->sum_squares(flat->stream, work->iterate, tensor->count, work->norm_sum);
    backend->sum_value(flat->stream, work->norm_sum, work->norm_squared);
    OPERATION_RUN(flat->device, flat->stream, matrix_sum, .type = type, .rows = matrix.rows,
                  .width = matrix.columns, .x = direction, .x_factor = 1,
                  .norm_squared = work->norm_squared, .epsilon = (float)epsilon,
                  .y = work->iterate);
    for (int step = 0; step < NEWTON_SCHULZ_STEPS; step++) {
        bool last = step == NEWTON_SCHULZ_STEPS - 1;
        void *x = step % 2 == 0 ? work->iterate : second;
        void *next = last ? direction : step % 2 == 0 ? second : work->iterate;
        iterate_once(flat, matrix, muon_factors[step], last ? factor : 1, x, next);
    }
}

/* Sets all elements to zero that do not belong to this rank's matrices. */
void flat_orthogonalize(struct flat_model *flat, int unit, double epsilon,
                        enum muon_scale_choice scale)
{
    const struct device_backend *backend = flat->device->backend;
    struct flat_buffer *buffer = &flat->buffers[unit];
    struct comm *shard = flat->mesh->shard_data;
    const enum data_type type = direction_type(flat->type);
    const int rank = flat->mesh->replica->rank * shard->size + shard->rank;
    int64_t end = 0;
    if (!buffer->orthogonal)
        return;
    shard->backend->wait(buffer->gathering, flat->stream);
    buffer->gathering = NULL;
    for (int t = 0; t < buffer->unit->tensor_count; t++) {
        const struct unit_tensor *tensor = &buffer->unit->tensors[t];
        if (buffer->owner[t] != rank)
            continue;
        backend->zero(flat->stream, direction_at(flat, unit, end),
                      (size_t)(tensor->offset - end) * type_size(type));
        matrix_orthogonalize(flat, epsilon, scale, tensor,
                             direction_at(flat, unit, tensor->offset));
        end = tensor->offset + tensor->count;
    }
    backend->zero(flat->stream, direction_at(flat, unit, end),
                  (size_t)(buffer->padded - end) * type_size(type));
    backend->event_record(buffer->ready, flat->stream);
    buffer->reducing =
        comm_start_reduce_scatter(shard, direction_at(flat, unit, 0), buffer->shard_count,
                                  comm_type_of[type], COMM_SUM, buffer->ready);
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
