// SPDX-License-Identifier: BSD-3-Clause
/* Random numbers from Random123's Philox 4x32-10. */
#include "base/random.h"

#include <math.h>

/* Random123's headers rely on implicit conversions. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <Random123/philox.h>
#pragma GCC diagnostic pop

struct random_block random_block_at(uint64_t seed, enum random_purpose purpose, uint32_t layer,
                                    uint32_t epoch, uint32_t index, uint32_t block)
{
    const philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    const philox4x32_ctr_t counter = {{block, index, epoch, (uint32_t)purpose + (layer << 8)}};
    const philox4x32_ctr_t drawn = philox4x32_R(10, counter, key);
    return (struct random_block){{drawn.v[0], drawn.v[1], drawn.v[2], drawn.v[3]}};
}

void random_normal_pair(uint32_t first, uint32_t second, float normal[2])
{
    /* The radius is computed from (0, 1], as the logarithm of 0 is infinite. */
    const double radius = sqrt(-2.0 * log(((double)first + 1.0) * 0x1p-32));
    const double angle = 2.0 * M_PI * ((double)second * 0x1p-32);
    normal[0] = (float)(radius * cos(angle));
    normal[1] = (float)(radius * sin(angle));
}

void random_permutation(uint64_t seed, enum random_purpose purpose, uint32_t epoch, uint32_t count,
                        uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    struct random_block drawn;
    for (uint32_t left = count; left > 1; left--) {
        const uint32_t turn = count - left;
        if (turn % 2 == 0)
            drawn = random_block_at(seed, purpose, 0, epoch, 0, turn / 2);
        const uint64_t word =
            (uint64_t)drawn.word[turn % 2 * 2 + 1] << 32 | drawn.word[turn % 2 * 2];
        /* The upper half of word * left is uniform to within left / 2^64. */
        const uint32_t chosen = (uint32_t)((unsigned __int128)word * left >> 64);
        const uint32_t last = order[left - 1];
        order[left - 1] = order[chosen];
        order[chosen] = last;
    }
}

/* ---- PyTorch's shuffle: randperm_cpu in ATen/native/TensorFactories.cpp, with the generator
 * MT19937 (Matsumoto and Nishimura 1998) of ATen/core/MT19937RNGEngine.h. */

enum { WORDS = 624, DISTANCE = 397 };

struct mt19937 {
    uint32_t word[WORDS];
    int next; /* index of the next word; WORDS: compute new ones first */
};

static void generator_seed(struct mt19937 *generator, uint32_t seed)
{
    uint32_t *word = generator->word;
    word[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        word[i] = UINT32_C(1812433253) * (word[i - 1] ^ word[i - 1] >> 30) + i;
    generator->next = WORDS;
}

static void generator_advance(struct mt19937 *generator)
{
    uint32_t *word = generator->word;
    for (int i = 0; i < WORDS; i++) {
        const uint32_t mixed =
            (word[i] & UINT32_C(0x80000000)) | (word[(i + 1) % WORDS] & UINT32_C(0x7fffffff));
        word[i] =
            word[(i + DISTANCE) % WORDS] ^ mixed >> 1 ^ (mixed % 2 == 1 ? UINT32_C(0x9908b0df) : 0);
    }
    generator->next = 0;
}

static uint32_t generator_draw(struct mt19937 *generator)
{
    if (generator->next == WORDS)
        generator_advance(generator);
    uint32_t word = generator->word[generator->next++];
    word ^= word >> 11;
    word ^= word << 7 & UINT32_C(0x9d2c5680);
    word ^= word << 15 & UINT32_C(0xefc60000);
    return word ^ word >> 18;
}

/* Fisher-Yates from the beginning. */
static void order_shuffle(struct mt19937 *generator, uint32_t count, uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t i = 0; i + 1 < count; i++) {
        const uint32_t chosen = i + generator_draw(generator) % (count - i);
        const uint32_t swapped = order[i];
        order[i] = order[chosen];
        order[chosen] = swapped;
    }
}

/* The inside-out variant with 64-bit draws. */
static void order_shuffle_large(struct mt19937 *generator, uint32_t count, uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t high = generator_draw(generator);
        const uint64_t chosen = (high << 32 | generator_draw(generator)) % ((uint64_t)i + 1);
        order[i] = i;
        order[i] = order[chosen];
        order[chosen] = i;
    }
}

void torch_permutation(uint64_t seed, uint32_t count, uint32_t *order)
{
    struct mt19937 generator;
    generator_seed(&generator, (uint32_t)seed);
    (count < UINT32_MAX / 20 ? order_shuffle : order_shuffle_large)(&generator, count, order);
}
