// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions. A 1 x 1 convolution is a linear layer over pixels and uses the library of matrix
 * products. All others use the library of convolutions (convolution.h), which expects channels-last
 * filters: they are transposed into the workspace before the call, and their gradient is transposed
 * back while it is accumulated. For a convolution of images, the images and the filters are folded
 * instead. Bias and ReLU are one elementwise kernel after the library's. */
#include "convolution.h"
#include "cuda.h"
#include "kernel.h"

enum { THREADS = 256 };

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

/* ---- Workspace: filters, or their gradient, as the library reads them; folded images of one
 * library call; the library's workspace */
static size_t aligned_bytes(enum data_type type, int64_t count)
{
    const size_t alignment = 256;
    return ((size_t)count * type_size(type) + alignment - 1) / alignment * alignment;
}

/* A convolution, and what the library computes. */
struct call {
    struct convolution_shape shape;
    struct convolution library;
    void *folded;
};

/* Set the shape of a library call and the addresses in the workspace, which are offsets if it is
 * NULL. */
static struct call call_of(enum data_type type, const struct convolution_shape *shape,
                           void *workspace)
{
    struct call call = {};
    struct convolution_shape *piece = &call.library.shape;
    ENSURE(!shape->images || convolution_folds(type, shape), "a convolution cannot read images");
    call.shape = *shape;
    *piece = shape->images ? convolution_folded(shape) : *shape;
    piece->batch = samples_at_a_time(piece);
    call.library.type = type;
    call.library.filter = workspace;
    uintptr_t at = (uintptr_t)workspace + aligned_bytes(type, convolution_weights(piece));
    call.folded = (void *)at;
    at += aligned_bytes(type, shape->images ? convolution_pixels(piece) * piece->in : 0);
    call.library.workspace = (void *)at;
    return call;
}

size_t cuda_convolution_workspace(struct device *device, enum data_type type,
                                  const struct convolution_shape *shape)
{
    if (is_nothing(shape) || convolution_is_linear(shape))
        return 0;
    const struct call call = call_of(type, shape, NULL);
    return (size_t)(uintptr_t)call.library.workspace +
           convolutions_bytes((struct cuda_device *)device, type, &call.library.shape);
}

/* ---- Folding (convolution.h) */

/* A thread writes an octet: two pixels of a row. Only the size of the elements matters. The
 * library's limit of 32-bit indices applies to each sample. */
__global__ static void fold_kernel(struct convolution_shape from, struct convolution_shape to,
                                   uint32_t octets, const uint16_t *x, struct vector16 *folded)
{
    kernel_begin();
    uint32_t octet = blockIdx.x * blockDim.x + threadIdx.x;
    if (octet >= octets)
        return;
    uint32_t pixel = octet / 2, line = pixel / (uint32_t)to.width;
    uint32_t sample = line / (uint32_t)to.height;
    int row = (int)(2 * (line - sample * (uint32_t)to.height) + octet % 2) - (int)from.padding;
    int column = (int)(2 * (pixel - line * (uint32_t)to.width)) - (int)from.padding;
    int height = (int)from.height, width = (int)from.width, channels = (int)from.in;
    int plane = height * width, first = row * width + column;
    uint32_t value[2 * FOLD_CHANNELS];
    x += (int64_t)sample * (channels * plane);
    for (int i = 0; i < 2 * FOLD_CHANNELS; i++) {
        int channel = i % FOLD_CHANNELS, right = i / FOLD_CHANNELS;
        bool exists = channel < channels && row >= 0 && row < height && column + right >= 0 &&
                      column + right < width;
        value[i] = exists ? x[channel * plane + first + right] : 0;
    }
    struct vector16 vector;
    for (int i = 0; i < FOLD_CHANNELS; i++)
        vector.word[i] = value[2 * i] | value[2 * i + 1] << 16;
    vector_store_global(&folded[octet], vector);
}

/* x: [batch, in, height, width]; folded: [batch, height, width, in] of the folded shape. */
static void fold(struct stream *stream, const struct convolution_shape *shape, const void *x,
                 void *folded)
{
    const struct convolution_shape to = convolution_folded(shape);
    uint32_t octets = octets_in(convolution_pixels(&to), to.in);
    KERNEL_LAUNCH(fold_kernel, blocks_for(octets, THREADS), THREADS, 0, stream->handle, *shape, to,
                  octets, (const uint16_t *)x, (struct vector16 *)folded);
}

