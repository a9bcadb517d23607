/* Random numbers are a function of who asks, never of who asked before: Philox 4x32-10 (Salmon et
 * al., SC'11) keyed by the run's seed, with a counter made of purpose, epoch, index and block. So
 * the same sample gets the same augmentation, and the same weight the same start, on any layout. */
#ifndef VITTRAIN_CORE_RANDOM_H
#define VITTRAIN_CORE_RANDOM_H

#include <stdint.h>

/* Each use of random numbers draws from a stream of its own. Values are part of the checkpoint's
 * meaning (a resumed run must draw the same numbers): append, never renumber. */
enum random_purpose {
    RANDOM_INITIAL_WEIGHTS = 1, /* index: the tensor's place in the model, block: element / 4 */
    RANDOM_SHUFFLE = 2,         /* index: 0 */
    RANDOM_SPLIT = 3,           /* index: 0 */
    RANDOM_AUGMENT = 4,         /* epoch, index: the sample's number in its data set */
    RANDOM_DROPOUT = 5,         /* epoch: the step; index: position in the global batch */
    RANDOM_DROP_PATH = 6,       /* as dropout */
    RANDOM_SYNTHETIC = 7,       /* index: the sample */
    RANDOM_MIX = 8,             /* epoch; index: of a pair's first sample in the order */
    RANDOM_PACK = 10,           /* index: 0 */
    RANDOM_SHUFFLE_BLOCKS = 11, /* index: 0 */
    RANDOM_SHUFFLE_WINDOW = 12, /* index: 0 */
    RANDOM_SWEEP = 13           /* index: the trial */
};

struct random_block {
    uint32_t word[4];
};

/* The counter is {block, index, epoch, purpose + 256 * layer}; layer < 2^24 tells apart the places
 * in a model that use one purpose. */
struct random_block random_block_at(uint64_t seed, enum random_purpose purpose, uint32_t layer,
                                    uint32_t epoch, uint32_t index, uint32_t block);

/* [0, 1) from the upper 24 bits. */
static inline float random_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* Two independent standard normal numbers (Box-Muller) from two words. */
void random_normal_pair(uint32_t first, uint32_t second, float normal[2]);

/* order[0..count) becomes a permutation of 0..count-1 that depends on (seed, purpose, epoch) only
 * (Fisher-Yates). count < 2^32. */
void random_permutation(uint64_t seed, enum random_purpose purpose, uint32_t epoch, uint32_t count,
                        uint32_t *order);

#endif
