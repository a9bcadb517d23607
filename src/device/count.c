// SPDX-License-Identifier: BSD-3-Clause
/* The counting backend. Bytes assume an ideal cache: each tensor of an operation is read or written
 * once, an updated tensor both. */
#include "device/count.h"

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
static double added(const float *sum, bool overwrite, double count)
{
    return sum == NULL ? 0 : (overwrite ? 1 : 2) * count * sizeof(float);
}

/* An operation without matrix products. */
static struct counted moved(enum operation operation, enum data_type type, double bytes)
{
    return (struct counted){
        .operation = operation, .type = type, .bytes = bytes, .size = {bytes, 1, 1}};
}

static struct counted count_linear_forward(const struct linear_forward *args)
{
    double rows = (double)args->rows, in = (double)args->in, out = (double)args->out;
    double y = bytes_of(args->type, args->y, rows * out);
    return (struct counted){.operation = OPERATION_linear_forward,
                            .type = args->type,
                            .flops = 2 * rows * in * out,
                            .bytes = bytes_of(args->type, args->x, rows * in) +
                                     bytes_of(args->type, args->weight, in * out) +
                                     bytes_of(args->type, args->bias, out) +
                                     bytes_of(args->type, args->residual, rows * out) +
                                     bytes_of(args->type, args->scale, out) +
                                     bytes_of(args->type, args->pre, rows * out) + y,
                            .size = {rows, out, in}};
}

static struct counted count_linear_backward(const struct linear_backward *args)
{
    double rows = (double)args->rows, in = (double)args->in, out = (double)args->out;
    int products = (args->dx != NULL) + (args->dweight != NULL);
    return (struct counted){.operation = OPERATION_linear_backward,
                            .type = args->type,
                            .flops = 2 * rows * in * out * products,
                            .bytes = products * bytes_of(args->type, args->dy, rows * out) +
                                     bytes_of(args->type, args->dx, rows * in + in * out) +
                                     bytes_of(args->type, args->pre, rows * in) +
                                     bytes_of(args->type, args->dweight, rows * in) +
                                     added(args->dweight, args->overwrite, in * out) +
                                     added(args->dbias, args->overwrite, out) +
                                     added(args->dx_sums, args->overwrite, in),
                            .size = {rows, out, in}};
}

/* Elements of q for the queries, and of k and v for all tokens. */
static double attention_inputs(int64_t batch, int64_t tokens, int64_t queries, int64_t heads,
                               int64_t head_dim)
{
    return (double)(batch * heads * head_dim) * (double)(queries + 2 * tokens);
}

static struct counted count_attention_forward(const struct attention_forward *args)
{
    double heads = (double)(args->batch * args->heads), tokens = (double)args->tokens;
    double queries = (double)args->queries, width = (double)args->head_dim;
    double inputs =
        attention_inputs(args->batch, args->tokens, args->queries, args->heads, args->head_dim);
    return (struct counted){.operation = OPERATION_attention_forward,
                            .type = args->type,
                            .flops = 4 * heads * queries * tokens * width,
                            .bytes = bytes_of(args->type, args->qkv, inputs) +
                                     bytes_of(args->type, args->out, heads * queries * width) +
                                     bytes_of(TYPE_FP32, args->lse, heads * queries),
                            .size = {heads * queries / tokens, tokens, width}};
}

static struct counted count_attention_backward(const struct attention_backward *args)
{
    double heads = (double)(args->batch * args->heads), tokens = (double)args->tokens;
    double queries = (double)args->queries, width = (double)args->head_dim;
    double inputs =
        attention_inputs(args->batch, args->tokens, args->queries, args->heads, args->head_dim);
    return (struct counted){
        .operation = OPERATION_attention_backward,
        .type = args->type,
        .flops = 8 * heads * queries * tokens * width,
        .bytes = bytes_of(args->type, args->qkv, inputs + 3 * heads * tokens * width) +
                 2 * bytes_of(args->type, args->out, heads * queries * width) +
                 bytes_of(TYPE_FP32, args->lse, heads * queries) +
                 added(args->dqkv_sums, args->overwrite, 3 * (double)args->heads * width),
        .size = {heads * queries / tokens, tokens, width}};
}

