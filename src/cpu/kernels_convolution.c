// SPDX-License-Identifier: BSD-3-Clause
/* Direct convolution for few channels, one sample at a time. Each channel is a separate plane, so a
 * vector holds pixels of one row and a weight is a broadcast scalar. Outputs are computed for
 * blocks of DIRECT_BLOCK channels, whose accumulators stay in registers. */
#include "cpu/kernels.h"
#include "cpu/vector.h"

/* Convert channels last to planes or, if `join`, planes to channels last. */
KERNEL_INLINE void convert_channels(const struct plane_layout *it, int64_t channels, bool join,
                                    const float *from, float *to)
{
    for (int64_t row = 0; row < it->height; row++)
        for (int64_t column = 0; column < it->width; column++)
            for (int64_t c = 0; c < channels; c++) {
                const int64_t pixel = (row * it->width + column) * channels + c;
                const int64_t plane = c * it->plane + row * it->pitch + column;
                to[join ? pixel : plane] = from[join ? plane : pixel];
            }
}

/* Common numbers of channels are compile-time constants, which unrolls the inner loop. */
KERNEL_INLINE void convert_image(const struct plane_layout *it, bool join, const float *from,
                                 float *to)
{
    if (it->channels == 3)
        convert_channels(it, 3, join, from, to);
    else if (it->channels == 4)
        convert_channels(it, 4, join, from, to);
    else if (it->channels == 8)
        convert_channels(it, 8, join, from, to);
    else
        convert_channels(it, it->channels, join, from, to);
}

static void split(const struct plane_layout *it, const float *x, float *planes)
{
    convert_image(it, false, x, planes);
}

static void join(const struct plane_layout *it, const float *planes, float *x)
{
    convert_image(it, true, planes, x);
}

/* Compute `vectors` vectors of pixels of one output row for a block of channels; x is at the pixel
 * under the kernel's first tap. */
KERNEL_INLINE void forward_pixels(const struct direct_convolution *it, int64_t kernel, int vectors,
                                  const float *x, const float *weight, const float *bias, float *y)
{
    vector_float sums[DIRECT_BLOCK][2];

    for (int o = 0; o < DIRECT_BLOCK; o++)
        for (int v = 0; v < vectors; v++)
            sums[o][v] = vector_all(bias[o]);
    for (int64_t c = 0; c < it->in; c++)
        for (int64_t row = 0; row < kernel; row++)
            for (int64_t column = 0; column < kernel; column++) {
                const float *from = x + c * it->x_plane + row * it->x_pitch + column;
                vector_float pixels[2];
                for (int v = 0; v < vectors; v++)
                    pixels[v] = vector_load(from + v * VECTOR_WIDTH);
                for (int o = 0; o < DIRECT_BLOCK; o++)
                    for (int v = 0; v < vectors; v++)
                        sums[o][v] += pixels[v] * weight[o];
                weight += DIRECT_BLOCK;
            }
    for (int o = 0; o < DIRECT_BLOCK; o++)
        for (int v = 0; v < vectors; v++)
            vector_store(y + o * it->y_plane + v * VECTOR_WIDTH,
                         it->relu ? vector_max(vector_all(0), sums[o][v]) : sums[o][v]);
}

KERNEL_INLINE void forward_kernel(const struct direct_convolution *it, int64_t kernel,
                                  const float *x, const float *weight, const float *bias, float *y)
{
    const int64_t block_weights = it->in * kernel * kernel * DIRECT_BLOCK;

    for (int64_t block = 0; block < it->out / DIRECT_BLOCK; block++)
        for (int64_t row = 0; row < it->height; row++) {
            const float *from = x + row * it->x_pitch, *w = weight + block * block_weights;
            const float *b = bias + block * DIRECT_BLOCK;
            float *to = y + block * DIRECT_BLOCK * it->y_plane + row * it->y_pitch;
            int64_t i = 0;
            for (; i + 2 * VECTOR_WIDTH <= it->y_pitch; i += 2 * VECTOR_WIDTH)
                forward_pixels(it, kernel, 2, from + i, w, b, to + i);
            for (; i < it->y_pitch; i += VECTOR_WIDTH)
                forward_pixels(it, kernel, 1, from + i, w, b, to + i);
        }
}

