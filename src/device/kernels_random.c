/* Dropout masks: Philox 4x32-10 (Salmon et al., SC'11) over several blocks at a time, the same
 * numbers as core/random.h gives one block at a time. */
#include "device/kernels.h"
#include "device/vector.h"

/* As many 64-bit lanes as make one vector: a product of two 32-bit words fills a lane. */
enum { BLOCKS = VECTOR_WIDTH / 2 };
typedef uint64_t vector_wide __attribute__((vector_size(BLOCKS * 8)));

static const uint64_t philox_multiplier[2] = {0xD2511F53, 0xCD9E8D57};
static const uint32_t philox_weyl[2] = {0x9E3779B9, 0xBB67AE85};

/* word[w] lane b: word w of block `block + b`. */
KERNEL_INLINE void philox(const struct mask_source *source, uint32_t block, vector_wide word[4])
{
    const vector_wide low_half = (vector_wide){0} + 0xffffffffu;
    uint32_t key[2] = {source->key[0], source->key[1]};

    for (uint32_t b = 0; b < BLOCKS; b++)
        word[0][b] = block + b;
    for (int w = 1; w < 4; w++)
        word[w] = (vector_wide){0} + source->counter[w - 1];
    for (int round = 0; round < 10; round++) {
        vector_wide product0 = (word[0] & low_half) * philox_multiplier[0];
        vector_wide product1 = (word[2] & low_half) * philox_multiplier[1];
        word[0] = (product1 >> 32) ^ word[1] ^ key[0];
        word[2] = (product0 >> 32) ^ word[3] ^ key[1];
        word[1] = product1 & low_half;
        word[3] = product0 & low_half;
        key[0] += philox_weyl[0];
        key[1] += philox_weyl[1];
    }
}

static void mask(const struct mask_source *source, int64_t block_begin, int64_t count, float *mask)
{
    int64_t blocks = count / 8;

    for (int64_t first = 0; first < blocks; first += BLOCKS) {
        vector_wide word[4];
        philox(source, (uint32_t)(block_begin + first), word);
        int64_t here = blocks - first < BLOCKS ? blocks - first : BLOCKS;
        for (int64_t b = 0; b < here; b++)
            for (int lane = 0; lane < 8; lane++) {
                uint32_t bits = (uint32_t)(word[lane / 2][b] >> (lane % 2 * 16)) & 0xffff;
                mask[(first + b) * 8 + lane] = bits >= source->threshold ? source->scale : 0;
            }
    }
}

extern const struct random_kernels KERNEL(random_kernels);
const struct random_kernels KERNEL(random_kernels) = {mask};
