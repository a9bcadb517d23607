// SPDX-License-Identifier: BSD-3-Clause
/* AMX's tile instructions in plain C, as specified in volume 2 of Intel's Software Developer's
 * Manual. Each thread has its own tiles. The program aborts where the processor raises an
 * exception. */
#include "base/error.h"
#include "cpu/tiles/tile.h"

enum { TILES = 8 };

static _Thread_local struct tile_configuration current;
static _Thread_local vector_word tiles[TILES][TILE];

void tile_emulation_load_configuration(const struct tile_configuration *configuration)
{
    current = *configuration;
    ENSURE(current.palette <= 1, "tile palette %d", current.palette);
    for (int tile = 0; tile < 16; tile++)
        ENSURE(current.rows[tile] <= (tile < TILES ? TILE : 0) &&
                   current.row_bytes[tile] <= (tile < TILES ? TILE_ROW : 0),
               "tile %d: %d rows of %d bytes", tile, current.rows[tile], current.row_bytes[tile]);
    memset(tiles, 0, sizeof tiles);
}

void tile_emulation_store_configuration(struct tile_configuration *configuration)
{
    *configuration = current;
}

static void tile_check(int tile)
{
    ENSURE(current.palette == 1 && current.rows[tile] > 0 && current.row_bytes[tile] > 0,
           "tile %d is not configured", tile);
}

void tile_emulation_zero(int tile)
{
    tile_check(tile);
    memset(tiles[tile], 0, sizeof tiles[tile]);
}

void tile_emulation_load(int tile, const void *from, size_t stride)
{
    tile_emulation_zero(tile);
    for (int row = 0; row < current.rows[tile]; row++)
        memcpy(&tiles[tile][row], (const char *)from + (size_t)row * stride,
               current.row_bytes[tile]);
}

void tile_emulation_store(int tile, void *to, size_t stride)
{
    tile_check(tile);
    for (int row = 0; row < current.rows[tile]; row++)
        memcpy((char *)to + (size_t)row * stride, &tiles[tile][row], current.row_bytes[tile]);
}

/* Replace denormal numbers by zero. */
static inline void denormals_flush(vector_float *values)
{
    const vector_word bits = (vector_word)*values;

    *values = (vector_float)(bits & ((vector_word)((bits & 0x7f800000) != 0) | 0x80000000));
}

/* Products of even and of odd elements have separate sums, which are added at the end. All steps
 * round to nearest and treat denormal numbers as zero. The product of two bf16 numbers is exact in
 * fp32 except below 2^-126, so a fused multiply-add gives the same result. */
static void multiply_row(const vector_word *a, const vector_word *b, int pairs, vector_word *sum)
{
    vector_float even = {0}, odd = {0}, total;

    for (int k = 0; k < pairs; k++) {
        vector_float a_even = (vector_float)((vector_word){0} + ((*a)[k] << 16));
        vector_float a_odd = (vector_float)((vector_word){0} + ((*a)[k] & 0xffff0000));
        vector_float b_even = (vector_float)(b[k] << 16), b_odd = (vector_float)(b[k] & 0xffff0000);
        denormals_flush(&a_even);
        denormals_flush(&a_odd);
        denormals_flush(&b_even);
        denormals_flush(&b_odd);
        even += a_even * b_even;
        odd += a_odd * b_odd;
        denormals_flush(&even);
        denormals_flush(&odd);
    }
    even += odd;
    denormals_flush(&even);
    memcpy(&total, sum, sizeof total);
    denormals_flush(&total);
    total += even;
    denormals_flush(&total);
    memcpy(sum, &total, sizeof total);
}

/* Columns beyond the configured width are zero in b and in the sum. */
void tile_emulation_multiply(int sum, int a, int b)
{
    tile_check(sum);
    tile_check(a);
    tile_check(b);
    ENSURE(sum != a && sum != b && a != b, "tiles %d, %d and %d are not distinct", sum, a, b);
    ENSURE(current.rows[sum] == current.rows[a] && current.row_bytes[sum] == current.row_bytes[b] &&
               current.row_bytes[a] == 4 * current.rows[b],
           "tiles %d, %d and %d do not match", sum, a, b);
    for (int row = 0; row < current.rows[sum]; row++)
        multiply_row(&tiles[a][row], tiles[b], current.rows[b], &tiles[sum][row]);
}
