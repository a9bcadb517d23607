/* The kernels of each operation and the bytes that each moves, for comparison with the profile of a
 * step on a GPU (benchmarks/gpu_page). The order is the launch order of cuda/linear.cu and
 * cuda/convolution.cu. Small kernels that finish sums are left out: their data stays in the L2
 * cache. */
#include "device/count.h"

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
    bool later = drops && args->pre == NULL; /* the residual is added by the dropout kernel */
    double product = (rows * in + in * out + (args->bias != NULL ? out : 0)) * size + y +
                     (args->residual != NULL && !later ? y : 0);
    kernel_add(counted, "product", args->pre != NULL ? "pre" : "y", counted->flops, product);
    if (args->pre != NULL)
        kernel_add(counted, "gelu", "y", 0, 2 * y);
    else if (later)
        kernel_add(counted, "dropout", "y", 0, (args->residual != NULL ? 3 : 2) * y);
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

/* Bytes of each tensor in the compute type. */
struct convolution_bytes {
    double x, y, weight;
};

static struct convolution_bytes convolution_bytes(enum data_type type,
                                                  const struct convolution_shape *shape)
{
    double size = (double)type_size(type), in = (double)shape->in, out = (double)shape->out;
    int64_t height = convolved_size(shape->height, shape->kernel, shape->stride, shape->padding);
    int64_t width = convolved_size(shape->width, shape->kernel, shape->stride, shape->padding);
    return (struct convolution_bytes){
        .x = (double)(shape->batch * shape->height * shape->width) * in * size,
        .y = (double)(shape->batch * height * width) * out * size,
        .weight = (double)(shape->kernel * shape->kernel) * in * out * size};
}

static void convolution_forward_kernels(struct counted *counted,
                                        const struct convolution_forward *args)
{
    struct convolution_bytes bytes = convolution_bytes(args->type, &args->shape);
    bool linear = is_linear(&args->shape);
    if (!linear)
        kernel_add(counted, "transpose", "filters", 0, 2 * bytes.weight);
    kernel_add(counted, linear ? "product" : "convolution", "y", counted->flops,
               bytes.x + bytes.weight + bytes.y);
    if (args->relu || (args->bias != NULL && !linear))
        kernel_add(counted, "relu", "y", 0, 2 * bytes.y);
}

static void convolution_backward_kernels(struct counted *counted,
                                         const struct convolution_backward *args)
{
    struct convolution_bytes bytes = convolution_bytes(args->type, &args->shape);
    bool linear = is_linear(&args->shape);
    const char *family = linear ? "product" : "convolution";
    double flops = counted->flops / ((args->dx != NULL) + (args->dweight != NULL));
    double gradient = bytes.weight / (double)type_size(args->type) * sizeof(float);
    if (args->dweight != NULL)
        kernel_add(counted, family, "dweight", flops,
                   bytes.x + bytes.y + (linear ? 2 * gradient : bytes.weight));
    if (args->dweight != NULL && !linear)
        kernel_add(counted, "transpose", "dweight", 0, bytes.weight + 2 * gradient);
    if (args->dbias != NULL && !linear)
        kernel_add(counted, "column_sums", "dbias", 0, bytes.y);
    if (args->dx == NULL)
        return;
    if (!linear)
        kernel_add(counted, "transpose", "filters", 0, 2 * bytes.weight);
    kernel_add(counted, family, "dx", flops, bytes.y + bytes.weight + bytes.x);
    if (args->x_relu)
        kernel_add(counted, "relu_gradient", "dx", 0, 3 * bytes.x);
}

/* True if the operation launches nothing: dropout in place at rate 0. */
static bool is_idle(const struct counted *counted, const void *args)
{
    const struct dropout_apply *drop = args;
    return counted->operation == OPERATION_dropout_apply && drop->dropout.rate == 0 &&
           drop->drop_path.rate == 0 && drop->x == drop->y;
}

void count_kernels(struct counted *counted, const void *args)
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
