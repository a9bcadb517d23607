// SPDX-License-Identifier: BSD-3-Clause
/* Tiles: eight registers of 16 rows of 64 bytes, in Intel's AMX or, if TILES_EMULATED is defined,
 * emulated by C functions. Only the kernels of this folder, emulation.c and its test include this.
 * Vectors (vector.h) then have 16 numbers, one row of a tile, on all processors.
 *
 * tile_multiply(sum, a, b) adds to a tile of 16 x 16 fp32 numbers the product of 16 x 32 bf16
 * numbers, a, with 32 x 16 bf16 numbers. b is stored as 16 rows of pairs: word n of row k holds
 * elements (2k, n) and (2k + 1, n). On Sapphire Rapids a product takes 16 cycles, a load 8 cycles,
 * a store 16 cycles. Tile numbers are literals, as the intrinsics of some compilers require.
 */
#ifndef VITTRAIN_CPU_TILES_TILE_H
#define VITTRAIN_CPU_TILES_TILE_H

#include "cpu/vector.h"

enum { TILE = 16, TILE_FLOATS = TILE * TILE, TILE_INNER = 2 * TILE, TILE_ROW = 64 /* bytes */ };

/* Operand of LDTILECFG: the size of each tile. Palette 0 is the state without tiles. */
struct tile_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#ifdef TILES_EMULATED

void tile_emulation_load_configuration(const struct tile_configuration *configuration);
void tile_emulation_store_configuration(struct tile_configuration *configuration);
void tile_emulation_zero(int tile);
void tile_emulation_load(int tile, const void *from, size_t stride);
void tile_emulation_store(int tile, void *to, size_t stride);
void tile_emulation_multiply(int sum, int a, int b);

#define tile_load_configuration tile_emulation_load_configuration
#define tile_store_configuration tile_emulation_store_configuration
#define tile_zero tile_emulation_zero
#define tile_load tile_emulation_load
#define tile_store tile_emulation_store
#define tile_multiply tile_emulation_multiply

#else

#define tile_load_configuration _tile_loadconfig
#define tile_store_configuration _tile_storeconfig
#define tile_zero(tile) _tile_zero(tile)
/* Some compilers do not know that the instruction reads memory. */
#define tile_load(tile, from, stride)                                                              \
    do {                                                                                           \
        __asm__ volatile("" ::: "memory");                                                         \
        _tile_loadd(tile, from, stride);                                                           \
    } while (0)
#define tile_store(tile, to, stride) _tile_stored(tile, to, stride)
#define tile_multiply(sum, a, b) _tile_dpbf16ps(sum, a, b)

#endif

static const struct tile_configuration tiles_full = {
    .palette = 1,
    .row_bytes = {TILE_ROW, TILE_ROW, TILE_ROW, TILE_ROW, TILE_ROW, TILE_ROW, TILE_ROW, TILE_ROW},
    .rows = {TILE, TILE, TILE, TILE, TILE, TILE, TILE, TILE}};

/* Set all tiles to full size. Return the previous configuration: that of oneDNN or of a caller. */
KERNEL_INLINE struct tile_configuration tiles_begin(void)
{
    struct tile_configuration before = {0};

    tile_store_configuration(&before);
    if (memcmp(&before, &tiles_full, sizeof before) != 0)
        tile_load_configuration(&tiles_full);
    return before;
}

/* Restore a configuration. With palette 0 the tiles are released. */
KERNEL_INLINE void tiles_end(const struct tile_configuration *before)
{
    if (memcmp(before, &tiles_full, sizeof *before) != 0)
        tile_load_configuration(before);
}

KERNEL_INLINE vector_word word_load(const void *from)
{
    vector_word words;
    memcpy(&words, from, sizeof words);
    return words;
}

KERNEL_INLINE void word_store(void *to, vector_word words)
{
    memcpy(to, &words, sizeof words);
}

/* Load the first min(count, 32) numbers of a row; the other numbers are 0. */
KERNEL_INLINE vector_word row_load(const uint16_t *from, int64_t count)
{
    if (count >= TILE_INNER)
        return word_load(from);
#ifdef __AVX512BW__
    return (vector_word)_mm512_maskz_loadu_epi16((1u << count) - 1, from);
#else
    vector_word words = {0};

    memcpy(&words, from, (size_t)count * sizeof *from);
    return words;
#endif
}

