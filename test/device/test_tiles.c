// SPDX-License-Identifier: BSD-3-Clause
/* The emulation of AMX's tile instructions: products of tiles that are not full have the bits of
 * the order of operations in Intel's manual; denormal numbers; operands that do not match. */

#define TILES_EMULATED
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors of 64 bytes */
#include "cpu/tiles/tile.h"
#include "device_test.h"

enum { ROWS = 5, PAIRS = 3, COLUMNS = 7 };

static const struct tile_configuration small = {
    .palette = 1, .row_bytes = {COLUMNS * 4, PAIRS * 4, COLUMNS * 4}, .rows = {ROWS, ROWS, PAIRS}};

/* a [rows, 2 * pairs], b [pairs, columns, 2] and c [rows, columns] with gaps between rows. */
struct numbers {
    uint16_t a[ROWS][2 * PAIRS + 1], b[PAIRS][2 * COLUMNS + 2];
    float c[ROWS][COLUMNS + 1];
};

static float number(const uint16_t *bf16)
{
    return (float)device_test_value(TYPE_BF16, bf16, 0);
}

static float expected(const struct numbers *it, int row, int column)
{
    float even = 0, odd = 0;
    for (int k = 0; k < PAIRS; k++) {
        even = fmaf(number(&it->a[row][2 * k]), number(&it->b[k][2 * column]), even);
        odd = fmaf(number(&it->a[row][2 * k + 1]), number(&it->b[k][2 * column + 1]), odd);
    }
    return it->c[row][column] + (even + odd);
}

static void multiply(struct numbers *it)
{
    tile_load_configuration(&small);
    tile_load(0, it->c, sizeof it->c[0]);
    tile_load(1, it->a, sizeof it->a[0]);
    tile_load(2, it->b, sizeof it->b[0]);
    tile_multiply(0, 1, 2);
    tile_store(0, it->c, sizeof it->c[0]);
}

TEST(products_have_the_manuals_bits)
{
    DEVICE_TEST(test, 1);
    struct numbers it, before;
    memcpy(it.a, device_test_random(&test, TYPE_BF16, sizeof it.a / 2, 1, 1), sizeof it.a);
    memcpy(it.b, device_test_random(&test, TYPE_BF16, sizeof it.b / 2, 1, 2), sizeof it.b);
    memcpy(it.c, device_test_random(&test, TYPE_FP32, sizeof it.c / 4, 1, 3), sizeof it.c);
    before = it;
    multiply(&it);
    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < COLUMNS; column++)
            assert_true(it.c[row][column] == expected(&before, row, column));
        assert_true(it.c[row][COLUMNS] == before.c[row][COLUMNS]);
    }
}

TEST(denormal_numbers_are_zero)
{
    struct numbers it = {.c = {{0x1p-130f}}};
    it.a[0][0] = 0x0040; /* 2^-127 */
    it.b[0][0] = 0x7000; /* 2^97 */
    multiply(&it);
    assert_true(it.c[0][0] == 0);
}

/* A configuration is restored; one that is in use is not loaded again, which would clear tiles. */
TEST(configurations_nest)
{
    struct tile_configuration now;
    tile_load_configuration(&small);
    const struct tile_configuration outer = tiles_begin(), inner = tiles_begin();
    assert_memory_equal(&inner, &tiles_full, sizeof inner);
    tiles_end(&inner);
    tile_store_configuration(&now);
    assert_memory_equal(&now, &tiles_full, sizeof now);
    tiles_end(&outer);
    tile_store_configuration(&now);
    assert_memory_equal(&now, &small, sizeof now);
}

TEST_ENDS(operands_that_do_not_match_end, "do not match")
{
    tile_load_configuration(&small);
    tile_multiply(0, 2, 1);
}

TEST_ENDS(an_unconfigured_tile_ends, "is not configured")
{
    tile_load_configuration(&(const struct tile_configuration){0});
    tile_multiply(0, 1, 2);
}

TEST_ENDS(a_large_tile_ends, "17 rows")
{
    struct tile_configuration large = small;
    large.rows[2] = TILE + 1;
    tile_load_configuration(&large);
}

TEST_MAIN()
