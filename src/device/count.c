// SPDX-License-Identifier: BSD-3-Clause
/* The counting backend. Bytes assume an ideal cache: each tensor of an operation is read or written
 * once, an updated tensor both. */
#include "device/count.h"

#include "device/image.h"

static struct {
    const struct device_backend *inner;
    struct device_backend outer;
    struct counter *counter;
} active;

/* Return the bytes of `count` elements; 0 if the tensor is NULL. */
static double bytes_of(enum data_type type, const void *tensor, double count)
{
    return tensor == NULL ? 0 : count * (double)type_size(type);
}

/* Return the bytes of an fp32 tensor that is accumulated (read and written) or overwritten. */
static double sum_bytes(const float *sum, bool overwrite, double count)
{
    return sum == NULL ? 0 : (overwrite ? 1 : 2) * count * sizeof(float);
}

/* Add a kernel that the GPU backend launches, for comparison with the profile of a step
 * (benchmarks/gpu_page). Small kernels that finish sums are left out: their data stays in the L2
 * cache. */
static void kernel_add(struct counted *counted, const char *family, const char *result,
                       double flops, double bytes)
{
    ENSURE(counted->kernels < COUNTED_KERNELS, "more than %d kernels", COUNTED_KERNELS);
    counted->kernel[counted->kernels++] =
        (struct counted_kernel){.family = family, .result = result, .flops = flops, .bytes = bytes};
}

static struct counted move_cost(enum data_type type, double bytes)
{
    return (struct counted){.type = type, .bytes = bytes, .size = {bytes, 1, 1}};
}

static struct counted cost_add_drawn(const struct dropout *dropout, double elements,
                                     struct counted counted)
{
    counted.drawn = dropout->rate > 0 ? elements : 0;
    return counted;
}

/* ---- Costs (operations.h) */
#define T(tensor, count) bytes_of(args->type, args->tensor, (double)(count))
#define F(tensor, count) bytes_of(TYPE_FP32, args->tensor, (double)(count))
#define SUM(tensor, count) sum_bytes(args->tensor, args->overwrite, (double)(count))
#define MOVES(bytes) move_cost(args->type, bytes)
#define MOVES_FP32(bytes) move_cost(TYPE_FP32, bytes)
#define DRAWS(dropout, count, cost) cost_add_drawn(&args->dropout, count, cost)
#define ROWS(width) ((double)args->rows * (double)args->width)
#define TOKENS ((double)(args->batch * args->tokens) * (double)args->width)
#define HEADS ((double)(args->batch * args->heads) * (double)args->head_dim)
#define ATTENDS(products, bytes)                                                                   \
    attention_cost(args->type, (double)(args->batch * args->heads), (double)args->queries,         \
                   (double)args->tokens, (double)args->head_dim, &args->dropout, products, bytes)
#define UPSAMPLED                                                                                  \
    ((double)(args->batch * args->channels) * (double)(args->out_height * args->out_width))
#define IMAGES ((double)(args->batch * args->height) * (double)(args->width * args->channels))

static struct counted linear_forward_cost(const struct linear_forward *args)
{
    const double rows = (double)args->rows, in = (double)args->in, out = (double)args->out;
    const double y = T(y, rows * out);
    struct counted counted = {.type = args->type,
                              .flops = 2 * rows * in * out,
                              .bytes = T(x, rows * in) + T(weight, in * out) + T(bias, out) +
                                       T(residual, rows * out) + T(scale, out) +
                                       T(pre, rows * out) + y,
                              .size = {rows, out, in}};
    const enum linear_epilogue epilogue = linear_epilogue(args);

    kernel_add(&counted, "product", args->pre != NULL ? "pre" : "y", counted.flops,
               T(x, rows * in) + T(weight, in * out) + T(bias, out) + y +
                   (epilogue == LINEAR_DROP ? 0 : T(residual, rows * out)));
    if (epilogue == LINEAR_DROP)
        kernel_add(&counted, "dropout", "y", 0, 2 * y + T(residual, rows * out));
    else if (epilogue != LINEAR_PLAIN)
        kernel_add(&counted, epilogue == LINEAR_GELU ? "gelu" : "relu", "y", 0, 2 * y);
    return DRAWS(dropout, rows * out, counted);
}

