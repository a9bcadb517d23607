// SPDX-License-Identifier: BSD-3-Clause
/* Batch normalisation of a range of rows. All passes are memory-bound: each reads its rows once, a
 * few rows at a time. Sums over a block of rows are accumulated in fp32 from values near 0 (x minus
 * the block's first row) and then added in double. */
#include "cpu/kernels.h"
#include "cpu/vector.h"

enum { BLOCK_ROWS = 64, ROWS_AT_A_TIME = 4 };

/* Rows are read a few at a time, one vector of each, an order that hardware does not prefetch. */
enum { PREFETCH_BYTES = 8192 };

/* Prefetch the cache line PREFETCH_BYTES after element `at`, to read or to write it. It may be
 * beyond the tensor. */
KERNEL_INLINE void prefetch_to_read(enum data_type type, const void *tensor, int64_t at)
{
    __builtin_prefetch((const char *)tensor + at * (int64_t)type_size(type) + PREFETCH_BYTES, 0);
}

KERNEL_INLINE void prefetch_to_write(enum data_type type, const void *tensor, int64_t at)
{
    __builtin_prefetch((const char *)tensor + at * (int64_t)type_size(type) + PREFETCH_BYTES, 1);
}

/* Add x - shift and its square for `rows` rows; buffer: shift, sums, squares. */
KERNEL_INLINE void sums_rows(enum data_type type, const void *x, int64_t row, int rows,
                             int64_t channels, float *buffer)
{
    float *sums = buffer + channels, *squares = sums + channels;

    for (int64_t i = 0; i < channels; i += VECTOR_WIDTH) {
        const vector_float shift = typed_load_row(TYPE_FP32, buffer, i, channels);
        vector_float sum = typed_load_row(TYPE_FP32, sums, i, channels);
        vector_float square = typed_load_row(TYPE_FP32, squares, i, channels);
        for (int r = 0; r < rows; r++) {
            const int64_t first = (row + r) * channels;
            prefetch_to_read(type, x, first + i);
            const vector_float value = typed_load_row(type, x, first + i, first + channels) - shift;
            sum += value;
            square += value * value;
        }
        typed_store_row(TYPE_FP32, sums, i, channels, sum);
        typed_store_row(TYPE_FP32, squares, i, channels, square);
    }
}

/* Convert a block's shifted sums to sums of x and x^2. */
static void sums_add(int64_t channels, int64_t rows, const float *buffer, double *sums)
{
    const float *shifted = buffer + channels, *squares = shifted + channels;

    for (int64_t i = 0; i < channels; i++) {
        const double shift = (double)buffer[i], sum = (double)shifted[i], n = (double)rows;
        sums[i] += n * shift + sum;
        sums[channels + i] += (double)squares[i] + shift * (2 * sum + n * shift);
    }
}

KERNEL_INLINE void sums_typed(enum data_type type, const struct batch_norm_sums *args,
                              int64_t begin, int64_t end, double *sums, float *buffer)
{
    const int64_t channels = args->channels;

    for (int64_t block = begin; block < end; block += BLOCK_ROWS) {
        const int64_t block_end = block + BLOCK_ROWS < end ? block + BLOCK_ROWS : end;
        int64_t row = block;
        for (int64_t i = 0; i < channels; i += VECTOR_WIDTH) {
            const int64_t first = block * channels;
            typed_store_row(TYPE_FP32, buffer, i, channels,
                            typed_load_row(type, args->x, first + i, first + channels));
        }
        memset(buffer + channels, 0, 2 * (size_t)channels * sizeof *buffer);
        for (; row + ROWS_AT_A_TIME <= block_end; row += ROWS_AT_A_TIME)
            sums_rows(type, args->x, row, ROWS_AT_A_TIME, channels, buffer);
        for (; row < block_end; row++)
            sums_rows(type, args->x, row, 1, channels, buffer);
        sums_add(channels, block_end - block, buffer, sums);
    }
}

static void sums(const struct batch_norm_sums *args, int64_t begin, int64_t end, double *sums,
                 float *buffer)
{
    TYPED_CALL(sums_typed, args->type, args, begin, end, sums, buffer);
}

/* y before residual and ReLU. Shared by forward and backward, so that both round identically. */
KERNEL_INLINE vector_float normalise(vector_float x, vector_float mean, vector_float factor,
                                     vector_float beta)
{
    return (x - mean) * factor + beta;
}

