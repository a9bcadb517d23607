// SPDX-License-Identifier: BSD-3-Clause
/* Rotary positions. A thread computes the angles of eight pairs of a patch once and rotates them in
 * all heads. */
#include "cuda.h"
#include "kernel.h"

enum { THREADS = 256 };

/* The members of struct rotary that the kernel needs. */
struct rotation {
    int64_t batch, tokens, rows, columns, heads, head_dim;
    float log_temperature, sign;
};

/* Set the cosines and sines of pairs first .. first + 7 of a patch. */
__device__ static inline void angles_of(const struct rotation &of, int64_t patch, int64_t first,
                                        struct eight &cosine, struct eight &sine)
{
    int64_t quarter = of.head_dim / 4;
    for (int i = 0; i < 8; i++) {
        int64_t pair = first + i;
        int64_t place = pair < quarter ? patch / of.columns : patch % of.columns;
        float x = (float)(2 * place + 1) / (float)(pair < quarter ? of.rows : of.columns) - 1;
        float exponent = (float)(pair % quarter) / (float)quarter;
        /* The error of the intrinsics is about 2^-21 from -pi to pi; sinf uses stack memory. */
        float turns = x * expf(-exponent * of.log_temperature);
        float angle = 6.283185307179586f * (turns - rintf(turns));
        cosine.value[i] = __cosf(angle);
        sine.value[i] = of.sign * __sinf(angle);
    }
}

template <typename number>
__global__ static void rotary_kernel(struct rotation of, number *qkv, bool fits)
{
    kernel_begin();
    int64_t half = of.head_dim / 2, octets = (half + 7) / 8, patches = of.rows * of.columns;
    int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t sample = thread / octets / patches, patch = thread / octets % patches;
    int64_t first = thread % octets * 8, left = half - first;
    if (sample >= of.batch)
        return;
    struct eight cosine, sine;
    angles_of(of, patch, first, cosine, sine);
    int64_t token = (sample + 1) * of.tokens - patches + patch;
    number *x = qkv + token * 3 * of.heads * of.head_dim + first;
    for (int64_t head = 0; head < 2 * of.heads; head++, x += of.head_dim) {
        struct eight a = eight_load_some(x, left, fits), b = eight_load_some(x + half, left, fits);
        for (int i = 0; i < 8; i++) {
            float rotated = a.value[i] * cosine.value[i] - b.value[i] * sine.value[i];
            b.value[i] = b.value[i] * cosine.value[i] + a.value[i] * sine.value[i];
            a.value[i] = rotated;
        }
        eight_store_some(x, a, left, fits);
        eight_store_some(x + half, b, left, fits);
    }
}

template <typename number>
static void rotary_launch(struct stream *stream, const struct rotary *args)
{
    int64_t half = args->head_dim / 2;
    int64_t threads = args->batch * args->grid[0] * args->grid[1] * ((half + 7) / 8);
    struct rotation of = {
        args->batch, args->tokens,   args->grid[0],           args->grid[1],
        args->heads, args->head_dim, logf(args->temperature), args->inverse ? -1.0f : 1.0f};
    KERNEL_LAUNCH(rotary_kernel<number>, blocks_for(threads, THREADS), THREADS, 0, stream->handle,
                  of, (number *)args->qkv, eight_fits(args->qkv, half));
}

void cuda_rotary(struct stream *stream, const struct rotary *args)
{
    if (args->batch > 0 && args->grid[0] > 0 && args->head_dim > 0)
        NUMBER_SWITCH(args->type, rotary_launch, stream, args);
}