struct convolved {
    double x, y, weight, window; /* numbers of elements; window: inner dimension of one output */
};

static struct convolved convolved(const struct convolution_shape *shape)
{
    int64_t height = convolved_size(shape->height, shape->kernel, shape->stride, shape->padding);
    int64_t width = convolved_size(shape->width, shape->kernel, shape->stride, shape->padding);
    double window = (double)(shape->in * shape->kernel * shape->kernel);
    return (struct convolved){.x = (double)(shape->batch * shape->height * shape->width) *
                                   (double)shape->in,
                              .y = (double)(shape->batch * height * width) * (double)shape->out,
                              .weight = window * (double)shape->out,
                              .window = window};
}

static struct counted count_convolution_forward(const struct convolution_forward *args)
{
    struct convolved shape = convolved(&args->shape);
    double out = (double)args->shape.out;
    return (struct counted){.operation = OPERATION_convolution_forward,
                            .type = args->type,
                            .flops = 2 * shape.y * shape.window,
                            .bytes = bytes_of(args->type, args->x, shape.x + shape.y) +
                                     bytes_of(args->type, args->weight, shape.weight) +
                                     bytes_of(args->type, args->bias, out),
                            .size = {shape.y / (out > 0 ? out : 1), out, shape.window}};
}

static struct counted count_convolution_backward(const struct convolution_backward *args)
{
    struct convolved shape = convolved(&args->shape);
    double out = (double)args->shape.out;
    int products = (args->dx != NULL) + (args->dweight != NULL);
    return (struct counted){.operation = OPERATION_convolution_backward,
                            .type = args->type,
                            .flops = 2 * shape.y * shape.window * products,
                            .bytes = products * bytes_of(args->type, args->dy, shape.y) +
                                     bytes_of(args->type, args->dx, shape.x + shape.weight) +
                                     bytes_of(args->type, args->dweight, shape.x) +
                                     added(args->dweight, args->overwrite, shape.weight) +
                                     added(args->dbias, args->overwrite, out),
                            .size = {shape.y / (out > 0 ? out : 1), out, shape.window}};
}