KERNEL_INLINE void forward_rows(enum data_type type, bool residual, bool relu,
                                const struct batch_norm_forward *args,
                                const struct batch_norm_channels *channels, int64_t row, int rows)
{
    const int64_t width = args->channels;

    for (int64_t i = 0; i < width; i += VECTOR_WIDTH) {
        const vector_float mean = typed_load_row(TYPE_FP32, channels->mean, i, width);
        const vector_float factor = typed_load_row(TYPE_FP32, channels->factor, i, width);
        const vector_float beta = typed_load_row(TYPE_FP32, channels->beta, i, width);
        for (int r = 0; r < rows; r++) {
            const int64_t at = (row + r) * width + i, end = (row + r + 1) * width;
            prefetch_to_read(type, args->x, at);
            prefetch_to_write(type, args->y, at);
            vector_float y = normalise(typed_load_row(type, args->x, at, end), mean, factor, beta);
            if (residual) {
                prefetch_to_read(type, args->residual, at);
                y += typed_load_row(type, args->residual, at, end);
            }
            if (relu)
                y = vector_max(vector_all(0), y); /* operand order preserves NaN */
            typed_store_row(type, args->y, at, end, y);
        }
    }
}

KERNEL_INLINE void forward_variant(enum data_type type, bool residual, bool relu,
                                   const struct batch_norm_forward *args,
                                   const struct batch_norm_channels *channels, int64_t begin,
                                   int64_t end)
{
    int64_t row = begin;

    for (; row + ROWS_AT_A_TIME <= end; row += ROWS_AT_A_TIME)
        forward_rows(type, residual, relu, args, channels, row, ROWS_AT_A_TIME);
    for (; row < end; row++)
        forward_rows(type, residual, relu, args, channels, row, 1);
}

KERNEL_INLINE void forward_typed(enum data_type type, const struct batch_norm_forward *args,
                                 const struct batch_norm_channels *channels, int64_t begin,
                                 int64_t end)
{
    if (args->residual != NULL && args->relu)
        forward_variant(type, true, true, args, channels, begin, end);
    else if (args->residual != NULL)
        forward_variant(type, true, false, args, channels, begin, end);
    else if (args->relu)
        forward_variant(type, false, true, args, channels, begin, end);
    else
        forward_variant(type, false, false, args, channels, begin, end);
}

static void forward(const struct batch_norm_forward *args,
                    const struct batch_norm_channels *channels, int64_t begin, int64_t end)
{
    TYPED_CALL(forward_typed, args->type, args, channels, begin, end);
}

/* Source of the ReLU's mask. */
enum relu_mask { MASK_NONE, MASK_READ, MASK_COMPUTED };

/* buffer: sums of dy, of dy * (x - mean). */
KERNEL_INLINE void gradient_rows(enum data_type type, enum relu_mask mask, bool add,
                                 const struct batch_norm_backward_sums *args,
                                 const struct batch_norm_channels *channels, int64_t row, int rows,
                                 float *buffer)
{
    const int64_t width = args->channels;
    float *products = buffer + width;

    for (int64_t i = 0; i < width; i += VECTOR_WIDTH) {
        const vector_float mean = typed_load_row(TYPE_FP32, args->statistics, i, width);
        const vector_float factor =
            mask == MASK_COMPUTED ? typed_load_row(TYPE_FP32, channels->factor, i, width) : mean;
        const vector_float beta =
            mask == MASK_COMPUTED ? typed_load_row(TYPE_FP32, channels->beta, i, width) : mean;
        vector_float sum = typed_load_row(TYPE_FP32, buffer, i, width);
        vector_float product = typed_load_row(TYPE_FP32, products, i, width);
        for (int r = 0; r < rows; r++) {
            const int64_t at = (row + r) * width + i, end = (row + r + 1) * width;
            prefetch_to_read(type, args->x, at);
            prefetch_to_read(type, args->dy, at);
            const vector_float x = typed_load_row(type, args->x, at, end);
            vector_float dy = typed_load_row(type, args->dy, at, end);
            if (add) {
                prefetch_to_read(type, args->add, at);
                dy += typed_load_row(type, args->add, at, end);
            }
            if (mask == MASK_READ) {
                prefetch_to_read(type, args->y, at);
                dy = vector_select(typed_load_row(type, args->y, at, end) > 0, dy, vector_all(0));
            }
            if (mask == MASK_COMPUTED)
                dy = vector_select(normalise(x, mean, factor, beta) > type_rounds_to_zero(type), dy,
                                   vector_all(0));
            if (add || mask != MASK_NONE)
                typed_store_row(type, args->dy, at, end, dy);
            sum += dy;
            product += dy * (x - mean);
        }
        typed_store_row(TYPE_FP32, buffer, i, width, sum);
        typed_store_row(TYPE_FP32, products, i, width, product);
    }
}

