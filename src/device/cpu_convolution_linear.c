// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions of 1 x 1 as linear layers, whose rows are pixels. With a stride, the pixels of x
 * that have an output are copied first. */
#include <string.h>

#include "device/cpu_convolution_linear.h"

/* With fewer weights, oneDNN's convolutions are as fast or faster: measured with AMX for the layers
 * of ResNet-50. */
enum { LEAST_WEIGHTS = 1 << 17 };

bool convolution_linear_supports(const struct cpu_device *cpu, enum data_type type,
                                 const struct convolution_shape *s)
{
    return has_tiles(cpu, type) && s->kernel == 1 && s->padding == 0 &&
           s->in + s->out <= TILE_PRODUCT_WIDEST && convolution_weights(s) >= LEAST_WEIGHTS;
}

/* Return the shape of the convolution over the copied pixels. */
static struct convolution_shape shape_of_copy(const struct convolution_shape *s)
{
    struct convolution_shape copy = *s;

    copy.height = convolved_size(s->height, 1, s->stride, 0);
    copy.width = convolved_size(s->width, 1, s->stride, 0);
    copy.stride = 1;
    return copy;
}

static size_t copy_bytes(const struct convolution_shape *s)
{
    return (size_t)(convolved_pixels(s) * s->in) * sizeof(uint16_t);
}

/* Copies of x and dx. */
size_t convolution_linear_workspace(const struct convolution_shape *s)
{
    return s->stride == 1 ? 0 : 2 * copy_bytes(s);
}

/* Copy the pixels of x that have an output. */
static void pixels_gather(const struct cpu_device *cpu, const struct convolution_shape *s,
                          const uint16_t *x, uint16_t *copy)
{
    const struct convolution_shape to = shape_of_copy(s);

#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, convolved_pixels(s) * s->in))
    for (int64_t row = 0; row < to.batch * to.height; row++) {
        const int64_t y = row / to.height * s->height + row % to.height * s->stride;
        for (int64_t column = 0; column < to.width; column++)
            memcpy(copy + (row * to.width + column) * s->in,
                   x + (y * s->width + column * s->stride) * s->in, (size_t)s->in * sizeof *copy);
    }
}

/* Write the gradient of x; pixels without an output are 0. */
static void pixels_scatter(const struct cpu_device *cpu, const struct convolution_shape *s,
                           const uint16_t *copy, uint16_t *dx)
{
    const struct convolution_shape from = shape_of_copy(s);
    const size_t pixel = (size_t)s->in * sizeof *dx;

#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, convolution_pixels(s) * s->in))
    for (int64_t row = 0; row < s->batch * s->height; row++) {
        const int64_t y = row % s->height, line = row / s->height * from.height + y / s->stride;
        for (int64_t x = 0; x < s->width; x++) {
            uint16_t *to = dx + (row * s->width + x) * s->in;
            if (y % s->stride == 0 && x % s->stride == 0)
                memcpy(to, copy + (line * from.width + x / s->stride) * s->in, pixel);
            else
                memset(to, 0, pixel);
        }
    }
}

void convolution_linear_forward(struct stream *stream, const struct convolution_forward *args)
{
    struct convolution_forward part = *args;

    if (args->shape.stride > 1) {
        pixels_gather(stream->cpu, &args->shape, args->x, args->workspace);
        part.shape = shape_of_copy(&args->shape);
        part.x = args->workspace;
    }
    const struct linear_forward linear = convolution_as_linear(&part);
    cpu_linear_forward(stream, &linear);
}

void convolution_linear_backward(struct stream *stream, const struct convolution_backward *args)
{
    struct convolution_backward part = *args;

    if (args->shape.stride > 1) {
        if (args->dweight != NULL || args->x_relu)
            pixels_gather(stream->cpu, &args->shape, args->x, args->workspace);
        part.shape = shape_of_copy(&args->shape);
        part.x = args->workspace;
        if (args->dx != NULL)
            part.dx = (char *)args->workspace + copy_bytes(&args->shape);
    }
    const struct linear_backward linear = convolution_backward_as_linear(&part);
    cpu_linear_backward(stream, &linear);
    if (args->dx != part.dx)
        pixels_scatter(stream->cpu, &args->shape, part.dx, args->dx);
}
