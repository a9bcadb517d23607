// SPDX-License-Identifier: BSD-3-Clause
/* Bilinear interpolation from channels last to channels first: one thread per output. Its gradient:
 * one warp per input, which adds the outputs that read it. */
#include "cuda.h"
#include "kernel.h"

enum { THREADS = 256, WARPS = THREADS / WARP };

/* An output at position (1 - share) * low + share * high. */
struct tap {
    int low, high;
    float share;
};

/* The position of output i, (i + 0.5) * size / out_size - 0.5, is a fraction of integers. */
__device__ static inline struct tap tap_at(int i, int size, int out_size)
{
    int position = (2 * i + 1) * size - out_size;
    struct tap tap = {};
    if (position > 0) {
        tap.low = position / (2 * out_size);
        tap.share = (float)(position - tap.low * 2 * out_size) / (float)(2 * out_size);
    }
    tap.high = tap.low + 1 < size ? tap.low + 1 : size - 1;
    return tap;
}

template <typename number>
__global__ static void upsample_forward_kernel(struct upsample_forward args, unsigned blocks)
{
    kernel_begin();
    int64_t plane = blockIdx.x / blocks, sample = plane / args.channels;
    int at = (int)((blockIdx.x % blocks) * THREADS + threadIdx.x), width = (int)args.out_width;
    if (at >= (int)args.out_height * width)
        return;
    struct tap row = tap_at(at / width, (int)args.height, (int)args.out_height);
    struct tap column = tap_at(at % width, (int)args.width, width);
    const number *x = (const number *)args.x + sample * args.height * args.width * args.channels +
                      plane % args.channels;
    const number *low = x + row.low * args.width * args.channels;
    const number *high = x + row.high * args.width * args.channels;
    float left = (1 - row.share) * number_load(low[column.low * args.channels]) +
                 row.share * number_load(high[column.low * args.channels]);
    float right = (1 - row.share) * number_load(low[column.high * args.channels]) +
                  row.share * number_load(high[column.high * args.channels]);
    number_store((number *)args.y + plane * args.out_height * width + at,
                 (1 - column.share) * left + column.share * right);
}

template <typename number>
static void forward_launch(struct stream *stream, const struct upsample_forward *args)
{
    unsigned blocks = blocks_for(args->out_height * args->out_width, THREADS);
    KERNEL_LAUNCH(upsample_forward_kernel<number>,
                  (unsigned)(args->batch * args->channels) * blocks, THREADS, 0, stream->handle,
                  *args, blocks);
}

/* True if the grid of `blocks` blocks and the positions fit in 32 bits. */
static bool sizes_fit(int64_t blocks, int64_t size, int64_t out_size)
{
    return blocks <= INT32_MAX && (2 * out_size + 1) * size <= INT32_MAX;
}

void cuda_upsample_forward(struct stream *stream, const struct upsample_forward *args)
{
    int64_t outputs = args->out_height * args->out_width;
    int64_t blocks = args->batch * args->channels * ((outputs + THREADS - 1) / THREADS);
    ENSURE(sizes_fit(blocks, args->height, args->out_height) &&
               sizes_fit(blocks, args->width, args->out_width),
           "upsample: images of %lld x %lld pixels are too large", (long long)args->out_height,
           (long long)args->out_width);
    if (blocks > 0)
        NUMBER_SWITCH(args->type, forward_launch, stream, args);
}

/* Return the weight of input `at` in an output. */
__device__ static inline float tap_weight(const struct tap &tap, int at)
{
    return (tap.low == at ? 1 - tap.share : 0) + (tap.high == at ? tap.share : 0);
}

/* Return the first output whose position is at least that of input at - 1. */
__device__ static inline int first_output(int at, int size, int out_size)
{
    int distance = (2 * at - 1) * out_size - size;
    int first = distance > 0 ? (distance + 2 * size - 1) / (2 * size) : 0;
    return first < out_size ? first : out_size;
}

/* The outputs that read input `at`: first..end - 1. */
struct outputs {
    int first, end;
};

__device__ static inline struct outputs outputs_of(int at, int size, int out_size)
{
    struct outputs outputs;
    outputs.first = at > 0 ? first_output(at, size, out_size) : 0;
    outputs.end = at < size - 1 ? first_output(at + 2, size, out_size) : out_size;
    return outputs;
}

template <typename number>
__global__ static void upsample_backward_kernel(struct upsample_backward args)
{
    kernel_begin();
    int64_t number_of = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    int64_t pixel = number_of / args.channels, channel = number_of % args.channels;
    int64_t sample = pixel / (args.height * args.width);
    if (sample >= args.batch) /* the whole warp */
        return;
    int at = (int)(pixel / args.width % args.height), across = (int)(pixel % args.width);
    struct outputs rows = outputs_of(at, (int)args.height, (int)args.out_height);
    struct outputs columns = outputs_of(across, (int)args.width, (int)args.out_width);
    const number *dy = (const number *)args.dy +
                       (sample * args.channels + channel) * args.out_height * args.out_width;
    float sum = 0;
    for (int x = columns.first + (int)threadIdx.x % WARP; x < columns.end; x += WARP) {
        float column = 0;
        for (int y = rows.first; y < rows.end; y++)
            column += tap_weight(tap_at(y, (int)args.height, (int)args.out_height), at) *
                      number_load(dy[y * args.out_width + x]);
        sum += tap_weight(tap_at(x, (int)args.width, (int)args.out_width), across) * column;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        number_store((number *)args.dx + number_of, sum);
}

template <typename number>
static void backward_launch(struct stream *stream, const struct upsample_backward *args)
{
    int64_t inputs = args->batch * args->channels * args->height * args->width;
    KERNEL_LAUNCH(upsample_backward_kernel<number>, blocks_for(inputs, WARPS), THREADS, 0,
                  stream->handle, *args);
}

void cuda_upsample_backward(struct stream *stream, const struct upsample_backward *args)
{
    int64_t inputs = args->batch * args->channels * args->height * args->width;
    ENSURE(sizes_fit(inputs / WARPS, args->height, args->out_height) &&
               sizes_fit(inputs / WARPS, args->width, args->out_width),
           "upsample: images of %lld x %lld pixels are too large", (long long)args->out_height,
           (long long)args->out_width);
    if (inputs > 0)
        NUMBER_SWITCH(args->type, backward_launch, stream, args);
}
