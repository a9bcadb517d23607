// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions of 1 x 1 as linear layers, whose rows are pixels. With a stride, the pixels of x
 * that are read are first copied together; the gradient of x is computed in such a copy and then
 * spread.
 */
#include <string.h>

#include "cpu/cpu_convolution_plan.h"

/* With fewer weights, oneDNN's convolutions are at least as fast (layers of ResNet-50 with AMX,
 * benchmarks/README.md). */
enum { LEAST_WEIGHTS = 1 << 17 };

bool convolution_linear_supports(const struct cpu_device *cpu, enum data_type type,
                                 const struct convolution_shape *s)
{
    return has_tiles(cpu, type) && s->kernel == 1 && s->padding == 0 &&
           convolution_weights(s) >= LEAST_WEIGHTS;
}

/* Return the shape of the convolution over the copied pixels. */
static struct convolution_shape shape_of_copy(const struct convolution_shape *s)
{
    struct convolution_shape copy = *s;

    copy.height = convolved_height(s);
    copy.width = convolved_width(s);
    copy.stride = 1;
    return copy;
}

static size_t copy_bytes(const struct convolution_shape *s)
{
    return (size_t)(convolved_pixels(s) * s->in) * sizeof(uint16_t);
}

/* With a stride: a copy of x and, after it, one of dx. */
size_t convolution_linear_workspace(const struct convolution_shape *s)
{
    return s->stride == 1 ? 0 : 2 * copy_bytes(s);
}

/* Copy the pixels of x that are read. */
static void pixels_gather(const struct cpu_device *cpu, const struct convolution_shape *s,
                          const uint16_t *x, uint16_t *copy)
{
    const struct convolution_shape copied = shape_of_copy(s);

#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, convolved_pixels(s) * s->in))
    for (int64_t row = 0; row < copied.batch * copied.height; row++) {
        const int64_t y = row / copied.height * s->height + row % copied.height * s->stride;
        for (int64_t column = 0; column < copied.width; column++)
            memcpy(copy + (row * copied.width + column) * s->in,
                   x + (y * s->width + column * s->stride) * s->in, (size_t)s->in * sizeof *copy);
    }
}

/* Write dx from its copy; pixels that are not read are 0. */
static void pixels_scatter(const struct cpu_device *cpu, const struct convolution_shape *s,
                           const uint16_t *copy, uint16_t *dx)
{
    const struct convolution_shape copied = shape_of_copy(s);
    const size_t pixel = (size_t)s->in * sizeof *dx;

#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, convolution_pixels(s) * s->in))
    for (int64_t row = 0; row < s->batch * s->height; row++) {
        const int64_t y = row % s->height, line = row / s->height * copied.height + y / s->stride;
        for (int64_t x = 0; x < s->width; x++) {
            uint16_t *to = dx + (row * s->width + x) * s->in;
            if (y % s->stride == 0 && x % s->stride == 0)
                memcpy(to, copy + (line * copied.width + x / s->stride) * s->in, pixel);
            else
                memset(to, 0, pixel);
        }
    }
}

void convolution_linear_forward(struct stream *stream, const struct convolution_forward *args)
{
    struct convolution_forward dense = *args;

    if (args->shape.stride > 1) {
        pixels_gather(stream->cpu, &args->shape, args->x, args->workspace);
        dense.shape = shape_of_copy(&args->shape);
        dense.x = args->workspace;
    }
    const struct linear_forward linear = convolution_as_linear(&dense);
    cpu_linear_forward(stream, &linear);
}

void convolution_linear_backward(struct stream *stream, const struct convolution_backward *args)
{
    struct convolution_backward dense = *args;

    if (args->shape.stride > 1) {
        if (args->dweight != NULL || (args->dx != NULL && args->x_relu))
            pixels_gather(stream->cpu, &args->shape, args->x, args->workspace);
        dense.shape = shape_of_copy(&args->shape);
        dense.x = args->workspace;
        if (args->dx != NULL)
            dense.dx = (char *)args->workspace + copy_bytes(&args->shape);
    }
    const struct linear_backward linear = convolution_backward_as_linear(&dense);
    cpu_linear_backward(stream, &linear);
    if (args->dx != NULL && args->shape.stride > 1)
        pixels_scatter(stream->cpu, &args->shape, dense.dx, args->dx);
}