/* A thread adds the gradient of a weight, or overwrites it. */
template <typename number>
__global__ static void unfold_kernel(int weights, int channels, int kernel, const number *folded,
                                     float *dweight, bool overwrite)
{
    kernel_begin();
    int at = (int)(blockIdx.x * blockDim.x + threadIdx.x), taps = (kernel + 1) / 2;
    if (at >= weights)
        return;
    int column = at % kernel, row = at / kernel % kernel, plane = at / (kernel * kernel);
    int tap = (plane / channels * taps + row / 2) * taps + column / 2;
    int channel = (2 * (row % 2) + column % 2) * FOLD_CHANNELS + plane % channels;
    gradient_put(&dweight[at], number_load(folded[tap * FOLDED_CHANNELS + channel]), overwrite);
}

template <typename number>
static void unfold(struct stream *stream, const struct convolution_shape *shape, const void *folded,
                   float *dweight, bool overwrite)
{
    int64_t weights = convolution_weights(shape);
    KERNEL_LAUNCH(unfold_kernel<number>, blocks_for(weights, THREADS), THREADS, 0, stream->handle,
                  (int)weights, (int)shape->in, (int)shape->kernel, (const number *)folded, dweight,
                  overwrite);
}

/* ---- Filters: [out, in, kernel, kernel] to [out, kernel, kernel, in], or folded like images of
 * kernel x kernel pixels */
static void filter_transpose(struct stream *stream, const struct call *call, const void *weight)
{
    struct convolution_shape shape = call->shape;
    if (shape.images) {
        shape.batch = shape.out;
        shape.height = shape.width = shape.kernel;
        shape.padding = 0;
        fold(stream, &shape, weight, call->library.filter);
        return;
    }
    struct transpose turn = {};
    turn.type = call->library.type;
    turn.batch = shape.out;
    turn.rows = shape.in;
    turn.columns = shape.kernel * shape.kernel;
    turn.x = weight;
    turn.y = call->library.filter;
    cuda_transpose(stream, &turn);
}

/* Reverse filter_transpose, accumulating into the gradient or overwriting it. */
static void filter_add(struct stream *stream, const struct call *call, float *dweight,
                       bool overwrite)
{
    const struct convolution_shape *shape = &call->shape;
    if (shape->images) {
        NUMBER_SWITCH(call->library.type, unfold, stream, shape, call->library.filter, dweight,
                      overwrite);
        return;
    }
    struct transpose turn = {};
    turn.type = call->library.type;
    turn.batch = shape->out;
    turn.rows = shape->kernel * shape->kernel;
    turn.columns = shape->in;
    turn.x = call->library.filter;
    cuda_transpose_add(stream, &turn, dweight, overwrite);
}

/* x and y are those of the call. dweight: the gradient to which that of the filters is added; NULL
 * for the other parts. With overwrite the first piece replaces it. */
static void run_in_pieces(struct stream *stream, const struct call *call,
                          enum convolution_part part, const void *x, const void *y, float *dweight,
                          bool overwrite)
{
    struct convolution_shape shape = call->shape;
    struct convolution piece = call->library;
    size_t size = type_size(piece.type);
    size_t x_bytes = (size_t)(convolution_pixels(&shape) / shape.batch * shape.in) * size;
    size_t y_bytes = (size_t)(convolved_pixels(&shape) / shape.batch * shape.out) * size;
    int64_t most = piece.shape.batch;
    ENSURE(piece.filter != NULL, "convolution without workspace");
    piece.part = part;
    for (int64_t first = 0; first < call->shape.batch; first += most) {
        int64_t left = call->shape.batch - first;
        shape.batch = piece.shape.batch = left < most ? left : most;
        piece.x = (unsigned char *)x + (size_t)first * x_bytes;
        piece.y = (unsigned char *)y + (size_t)first * y_bytes;
        if (shape.images) {
            fold(stream, &shape, piece.x, call->folded);
            piece.x = call->folded;
        }
        convolution_run(stream, &piece);
        if (dweight != NULL)
            filter_add(stream, call, dweight, overwrite && first == 0);
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
    const struct call call = call_of(args->type, &args->shape, args->workspace);
    filter_transpose(stream, &call, args->weight);
    run_in_pieces(stream, &call, CONVOLUTION_FORWARD, args->x, args->y, NULL, false);
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
    const struct call call = call_of(args->type, shape, args->workspace);
    if (args->dweight != NULL)
        run_in_pieces(stream, &call, CONVOLUTION_FILTERS, args->x, args->dy, args->dweight,
                      args->overwrite);
    if (args->dbias != NULL)
        columns_sum(stream, args->type, args->dy, convolved_pixels(shape), shape->out, args->dbias,
                    args->overwrite);
    if (args->dx == NULL)
        return;
    ENSURE(!shape->images, "images have no gradient");
    filter_transpose(stream, &call, args->weight);
    run_in_pieces(stream, &call, CONVOLUTION_INPUTS, args->dx, args->dy, NULL, false);
    if (args->x_relu)
        cuda_relu_gradient(stream, args->type, convolution_pixels(shape) * shape->in, args->x,
                           args->dx);
}