static struct counted linear_backward_cost(const struct linear_backward *args)
{
    const double rows = (double)args->rows, in = (double)args->in, out = (double)args->out;
    const double x = rows * in * (double)type_size(args->type), flops = 2 * rows * in * out;
    const int products = (args->dx != NULL) + (args->dweight != NULL);
    struct counted counted = {.type = args->type,
                              .flops = flops * products,
                              .bytes = products * T(dy, rows * out) + T(dx, rows * in + in * out) +
                                       T(pre, rows * in) + T(dweight, rows * in) +
                                       SUM(dweight, in * out) + SUM(dbias, out) + SUM(dx_sums, in),
                              .size = {rows, out, in}};

    if (args->dweight != NULL)
        kernel_add(&counted, "product", "dweight", flops,
                   x + T(dy, rows * out) + 2 * F(dweight, in * out) + F(dbias, out));
    if (args->dx != NULL)
        kernel_add(&counted, "product", "dx", flops,
                   T(dy, rows * out) + T(dx, in * out + rows * in));
    if (args->dx != NULL && (args->pre != NULL || args->x_relu))
        kernel_add(&counted, args->pre != NULL ? "gelu_gradient" : "relu_gradient", "dx", 0, 3 * x);
    return args->pre != NULL ? DRAWS(dropout, rows * in, counted) : counted;
}

/* heads: of all samples; width: of a head; products: matrix products of queries x tokens. */
static struct counted attention_cost(enum data_type type, double heads, double queries,
                                     double tokens, double width, const struct dropout *dropout,
                                     int products, double bytes)
{
    const struct counted cost = {.type = type,
                                 .flops = 2 * products * heads * queries * tokens * width,
                                 .bytes = bytes,
                                 .size = {heads * queries / tokens, tokens, width}};

    return cost_add_drawn(dropout, cost.size[0] * tokens * tokens, cost);
}

/* Elements of tensors, and the inner dimension of one output. read: x as the convolution reads it;
 * folded images (shape.images) have 4 channels per pixel. */
struct convolved {
    double x, read, y, weight, inner;
};

static struct convolved convolved_sizes(const struct convolution_shape *shape)
{
    const double pixels = (double)convolution_pixels(shape), x = pixels * (double)shape->in;

    return (struct convolved){.x = x,
                              .read = shape->images ? 4 * pixels : x,
                              .y = (double)convolved_pixels(shape) * (double)shape->out,
                              .weight = (double)convolution_weights(shape),
                              .inner = (double)(shape->in * shape->kernel * shape->kernel)};
}

static struct counted convolution_forward_cost(const struct convolution_forward *args)
{
    const struct convolved n = convolved_sizes(&args->shape);
    const double out = (double)args->shape.out, weight = T(weight, n.weight);
    struct counted counted = {.type = args->type,
                              .flops = 2 * n.y * n.inner,
                              .bytes = T(x, n.x + n.y) + weight + T(bias, out),
                              .size = {n.y / (out > 0 ? out : 1), out, n.inner}};

    if (convolution_is_linear(&args->shape)) {
        const struct linear_forward linear = convolution_as_linear(args);
        return linear_forward_cost(&linear);
    }
    kernel_add(&counted, args->shape.images ? "fold" : "transpose", "filters", 0, 2 * weight);
    if (args->shape.images)
        kernel_add(&counted, "fold", "images", 0, T(x, n.x + n.read));
    kernel_add(&counted, "convolution", "y", counted.flops, T(x, n.read + n.y) + weight);
    if (args->relu || args->bias != NULL)
        kernel_add(&counted, "relu", "y", 0, 2 * T(y, n.y));
    return counted;
}

static struct counted convolution_backward_cost(const struct convolution_backward *args)
{
    const struct convolved n = convolved_sizes(&args->shape);
    const double size = (double)type_size(args->type), out = (double)args->shape.out;
    const double x = n.x * size, y = n.y * size, weight = n.weight * size;
    const double flops = 2 * n.y * n.inner;
    const int products = (args->dx != NULL) + (args->dweight != NULL);
    struct counted counted = {.type = args->type,
                              .flops = flops * products,
                              .bytes = products * y + T(dx, n.x + n.weight) + T(dweight, n.x) +
                                       SUM(dweight, n.weight) + SUM(dbias, out),
                              .size = {n.y / (out > 0 ? out : 1), out, n.inner}};

