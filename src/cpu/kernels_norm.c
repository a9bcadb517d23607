// SPDX-License-Identifier: BSD-3-Clause
/* Layer normalisation of one row at a time. The row stays in the L1 cache between passes, so the
 * variance is computed around the mean (two passes) instead of from a sum of squares. A pass is one
 * inline function for one vector of the row that ends at `end`; loops call it with whole vectors,
 * so that only the last call tests for the end of the row. */
#include <string.h>

#include "cpu/kernels.h"
#include "cpu/vector.h"

/* First element of a row; see norm_forward.group. */
KERNEL_INLINE int64_t row_at(int64_t row, int64_t width, int64_t group, int64_t stride)
{
    return group == 0 ? row * width : row / group * stride + row % group * width;
}

KERNEL_INLINE float row_mean(enum data_type type, const void *x, int64_t width)
{
    vector_float sum0 = {0}, sum1 = {0};
    int64_t i = 0;

    for (; i + 2 * VECTOR_WIDTH <= width; i += 2 * VECTOR_WIDTH) {
        sum0 += typed_load(type, x, i);
        sum1 += typed_load(type, x, i + VECTOR_WIDTH);
    }
    for (; i < width; i += VECTOR_WIDTH)
        sum0 += typed_load_row(type, x, i, width);
    return vector_sum(sum0 + sum1) / (float)width;
}

KERNEL_INLINE float row_variance(enum data_type type, const void *x, int64_t width, float mean)
{
    vector_float sum0 = {0}, sum1 = {0};
    float rest = 0;
    int64_t i = 0;

    for (; i + 2 * VECTOR_WIDTH <= width; i += 2 * VECTOR_WIDTH) {
        vector_float difference0 = typed_load(type, x, i) - mean;
        vector_float difference1 = typed_load(type, x, i + VECTOR_WIDTH) - mean;
        sum0 += difference0 * difference0;
        sum1 += difference1 * difference1;
    }
    for (; i < width; i += VECTOR_WIDTH) {
        vector_float difference = typed_load_row(type, x, i, width) - mean;
        for (int lane = 0; lane < VECTOR_WIDTH && lane < width - i; lane++)
            rest += difference[lane] * difference[lane];
    }
    return (vector_sum(sum0 + sum1) + rest) / (float)width;
}

KERNEL_INLINE void normalise(enum data_type type, const struct norm_forward *args, const void *x,
                             void *y, float mean, float rstd, int64_t i, int64_t end)
{
    vector_float normal = (typed_load_row(type, x, i, end) - mean) * rstd;
    normal = normal * typed_load_row(type, args->gamma, i, end) +
             typed_load_row(type, args->beta, i, end);
    typed_store_row(type, y, i, end, normal);
}

KERNEL_INLINE void forward_typed(enum data_type type, const struct norm_forward *args,
                                 int64_t begin, int64_t end)
{
    int64_t width = args->width;

    for (int64_t row = begin; row < end; row++) {
        const size_t offset = (size_t)row_at(row, width, args->group, args->stride);
        const char *x = (const char *)args->x + offset * type_size(type);
        char *y = (char *)args->y + offset * type_size(type);
        float mean = row_mean(type, x, width);
        float rstd = 1 / __builtin_sqrtf(row_variance(type, x, width, mean) + args->epsilon);
        int64_t i = 0;
        if (args->kept != NULL)
            memcpy((char *)args->kept + (size_t)(row * width) * type_size(type), x,
                   (size_t)width * type_size(type));
        for (; i + VECTOR_WIDTH <= width; i += VECTOR_WIDTH)
            normalise(type, args, x, y, mean, rstd, i, i + VECTOR_WIDTH);
        if (i < width)
            normalise(type, args, x, y, mean, rstd, i, width);
        if (args->mean != NULL) {
            args->mean[row] = mean;
            args->rstd[row] = rstd;
        }
    }
}

static void forward(const struct norm_forward *args, int64_t begin, int64_t end)
{
    TYPED_CALL(forward_typed, args->type, args, begin, end);
}