#define MOVED(name, expression)                                                                    \
    static struct counted count_##name(const struct name *args)                                    \
    {                                                                                              \
        return moved(OPERATION_##name, args->type, expression);                                    \
    }
#define ROWS(width) ((double)args->rows * (double)(width))
#define TOKENS ((double)(args->batch * args->tokens) * (double)args->width)
#define IMAGES(height, width) ((double)(args->batch * (height)) * (double)((width)*args->channels))
#define T(tensor, count) bytes_of(args->type, args->tensor, count)

MOVED(norm_forward, T(x, 2 * ROWS(args->width)) + T(kept, ROWS(args->width)) +
                        2 * bytes_of(TYPE_FP32, args->mean, ROWS(1)))
MOVED(norm_backward, T(x, ROWS(args->width)) + T(dy, ROWS(args->width)) +
                         T(add, ROWS(args->width)) + T(dx, ROWS(args->width)) +
                         added(args->add_sums, args->overwrite, (double)args->width) +
                         2 * bytes_of(TYPE_FP32, args->mean, ROWS(1)))
MOVED(dropout_apply, T(x, 2 * ROWS(args->width)))
MOVED(scale_backward, T(pre, ROWS(args->width)) + T(dy, ROWS(args->width)) +
                          T(dx, ROWS(args->width)) +
                          added(args->dscale, args->overwrite, (double)args->width))
MOVED(rotary, T(qkv, 4.0 * (double)(args->batch * args->grid[0] * args->grid[1] * args->heads) *
                         (double)args->head_dim))
MOVED(glu_forward, T(x, 3 * ROWS(args->width)))
MOVED(glu_backward, T(x, 5 * ROWS(args->width)))
MOVED(patches_forward, T(images, 2 * IMAGES(args->height, args->width)))
MOVED(tokens_forward, T(x, 2 * TOKENS))
MOVED(tokens_backward, T(dx, 2 * TOKENS))
MOVED(pool_forward, T(x, (args->mean ? TOKENS : 0) + (double)(args->batch * args->width)))
MOVED(pool_backward, T(dx, TOKENS))
MOVED(batch_norm_sums, T(x, ROWS(args->channels)))
MOVED(batch_norm_forward, T(x, 2 * ROWS(args->channels)) + T(residual, ROWS(args->channels)))
MOVED(batch_norm_backward_sums,
      T(x, ROWS(args->channels)) + T(y, ROWS(args->channels)) + T(add, ROWS(args->channels)) +
          T(dy, (args->y != NULL || args->add != NULL ? 2 : 1) * ROWS(args->channels)))
MOVED(batch_norm_backward, T(x, 3 * ROWS(args->channels)))
MOVED(max_pool_forward, T(x, IMAGES(args->height, args->width) * 1.25))
MOVED(max_pool_backward, T(dx, IMAGES(args->height, args->width) * 1.25) +
                             T(add, IMAGES(args->height, args->width) / 4))
MOVED(transpose, T(x, 2.0 * (double)(args->batch * args->rows) * (double)args->columns))
MOVED(cross_entropy, T(logits, (double)args->batch *(double)args->classes) +
                         T(dlogits, (double)args->batch *(double)args->classes))
MOVED(squared_error, T(predictions, 2.0 * (double)args->batch * (double)args->outputs))
MOVED(matrix_sum, T(x, 2 * ROWS(args->width)) + T(z, ROWS(args->width)))
static struct counted count_tree_sums(const struct tree_sums *args)
{
    return moved(OPERATION_tree_sums, TYPE_FP32,
                 (double)(args->rows + 1) * (double)args->count * sizeof(double));
}

static struct counted count_hash(const struct hash *args)
{
    return moved(OPERATION_hash, TYPE_FP32, (double)args->count * sizeof(float));
}

MOVED(nonfinite, T(values, (double)args->count))
MOVED(image_transform,
      (double)(args->batch * args->source_height * args->source_width) * (double)args->channels +
          T(images, IMAGES(args->height, args->width)))
MOVED(images_mix, T(images, 2 * IMAGES(args->height, args->width)))

/* Master weights, moments and averages are read and written, gradients read, copies written. With
 * `measure` weights, moments and gradients are only read. */
static struct counted count_update(const struct update *args)
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
    return moved(OPERATION_update, TYPE_FP32, bytes);
}

/* ---- The kernels of each operation and the bytes that each moves, for comparison with the profile
 * of a step on a GPU (benchmarks/gpu_page). The order is the launch order of cuda/linear.cu and
 * cuda/convolution.cu. Small kernels that finish sums are left out: their data stays in the L2
 * cache. */
static void kernel_add(struct counted *counted, const char *family, const char *result,
                       double flops, double bytes)
{
    ENSURE(counted->kernels < COUNTED_KERNELS, "more than %d kernels of %s", COUNTED_KERNELS,
           operation_name[counted->operation]);
    counted->kernel[counted->kernels++] =
        (struct counted_kernel){.family = family, .result = result, .flops = flops, .bytes = bytes};
}

static void linear_forward_kernels(struct counted *counted, const struct linear_forward *args)
{
    double size = (double)type_size(args->type);
    double rows = (double)args->rows, in = (double)args->in, out = (double)args->out;
    double y = rows * out * size;
    bool drops = args->dropout.rate > 0 || (args->residual != NULL && args->drop_path.rate > 0);
    /* The residual is added by the dropout kernel, which also scales. */
    bool later = args->scale != NULL || (drops && args->pre == NULL);
    double product = (rows * in + in * out + (args->bias != NULL ? out : 0)) * size + y +
                     (args->residual != NULL && !later ? y : 0);
    kernel_add(counted, "product", args->pre != NULL ? "pre" : "y", counted->flops, product);
    if (later)
        kernel_add(counted, "dropout", "y", 0, (args->residual != NULL ? 3 : 2) * y);
    else if (args->pre != NULL)
        kernel_add(counted, "gelu", "y", 0, 2 * y);
    else if (args->relu)
        kernel_add(counted, "relu", "y", 0, 2 * y);
}

