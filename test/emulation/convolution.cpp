// SPDX-License-Identifier: BSD-3-Clause
/* The convolutions of convolution.h on the host, for the emulated GPU: the same arithmetic, sums in
 * fp32. They run when the stream executes them. */
#include "convolution.h"
#include "cuda.h"
#include "internal.h"
#include "value.h"

/* Nothing is opened. */
void engines_close(struct engines *)
{
}

/* Small, so that tests cover split batches. */
int64_t convolutions_numbers(void)
{
    return 15000;
}

/* Like a library that needs workspace; all of it is overwritten when a convolution runs. */
size_t convolutions_bytes(struct cuda_device *, enum data_type,
                          const struct convolution_shape *shape)
{
    return 1000 + 8 * (size_t)shape->out;
}

/* A tensor of the convolution as floats. */
struct spread {
    enum data_type type;
    void *values;
    int64_t count;
    float *number;
};

static struct spread spread_open(const struct convolution *c, void *values, int64_t count,
                                 bool read, bool tf32)
{
    struct spread spread = {c->type, values, count, new float[(size_t)count]()};
    for (int64_t i = 0; i < count && read; i++) {
        float value = value_at(c->type, values, i);
        spread.number[i] = tf32 && c->type == TYPE_FP32 ? tf32_round(value) : value;
    }
    return spread;
}

static void spread_close(const struct spread &spread, bool written)
{
    for (int64_t i = 0; i < spread.count && written; i++)
        value_put(spread.type, spread.values, i, spread.number[i]);
    delete[] spread.number;
}

struct sizes {
    int64_t out_height, out_width, x, filter, y; /* numbers of elements */
};

static struct sizes sizes_of(const struct convolution_shape *s)
{
    struct sizes sizes;
    sizes.out_height = convolved_height(s);
    sizes.out_width = convolved_width(s);
    sizes.x = s->batch * s->height * s->width * s->in;
    sizes.filter = s->out * s->kernel * s->kernel * s->in;
    sizes.y = s->batch * sizes.out_height * sizes.out_width * s->out;
    return sizes;
}

/* Multiply a pixel of x by one tap of the filters and add to a pixel of y; or the corresponding
 * gradient. */
static void pixel_compute(const struct convolution *c, float *x, float *filter, float *y)
{
    int64_t in = c->shape.in, taps = c->shape.kernel * c->shape.kernel;
    for (int64_t out = 0; out < c->shape.out; out++) {
        float *weight = filter + out * taps * in;
        float sum = 0;
        for (int64_t i = 0; i < in; i++)
            if (c->part == CONVOLUTION_FORWARD)
                sum += x[i] * weight[i];
            else if (c->part == CONVOLUTION_INPUTS)
                x[i] += y[out] * weight[i];
            else
                weight[i] += x[i] * y[out];
        if (c->part == CONVOLUTION_FORWARD)
            y[out] += sum;
    }
}

static void numbers_compute(const struct convolution *c, float *x, float *filter, float *y)
{
    const struct convolution_shape *s = &c->shape;
    struct sizes sizes = sizes_of(s);
    int64_t pixels = sizes.out_height * sizes.out_width;
    for (int64_t at = 0; at < s->batch * pixels; at++)
        for (int64_t tap = 0; tap < s->kernel * s->kernel; tap++) {
            int64_t sample = at / pixels, pixel = at % pixels;
            int64_t row = pixel / sizes.out_width * s->stride - s->padding + tap / s->kernel;
            int64_t column = pixel % sizes.out_width * s->stride - s->padding + tap % s->kernel;
            if (row >= 0 && row < s->height && column >= 0 && column < s->width)
                pixel_compute(c, x + ((sample * s->height + row) * s->width + column) * s->in,
                              filter + tap * s->in, y + at * s->out);
        }
}

static void convolution_compute(const struct convolution *c, size_t workspace_bytes, bool tf32)
{
    struct sizes sizes = sizes_of(&c->shape);
    bool reads_x = c->part != CONVOLUTION_INPUTS, reads_filter = c->part != CONVOLUTION_FILTERS;
    bool reads_y = c->part != CONVOLUTION_FORWARD;
    memset(c->workspace, 0xff, workspace_bytes);
    struct spread x = spread_open(c, c->x, sizes.x, reads_x, tf32);
    struct spread filter = spread_open(c, c->filter, sizes.filter, reads_filter, tf32);
    struct spread y = spread_open(c, c->y, sizes.y, reads_y, tf32);
    numbers_compute(c, x.number, filter.number, y.number);
    spread_close(x, !reads_x);
    spread_close(filter, !reads_filter);
    spread_close(y, !reads_y);
}

void convolution_run(struct stream *stream, const struct convolution *convolution)
{
    const struct convolution c = *convolution;
    struct sizes sizes = sizes_of(&c.shape);
    size_t size = type_size(c.type), room = convolutions_bytes(stream->cuda, c.type, &c.shape);
    const void *const tensors[] = {c.x, c.filter, c.y, c.workspace};
    const size_t bytes[] = {(size_t)sizes.x * size, (size_t)sizes.filter * size,
                            (size_t)sizes.y * size, room};
    static const char *const names[] = {"x of a convolution", "the filter of a convolution",
                                        "y of a convolution", "the workspace of a convolution"};
    ENSURE(sizes.x > 0 && sizes.filter > 0 && sizes.y > 0, "convolution with a size of 0");
    for (int i = 0; i < 4; i++) {
        memory_must_hold(tensors[i], bytes[i], 16, names[i]);
        for (int other = 0; other < i; other++)
            memory_must_not_overlap(tensors[i], bytes[i], tensors[other], bytes[other], names[i]);
    }
    bool tf32 = stream->cuda->tf32;
    emulated_enqueue(stream->handle, "convolution", [=]() { convolution_compute(&c, room, tf32); });
}