/* A row of a: 32 numbers, rounded to bf16. */
KERNEL_INLINE void tile_row_store(uint16_t *to, vector_float first, vector_float second)
{
#ifdef __AVX512BF16__
    word_store(to, (vector_word)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
#else
    vector_to_bf16(to, first);
    vector_to_bf16(to + TILE, second);
#endif
}

/* A row of b: the numbers of two rows of a matrix, rounded to bf16. */
KERNEL_INLINE vector_word bf16_pair(vector_float first, vector_float second)
{
#ifdef __AVX512BF16__
    vector_word lane, order;
    for (uint32_t i = 0; i < TILE; i++)
        lane[i] = i;
    order = lane | (lane + TILE) << 16;
    return (vector_word)_mm512_permutexvar_epi16(
        (__m512i)order, (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
#else
    uint16_t halves[2][TILE];

    vector_to_bf16(halves[0], first);
    vector_to_bf16(halves[1], second);
    return vector_load_halves(halves[0]) | vector_load_halves(halves[1]) << 16;
#endif
}

/* Words as 16-bit and as 64-bit lanes. Compilers emit unpack instructions for shuffles of these
 * types. */
typedef uint16_t vector_numbers __attribute__((vector_size(TILE_ROW)));
typedef uint64_t vector_pair __attribute__((vector_size(TILE_ROW)));

#define WORD_SHUFFLE(a, b, ...) VECTOR_SHUFFLE(vector_word, a, b, __VA_ARGS__)
#define PAIR_SHUFFLE(a, b, ...) ((vector_word)VECTOR_SHUFFLE(vector_pair, a, b, __VA_ARGS__))
#define HALF_SHUFFLE(a, b, ...) ((vector_word)VECTOR_SHUFFLE(vector_numbers, a, b, __VA_ARGS__))
/* Within each group of eight halves of words: interleave the first or the last four. */
#define HALF_LOW(a, b)                                                                             \
    HALF_SHUFFLE(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43, 16, 48, 17, 49,   \
                 18, 50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59)
#define HALF_HIGH(a, b)                                                                            \
    HALF_SHUFFLE(a, b, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47, 20, 52, 21, 53, \
                 22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63)
/* Within each group of four words: interleave words 0 and 1, or 2 and 3, or the first or the second
 * pairs. */
#define WORD_LOW(a, b) WORD_SHUFFLE(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define WORD_HIGH(a, b)                                                                            \
    WORD_SHUFFLE(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define PAIR_LOW(a, b) PAIR_SHUFFLE(a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define PAIR_HIGH(a, b) PAIR_SHUFFLE(a, b, 1, 9, 3, 11, 5, 13, 7, 15)
/* The even or the odd groups of four words of both vectors. */
#define FOUR_EVEN(a, b) WORD_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define FOUR_ODD(a, b)                                                                             \
    WORD_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)

#ifdef __clang__
#define TILE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TILE_UNROLL _Pragma("GCC unroll 16")
#endif

/* Transpose 16 x 16 words: first within groups of four, then the groups. */
KERNEL_INLINE void words_transpose(vector_word rows[TILE])
{
    vector_word a[TILE], b[TILE];

    TILE_UNROLL
    for (int i = 0; i < TILE; i += 2) {
        a[i] = WORD_LOW(rows[i], rows[i + 1]);
        a[i + 1] = WORD_HIGH(rows[i], rows[i + 1]);
    }
    TILE_UNROLL
    for (int i = 0; i < TILE; i += 4) {
        b[i] = PAIR_LOW(a[i], a[i + 2]);
        b[i + 1] = PAIR_HIGH(a[i], a[i + 2]);
        b[i + 2] = PAIR_LOW(a[i + 1], a[i + 3]);
        b[i + 3] = PAIR_HIGH(a[i + 1], a[i + 3]);
    }
    TILE_UNROLL
    for (int i = 0; i < 4; i++) {
        const vector_word even_0 = FOUR_EVEN(b[i], b[i + 4]);
        const vector_word odd_0 = FOUR_ODD(b[i], b[i + 4]);
        const vector_word even_1 = FOUR_EVEN(b[i + 8], b[i + 12]);
        const vector_word odd_1 = FOUR_ODD(b[i + 8], b[i + 12]);
        rows[i] = FOUR_EVEN(even_0, even_1);
        rows[i + 4] = FOUR_EVEN(odd_0, odd_1);
        rows[i + 8] = FOUR_ODD(even_0, even_1);
        rows[i + 12] = FOUR_ODD(odd_0, odd_1);
    }
}

/* A square is a copy of 32 rows of 32 numbers. Its columns become the rows of two tiles of a, or
 * the columns of two tiles of b. */
enum { SQUARE_NUMBERS = TILE_INNER * TILE_INNER };

KERNEL_INLINE void square_row_store(uint16_t *square, int64_t row, vector_word numbers)
{
    word_store(square + row * TILE_INNER, numbers);
}

/* Load numbers i to i + 7 of rows j, j + 8, j + 16 and j + 24, each into a lane of 128 bits. */
KERNEL_INLINE vector_word square_load_lanes(const uint16_t *square, int i, int j)
{
    const uint16_t *from = square + j * TILE_INNER + i;
    const int64_t step = 8 * TILE_INNER;
#ifdef __AVX512F__
    __m512i lanes = _mm512_castsi128_si512(_mm_loadu_si128((const void *)from));
    lanes = _mm512_inserti32x4(lanes, _mm_loadu_si128((const void *)(from + step)), 1);
    lanes = _mm512_inserti32x4(lanes, _mm_loadu_si128((const void *)(from + 2 * step)), 2);
    return (vector_word)_mm512_inserti32x4(lanes, _mm_loadu_si128((const void *)(from + 3 * step)),
                                           3);
#else
    uint16_t lanes[TILE_INNER];
    for (int group = 0; group < 4; group++)
        memcpy(lanes + 8 * group, from + group * step, 8 * sizeof *lanes);
    return word_load(lanes);
#endif
}

/* Store columns 0 to 15 of a square as the rows of tile `first`, columns 16 to 31 as those of
 * `second`. Each step transposes eight columns, a block of 8 x 8 numbers in each lane. */
KERNEL_INLINE void square_transpose(const uint16_t *square, uint16_t *first, uint16_t *second)
{
    TILE_UNROLL
    for (int i = 0; i < TILE_INNER; i += 8) {
        uint16_t *to = (i < TILE ? first : second) + i % TILE * TILE_INNER;
        vector_word low[4], high[4]; /* words: two rows of a column */
        vector_word fours[8];        /* pairs of words: four rows of a column */
        TILE_UNROLL
        for (int j = 0; j < 4; j++) {
            const vector_word even = square_load_lanes(square, i, 2 * j);
            const vector_word odd = square_load_lanes(square, i, 2 * j + 1);
            low[j] = HALF_LOW(even, odd);
            high[j] = HALF_HIGH(even, odd);
        }
        TILE_UNROLL
        for (int j = 0; j < 2; j++) {
            fours[4 * j] = WORD_LOW(low[2 * j], low[2 * j + 1]);
            fours[4 * j + 1] = WORD_HIGH(low[2 * j], low[2 * j + 1]);
            fours[4 * j + 2] = WORD_LOW(high[2 * j], high[2 * j + 1]);
            fours[4 * j + 3] = WORD_HIGH(high[2 * j], high[2 * j + 1]);
        }
        TILE_UNROLL
        for (int j = 0; j < 4; j++) {
            word_store(to + 2 * j * TILE_INNER, PAIR_LOW(fours[j], fours[4 + j]));
            word_store(to + (2 * j + 1) * TILE_INNER, PAIR_HIGH(fours[j], fours[4 + j]));
        }
    }
}

/* Reorder groups of four numbers to 0, 4, 1, 5, 2, 6, 3, 7. pairs_store then stores numbers 0 to 15
 * in its first tile and 16 to 31 in its second. */
KERNEL_INLINE vector_word row_spread(vector_word row)
{
    return PAIR_SHUFFLE(row, row, 0, 4, 1, 5, 2, 6, 3, 7);
}

/* Store one row of each of two tiles of b: pairs of the numbers of two rows from row_spread. */
KERNEL_INLINE void pairs_store(vector_word even, vector_word odd, uint16_t *first, uint16_t *second)
{
    word_store(first, HALF_LOW(even, odd));
    word_store(second, HALF_HIGH(even, odd));
}

/* Interleave rows 2i and 2i + 1 of a square to row i of two tiles of b. */
KERNEL_INLINE void square_interleave(const uint16_t *square, uint16_t *first, uint16_t *second)
{
    for (int64_t i = 0; i < TILE; i++)
        pairs_store(row_spread(word_load(square + 2 * i * TILE_INNER)),
                    row_spread(word_load(square + (2 * i + 1) * TILE_INNER)),
                    first + i * TILE_INNER, second + i * TILE_INNER);
}

#endif