/* One row of the backward pass. */
struct norm_row {
    const char *x, *dy, *gamma, *add;
    char *dx;
    float *dgamma, *dbeta;
    float mean, rstd;
    vector_float sum,
        product; /* sums of g = dy * gamma and of g * xhat, xhat being the normalised x */
    float mean_sum, mean_product;
};

/* Also adds dy * xhat and dy to dgamma and dbeta. */
KERNEL_INLINE void row_sums(enum data_type type, struct norm_row *row, bool parameters, int64_t i,
                            int64_t end)
{
    vector_float normal = (typed_load_row(type, row->x, i, end) - row->mean) * row->rstd;
    vector_float dy = typed_load_row(type, row->dy, i, end);
    vector_float g = dy * typed_load_row(type, row->gamma, i, end);

    row->sum += g;
    row->product += g * normal;
    if (parameters) {
        vector_float dgamma = typed_load_row(TYPE_FP32, row->dgamma, i, end) + dy * normal;
        vector_float dbeta = typed_load_row(TYPE_FP32, row->dbeta, i, end) + dy;
        typed_store_row(TYPE_FP32, row->dgamma, i, end, dgamma);
        typed_store_row(TYPE_FP32, row->dbeta, i, end, dbeta);
    }
}

/* dx = add + rstd (g - mean(g) - xhat mean(g xhat)) */
KERNEL_INLINE void row_gradient(enum data_type type, const struct norm_row *row, int64_t i,
                                int64_t end)
{
    vector_float normal = (typed_load_row(type, row->x, i, end) - row->mean) * row->rstd;
    vector_float g =
        typed_load_row(type, row->dy, i, end) * typed_load_row(type, row->gamma, i, end);
    vector_float dx = (g - row->mean_sum - normal * row->mean_product) * row->rstd;

    if (row->add != NULL)
        dx += typed_load_row(type, row->add, i, end);
    typed_store_row(type, row->dx, i, end, dx);
}

KERNEL_INLINE void row_backward(enum data_type type, struct norm_row *row, bool parameters,
                                int64_t width)
{
    int64_t i = 0;

    for (; i + VECTOR_WIDTH <= width; i += VECTOR_WIDTH)
        row_sums(type, row, parameters, i, i + VECTOR_WIDTH);
    if (i < width)
        row_sums(type, row, parameters, i, width);
    row->mean_sum = vector_sum(row->sum) / (float)width;
    row->mean_product = vector_sum(row->product) / (float)width;
    for (i = 0; i + VECTOR_WIDTH <= width; i += VECTOR_WIDTH)
        row_gradient(type, row, i, i + VECTOR_WIDTH);
    if (i < width)
        row_gradient(type, row, i, width);
}

KERNEL_INLINE void backward_typed(enum data_type type, const struct norm_backward *args,
                                  int64_t begin, int64_t end, float *dgamma, float *dbeta)
{
    for (int64_t number = begin; number < end; number++) {
        size_t offset =
            (size_t)row_at(number, args->width, args->group, args->stride) * type_size(type);
        struct norm_row row = {.x = (const char *)args->x +
                                    (size_t)(number * args->width) * type_size(type),
                               .dy = (const char *)args->dy + offset,
                               .gamma = args->gamma,
                               .add = args->add != NULL ? (const char *)args->add + offset : NULL,
                               .dx = (char *)args->dx + offset,
                               .dgamma = dgamma,
                               .dbeta = dbeta,
                               .mean = args->mean[number],
                               .rstd = args->rstd[number]};
        if (dgamma != NULL)
            row_backward(type, &row, true, args->width);
        else
            row_backward(type, &row, false, args->width);
    }
}

static void backward(const struct norm_backward *args, int64_t begin, int64_t end, float *dgamma,
                     float *dbeta)
{
    TYPED_CALL(backward_typed, args->type, args, begin, end, dgamma, dbeta);
}

const struct norm_kernels KERNEL(norm_kernels) = {.forward = forward, .backward = backward};
