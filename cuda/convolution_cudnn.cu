/* Convolutions by cuDNN: its functions of version 7 and on (cudnnConvolutionForward and the two
 * backward), tensors and filters channels last, sums in fp32. Algorithm 1 of each part - the
 * implicit products - is the one that gives the same bits each time, exists for every type channels
 * last, and is what other frameworks take when asked for determinism; so there is nothing to
 * measure and nothing to remember. The filters' gradient comes in the tensors' type: rounded once,
 * as sums of fp32 are stored.
 *
 * libcudnn.so is small and loads what it needs with the first handle. What a shape needs is made
 * when it is asked about for the first time; running it is a look-up, and allocates nothing. */
#include "convolution.h"

#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the library's workspace, so that a smaller batch, which may be computed otherwise, has room.
 */
static const size_t least_bytes = 32 << 20;

/* All that a plan depends on but the batch; compared as bytes. */
struct layer {
    struct convolution_shape shape; /* batch 0 */
    int64_t type, tf32;
};

struct plan {
    struct layer layer;
    int64_t batch;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t filter;
    cudnnConvolutionDescriptor_t convolution;
    size_t bytes[CONVOLUTION_PARTS]; /* of workspace */
    size_t allowed;                  /* bytes that a caller of this shape has; 0: nobody asked */
};

struct convolutions {
    cudnnHandle_t library;
    struct plan *plans;
    int count, room;
};

static const cudnnConvolutionFwdAlgo_t forward_algorithm =
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
static const cudnnConvolutionBwdDataAlgo_t inputs_algorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
static const cudnnConvolutionBwdFilterAlgo_t filters_algorithm =
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

/* It counts by int. */
int64_t convolutions_numbers(void)
{
    return INT32_MAX;
}

/* ---- Errors: which call, for which shape, and the library's own last word. */
static void shape_name(const struct plan *plan, char *name, size_t size)
{
    const struct convolution_shape *shape = &plan->layer.shape;
    snprintf(name, size,
             " for a convolution of %lld x %lld x %lld pixels, %lld to %lld channels, kernel %lld, "
             "stride %lld, padding %lld, %s%s",
             (long long)plan->batch, (long long)shape->height, (long long)shape->width,
             (long long)shape->in, (long long)shape->out, (long long)shape->kernel,
             (long long)shape->stride, (long long)shape->padding,
             type_name((enum data_type)plan->layer.type), plan->layer.tf32 ? " tf32" : "");
}

/* plan: what it is about, or NULL. */
static void library_check(cudnnStatus_t result, const char *call, int line, const struct plan *plan)
{
    char shape[256] = "", last[512] = "";
    if (result == CUDNN_STATUS_SUCCESS)
        return;
    if (plan != NULL)
        shape_name(plan, shape, sizeof shape);
    cudnnGetLastErrorString(last, sizeof last);
    for (char *c = last; *c != '\0'; c++)
        *c = *c == '\n' ? ' ' : *c;
    error_abort(__FILE__, line, "%.60s%s: %s%s%s", call, shape, cudnnGetErrorString(result),
                last[0] != '\0' ? ": " : "", last);
}
#define LIBRARY_CHECK(plan, call) library_check(call, #call, __LINE__, plan)

/* ---- Opening. */
static struct convolutions *library_of(struct cuda_device *cuda)
{
    if (cuda->convolutions != NULL)
        return cuda->convolutions;
    struct convolutions *made = (struct convolutions *)calloc(1, sizeof *made);
    ENSURE(made != NULL, "no memory for convolutions");
    LIBRARY_CHECK(NULL, cudnnCreate(&made->library));
    cuda->convolutions = made;
    return made;
}

void convolutions_close(struct convolutions *convolutions)
{
    if (convolutions == NULL)
        return;
    for (int i = 0; i < convolutions->count; i++) {
        struct plan *plan = &convolutions->plans[i];
        LIBRARY_CHECK(plan, cudnnDestroyTensorDescriptor(plan->x));
        LIBRARY_CHECK(plan, cudnnDestroyTensorDescriptor(plan->y));
        LIBRARY_CHECK(plan, cudnnDestroyFilterDescriptor(plan->filter));
        LIBRARY_CHECK(plan, cudnnDestroyConvolutionDescriptor(plan->convolution));
    }
    LIBRARY_CHECK(NULL, cudnnDestroy(convolutions->library));
    free(convolutions->plans);
    free(convolutions);
}

