// SPDX-License-Identifier: BSD-3-Clause
/* Elementwise kernels and reductions: conversion, sums of tensors, columns and squares, search for
 * non-finite values. */
#include "base/base.h"
#include "cpu/kernels.h"
#include "cpu/vector.h"
#include "device/exact_sum.h"

KERNEL_INLINE void convert_to_fp32(enum data_type type, float *to, const void *from, int64_t count)
{
    int64_t i = 0;
    for (; i + VECTOR_WIDTH <= count; i += VECTOR_WIDTH)
        vector_store(to + i, typed_load(type, from, i));
    if (i < count)
        typed_store_part(TYPE_FP32, to, i, typed_load_part(type, from, i, count - i), count - i);
}

KERNEL_INLINE void convert_from_fp32(enum data_type type, void *to, const float *from,
                                     int64_t count)
{
    int64_t i = 0;
    for (; i + VECTOR_WIDTH <= count; i += VECTOR_WIDTH)
        typed_store(type, to, i, vector_load(from + i));
    if (i < count)
        typed_store_part(type, to, i, typed_load_part(TYPE_FP32, from, i, count - i), count - i);
}

static void to_fp32(float *to, enum data_type type, const void *from, int64_t count)
{
    if (type == TYPE_FP32)
        memcpy(to, from, (size_t)count * sizeof(float));
    else
        TYPED_CALL(convert_to_fp32, type, to, from, count);
}

static void from_fp32(enum data_type type, void *to, const float *from, int64_t count)
{
    if (type == TYPE_FP32)
        memcpy(to, from, (size_t)count * sizeof(float));
    else
        TYPED_CALL(convert_from_fp32, type, to, from, count);
}

KERNEL_INLINE void add_typed(enum data_type type, void *y, const void *a, const void *b,
                             int64_t count)
{
    for (int64_t i = 0; i < count; i += VECTOR_WIDTH)
        typed_store_row(type, y, i, count,
                        typed_load_row(type, a, i, count) + typed_load_row(type, b, i, count));
}

static void add(enum data_type type, void *y, const void *a, const void *b, int64_t count)
{
    TYPED_CALL(add_typed, type, y, a, b, count);
}

KERNEL_INLINE void scale_typed(enum data_type type, void *y, const void *x, float factor,
                               int64_t count)
{
    for (int64_t i = 0; i < count; i += VECTOR_WIDTH)
        typed_store_row(type, y, i, count, typed_load_row(type, x, i, count) * factor);
}

static void scale(enum data_type type, void *y, const void *x, float factor, int64_t count)
{
    TYPED_CALL(scale_typed, type, y, x, factor, count);
}

KERNEL_INLINE void matrix_sum_typed(enum data_type type, const struct matrix_sum *args,
                                    float factor, int64_t row)
{
    int64_t end = (row + 1) * args->width, diagonal = row * args->width + row;
    for (int64_t i = row * args->width; i < end; i += VECTOR_WIDTH) {
        vector_float sum = typed_load_row(type, args->x, i, end) * factor;
        if (args->z != NULL)
            sum += typed_load_row(type, args->z, i, end) * args->z_factor;
        if (diagonal >= i && diagonal < i + VECTOR_WIDTH)
            sum[diagonal - i] += args->diagonal;
        typed_store_row(type, args->y, i, end, sum);
    }
}

static void matrix_sum_row(const struct matrix_sum *args, float factor, int64_t row)
{
    TYPED_CALL(matrix_sum_typed, args->type, args, factor, row);
}

KERNEL_INLINE void rotate_typed(enum data_type type, void *x, const float *cosine,
                                const float *sine, int64_t half)
{
    void *second = (char *)x + (size_t)half * type_size(type);
    for (int64_t i = 0; i < half; i += VECTOR_WIDTH) {
        vector_float a = typed_load_row(type, x, i, half),
                     b = typed_load_row(type, second, i, half);
        vector_float c = typed_load_row(TYPE_FP32, cosine, i, half);
        vector_float s = typed_load_row(TYPE_FP32, sine, i, half);
        typed_store_row(type, x, i, half, a * c - b * s);
        typed_store_row(type, second, i, half, b * c + a * s);
    }
}

static void rotate(enum data_type type, void *x, const float *cosine, const float *sine,
                   int64_t half)
{
    TYPED_CALL(rotate_typed, type, x, cosine, sine, half);
}

KERNEL_INLINE void glu_typed(enum data_type type, void *y, const void *x, int64_t width)
{
    const void *x2 = (const char *)x + (size_t)width * type_size(type);
    for (int64_t i = 0; i < width; i += VECTOR_WIDTH) {
        vector_float a = typed_load_row(type, x, i, width);
        typed_store_row(type, y, i, width,
                        a / (vector_exp(-a) + 1.0f) * typed_load_row(type, x2, i, width));
    }
}

