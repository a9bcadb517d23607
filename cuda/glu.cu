// SPDX-License-Identifier: BSD-3-Clause
/* SwiGLU and its gradient: one octet of a row of y per thread. */
#include "cuda.h"
#include "kernel.h"

enum { THREADS = 256 };

/* dy == NULL: out is y, else dx. */
template <typename number>
__global__ static void glu_kernel(int64_t rows, int64_t width, const number *x, const number *dy,
                                  number *out, bool fits)
{
    int64_t octets = (width + 7) / 8, octet = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t row = octet / octets, column = octet % octets * 8, left = width - column;
    if (row >= rows)
        return;
    int64_t first = row * 2 * width + column, at = row * width + column;
    struct eight a = eight_load_some(x + first, left, fits);
    struct eight b = eight_load_some(x + first + width, left, fits), g = {};
    if (dy != NULL)
        g = eight_load_some(dy + at, left, fits);
    for (int i = 0; i < 8; i++) {
        float in = a.value[i], s = __fdividef(1.0f, 1.0f + __expf(-in)), silu = in * s;
        a.value[i] =
            dy == NULL ? silu * b.value[i] : g.value[i] * b.value[i] * s * (1.0f + in * (1.0f - s));
        b.value[i] = g.value[i] * silu;
    }
    eight_store_some(out + (dy == NULL ? at : first), a, left, fits);
    if (dy != NULL)
        eight_store_some(out + first + width, b, left, fits);
}

template <typename number>
static void glu_launch(struct stream *stream, int64_t rows, int64_t width, const void *x,
                       const void *dy, void *out)
{
    bool fits = eight_fits(x, width) && eight_fits(dy, width) && eight_fits(out, width);
    KERNEL_LAUNCH(glu_kernel<number>, blocks_for(rows * ((width + 7) / 8), THREADS), THREADS, 0,
                  stream->handle, rows, width, (const number *)x, (const number *)dy, (number *)out,
                  fits);
}

void cuda_glu_forward(struct stream *stream, const struct glu_forward *args)
{
    if (args->rows > 0 && args->width > 0)
        NUMBER_SWITCH(args->type, glu_launch, stream, args->rows, args->width, args->x, NULL,
                      args->y);
}

void cuda_glu_backward(struct stream *stream, const struct glu_backward *args)
{
    if (args->rows > 0 && args->width > 0)
        NUMBER_SWITCH(args->type, glu_launch, stream, args->rows, args->width, args->x, args->dy,
                      args->dx);
}