/* ---- What a shape needs. */
static cudnnDataType_t library_type(int64_t type)
{
    return type == TYPE_FP32   ? CUDNN_DATA_FLOAT
           : type == TYPE_BF16 ? CUDNN_DATA_BFLOAT16
                               : CUDNN_DATA_HALF;
}

static void tensor_open(const struct plan *plan, cudnnTensorDescriptor_t *tensor, int64_t channels,
                        int64_t height, int64_t width)
{
    ENSURE(plan->batch * channels * height * width <= INT32_MAX,
           "a convolution's sample of %lld x %lld x %lld is too large for cuDNN", (long long)height,
           (long long)width, (long long)channels);
    LIBRARY_CHECK(plan, cudnnCreateTensorDescriptor(tensor));
    LIBRARY_CHECK(plan, cudnnSetTensor4dDescriptor(*tensor, CUDNN_TENSOR_NHWC,
                                                   library_type(plan->layer.type), (int)plan->batch,
                                                   (int)channels, (int)height, (int)width));
}

/* Without TF32 fp32 is multiplied as fp32: by default the library would round it. */
static cudnnMathType_t math_of(const struct layer *layer)
{
    if (layer->type == TYPE_FP16)
        return CUDNN_TENSOR_OP_MATH;
    return layer->type == TYPE_BF16 || layer->tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

static void descriptors_open(struct plan *plan)
{
    const struct convolution_shape *s = &plan->layer.shape;
    tensor_open(plan, &plan->x, s->in, s->height, s->width);
    tensor_open(plan, &plan->y, s->out, convolved_size(s->height, s->kernel, s->stride, s->padding),
                convolved_size(s->width, s->kernel, s->stride, s->padding));
    LIBRARY_CHECK(plan, cudnnCreateFilterDescriptor(&plan->filter));
    LIBRARY_CHECK(plan, cudnnSetFilter4dDescriptor(plan->filter, library_type(plan->layer.type),
                                                   CUDNN_TENSOR_NHWC, (int)s->out, (int)s->in,
                                                   (int)s->kernel, (int)s->kernel));
    LIBRARY_CHECK(plan, cudnnCreateConvolutionDescriptor(&plan->convolution));
    LIBRARY_CHECK(plan, cudnnSetConvolution2dDescriptor(
                            plan->convolution, (int)s->padding, (int)s->padding, (int)s->stride,
                            (int)s->stride, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    LIBRARY_CHECK(plan, cudnnSetConvolutionMathType(plan->convolution, math_of(&plan->layer)));
}

static void bytes_find(cudnnHandle_t library, struct plan *plan)
{
    LIBRARY_CHECK(plan, cudnnGetConvolutionForwardWorkspaceSize(
                            library, plan->x, plan->filter, plan->convolution, plan->y,
                            forward_algorithm, &plan->bytes[CONVOLUTION_FORWARD]));
    LIBRARY_CHECK(plan, cudnnGetConvolutionBackwardDataWorkspaceSize(
                            library, plan->filter, plan->y, plan->convolution, plan->x,
                            inputs_algorithm, &plan->bytes[CONVOLUTION_INPUTS]));
    LIBRARY_CHECK(plan, cudnnGetConvolutionBackwardFilterWorkspaceSize(
                            library, plan->x, plan->y, plan->convolution, plan->filter,
                            filters_algorithm, &plan->bytes[CONVOLUTION_FILTERS]));
}

static struct layer layer_of(const struct cuda_device *cuda, enum data_type type,
                             const struct convolution_shape *shape)
{
    struct layer layer = {};
    layer.shape = *shape;
    layer.shape.batch = 0;
    layer.type = type;
    layer.tf32 = type == TYPE_FP32 && cuda->tf32;
    return layer;
}

/* Who asks about a batch may run smaller ones in what it was told. */
static size_t room_of_larger(const struct convolutions *convolutions, const struct plan *plan)
{
    size_t least = SIZE_MAX;
    for (int i = 0; i < convolutions->count; i++) {
        const struct plan *other = &convolutions->plans[i];
        if (other->allowed > 0 && other->batch > plan->batch && other->allowed < least &&
            memcmp(&other->layer, &plan->layer, sizeof plan->layer) == 0)
            least = other->allowed;
    }
    return least == SIZE_MAX ? 0 : least;
}

static struct plan *plan_add(struct convolutions *convolutions)
{
    if (convolutions->count == convolutions->room) {
        convolutions->room = convolutions->room > 0 ? 2 * convolutions->room : 64;
        convolutions->plans = (struct plan *)realloc(
            convolutions->plans, (size_t)convolutions->room * sizeof(struct plan));
        ENSURE(convolutions->plans != NULL, "no memory for convolutions");
    }
    return &convolutions->plans[convolutions->count++];
}

static struct plan *plan_find(struct cuda_device *cuda, enum data_type type,
                              const struct convolution_shape *shape)
{
    struct convolutions *convolutions = library_of(cuda);
    struct layer layer = layer_of(cuda, type, shape);
    for (int i = 0; i < convolutions->count; i++) {
        struct plan *plan = &convolutions->plans[i];
        if (plan->batch == shape->batch && memcmp(&plan->layer, &layer, sizeof layer) == 0)
            return plan;
    }
    struct plan *plan = plan_add(convolutions);
    *plan = {};
    plan->layer = layer;
    plan->batch = shape->batch;
    descriptors_open(plan);
    bytes_find(convolutions->library, plan);
    return plan;
}

size_t convolutions_bytes(struct cuda_device *cuda, enum data_type type,
                          const struct convolution_shape *shape)
{
    struct plan *plan = plan_find(cuda, type, shape);
    plan->allowed = least_bytes;
    for (int part = 0; part < CONVOLUTION_PARTS; part++)
        plan->allowed = plan->bytes[part] > plan->allowed ? plan->bytes[part] : plan->allowed;
    return plan->allowed;
}

/* ---- */
static void room_check(const struct convolutions *convolutions, struct plan *plan, size_t bytes)
{
    char shape[256];
    if (plan->allowed == 0)
        plan->allowed = room_of_larger(convolutions, plan);
    if (bytes <= plan->allowed)
        return;
    shape_name(plan, shape, sizeof shape);
    error_abort(__FILE__, __LINE__, "%zu bytes of workspace%s, which needs %zu", plan->allowed,
                shape, bytes);
}

void convolution_run(struct stream *stream, const struct convolution *c)
{
    struct plan *plan = plan_find(stream->cuda, c->type, &c->shape);
    cudnnHandle_t library = stream->cuda->convolutions->library;
    const float one = 1, zero = 0;
    size_t bytes = plan->bytes[c->part];
    room_check(stream->cuda->convolutions, plan, bytes);
    LIBRARY_CHECK(plan, cudnnSetStream(library, stream->handle));
    if (c->part == CONVOLUTION_FORWARD)
        LIBRARY_CHECK(plan, cudnnConvolutionForward(library, &one, plan->x, c->x, plan->filter,
                                                    c->filter, plan->convolution, forward_algorithm,
                                                    c->workspace, bytes, &zero, plan->y, c->y));
    else if (c->part == CONVOLUTION_INPUTS)
        LIBRARY_CHECK(plan,
                      cudnnConvolutionBackwardData(library, &one, plan->filter, c->filter, plan->y,
                                                   c->y, plan->convolution, inputs_algorithm,
                                                   c->workspace, bytes, &zero, plan->x, c->x));
    else
        LIBRARY_CHECK(plan, cudnnConvolutionBackwardFilter(library, &one, plan->x, c->x, plan->y,
                                                           c->y, plan->convolution,
                                                           filters_algorithm, c->workspace, bytes,
                                                           &zero, plan->filter, c->filter));
}
