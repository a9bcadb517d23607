// SPDX-License-Identifier: BSD-3-Clause
/* Products of bf16 matrices in tiles: pack an operand, multiply packed operands. */
#include "cpu/tiles/tile.h"
#include "cpu/tiles/tiles.h"

/* Load a tile from rows in memory: the first min(lines, 16) rows, min(k, 32) numbers of each. The
 * rest is 0. */
KERNEL_INLINE void rows_load(const uint16_t *from, int64_t stride, int64_t lines, int64_t k,
                             vector_word rows[TILE])
{
    if (lines >= TILE && k >= TILE_INNER)
        for (int i = 0; i < TILE; i++)
            rows[i] = word_load(from + i * stride);
    else
        for (int i = 0; i < TILE; i++)
            rows[i] = i < lines ? row_load(from + i * stride, k) : (vector_word){0};
}

/* Pack a strip whose rows in memory are lines of `count` numbers. */
KERNEL_INLINE void pack_strip(const uint16_t *from, int64_t stride, int64_t lines, int64_t count,
                              bool of_b, uint16_t *tiles)
{
    for (int64_t k = 0; k < count; k += TILE_INNER, tiles += TILE_NUMBERS) {
        vector_word rows[TILE];
        rows_load(from + k, stride, lines, count - k, rows);
        if (of_b)
            words_transpose(rows);
        for (int i = 0; i < TILE; i++)
            word_store(tiles + i * TILE_INNER, rows[i]);
    }
}

/* Pack strips whose rows in memory are lines. The address of a missing line is not computed. */
static void pack_lines(const struct tile_strips *strips, uint16_t *tiles)
{
    for (int64_t line = 0; line < 2 * TILE; line += TILE, tiles += strips->step)
        pack_strip(strips->from + (line < strips->lines ? line * strips->stride : 0),
                   strips->stride, strips->lines - line, strips->k, strips->of_b, tiles);
}

/* Add the sum of each column of a square. sums[0]: of even columns, sums[1]: of odd columns. */
KERNEL_INLINE void square_add_columns(const uint16_t *square, vector_float sums[2])
{
    vector_float even = {0}, odd = {0};

    for (int i = 0; i < TILE_INNER; i++) {
        const vector_word row = word_load(square + i * TILE_INNER);
        even += (vector_float)(row << 16);
        odd += (vector_float)(row & 0xffff0000);
    }
    sums[0] += even;
    sums[1] += odd;
}

/* Pack strips whose rows in memory hold one number of each line. The hardware does not prefetch
 * rows that are far apart, so those of the next square are prefetched. */
static void pack_columns(const struct tile_strips *strips, uint16_t *tiles)
{
    vector_float sums[2] = {{0}, {0}};

    for (int64_t line = 0; strips->sums != NULL && line < strips->lines; line++)
        sums[line % 2][line / 2] = strips->sums[line];
    for (int64_t k = 0; k < strips->k; k += TILE_INNER, tiles += TILE_NUMBERS) {
        const uint16_t *from = strips->from + k * strips->stride;
        const int64_t left = strips->k - k;
        _Alignas(TILE_ROW) uint16_t square[SQUARE_NUMBERS];
        for (int i = 0; i < TILE_INNER; i++) {
            const uint16_t *row = from + (i < left ? i * strips->stride : 0);
            __builtin_prefetch(row + (i + TILE_INNER < left ? TILE_INNER * strips->stride : 0));
            square_row_store(square, i, i < left ? row_load(row, strips->lines) : (vector_word){0});
        }
        if (strips->sums != NULL)
            square_add_columns(square, sums);
        if (strips->of_b)
            square_interleave(square, tiles, tiles + strips->step);
        else
            square_transpose(square, tiles, tiles + strips->step);
    }
    for (int64_t line = 0; strips->sums != NULL && line < strips->lines; line++)
        strips->sums[line] = sums[line % 2][line / 2];
}

static void pack(const struct tile_strips *strips, uint16_t *tiles)
{
    if (strips->along_k)
        pack_lines(strips, tiles);
    else
        pack_columns(strips, tiles);
}

KERNEL_INLINE void sums_begin(const struct tile_block *it, float *c)
{
    if (it->begin) {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
        return;
    }
    const size_t stride = (size_t)it->c_stride * sizeof *c;
    tile_load(0, c, stride);
    tile_load(1, c + TILE, stride);
    tile_load(2, c + TILE * it->c_stride, stride);
    tile_load(3, c + TILE * it->c_stride + TILE, stride);
}

KERNEL_INLINE void sums_end(const struct tile_block *it, float *c)
{
    const size_t stride = (size_t)it->c_stride * sizeof *c;

    tile_store(0, c, stride);
    tile_store(1, c + TILE, stride);
    tile_store(2, c + TILE * it->c_stride, stride);
    tile_store(3, c + TILE * it->c_stride + TILE, stride);
}

/* Four loads for four products: in the L1 cache, the loads take half of the time of the products.
 */
KERNEL_INLINE void multiply_pairs(const struct tile_block *it, const uint16_t *b, float *c)
{
    const uint16_t *a0 = it->a, *a1 = it->a + it->a_step, *b0 = b, *b1 = b + it->b_step;

    sums_begin(it, c);
    for (int64_t i = 0; i < it->tiles * TILE_NUMBERS; i += TILE_NUMBERS) {
        tile_load(4, a0 + i, TILE_ROW);
        tile_load(6, b0 + i, TILE_ROW);
        tile_multiply(0, 4, 6);
        tile_load(7, b1 + i, TILE_ROW);
        tile_multiply(1, 4, 7);
        tile_load(5, a1 + i, TILE_ROW);
        tile_multiply(2, 5, 6);
        tile_multiply(3, 5, 7);
    }
    sums_end(it, c);
}

static void multiply(const struct tile_block *block)
{
    const struct tile_block it = *block; /* a local copy, so that stores do not alias it */
    const struct tile_configuration before = tiles_begin();

    for (int64_t pair = 0; pair < it.pairs; pair++)
        multiply_pairs(&it, it.b + 2 * pair * it.b_step, it.c + 2 * pair * TILE);
    tiles_end(&before);
}

const struct tile_product_kernels KERNEL(tile_product_kernels) = {pack, multiply};