static void glu(enum data_type type, void *y, const void *x, int64_t width)
{
    TYPED_CALL(glu_typed, type, y, x, width);
}

KERNEL_INLINE void glu_backward_typed(enum data_type type, void *dx, const void *x, const void *dy,
                                      int64_t width)
{
    const size_t half = (size_t)width * type_size(type);
    const void *x2 = (const char *)x + half;
    void *dx2 = (char *)dx + half;
    for (int64_t i = 0; i < width; i += VECTOR_WIDTH) {
        vector_float a = typed_load_row(type, x, i, width), g = typed_load_row(type, dy, i, width);
        vector_float s = 1.0f / (vector_exp(-a) + 1.0f), b = typed_load_row(type, x2, i, width);
        typed_store_row(type, dx, i, width, g * b * s * (a * (1.0f - s) + 1.0f));
        typed_store_row(type, dx2, i, width, g * a * s);
    }
}

static void glu_backward(enum data_type type, void *dx, const void *x, const void *dy,
                         int64_t width)
{
    TYPED_CALL(glu_backward_typed, type, dx, x, dy, width);
}

KERNEL_INLINE void relu_backward_typed(enum data_type type, void *dx, const void *x, int64_t count)
{
    for (int64_t i = 0; i < count; i += VECTOR_WIDTH)
        typed_store_row(type, dx, i, count,
                        vector_select(typed_load_row(type, x, i, count) > 0,
                                      typed_load_row(type, dx, i, count), vector_all(0)));
}

static void relu_backward(enum data_type type, void *dx, const void *x, int64_t count)
{
    TYPED_CALL(relu_backward_typed, type, dx, x, count);
}

KERNEL_INLINE void mix_typed(enum data_type type, void *a, void *b, float share, int64_t count)
{
    for (int64_t i = 0; i < count; i += VECTOR_WIDTH) {
        vector_float first = typed_load_row(type, a, i, count);
        vector_float second = typed_load_row(type, b, i, count);
        typed_store_row(type, a, i, count, first * share + second * (1 - share));
        typed_store_row(type, b, i, count, second * share + first * (1 - share));
    }
}

static void mix(enum data_type type, void *a, void *b, float share, int64_t count)
{
    TYPED_CALL(mix_typed, type, a, b, share, count);
}

/* Four vectors of columns stay in registers while rows are added. Each accumulator covers only
 * SUM_ROWS rows, so rounding errors grow with the number of blocks, not of rows. */
enum { SUM_ROWS = 64, SUM_VECTORS = 4 };

KERNEL_INLINE void add_columns_typed(enum data_type type, float *sum, const void *x, int64_t rows,
                                     int64_t stride, int64_t count)
{
    for (int64_t row = 0; row < rows; row += SUM_ROWS) {
        int64_t row_end = row + SUM_ROWS < rows ? row + SUM_ROWS : rows;
        int64_t j = 0;
        for (; j + SUM_VECTORS * VECTOR_WIDTH <= count; j += SUM_VECTORS * VECTOR_WIDTH) {
            vector_float sums[SUM_VECTORS] = {{0}};
            for (int64_t r = row; r < row_end; r++)
                for (int k = 0; k < SUM_VECTORS; k++)
                    sums[k] += typed_load(type, x, r * stride + j + k * VECTOR_WIDTH);
            for (int k = 0; k < SUM_VECTORS; k++) {
                float *to = sum + j + k * VECTOR_WIDTH;
                vector_store(to, vector_load(to) + sums[k]);
            }
        }
        for (; j < count; j += VECTOR_WIDTH) {
            vector_float sums = {0};
            for (int64_t r = row; r < row_end; r++)
                sums += typed_load_row(type, x, r * stride + j, r * stride + count);
            sums += typed_load_row(TYPE_FP32, sum, j, count);
            typed_store_row(TYPE_FP32, sum, j, count, sums);
        }
    }
}

static void add_columns(enum data_type type, float *sum, const void *x, int64_t rows,
                        int64_t stride, int64_t count)
{
    TYPED_CALL(add_columns_typed, type, sum, x, rows, stride, count);
}

/* Blocks that are added to an exact sum at a time. */
enum { SUM_BLOCKS = 64, SUM_ELEMENTS = SUM_BLOCKS * EXACT_BLOCK };

/* Return the sum of squares of a block. In double the squares are exact, so that fused and separate
 * multiplications give the same bits. */
