// SPDX-License-Identifier: BSD-3-Clause
/* Exact sums of squares (src/device/exact_sum.h) on the GPU. Each thread adds the sums of its
 * blocks in registers, in a window of 64 places. For a sum outside the window, the window is added
 * to shared memory and moved. */
#ifndef VITTRAIN_CUDA_EXACT_H
#define VITTRAIN_CUDA_EXACT_H

#include "device/exact_sum.h"
#include "kernel.h"

/* Sums of squares of one block of elements, by index modulo 4 as on the CPU. */
struct block_squares {
    double lane[4];
};

__device__ static inline void squares_add(struct block_squares *squares, const struct eight &eight)
{
    for (int i = 0; i < 8; i++)
        squares->lane[i % 4] += (double)eight.value[i] * (double)eight.value[i];
}

/* The sum high * 2^64 + low, in units of word `base`. */
struct window {
    uint64_t base, low, high;
};

__device__ static inline void word_add(int64_t *word, uint64_t value)
{
    if (value != 0)
        atomicAdd((unsigned long long *)word, (unsigned long long)value);
}

/* Add the window to `sum`, in shared memory, and set it to zero. */
__device__ static inline void window_empty(struct window *window, struct exact_sum *sum)
{
    int64_t *word = sum->word + window->base;
    word_add(word, (uint32_t)window->low);
    word_add(word + 1, window->low >> 32);
    word_add(word + 2, (uint32_t)window->high);
    word_add(word + 3, window->high >> 32);
    window->low = window->high = 0;
}

/* Add the sum of a block to the window, or to `sum` if it is infinite or NaN. */
__device__ static inline void window_add(struct window *window, const struct block_squares &squares,
                                         struct exact_sum *sum)
{
    double value = (squares.lane[0] + squares.lane[2]) + (squares.lane[1] + squares.lane[3]);
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t place = exact_place(bits), offset = place - 32 * window->base;
    if (offset >= 64 || window->high >> 63 != 0) {
        if (place >= EXACT_PLACES) {
            if (value != 0)
                word_add(isnan(value) ? &sum->nans : &sum->infinities, 1);
            return;
        }
        window_empty(window, sum);
        bool below = place < 32 * window->base || place < 32;
        window->base = place / 32 - (below ? 0 : 1);
        offset = place - 32 * window->base;
    }
    uint64_t mantissa = exact_mantissa(bits), low = mantissa << offset;
    window->low += low;
    window->high += (mantissa >> 1 >> (63 - offset)) + (window->low < low);
}

/* Set a sum in shared memory to zero. */
__device__ static inline void exact_begin(struct exact_sum *sum)
{
    if (threadIdx.x < sizeof *sum / sizeof(int64_t))
        ((int64_t *)sum)[threadIdx.x] = 0;
}

/* Add the windows of all threads of the block to `sum`, in shared memory, and add `sum` to *total.
 * Windows with the base of lane 0 are first added within the warp. */
__device__ static inline void exact_end(struct window window, struct exact_sum *sum,
                                        struct exact_sum *total)
{
    uint64_t base = __shfl_sync(0xffffffffu, window.base, 0);
    if (window.base != base)
        window_empty(&window, sum);
    uint64_t parts[4] = {(uint32_t)window.low, window.low >> 32, (uint32_t)window.high,
                         window.high >> 32};
    for (int i = 0; i < 4; i++) {
        parts[i] = warp_sum(parts[i]);
        if (threadIdx.x % WARP == 0)
            word_add(&sum->word[base + i], parts[i]);
    }
    __syncthreads();
    if (threadIdx.x < sizeof *sum / sizeof(int64_t))
        word_add((int64_t *)total + threadIdx.x, (uint64_t)((const int64_t *)sum)[threadIdx.x]);
}

#endif