static void linear_backward_kernels(struct counted *counted, const struct linear_backward *args)
{
    double size = (double)type_size(args->type);
    double rows = (double)args->rows, in = (double)args->in, out = (double)args->out;
    double x = rows * in * size, dy = rows * out * size, flops = 2 * rows * in * out;
    if (args->dweight != NULL)
        kernel_add(counted, "product", "dweight", flops,
                   x + dy + (2 * in * out + (args->dbias != NULL ? out : 0)) * sizeof(float));
    if (args->dx != NULL)
        kernel_add(counted, "product", "dx", flops, dy + in * out * size + x);
    if (args->dx != NULL && args->pre != NULL)
        kernel_add(counted, "gelu_gradient", "dx", 0, 3 * x);
    else if (args->dx != NULL && args->x_relu)
        kernel_add(counted, "relu_gradient", "dx", 0, 3 * x);
}

/* A 1 x 1 convolution is a linear layer over pixels. */
static bool is_linear(const struct convolution_shape *shape)
{
    return shape->kernel == 1 && shape->stride == 1 && shape->padding == 0;
}

static void convolution_forward_kernels(struct counted *counted,
                                        const struct convolution_forward *args)
{
    struct convolved shape = convolved(&args->shape);
    double size = (double)type_size(args->type), x = shape.x * size, y = shape.y * size;
    double weight = shape.weight * size;
    bool linear = is_linear(&args->shape);
    if (!linear)
        kernel_add(counted, "transpose", "filters", 0, 2 * weight);
    kernel_add(counted, linear ? "product" : "convolution", "y", counted->flops, x + weight + y);
    if (args->relu || (args->bias != NULL && !linear))
        kernel_add(counted, "relu", "y", 0, 2 * y);
}

static void convolution_backward_kernels(struct counted *counted,
                                         const struct convolution_backward *args)
{
    struct convolved shape = convolved(&args->shape);
    double size = (double)type_size(args->type), x = shape.x * size, y = shape.y * size;
    double weight = shape.weight * size;
    bool linear = is_linear(&args->shape);
    const char *family = linear ? "product" : "convolution";
    double flops = counted->flops / ((args->dx != NULL) + (args->dweight != NULL));
    double gradient = shape.weight * sizeof(float);
    if (args->dweight != NULL)
        kernel_add(counted, family, "dweight", flops, x + y + (linear ? 2 * gradient : weight));
    if (args->dweight != NULL && !linear)
        kernel_add(counted, "transpose", "dweight", 0, weight + 2 * gradient);
    if (args->dbias != NULL && !linear)
        kernel_add(counted, "column_sums", "dbias", 0, y);
    if (args->dx == NULL)
        return;
    if (!linear)
        kernel_add(counted, "transpose", "filters", 0, 2 * weight);
    kernel_add(counted, family, "dx", flops, y + weight + x);
    if (args->x_relu)
        kernel_add(counted, "relu_gradient", "dx", 0, 3 * x);
}

/* True if the operation launches nothing: dropout in place at rate 0. */
static bool is_idle(const struct counted *counted, const void *args)
{
    const struct dropout_apply *drop = args;
    return counted->operation == OPERATION_dropout_apply && drop->dropout.rate == 0 &&
           drop->drop_path.rate == 0 && drop->x == drop->y;
}

static void count_kernels(struct counted *counted, const void *args)
{
    if (counted->operation == OPERATION_linear_forward)
        linear_forward_kernels(counted, args);
    else if (counted->operation == OPERATION_linear_backward)
        linear_backward_kernels(counted, args);
    else if (counted->operation == OPERATION_convolution_forward)
        convolution_forward_kernels(counted, args);
    else if (counted->operation == OPERATION_convolution_backward)
        convolution_backward_kernels(counted, args);
    else if (!is_idle(counted, args))
        kernel_add(counted, operation_name[counted->operation], "", counted->flops, counted->bytes);
}

static void report(const struct counted *counted)
{
    active.counter->operation(active.counter, counted);
}

/* Dropout fused into another operation costs its random numbers: report it as a separate operation.
 */
static void report_dropout(enum data_type type, const struct dropout *dropout, double elements)
{
    struct counted counted =
        moved(OPERATION_dropout_apply, type, 2 * elements * (double)type_size(type));
    if (dropout->rate > 0)
        report(&counted);
}

