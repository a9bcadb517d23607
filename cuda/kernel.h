// SPDX-License-Identifier: BSD-3-Clause
/* Shared by kernels: the number of blocks of a launch, the octets of elementwise kernels, sums over
 * a warp and a block in a fixed order, and dropout masks with the same random numbers as on the
 * CPU. */
#ifndef VITTRAIN_CUDA_KERNEL_H
#define VITTRAIN_CUDA_KERNEL_H

#include "number.h"

#include <Random123/philox.h>

extern "C" {
#include "base/random.h"
}

enum { WARP = 32 };

static inline unsigned blocks_for(int64_t work, int64_t work_of_a_block)
{
    return (unsigned)((work + work_of_a_block - 1) / work_of_a_block);
}

/* Return the number of octets in `rows` rows, for kernels whose threads index octets with 32 bits:
 * the indices of the last block's threads must not wrap around. */
static inline uint32_t octets_in(int64_t rows, int64_t width)
{
    const int64_t count = rows * ((width + 7) / 8), threads_most = 1024;
    ENSURE(count <= UINT32_MAX - threads_most, "%lld rows of %lld are too many", (long long)rows,
           (long long)width);
    return (uint32_t)count;
}

/* The octets of a tensor [rows, width] for elementwise kernels: a thread processes one, eight
 * neighbouring elements of a row. Indices have 32 bits, because a 64-bit division would take longer
 * than the memory access. */
struct octets {
    uint32_t count, of_row, rows_per_sample;
    uint32_t first_row; /* index of the first row for the masks */
    int64_t width;
    bool fits; /* eight_fits for all tensors accessed */
};

static inline struct octets octets_of(int64_t rows, int64_t width, int64_t rows_per_sample,
                                      bool fits)
{
    return (struct octets){octets_in(rows, width),
                           (uint32_t)((width + 7) / 8),
                           (uint32_t)rows_per_sample,
                           0,
                           width,
                           fits};
}

struct octet_position {
    int64_t at;                /* index of its first element */
    int64_t row, column, left; /* left: elements from there to the end of the row */
    int64_t sample, of_sample; /* of_sample: the octet's number in the sample, for masks */
};

/* Find the octet of a thread. Return false in threads past the last one. */
__device__ static inline bool octet_find(const struct octets &octets, struct octet_position *octet)
{
    uint32_t number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= octets.count)
        return false;
    uint32_t row_here = number / octets.of_row, of_row = number - row_here * octets.of_row;
    uint32_t row = octets.first_row + row_here, sample = row / octets.rows_per_sample;
    octet->row = row_here;
    octet->column = (int64_t)of_row * 8;
    octet->at = row_here * octets.width + octet->column;
    octet->left = octets.width - octet->column;
    octet->sample = sample;
    octet->of_sample = (int64_t)(row - sample * octets.rows_per_sample) * octets.of_row + of_row;
    return true;
}

/* Return the sum over the warp to every lane; all lanes must call it. */
template <typename number> __device__ static inline number warp_sum(number value)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

/* Return the sum over the block to every thread. The block has whole warps; `room` is shared memory
 * for one value per warp and may be reused after the next barrier. */
template <typename number> __device__ static inline number block_sum(number value, number *room)
{
    int warps = (int)blockDim.x / WARP, warp = (int)threadIdx.x / WARP;
    value = warp_sum(value);
    if (threadIdx.x % WARP == 0)
        room[warp] = value;
    __syncthreads();
    number sum = 0;
    for (int i = 0; i < warps; i++)
        sum += room[i];
    return sum;
}

/* Accumulate or overwrite a gradient. */
__device__ static inline void gradient_put(float *gradient, float value, bool overwrite)
{
    *gradient = overwrite ? value : *gradient + value;
}

/* ---- Dropout (types.h, struct dropout) */
struct mask {
    uint32_t threshold; /* 0: nothing is dropped */
    float scale;        /* factor of kept elements */
    float rate;         /* rate of drop path */
    uint64_t seed;
    uint32_t layer;
    uint32_t first; /* number of sample 0 in the pass */
    const struct step_params *params;
};

static inline struct mask mask_of(const struct dropout *dropout)
{
    const uint32_t all = 65536;
    uint32_t threshold = (uint32_t)(dropout->rate * (float)all + 0.5f);
    struct mask mask = {};
    mask.threshold = threshold;
    mask.scale = threshold < all ? (float)all / (float)(all - threshold) : 0;
    mask.rate = dropout->rate;
    mask.seed = dropout->seed;
    mask.layer = dropout->layer;
    mask.first = dropout->first;
    mask.params = dropout->params;
    return mask;
}

/* random_block_at of src/base/random.h on the device. */
__device__ static inline struct random_block block_draw(uint64_t seed, enum random_purpose purpose,
                                                        uint32_t layer, uint32_t epoch,
                                                        uint32_t index, uint32_t block)
{
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    philox4x32_ctr_t counter = {{block, index, epoch, (uint32_t)purpose + (layer << 8)}};
    philox4x32_ctr_t drawn = philox4x32_R(10, counter, key);
    struct random_block result;
    for (int i = 0; i < 4; i++)
        result.word[i] = drawn.v[i];
    return result;
}

/* Return the index in the global batch of an operation's sample. */
__device__ static inline uint32_t mask_index(const struct mask &mask, int64_t sample)
{
    return mask.params->position + mask.first + (uint32_t)sample;
}

/* Return the random words of elements 8 * octet .. 8 * octet + 7 of a sample. */
__device__ static inline struct random_block mask_draw(const struct mask &mask, int64_t sample,
                                                       int64_t octet)
{
    return block_draw(mask.seed, RANDOM_DROPOUT, mask.layer, mask.params->step,
                      mask_index(mask, sample), (uint32_t)octet);
}

/* Return the factor of element `lane` of the octet: 0 or the scale. */
__device__ static inline float mask_factor(const struct mask &mask,
                                           const struct random_block &drawn, int lane)
{
    uint32_t bits = drawn.word[lane / 2] >> lane % 2 * 16 & 0xffff;
    return bits >= mask.threshold ? mask.scale : 0;
}

/* Multiply an octet by its dropout factors; no effect without dropout. */
__device__ static inline void mask_apply(const struct mask &mask, int64_t sample, int64_t octet,
                                         struct eight *eight)
{
    if (mask.threshold == 0)
        return;
    struct random_block drawn = mask_draw(mask, sample, octet);
    for (int i = 0; i < 8; i++)
        eight->value[i] *= mask_factor(mask, drawn, i);
}

/* Return the drop path factor of this sample's branch: 1 without drop path. */
__device__ static inline float path_factor(const struct mask &path, int64_t sample)
{
    if (path.rate == 0)
        return 1;
    struct random_block drawn = block_draw(path.seed, RANDOM_DROP_PATH, path.layer,
                                           path.params->step, mask_index(path, sample), 0);
    float uniform = (float)(drawn.word[0] >> 8) * 0x1p-24f;
    return uniform < path.rate ? 0 : 1 / (1 - path.rate);
}

#endif
