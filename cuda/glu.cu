// SPDX-License-Identifier: BSD-3-Clause
/* SwiGLU and its gradient: an octet of y, [rows, width], per thread. x is [rows, 2 * width]. */
#include "cuda.h"
#include "kernel.h"

enum { THREADS = 256 };

__device__ static inline float sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

template <typename number>
__global__ static void glu_forward_kernel(struct octets octets, const number *x, number *y)
{
    kernel_begin();
    struct octet_position octet;
    if (!octet_find(octets, &octet))
        return;
    int64_t in_x = octet.at + octet.row * octets.width;
    struct eight a = eight_load_some(x + in_x, octet.left, octets.fits);
    struct eight b = eight_load_some(x + in_x + octets.width, octet.left, octets.fits);
    for (int i = 0; i < 8; i++)
        b.value[i] *= a.value[i] * sigmoid(a.value[i]);
    eight_store_some(y + octet.at, b, octet.left, octets.fits);
}

template <typename number>
__global__ static void glu_backward_kernel(struct octets octets, const number *x, const number *dy,
                                           number *dx)
{
    kernel_begin();
    struct octet_position octet;
    if (!octet_find(octets, &octet))
        return;
    int64_t in_x = octet.at + octet.row * octets.width;
    struct eight a = eight_load_some(x + in_x, octet.left, octets.fits);
    struct eight b = eight_load_some(x + in_x + octets.width, octet.left, octets.fits);
    struct eight g = eight_load_some(dy + octet.at, octet.left, octets.fits);
    for (int i = 0; i < 8; i++) {
        float in = a.value[i], s = sigmoid(in);
        a.value[i] = g.value[i] * b.value[i] * s * (1.0f + in * (1.0f - s));
        b.value[i] = g.value[i] * in * s;
    }
    eight_store_some(dx + in_x, a, octet.left, octets.fits);
    eight_store_some(dx + in_x + octets.width, b, octet.left, octets.fits);
}

template <typename number>
static void forward_launch(struct stream *stream, const struct glu_forward *args)
{
    int64_t width = args->width;
    bool fits = eight_fits(args->x, width) && eight_fits(args->y, width);
    struct octets octets = octets_of(args->rows, width, 1, fits);
    KERNEL_LAUNCH(glu_forward_kernel<number>, blocks_for(octets.count, THREADS), THREADS, 0,
                  stream->handle, octets, (const number *)args->x, (number *)args->y);
}

template <typename number>
static void backward_launch(struct stream *stream, const struct glu_backward *args)
{
    int64_t width = args->width;
    bool fits =
        eight_fits(args->x, width) && eight_fits(args->dy, width) && eight_fits(args->dx, width);
    struct octets octets = octets_of(args->rows, width, 1, fits);
    KERNEL_LAUNCH(glu_backward_kernel<number>, blocks_for(octets.count, THREADS), THREADS, 0,
                  stream->handle, octets, (const number *)args->x, (const number *)args->dy,
                  (number *)args->dx);
}

void cuda_glu_forward(struct stream *stream, const struct glu_forward *args)
{
    if (args->rows > 0 && args->width > 0)
        NUMBER_SWITCH(args->type, forward_launch, stream, args);
}

void cuda_glu_backward(struct stream *stream, const struct glu_backward *args)
{
    if (args->rows > 0 && args->width > 0)
        NUMBER_SWITCH(args->type, backward_launch, stream, args);
}
