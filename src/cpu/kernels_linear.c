// SPDX-License-Identifier: BSD-3-Clause
/* Epilogues of linear layers, row by row while the row is in the cache. */
#include "cpu/kernels.h"
#include "cpu/vector.h"

KERNEL_INLINE vector_float forward_part(const struct linear_row *row, enum data_type type,
                                        int64_t i, int64_t count)
{
    vector_float value = typed_load_row(TYPE_FP32, row->sum, i, i + count);

    if (row->bias != NULL)
        value += typed_load_row(type, row->bias, i, i + count);
    if (row->pre != NULL) {
        typed_store_row(type, row->pre, i, i + count, value);
        value *= row->scale != NULL ? typed_load_row(type, row->scale, i, i + count)
                                    : vector_gelu_factor(value, row->gelu_tanh);
    }
    if (row->mask != NULL)
        value *= typed_load_row(TYPE_FP32, row->mask, i, i + count);
    if (row->residual != NULL)
        value = value * row->path_scale + typed_load_row(type, row->residual, i, i + count);
    if (row->relu)
        value = vector_max(vector_all(0), value); /* operand order preserves NaN */
    return value;
}

KERNEL_INLINE vector_float backward_part(const struct linear_row *row, enum data_type type,
                                         int64_t i, int64_t count)
{
    vector_float value = typed_load_row(TYPE_FP32, row->sum, i, i + count);

    if (row->relu_x != NULL)
        return vector_select(typed_load_row(type, row->relu_x, i, i + count) > 0, value,
                             vector_all(0));
    if (row->pre_read == NULL)
        return value;
    value *=
        vector_gelu_gradient(typed_load_row(type, row->pre_read, i, i + count), row->gelu_tanh);
    if (row->mask != NULL)
        value *= typed_load_row(TYPE_FP32, row->mask, i, i + count);
    return value;
}

KERNEL_INLINE vector_float drop_part(const struct linear_row *row, enum data_type type, int64_t i,
                                     int64_t count)
{
    vector_float value = typed_load_row(type, row->residual, i, i + count) * row->path_scale;

    if (row->mask != NULL)
        value *= typed_load_row(TYPE_FP32, row->mask, i, i + count);
    if (row->products != NULL)
        typed_store_row(TYPE_FP32, row->products, i, i + count,
                        typed_load_row(TYPE_FP32, row->products, i, i + count) +
                            value * typed_load_row(type, row->pre_read, i, i + count));
    if (row->scale != NULL)
        value *= typed_load_row(type, row->scale, i, i + count);
    return value;
}

enum row_operation { ROW_FORWARD, ROW_BACKWARD, ROW_DROP };

KERNEL_INLINE void row_part(const struct linear_row *row, enum data_type type,
                            enum row_operation operation, int64_t i, int64_t count)
{
    vector_float value;

    if (operation == ROW_FORWARD)
        value = forward_part(row, type, i, count);
    else if (operation == ROW_BACKWARD)
        value = backward_part(row, type, i, count);
    else
        value = drop_part(row, type, i, count);
    typed_store_row(type, row->y, i, i + count, value);
}

KERNEL_INLINE void row_run(enum data_type type, const struct linear_row *row,
                           enum row_operation operation)
{
    const struct linear_row here = *row; /* local copy: stores cannot alias it */
    int64_t i = 0;

    for (; i + VECTOR_WIDTH <= here.count; i += VECTOR_WIDTH)
        row_part(&here, type, operation, i, VECTOR_WIDTH);
    if (i < here.count)
        row_part(&here, type, operation, i, here.count - i);
}

static void forward(const struct linear_row *row)
{
    TYPED_CALL(row_run, row->type, row, ROW_FORWARD);
}

static void backward(const struct linear_row *row)
{
    TYPED_CALL(row_run, row->type, row, ROW_BACKWARD);
}

static void drop(const struct linear_row *row)
{
    TYPED_CALL(row_run, row->type, row, ROW_DROP);
}

/* Add one vector of columns, or one column, over `rows` rows. */
KERNEL_INLINE void column_add(enum data_type type, int64_t rows, int64_t stride, const void *x,
                              int64_t begin, int64_t count, float *sums)
{
    vector_float sum = {0};

    for (int64_t r = 0; r < rows; r++)
        sum += typed_load_row(type, x, r * stride + begin, r * stride + begin + count);
    typed_store_row(TYPE_FP32, sums, 0, count, typed_load_row(TYPE_FP32, sums, 0, count) + sum);
}

/* A few rows at a time: they stay in the cache from one column to the next, and blocked summation
 * rounds less than one long sum. */
KERNEL_INLINE void column_sums_of(enum data_type type, int64_t rows, int64_t columns,
                                  int64_t stride, const void *x, int64_t begin, float *sums)
{
    enum { ROWS_AT_A_TIME = 64 };

    for (int64_t r = 0; r < rows; r += ROWS_AT_A_TIME) {
        const int64_t here = rows - r < ROWS_AT_A_TIME ? rows - r : ROWS_AT_A_TIME;
        const int64_t first = r * stride + begin;
        int64_t c = 0;
        for (; c + VECTOR_WIDTH <= columns; c += VECTOR_WIDTH)
            column_add(type, here, stride, x, first + c, VECTOR_WIDTH, sums + c);
        for (; c < columns; c++)
            column_add(type, here, stride, x, first + c, 1, sums + c);
    }
}

static void column_sums(enum data_type type, int64_t rows, int64_t columns, int64_t stride,
                        const void *x, int64_t begin, float *sums)
{
    TYPED_CALL(column_sums_of, type, rows, columns, stride, x, begin, sums);
}

const struct linear_kernels KERNEL(linear_kernels) = {forward, backward, drop, column_sums};