KERNEL_INLINE void gradient_variant(enum data_type type, enum relu_mask mask, bool add,
                                    const struct batch_norm_backward_sums *args,
                                    const struct batch_norm_channels *shared, int64_t begin,
                                    int64_t end, double *sums, float *buffer)
{
    const int64_t channels = args->channels;
    const float *rstd = args->statistics + channels;

    for (int64_t block = begin; block < end; block += BLOCK_ROWS) {
        const int64_t block_end = block + BLOCK_ROWS < end ? block + BLOCK_ROWS : end;
        int64_t row = block;
        memset(buffer, 0, 2 * (size_t)channels * sizeof *buffer);
        for (; row + ROWS_AT_A_TIME <= block_end; row += ROWS_AT_A_TIME)
            gradient_rows(type, mask, add, args, shared, row, ROWS_AT_A_TIME, buffer);
        for (; row < block_end; row++)
            gradient_rows(type, mask, add, args, shared, row, 1, buffer);
        for (int64_t i = 0; i < channels; i++) {
            sums[i] += (double)buffer[i];
            sums[channels + i] += (double)buffer[channels + i] * (double)rstd[i];
        }
    }
}

/* `mask` is a compile-time constant. */
KERNEL_INLINE void gradient_masked(enum data_type type, enum relu_mask mask,
                                   const struct batch_norm_backward_sums *args,
                                   const struct batch_norm_channels *channels, int64_t begin,
                                   int64_t end, double *sums, float *buffer)
{
    if (args->add != NULL)
        gradient_variant(type, mask, true, args, channels, begin, end, sums, buffer);
    else
        gradient_variant(type, mask, false, args, channels, begin, end, sums, buffer);
}

KERNEL_INLINE void backward_sums_typed(enum data_type type,
                                       const struct batch_norm_backward_sums *args,
                                       const struct batch_norm_channels *channels, int64_t begin,
                                       int64_t end, double *sums, float *buffer)
{
    if (args->y != NULL)
        gradient_masked(type, MASK_READ, args, channels, begin, end, sums, buffer);
    else if (channels->beta != NULL)
        gradient_masked(type, MASK_COMPUTED, args, channels, begin, end, sums, buffer);
    else
        gradient_masked(type, MASK_NONE, args, channels, begin, end, sums, buffer);
}

static void backward_sums(const struct batch_norm_backward_sums *args,
                          const struct batch_norm_channels *channels, int64_t begin, int64_t end,
                          double *sums, float *buffer)
{
    TYPED_CALL(backward_sums_typed, args->type, args, channels, begin, end, sums, buffer);
}

KERNEL_INLINE void backward_rows(enum data_type type, const struct batch_norm_backward *args,
                                 const struct batch_norm_channels *channels, int64_t row, int rows)
{
    const int64_t width = args->channels;

    for (int64_t i = 0; i < width; i += VECTOR_WIDTH) {
        const vector_float mean = typed_load_row(TYPE_FP32, channels->mean, i, width);
        const vector_float factor = typed_load_row(TYPE_FP32, channels->factor, i, width);
        const vector_float mean_dy = typed_load_row(TYPE_FP32, channels->mean_dy, i, width);
        const vector_float slope = typed_load_row(TYPE_FP32, channels->slope, i, width);
        for (int r = 0; r < rows; r++) {
            const int64_t at = (row + r) * width + i, end = (row + r + 1) * width;
            prefetch_to_read(type, args->x, at);
            prefetch_to_read(type, args->dy, at);
            prefetch_to_write(type, args->dx, at);
            const vector_float x = typed_load_row(type, args->x, at, end) - mean;
            const vector_float dy = typed_load_row(type, args->dy, at, end);
            typed_store_row(type, args->dx, at, end, (dy - mean_dy - x * slope) * factor);
        }
    }
}

/* With running statistics dx does not depend on x. */
KERNEL_INLINE void scale_row(enum data_type type, const struct batch_norm_backward *args,
                             const float *factor, int64_t row)
{
    const int64_t width = args->channels, end = (row + 1) * width;

    for (int64_t i = 0; i < width; i += VECTOR_WIDTH) {
        const int64_t at = row * width + i;
        typed_store_row(type, args->dx, at, end,
                        typed_load_row(type, args->dy, at, end) *
                            typed_load_row(TYPE_FP32, factor, i, width));
    }
}

KERNEL_INLINE void backward_typed(enum data_type type, const struct batch_norm_backward *args,
                                  const struct batch_norm_channels *channels, int64_t begin,
                                  int64_t end)
{
    int64_t row = begin;

    for (; channels->slope == NULL && row < end; row++)
        scale_row(type, args, channels->factor, row);
    for (; row + ROWS_AT_A_TIME <= end; row += ROWS_AT_A_TIME)
        backward_rows(type, args, channels, row, ROWS_AT_A_TIME);
    for (; row < end; row++)
        backward_rows(type, args, channels, row, 1);
}

static void backward(const struct batch_norm_backward *args,
                     const struct batch_norm_channels *channels, int64_t begin, int64_t end)
{
    TYPED_CALL(backward_typed, args->type, args, channels, begin, end);
}

const struct batch_norm_kernels KERNEL(batch_norm_kernels) = {
    .sums = sums, .forward = forward, .backward_sums = backward_sums, .backward = backward};