KERNEL_INLINE double block_squares(const float *values)
{
    vector_four_doubles sums = {0};
    for (int i = 0; i < EXACT_BLOCK; i += 4) {
        vector_four four;
        vector_four_doubles wide;
        memcpy(&four, values + i, sizeof four);
        vector_to_doubles(four, &wide);
        sums += wide * wide;
    }
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

KERNEL_INLINE uint64_t double_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Add SUM_BLOCKS values. If all their places are in a window of 64, a loop without branches adds
 * them. */
KERNEL_INLINE void exact_add_blocks(struct exact_sum *sum, const double *values)
{
    uint64_t first = exact_place(double_bits(values[0])), low = 0, middle = 0, high = 0,
             offsets = 0;
    uint64_t base = first < 16 || first >= EXACT_PLACES ? 0 : (first - 16) / 32;
    for (int i = 0; i < SUM_BLOCKS; i++) {
        uint64_t bits = double_bits(values[i]), mantissa = exact_mantissa(bits);
        uint64_t offset = exact_place(bits) - 32 * base;
        offsets |= offset;
        low += (uint32_t)(mantissa << offset % 64);
        middle += mantissa << offset % 64 >> 32;
        high += mantissa >> 1 >> (63 - offset % 64);
    }
    if (offsets < 64)
        exact_words_add(&sum->word[base], low, middle, high);
    else
        for (int i = 0; i < SUM_BLOCKS; i++)
            exact_add(sum, values[i]);
}

static void sum_squares(const float *values, int64_t count, struct exact_sum *sum)
{
    for (int64_t i = 0; i < count; i += SUM_ELEMENTS) {
        const float *from = values + i;
        float padded[SUM_ELEMENTS];
        double blocks[SUM_BLOCKS];
        if (count - i < SUM_ELEMENTS) {
            memset(padded, 0, sizeof padded);
            memcpy(padded, from, (size_t)(count - i) * sizeof *from);
            from = padded;
        }
        for (int block = 0; block < SUM_BLOCKS; block++)
            blocks[block] = block_squares(from + EXACT_BLOCK * block);
        exact_add_blocks(sum, blocks);
    }
}

static uint64_t hash(const float *values, int64_t count, uint64_t key)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += hash_element(key + (uint64_t)i, values[i]);
    return sum;
}

/* A value is not finite if all exponent bits are set. Whole blocks are tested first without
 * branches. */
enum { FIND_BLOCK = 1024 };

static int64_t find_nonfinite_fp32(const void *values, int64_t count)
{
    const uint32_t *bits = values;
    const uint32_t exponent = 0x7f800000;

    for (int64_t begin = 0; begin < count; begin += FIND_BLOCK) {
        int64_t end = begin + FIND_BLOCK < count ? begin + FIND_BLOCK : count;
        uint32_t largest = 0;
        for (int64_t i = begin; i < end; i++)
            largest = (bits[i] & exponent) > largest ? bits[i] & exponent : largest;
        for (int64_t i = begin; largest == exponent && i < end; i++)
            if ((bits[i] & exponent) == exponent)
                return i;
    }
    return -1;
}

static int64_t find_nonfinite_half(const void *values, int64_t count, uint16_t exponent)
{
    const uint16_t *bits = values;

    for (int64_t begin = 0; begin < count; begin += FIND_BLOCK) {
        int64_t end = begin + FIND_BLOCK < count ? begin + FIND_BLOCK : count;
        int16_t largest = 0; /* signed, because every instruction set has a signed maximum */
        for (int64_t i = begin; i < end; i++) {
            int16_t masked = (int16_t)(bits[i] & exponent);
            largest = masked > largest ? masked : largest;
        }
        for (int64_t i = begin; largest == exponent && i < end; i++)
            if ((bits[i] & exponent) == exponent)
                return i;
    }
    return -1;
}

static int64_t find_nonfinite(enum data_type type, const void *values, int64_t count)
{
    if (type == TYPE_FP32)
        return find_nonfinite_fp32(values, count);
    return find_nonfinite_half(values, count, type == TYPE_BF16 ? 0x7f80 : 0x7c00);
}

const struct element_kernels KERNEL(element_kernels) = {
    .add = add,
    .scale = scale,
    .mix = mix,
    .add_columns = add_columns,
    .relu_backward = relu_backward,
    .sum_squares = sum_squares,
    .matrix_sum_row = matrix_sum_row,
    .rotate = rotate,
    .glu = glu,
    .glu_backward = glu_backward,
    .hash = hash,
    .find_nonfinite = find_nonfinite,
};

const struct convert_kernels KERNEL(convert_kernels) = {to_fp32, from_fp32};
