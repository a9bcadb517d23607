// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions. A 1 x 1 convolution is a linear layer over pixels and uses the library of matrix
 * products. All others use the library of convolutions (convolution.h), which expects channels-last
 * filters: they are transposed into the workspace before the call, and their gradient is transposed
 * back while it is accumulated. Bias and ReLU are one elementwise kernel after the library's. */
#include "convolution.h"
#include "cuda.h"
#include "kernel.h"

static bool is_nothing(const struct convolution_shape *shape)
{
    return convolution_pixels(shape) == 0 || convolved_pixels(shape) == 0 || shape->in == 0 ||
           shape->out == 0;
}

/* Return the samples per library call: the batch is split if a tensor has more elements than the
 * library supports. A multiple of 8, so that pieces of any type are aligned to 16 bytes. */
static int64_t samples_at_a_time(const struct convolution_shape *shape)
{
    int64_t x = convolution_pixels(shape) / shape->batch * shape->in;
    int64_t y = convolved_pixels(shape) / shape->batch * shape->out;
    int64_t most = convolutions_numbers() / (x > y ? x : y);
    most -= most > 8 ? most % 8 : 0;
    return most < 1 ? 1 : most < shape->batch ? most : shape->batch;
}

/* ---- Workspace: filters, or their gradient, channels last; then the library's */
static size_t filter_bytes(enum data_type type, const struct convolution_shape *shape)
{
    const size_t alignment = 256;
    size_t count = (size_t)convolution_weights(shape);
    return (count * type_size(type) + alignment - 1) / alignment * alignment;
}

size_t cuda_convolution_workspace(struct device *device, enum data_type type,
                                  const struct convolution_shape *shape)
{
    if (is_nothing(shape) || convolution_is_linear(shape))
        return 0;
    struct convolution_shape piece = *shape;
    piece.batch = samples_at_a_time(shape);
    return filter_bytes(type, shape) +
           convolutions_bytes((struct cuda_device *)device, type, &piece);
}

static struct convolution convolution_of(enum convolution_part part, enum data_type type,
                                         const struct convolution_shape *shape, void *workspace)
{
    struct convolution convolution = {};
    ENSURE(workspace != NULL, "convolution without workspace");
    convolution.part = part;
    convolution.type = type;
    convolution.shape = *shape;
    convolution.filter = workspace;
    convolution.workspace = (unsigned char *)workspace + filter_bytes(type, shape);
    return convolution;
}

/* [out, in, kernel, kernel] to [out, kernel, kernel, in]. */
static void filter_transpose(struct stream *stream, const struct convolution *convolution,
                             const void *weight)
{
    const struct convolution_shape *shape = &convolution->shape;
    struct transpose turn = {};
    turn.type = convolution->type;
    turn.batch = shape->out;
    turn.rows = shape->in;
    turn.columns = shape->kernel * shape->kernel;
    turn.x = weight;
    turn.y = convolution->filter;
    cuda_transpose(stream, &turn);
}

/* Transpose back, accumulating into the gradient or overwriting it. */
static void filter_add(struct stream *stream, const struct convolution *convolution, float *dweight,
                       bool overwrite)
{
    const struct convolution_shape *shape = &convolution->shape;
    struct transpose turn = {};
    turn.type = convolution->type;
    turn.batch = shape->out;
    turn.rows = shape->kernel * shape->kernel;
    turn.columns = shape->in;
    turn.x = convolution->filter;
    cuda_transpose_add(stream, &turn, dweight, overwrite);
}

/* dweight: the gradient to which that of the filters is added; NULL for the other parts. With
 * overwrite the first piece replaces it. */
static void run_in_pieces(struct stream *stream, const struct convolution *whole, float *dweight,
                          bool overwrite)
{
    const struct convolution_shape *shape = &whole->shape;
    size_t size = type_size(whole->type);
    size_t x_bytes = (size_t)(convolution_pixels(shape) / shape->batch * shape->in) * size;
    size_t y_bytes = (size_t)(convolved_pixels(shape) / shape->batch * shape->out) * size;
    int64_t most = samples_at_a_time(shape);
    struct convolution piece = *whole;
    for (int64_t first = 0; first < shape->batch; first += most) {
        int64_t left = shape->batch - first;
        piece.shape.batch = left < most ? left : most;
        piece.x = (unsigned char *)whole->x + (size_t)first * x_bytes;
        piece.y = (unsigned char *)whole->y + (size_t)first * y_bytes;
        convolution_run(stream, &piece);
        if (dweight != NULL)
            filter_add(stream, &piece, dweight, overwrite && first == 0);
    }
}

/* ---- Forward */
void cuda_convolution_forward(struct stream *stream, const struct convolution_forward *args)
{
    if (is_nothing(&args->shape))
        return;
    if (convolution_is_linear(&args->shape)) {
        const struct linear_forward linear = convolution_as_linear(args);
        cuda_linear_forward(stream, &linear);
        return;
    }
    struct convolution convolution =
        convolution_of(CONVOLUTION_FORWARD, args->type, &args->shape, args->workspace);
    convolution.x = (void *)args->x;
    convolution.y = args->y;
    filter_transpose(stream, &convolution, args->weight);
    run_in_pieces(stream, &convolution, NULL, false);
    if (args->bias != NULL || args->relu)
        cuda_bias_relu(stream, args->type, convolved_pixels(&args->shape), args->shape.out,
                       args->bias, args->relu, args->y);
}

/* ---- Backward */
void cuda_convolution_backward(struct stream *stream, const struct convolution_backward *args)
{
    const struct convolution_shape *shape = &args->shape;
    if (is_nothing(shape))
        return;
    if (convolution_is_linear(shape)) {
        const struct linear_backward linear = convolution_backward_as_linear(args);
        cuda_linear_backward(stream, &linear);
        return;
    }
    struct convolution convolution =
        convolution_of(CONVOLUTION_FILTERS, args->type, shape, args->workspace);
    convolution.y = (void *)args->dy;
    if (args->dweight != NULL) {
        convolution.x = (void *)args->x;
        run_in_pieces(stream, &convolution, args->dweight, args->overwrite);
    }
    if (args->dbias != NULL)
        columns_sum(stream, args->type, args->dy, convolved_pixels(shape), shape->out, args->dbias,
                    args->overwrite);
    if (args->dx == NULL)
        return;
    convolution.part = CONVOLUTION_INPUTS;
    convolution.x = args->dx;
    filter_transpose(stream, &convolution, args->weight);
    run_in_pieces(stream, &convolution, NULL, false);
    if (args->x_relu)
        cuda_relu_gradient(stream, args->type, convolution_pixels(shape) * shape->in, args->x,
                           args->dx);
}
