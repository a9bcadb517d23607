// SPDX-License-Identifier: BSD-3-Clause
/* The generator MT19937 (Matsumoto and Nishimura 1998), and PyTorch's shuffle with it: randperm_cpu
 * in ATen/native/TensorFactories.cpp, and ATen/core/MT19937RNGEngine.h. */
#include "core/torch_random.h"

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
