// SPDX-License-Identifier: BSD-3-Clause
/* Dropout masks: Philox 4x32-10 (Salmon et al., SC'11) over several blocks at a time, with the same
 * numbers as base/random.h. */
#include "cpu/kernels.h"
#include "cpu/vector.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

/* The product of two 32-bit words fills a 64-bit lane. Several independent vectors hide the latency
 * of the multiplication. */
enum { LANES = VECTOR_WIDTH / 2, VECTORS = 2, BLOCKS = LANES * VECTORS };
typedef uint64_t vector_wide __attribute__((vector_size(LANES * 8)));

static const uint64_t philox_multiplier[2] = {0xD2511F53, 0xCD9E8D57};
static const uint32_t philox_weyl[2] = {0x9E3779B9, 0xBB67AE85};

/* Multiply the low halves of the lanes. GCC does not recognise that one instruction does this. */
KERNEL_INLINE vector_wide multiply_low_halves(vector_wide lanes, uint64_t factor)
{
#if defined(__AVX512F__)
    return (vector_wide)_mm512_mul_epu32((__m512i)lanes, _mm512_set1_epi64((int64_t)factor));
#elif defined(__AVX2__)
    return (vector_wide)_mm256_mul_epu32((__m256i)lanes, _mm256_set1_epi64x((int64_t)factor));
#elif defined(__SSE2__)
    return (vector_wide)_mm_mul_epu32((__m128i)lanes, _mm_set1_epi64x((int64_t)factor));
#elif defined(__aarch64__) && VECTOR_WIDTH == 4
    return (vector_wide)vmull_n_u32(vmovn_u64((uint64x2_t)lanes), (uint32_t)factor);
#else
    return (lanes & 0xffffffffu) * factor;
#endif
}

/* One round on all vectors. The upper halves of the lanes are undefined. */
KERNEL_INLINE void philox_round(vector_wide word[4][VECTORS], const uint32_t key[2])
{
    for (int v = 0; v < VECTORS; v++) {
        vector_wide product0 = multiply_low_halves(word[0][v], philox_multiplier[0]);
        vector_wide product1 = multiply_low_halves(word[2][v], philox_multiplier[1]);
        word[0][v] = (product1 >> 32) ^ word[1][v] ^ key[0];
        word[2][v] = (product0 >> 32) ^ word[3][v] ^ key[1];
        word[1][v] = product1;
        word[3][v] = product0;
    }
}

/* The 16-bit lanes of blocks block, block + 1, ... */
KERNEL_INLINE void philox(const struct mask_source *source, uint32_t block, uint16_t *lanes)
{
    const vector_wide low_half = (vector_wide){0} + 0xffffffffu;
    uint32_t key[2] = {source->key[0], source->key[1]};
    vector_wide word[4][VECTORS];
    uint64_t numbers[BLOCKS], halves[BLOCKS][2];

    for (uint32_t b = 0; b < BLOCKS; b++)
        numbers[b] = block + b;
    memcpy(word[0], numbers, sizeof numbers);
    for (int v = 0; v < VECTORS; v++) {
        for (int w = 1; w < 4; w++)
            word[w][v] = (vector_wide){0} + source->counter[w - 1];
    }
    for (int round = 0; round < 10; round++) {
        philox_round(word, key);
        key[0] += philox_weyl[0];
        key[1] += philox_weyl[1];
    }
    for (int v = 0; v < VECTORS; v++) {
        vector_wide first = (word[0][v] & low_half) | word[1][v] << 32;
        vector_wide second = (word[2][v] & low_half) | word[3][v] << 32;
        for (int lane = 0; lane < LANES; lane++) {
            halves[v * LANES + lane][0] = first[lane];
            halves[v * LANES + lane][1] = second[lane];
        }
    }
    memcpy(lanes, halves, sizeof halves);
}

static void mask(const struct mask_source *source, int64_t block_begin, int64_t count, float *mask)
{
    const int32_t threshold = (int32_t)source->threshold;
    const float scale = source->scale;

    for (int64_t first = 0; first < count; first += BLOCKS * 8) {
        uint16_t lanes[BLOCKS * 8];
        const int64_t here = count - first < BLOCKS * 8 ? count - first : BLOCKS * 8;
        philox(source, (uint32_t)(block_begin + first / 8), lanes);
        for (int64_t i = 0; i < here; i++)
            mask[first + i] = lanes[i] >= threshold ? scale : 0.0f;
    }
}

const struct random_kernels KERNEL(random_kernels) = {mask};
