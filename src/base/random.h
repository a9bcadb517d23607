// SPDX-License-Identifier: BSD-3-Clause
/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC'11), keyed by the run's seed,
 * with a counter of purpose, epoch, index and block. A sample's augmentation and a weight's initial
 * value are therefore the same on any number of ranks. */
#ifndef VITTRAIN_BASE_RANDOM_H
#define VITTRAIN_BASE_RANDOM_H

#include <stdint.h>

/* Streams of random numbers. Append only, never renumber: a resumed run must draw the same
 * numbers. */
enum random_purpose {
    RANDOM_INITIAL_WEIGHTS = 1, /* index: number of the tensor in the model; block: element / 4 */
    RANDOM_SHUFFLE = 2,         /* index: 0 */
    RANDOM_SPLIT = 3,           /* index: 0 */
    RANDOM_AUGMENT = 4,         /* index: number of the sample in its data set */
    RANDOM_DROPOUT = 5,         /* epoch: the step; index: position in the global batch */
    RANDOM_DROP_PATH = 6,       /* as dropout */
    RANDOM_SYNTHETIC = 7,       /* index: the sample */
    RANDOM_MIX = 8,             /* index: position of a pair's first sample */
    RANDOM_PACK = 10,           /* index: 0 */
    RANDOM_SHUFFLE_BLOCKS = 11, /* index: 0 */
    RANDOM_SHUFFLE_WINDOW = 12, /* index: 0 */
    RANDOM_NOISE = 14,          /* layer: channel; index: as augment; block: pixel / 4 */
    RANDOM_CHANNELS = 15,       /* index: as augment; block: channel / 4 */
    RANDOM_BALANCE = 16         /* epoch: permutation of a class; index: 0 */
};

struct random_block {
    uint32_t word[4];
};

/* Return the block of random words for the counter {block, index, epoch, purpose + 256 * layer}.
 * layer < 2^24 distinguishes the layers of a model that use the same purpose. */
struct random_block random_block_at(uint64_t seed, enum random_purpose purpose, uint32_t layer,
                                    uint32_t epoch, uint32_t index, uint32_t block);

/* Return a number in [0, 1) from the upper 24 bits. */
static inline float random_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* Map a random word to a uniform number in [low, high). */
static inline double random_between(uint32_t word, double low, double high)
{
    return low + (high - low) * (double)random_uniform(word);
}

/* Map a random word to a uniform integer in [low, high]. */
static inline int64_t random_integer(uint32_t word, int64_t low, int64_t high)
{
    return low + (int64_t)(((uint64_t)word * (uint64_t)(high - low + 1)) >> 32);
}

/* Convert two words to two independent standard normal numbers (Box-Muller). */
void random_normal_pair(uint32_t first, uint32_t second, float normal[2]);

/* Fill order[0..count) with a permutation of 0..count-1 (Fisher-Yates) that depends on seed,
 * purpose and epoch only. count < 2^32. */
void random_permutation(uint64_t seed, enum random_purpose purpose, uint32_t epoch, uint32_t count,
                        uint32_t *order);

/* Fill order[0..count) as torch.randperm(count, generator=torch.Generator().manual_seed(seed)) on
 * the CPU. Compared with PyTorch 2.15 (test/vectors/make_torch_permutation.py). Like PyTorch, use
 * only the lower 32 bits of the seed. count < 2^32. */
void torch_permutation(uint64_t seed, uint32_t count, uint32_t *order);

#endif
