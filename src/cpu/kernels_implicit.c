// SPDX-License-Identifier: BSD-3-Clause
/* Implicit matrix products of convolutions: the left operand is read from an image, without a copy
 * per kernel tap. A tile of TILE_ROWS rows and TILE_VECTORS vectors of sums stays in registers. */
#include "cpu/kernels.h"
#include "cpu/vector.h"

#if defined(__AVX512F__)
enum { TILE_ROWS = 6, TILE_VECTORS = 4 };
#else
enum { TILE_ROWS = 6, TILE_VECTORS = 2 };
#endif
enum { PANEL = TILE_VECTORS * VECTOR_WIDTH };
_Static_assert((int)PANEL <= (int)IMPLICIT_PANEL_MOST, "a panel exceeds IMPLICIT_PANEL_MOST");

/* Load vector v of a row of `count` floats; lanes beyond them are 0. */
KERNEL_INLINE vector_float panel_load(const float *row, int v, int64_t count)
{
    const int64_t first = v * VECTOR_WIDTH;

    if (first >= count)
        return vector_all(0);
    return typed_load_row(TYPE_FP32, row, first, count);
}

KERNEL_INLINE void panel_store(float *row, int v, int64_t count, vector_float value)
{
    const int64_t first = v * VECTOR_WIDTH;

    if (first < count)
        typed_store_row(TYPE_FP32, row, first, count, value);
}

/* Compute `rows` pixels, from pixel `first` on, of the panel that begins at channel `column`. */
KERNEL_INLINE void product_tile(const struct implicit_product *it, int rows, int64_t first,
                                const float *weight, int64_t column)
{
    const int64_t count = it->out - column < PANEL ? it->out - column : PANEL;
    vector_float sums[TILE_ROWS][TILE_VECTORS];
    const float *x[TILE_ROWS];
    float *y[TILE_ROWS];

    for (int i = 0; i < rows; i++) {
        x[i] = it->x + it->x_offset[first + i];
        y[i] = it->y + it->y_offset[first + i] + column;
        for (int v = 0; v < TILE_VECTORS; v++)
            sums[i][v] = it->accumulate     ? panel_load(y[i], v, count)
                         : it->bias != NULL ? panel_load(it->bias + column, v, count)
                                            : vector_all(0);
    }
    for (int64_t row = 0; row < it->rows; row++) {
        for (int64_t k = 0; k < it->span; k++, weight += PANEL)
            for (int i = 0; i < rows; i++)
                for (int v = 0; v < TILE_VECTORS; v++)
                    sums[i][v] += vector_all(x[i][k]) * vector_load(weight + v * VECTOR_WIDTH);
        for (int i = 0; i < rows; i++)
            x[i] += it->row_pitch;
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < TILE_VECTORS; v++)
            panel_store(y[i], v, count,
                        it->relu ? vector_max(vector_all(0), sums[i][v]) : sums[i][v]);
}

static void product(const struct implicit_product *it)
{
    for (int64_t column = 0; column < it->out; column += PANEL) {
        const float *weight = it->weight + column * it->rows * it->span;
        int64_t i = 0;
        for (; i + TILE_ROWS <= it->pixels; i += TILE_ROWS)
            product_tile(it, TILE_ROWS, i, weight, column);
        for (; i + 2 <= it->pixels; i += 2)
            product_tile(it, 2, i, weight, column);
        for (; i < it->pixels; i++)
            product_tile(it, 1, i, weight, column);
    }
}

/* Add the gradients of `rows` successive rows of a panel of the weight. */
KERNEL_INLINE void weight_tile(const struct implicit_weight *it, int rows, const float *x,
                               const float *dy, float *sums)
{
    vector_float sum[TILE_ROWS][TILE_VECTORS];

    for (int i = 0; i < rows; i++)
        for (int v = 0; v < TILE_VECTORS; v++)
            sum[i][v] = vector_load(sums + i * PANEL + v * VECTOR_WIDTH);
    for (int64_t pixel = 0; pixel < it->pixels; pixel++, dy += PANEL) {
        const float *from = x + it->x_offset[pixel];
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < TILE_VECTORS; v++)
                sum[i][v] += vector_all(from[i]) * vector_load(dy + v * VECTOR_WIDTH);
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < TILE_VECTORS; v++)
            vector_store(sums + i * PANEL + v * VECTOR_WIDTH, sum[i][v]);
}

static void weight(const struct implicit_weight *it)
{
    float *sums = it->sums;

    for (int64_t panel = 0; panel < it->panels; panel++)
        for (int64_t row = 0; row < it->rows; row++) {
            const float *x = it->x + row * it->row_pitch;
            const float *dy = it->dy + panel * it->pixels * PANEL;
            int64_t k = 0;
            for (; k + TILE_ROWS <= it->span; k += TILE_ROWS)
                weight_tile(it, TILE_ROWS, x + k, dy, sums + k * PANEL);
            for (; k + 2 <= it->span; k += 2)
                weight_tile(it, 2, x + k, dy, sums + k * PANEL);
            for (; k < it->span; k++)
                weight_tile(it, 1, x + k, dy, sums + k * PANEL);
            sums += it->span * PANEL;
        }
}

const struct implicit_kernels KERNEL(implicit_kernels) = {
    .panel = PANEL, .preferred = VECTOR_WIDTH < 16, .product = product, .weight = weight};