static void forward(const struct direct_convolution *it, const float *x, const float *weight,
                    const float *bias, float *y)
{
    if (it->kernel == 3)
        forward_kernel(it, 3, x, weight, bias, y);
    else
        forward_kernel(it, it->kernel, x, weight, bias, y);
}

/* Accumulate the gradients of `columns` taps of one kernel row, between one channel of x and a
 * block of output channels. */
KERNEL_INLINE void weight_columns(const struct direct_convolution *it, int columns, const float *x,
                                  const float *dy, float *sums)
{
    enum { MOST_COLUMNS = 3 };
    vector_float sum[DIRECT_BLOCK][MOST_COLUMNS];

    for (int k = 0; k < columns; k++)
        for (int o = 0; o < DIRECT_BLOCK; o++)
            sum[o][k] = vector_load(sums + (k * DIRECT_BLOCK + o) * VECTOR_WIDTH);
    for (int64_t row = 0; row < it->height; row++)
        for (int64_t i = 0; i < it->y_pitch; i += VECTOR_WIDTH) {
            vector_float pixels[MOST_COLUMNS];
            for (int k = 0; k < columns; k++)
                pixels[k] = vector_load(x + row * it->x_pitch + i + k);
            for (int o = 0; o < DIRECT_BLOCK; o++) {
                const vector_float gradient =
                    vector_load(dy + o * it->y_plane + row * it->y_pitch + i);
                for (int k = 0; k < columns; k++)
                    sum[o][k] += pixels[k] * gradient;
            }
        }
    for (int k = 0; k < columns; k++)
        for (int o = 0; o < DIRECT_BLOCK; o++)
            vector_store(sums + (k * DIRECT_BLOCK + o) * VECTOR_WIDTH, sum[o][k]);
}

static void weight(const struct direct_convolution *it, const float *x, const float *dy,
                   float *sums)
{
    const int64_t blocks = it->out / DIRECT_BLOCK;

    for (int64_t i = 0; i < blocks * it->in * it->kernel; i++) {
        const int64_t block = i / (it->in * it->kernel), c = i / it->kernel % it->in;
        const float *from = x + c * it->x_plane + i % it->kernel * it->x_pitch;
        const float *gradient = dy + block * DIRECT_BLOCK * it->y_plane;
        float *to = sums + i * it->kernel * DIRECT_BLOCK * VECTOR_WIDTH;
        int64_t k = 0;
        for (; k + 3 <= it->kernel; k += 3)
            weight_columns(it, 3, from + k, gradient, to + k * DIRECT_BLOCK * VECTOR_WIDTH);
        for (; k < it->kernel; k++)
            weight_columns(it, 1, from + k, gradient, to + k * DIRECT_BLOCK * VECTOR_WIDTH);
    }
}

static void bias(const struct direct_convolution *it, const float *dy, float *sums)
{
    for (int64_t o = 0; o < it->out; o++) {
        vector_float sum = vector_load(sums + o * VECTOR_WIDTH);
        for (int64_t i = 0; i < it->height * it->y_pitch; i += VECTOR_WIDTH)
            sum += vector_load(dy + o * it->y_plane + i);
        vector_store(sums + o * VECTOR_WIDTH, sum);
    }
}

static void fold(int64_t count, const float *sums, float *totals)
{
    for (int64_t i = 0; i < count; i++)
        totals[i] = vector_sum(vector_load(sums + i * VECTOR_WIDTH));
}

const struct convolution_kernels KERNEL(convolution_kernels) = {
    .split = split, .join = join, .forward = forward, .weight = weight, .bias = bias, .fold = fold};