    if (convolution_is_linear(&args->shape)) {
        const struct linear_backward linear = convolution_backward_as_linear(args);
        return linear_backward_cost(&linear);
    }
    if (args->dweight != NULL) {
        if (args->shape.images)
            kernel_add(&counted, "fold", "images", 0, x + n.read * size);
        kernel_add(&counted, "convolution", "dweight", flops, n.read * size + y + weight);
        kernel_add(&counted, args->shape.images ? "fold" : "transpose", "dweight", 0,
                   weight + 2 * F(dweight, n.weight));
    }
    if (args->dbias != NULL)
        kernel_add(&counted, "column_sums", "dbias", 0, y);
    if (args->dx == NULL)
        return counted;
    kernel_add(&counted, "transpose", "filters", 0, 2 * weight);
    kernel_add(&counted, "convolution", "dx", flops, y + weight + x);
    if (args->x_relu)
        kernel_add(&counted, "relu_gradient", "dx", 0, 3 * x);
    return counted;
}

static struct counted target_loss_cost(const struct target_loss *args)
{
    const double batch = (double)args->batch, targets = batch * (double)target_count(args);
    const double outputs = batch * (double)(args->outputs * args->height * args->width);

    return MOVES(T(predictions, outputs) + F(targets, targets) + T(dpredictions, outputs));
}

/* Master weights, moments and averages are read and written, gradients read, copies written. With
 * `measure` weights, moments and gradients are only read. */
static double update_bytes(const struct update *args)
{
    double bytes = 0;
    for (const struct update *update = args; update != NULL; update = update->next) {
        double count = (double)update->count;
        const float *const changed[] = {update->weights, update->moment1, update->moment2};
        bytes += count * sizeof(float);
        for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
            bytes += (update->measure ? 1 : 2) * bytes_of(TYPE_FP32, changed[i], count);
        if (!update->measure)
            bytes += 2 * bytes_of(TYPE_FP32, update->average, count) +
                     bytes_of(update->copy_type, update->copy, count) +
                     bytes_of(direction_type(update->copy_type), update->direction, count);
    }
    return bytes;
}

static void ignored(struct stream *stream, ...)
{
    (void)stream;
}

/* Report an operation that does something. It is one kernel unless its cost has others. Dropout
 * that it draws is reported as an operation of its own, since random numbers take time. */
static void operation_report(enum device_operation operation, struct counted counted)
{
    struct counted dropout =
        move_cost(counted.type, 2 * counted.drawn * (double)type_size(counted.type));

    counted.operation = operation;
    dropout.operation = OPERATION_dropout_apply;
    if (counted.flops + counted.bytes <= 0)
        return;
    if (counted.kernels == 0)
        kernel_add(&counted, operation_name[operation], "", counted.flops, counted.bytes);
    active.counter->operation(active.counter, &counted);
    if (counted.drawn > 0)
        active.counter->operation(active.counter, &dropout);
}

/* clang-format off */
#define COUNTED(name, kind, parameters, arguments, cost)                                           \
    static void counted_##name parameters                                                          \
    {                                                                                              \
        ignored arguments;                                                                         \
        operation_report(OPERATION_##name, cost);                                                  \
    }
DEVICE_OPERATIONS(COUNTED)
/* clang-format on */

static void workspace_ignored(struct device *device, void *memory, size_t bytes)
{
    (void)device, (void)memory, (void)bytes;
}

void count_open(struct device *device, struct counter *counter)
{
    ENSURE(active.inner == NULL, "a device is being counted already");
    active.inner = device->backend;
    active.outer = *device->backend;
    active.counter = counter;
#define REPLACE(name, ...) active.outer.name = counted_##name;
    DEVICE_OPERATIONS(REPLACE)
    active.outer.range_begin = NULL;
    active.outer.range_end = NULL;
    active.outer.event_record = device_cpu.event_record; /* ignore their arguments */
    active.outer.stream_wait = device_cpu.stream_wait;
    active.outer.workspace_set = workspace_ignored;
    device->backend = &active.outer;
}

void count_close(struct device *device)
{
    device->backend = active.inner;
    active.inner = NULL;
}
