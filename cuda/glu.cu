// SPDX-License-Identifier: BSD-3-Clause
/* SwiGLU and its gradient: eight neighbouring elements (an octet) of a row of y per thread. */
#include "cuda.h"
#include "kernel.h"

enum { THREADS = 256 };

/* The octet of a thread: its row, the indices of its first element in x and y, and the number of
 * elements from there to the end of the row of y. If row >= rows, the thread has no octet. */
struct octet {
    int64_t row, in_x, in_y, left;
};

__device__ static inline struct octet octet_of_thread(int64_t width)
{
    int64_t octets = (width + 7) / 8, octet = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t row = octet / octets, column = octet % octets * 8;
    return {row, row * 2 * width + column, row * width + column, width - column};
}

__device__ static inline float sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

template <typename number>
__global__ static void glu_forward_kernel(int64_t rows, int64_t width, const number *x, number *y,
                                          bool fits)
{
    kernel_begin();
    struct octet at = octet_of_thread(width);
    if (at.row >= rows)
        return;
    struct eight a = eight_load_some(x + at.in_x, at.left, fits);
    struct eight b = eight_load_some(x + at.in_x + width, at.left, fits);
    for (int i = 0; i < 8; i++)
        b.value[i] *= a.value[i] * sigmoid(a.value[i]);
    eight_store_some(y + at.in_y, b, at.left, fits);
}

template <typename number>
__global__ static void glu_backward_kernel(int64_t rows, int64_t width, const number *x,
                                           const number *dy, number *dx, bool fits)
{
    kernel_begin();
    struct octet at = octet_of_thread(width);
    if (at.row >= rows)
        return;
    struct eight a = eight_load_some(x + at.in_x, at.left, fits);
    struct eight b = eight_load_some(x + at.in_x + width, at.left, fits);
    struct eight g = eight_load_some(dy + at.in_y, at.left, fits);
    for (int i = 0; i < 8; i++) {
        float in = a.value[i], s = sigmoid(in);
        a.value[i] = g.value[i] * b.value[i] * s * (1.0f + in * (1.0f - s));
        b.value[i] = g.value[i] * in * s;
    }
    eight_store_some(dx + at.in_x, a, at.left, fits);
    eight_store_some(dx + at.in_x + width, b, at.left, fits);
}

template <typename number>
static void forward_launch(struct stream *stream, const struct glu_forward *args)
{
    int64_t width = args->width;
    bool fits = eight_fits(args->x, width) && eight_fits(args->y, width);
    KERNEL_LAUNCH(glu_forward_kernel<number>, blocks_for(args->rows * ((width + 7) / 8), THREADS),
                  THREADS, 0, stream->handle, args->rows, width, (const number *)args->x,
                  (number *)args->y, fits);
}

template <typename number>
static void backward_launch(struct stream *stream, const struct glu_backward *args)
{
    int64_t width = args->width;
    bool fits =
        eight_fits(args->x, width) && eight_fits(args->dy, width) && eight_fits(args->dx, width);
    KERNEL_LAUNCH(glu_backward_kernel<number>, blocks_for(args->rows * ((width + 7) / 8), THREADS),
                  THREADS, 0, stream->handle, args->rows, width, (const number *)args->x,
                  (const number *)args->dy, (number *)args->dx, fits);
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