static void report_fused_dropout(const struct counted *counted, enum operation operation,
                                 const void *args)
{
    double rows = counted->size[0], tokens = counted->size[1];
    const struct linear_forward *forward = args;
    const struct linear_backward *backward = args;
    const struct attention_forward *attention = args;
    const struct attention_backward *attention_gradient = args;
    const struct scale_backward *scale = args;
    if (operation == OPERATION_linear_forward)
        report_dropout(counted->type, &forward->dropout, rows * counted->size[1]);
    else if (operation == OPERATION_linear_backward && backward->pre != NULL)
        report_dropout(counted->type, &backward->dropout, rows * counted->size[2]);
    else if (operation == OPERATION_scale_backward)
        report_dropout(counted->type, &scale->dropout, (double)(scale->rows * scale->width));
    else if (operation == OPERATION_attention_forward)
        report_dropout(counted->type, &attention->dropout, rows * tokens * tokens);
    else if (operation == OPERATION_attention_backward)
        report_dropout(counted->type, &attention_gradient->dropout, rows * tokens * tokens);
}

#define COUNTED(name)                                                                              \
    static void counted_##name(struct stream *stream, const struct name *args)                     \
    {                                                                                              \
        (void)stream;                                                                              \
        struct counted counted = count_##name(args);                                               \
        count_kernels(&counted, args);                                                             \
        report(&counted);                                                                          \
        report_fused_dropout(&counted, OPERATION_##name, args);                                    \
    }
DEVICE_OPERATIONS(COUNTED)

static void report_moved(enum operation operation, double bytes)
{
    struct counted counted = moved(operation, TYPE_FP32, bytes);
    count_kernels(&counted, NULL);
    report(&counted);
}

static void counted_copy(struct stream *stream, void *to, const void *from, size_t bytes)
{
    (void)stream, (void)to, (void)from;
    report_moved(OPERATION_copy, 2 * (double)bytes);
}

static void counted_zero(struct stream *stream, void *memory, size_t bytes)
{
    (void)stream, (void)memory;
    report_moved(OPERATION_zero, (double)bytes);
}

static void counted_convert(struct stream *stream, enum data_type to_type, void *to,
                            enum data_type from_type, const void *from, int64_t count)
{
    (void)stream, (void)to, (void)from;
    report_moved(OPERATION_convert,
                 (double)count * (double)(type_size(to_type) + type_size(from_type)));
}

static void counted_add(struct stream *stream, float *sum, const float *addend, int64_t count)
{
    (void)stream, (void)sum, (void)addend;
    report_moved(OPERATION_add, 3 * (double)count * sizeof(float));
}

static void counted_scaler_update(struct stream *stream, struct loss_scaler *scaler,
                                  const double *norm_squared)
{
    (void)stream, (void)scaler, (void)norm_squared;
    report_moved(OPERATION_scaler_update, sizeof(struct loss_scaler));
}

static void counted_sum_squares(struct stream *stream, const float *values, int64_t count,
                                struct exact_sum *sum)
{
    (void)stream, (void)values, (void)sum;
    report_moved(OPERATION_sum_squares, (double)count * sizeof(float));
}

static void counted_sum_value(struct stream *stream, const struct exact_sum *sum, double *value)
{
    (void)stream, (void)sum, (void)value;
    report_moved(OPERATION_sum_value, sizeof *sum + sizeof *value);
}

static void event_ignored(struct event *event, struct stream *stream)
{
    (void)event, (void)stream;
}

static void wait_ignored(struct stream *stream, struct event *event)
{
    (void)stream, (void)event;
}

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
#define REPLACE(name) active.outer.name = counted_##name;
    DEVICE_OPERATIONS(REPLACE)
    DEVICE_OTHERS(REPLACE)
    active.outer.range_begin = NULL;
    active.outer.range_end = NULL;
    active.outer.event_record = event_ignored;
    active.outer.stream_wait = wait_ignored;
    active.outer.workspace_set = workspace_ignored;
    device->backend = &active.outer;
}

void count_close(struct device *device)
{
    device->backend = active.inner;
    active.inner = NULL;
}
