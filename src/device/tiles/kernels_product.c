// SPDX-License-Identifier: BSD-3-Clause
/* Products of bf16 matrices in tiles: pack an operand, multiply packed operands. */
#include "device/tiles/tile.h"
#include "device/tiles/tiles.h"

/* Load the 16 words of each row of a tile. With along_k, a row has 32 numbers of one line;
 * otherwise it has a pair of numbers of each of 16 lines. */
KERNEL_INLINE void rows_load(const uint16_t *from, int64_t stride, bool along_k,
                             vector_word rows[TILE])
{
    for (int i = 0; i < TILE; i++)
        rows[i] = along_k ? word_load(from + i * stride)
                          : word_pair(word_from_bf16(from + 2 * i * stride, TILE),
                                      word_from_bf16(from + (2 * i + 1) * stride, TILE));
}

/* Load a tile with fewer than 16 lines or fewer than 32 numbers of each; the others are 0. */
KERNEL_INLINE void rows_load_part(const struct tile_strip *strip, const uint16_t *from, int64_t k,
                                  bool along_k, vector_word rows[TILE])
{
    uint16_t whole[TILE * TILE_INNER] = {0};
    const int64_t count = along_k ? strip->lines : k, length = along_k ? k : strip->lines;
    const int64_t stride = along_k ? TILE_INNER : TILE;

    for (int64_t i = 0; i < count; i++)
        memcpy(whole + i * stride, from + i * strip->stride, (size_t)length * sizeof *from);
    rows_load(whole, stride, along_k, rows);
}

/* Sum both numbers of each word over the rows. */
KERNEL_INLINE vector_float rows_sum(const vector_word rows[TILE])
{
    vector_float low = {0}, high = {0};

    for (int i = 0; i < TILE; i++) {
        low += (vector_float)(rows[i] << 16);
        high += (vector_float)(rows[i] & 0xffff0000);
    }
    return low + high;
}

/* The hardware does not prefetch rows that are far apart. */
KERNEL_INLINE void fetch(const uint16_t *from, int64_t stride)
{
    for (int i = 0; i < TILE_INNER; i++)
        __builtin_prefetch(from + i * stride);
}

KERNEL_INLINE void pack_strip(const struct tile_strip *strip, bool along_k, bool transposed,
                              uint16_t *tiles)
{
    const int64_t step = along_k ? 1 : strip->stride;
    vector_float sum = {0};

    for (int64_t k = 0; k < strip->k; k += TILE_INNER, tiles += TILE_NUMBERS) {
        const uint16_t *from = strip->from + k * step;
        const int64_t left = strip->k - k;
        vector_word rows[TILE];
        if (!along_k && left >= 2 * TILE_INNER)
            fetch(from + TILE_INNER * step, step);
        if (strip->lines == TILE && left >= TILE_INNER)
            rows_load(from, strip->stride, along_k, rows);
        else
            rows_load_part(strip, from, left < TILE_INNER ? left : TILE_INNER, along_k, rows);
        if (!along_k && transposed)
            sum += rows_sum(rows);
        if (transposed)
            words_transpose(rows);
        for (int i = 0; i < TILE; i++)
            word_store(tiles + i * TILE_INNER, rows[i]);
    }
    for (int64_t line = 0; strip->sums != NULL && line < strip->lines; line++)
        strip->sums[line] += sum[line];
}

static void pack(const struct tile_strip *strip, uint16_t *tiles)
{
    if (strip->along_k && strip->of_b)
        pack_strip(strip, true, true, tiles);
    else if (strip->along_k)
        pack_strip(strip, true, false, tiles);
    else if (strip->of_b)
        pack_strip(strip, false, false, tiles);
    else
        pack_strip(strip, false, true, tiles);
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
