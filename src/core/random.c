// SPDX-License-Identifier: BSD-3-Clause
/* Random numbers from Random123's Philox 4x32-10. */
#include "core/random.h"

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
