// SPDX-License-Identifier: BSD-3-Clause
#include "convolution_engine.h"

#include <stdio.h>

typedef cudnnBackendDescriptor_t descriptor;

/* ---- Errors */
void engine_problem_name(const struct engine_problem *problem, char *name, size_t size)
{
    static const char *const parts[] = {"forward", "input gradient", "filter gradient"};
    const struct convolution_shape *shape = &problem->shape;
    snprintf(name, size,
             "convolution (%s, %s%s) of %lld x %lld x %lld pixels, %lld to %lld channels, "
             "kernel %lld, stride %lld, padding %lld",
             parts[problem->part], type_name(problem->type), problem->tf32 ? ", tf32" : "",
             (long long)shape->batch, (long long)shape->height, (long long)shape->width,
             (long long)shape->in, (long long)shape->out, (long long)shape->kernel,
             (long long)shape->stride, (long long)shape->padding);
}

void engine_check(cudnnStatus_t result, const char *call, const char *file, int line,
                  const struct engine_problem *problem)
{
    char name[256];
    if (result == CUDNN_STATUS_SUCCESS)
        return;
    engine_problem_name(problem, name, sizeof name);
    engine_fail(result, call, file, line, name);
}

/* ---- The graph: one operation on three tensors. The identifiers connect the tensors of the graph
 * to the pointers of a call. */
static const int64_t identifiers[] = {'x', 'f', 'y'};

/* Sizes are in cuDNN's order; in memory channels are last. */
static descriptor tensor_open(const struct engine_problem *problem, int64_t identifier,
                              int64_t count, int64_t channels, int64_t height, int64_t width)
{
    const int64_t sizes[] = {count, channels, height, width};
    const int64_t strides[] = {channels * height * width, 1, channels * width, channels};
    const int64_t alignment = ENGINE_ALIGNMENT;
    const cudnnDataType_t type = engine_type(problem->type);
    descriptor tensor = descriptor_open(CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    SET(tensor, TENSOR_UNIQUE_ID, INT64, 1, &identifier);
    SET(tensor, TENSOR_DATA_TYPE, DATA_TYPE, 1, &type);
    SET(tensor, TENSOR_DIMENSIONS, INT64, 4, sizes);
    SET(tensor, TENSOR_STRIDES, INT64, 4, strides);
    SET(tensor, TENSOR_BYTE_ALIGNMENT, INT64, 1, &alignment);
    ENGINE_CHECK(problem, cudnnBackendFinalize(tensor));
    return tensor;
}

static descriptor convolution_open(const struct engine_problem *problem)
{
    const struct convolution_shape *shape = &problem->shape;
    const int64_t dimensions = 2, dilations[] = {1, 1};
    const int64_t strides[] = {shape->stride, shape->stride};
    const int64_t padding[] = {shape->padding, shape->padding};
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    descriptor convolution = descriptor_open(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

    SET(convolution, CONVOLUTION_SPATIAL_DIMS, INT64, 1, &dimensions);
    SET(convolution, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, &sums);
    SET(convolution, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, &mode);
    SET(convolution, CONVOLUTION_DILATIONS, INT64, 2, dilations);
    SET(convolution, CONVOLUTION_FILTER_STRIDES, INT64, 2, strides);
    SET(convolution, CONVOLUTION_PRE_PADDINGS, INT64, 2, padding);
    SET(convolution, CONVOLUTION_POST_PADDINGS, INT64, 2, padding);
    ENGINE_CHECK(problem, cudnnBackendFinalize(convolution));
    return convolution;
}

/* Attributes of the three operations; the filter comes first in each. */
#define OPERATION(type, name, filter, x, y)                                                        \
    {                                                                                              \
        CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR,                                   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA,                                       \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA,                                        \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC,                                   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##filter,                                    \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##x,                                         \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##y                                          \
    }
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, convolution, filter, x, y;
} operations[CONVOLUTION_PARTS] = {OPERATION(FORWARD, FORWARD, W, X, Y),
                                   OPERATION(BACKWARD_DATA, BWD_DATA, W, DX, DY),
                                   OPERATION(BACKWARD_FILTER, BWD_FILTER, DW, X, DY)};

struct graph_parts {
    descriptor x, filter, y, convolution, operation, graph;
};

static struct graph_parts graph_parts_open(const struct engine_device *device,
                                           const struct engine_problem *problem)
{
    const struct convolution_shape *s = &problem->shape;
    const int part = problem->part;
    struct graph_parts parts;

    parts.x = tensor_open(problem, identifiers[0], s->batch, s->in, s->height, s->width);
    parts.filter = tensor_open(problem, identifiers[1], s->out, s->in, s->kernel, s->kernel);
    parts.y = tensor_open(problem, identifiers[2], s->batch, s->out, convolved_height(s),
                          convolved_width(s));
    parts.convolution = convolution_open(problem);
    parts.operation = descriptor_open(operations[part].type);
    attribute_set_float(parts.operation, operations[part].alpha, 1);
    attribute_set_float(parts.operation, operations[part].beta, 0);
    attribute_set_descriptor(parts.operation, operations[part].convolution, parts.convolution);
    attribute_set_descriptor(parts.operation, operations[part].filter, parts.filter);
    attribute_set_descriptor(parts.operation, operations[part].x, parts.x);
    attribute_set_descriptor(parts.operation, operations[part].y, parts.y);
    ENGINE_CHECK(problem, cudnnBackendFinalize(parts.operation));
    parts.graph = engine_graph_open(device, &parts.operation, 1);
    return parts;
}

static void graph_parts_close(const struct graph_parts *parts)
{
    descriptor_close(parts->graph);
    descriptor_close(parts->operation);
    descriptor_close(parts->convolution);
    descriptor_close(parts->y);
    descriptor_close(parts->filter);
    descriptor_close(parts->x);
}

/* ---- Selection */
size_t engine_workspace_limit(enum data_type type, const struct convolution_shape *s)
{
    int64_t y = s->batch * convolved_height(s) * convolved_width(s) * s->out;
    int64_t x = s->batch * s->height * s->width * s->in;
    return ENGINE_WORKSPACE + (size_t)(x + y) * type_size(type);
}

/* True if the precision allows tensor cores. Engines that use them are preferred to engines that
 * the heuristics rank higher: for some 1 x 1 convolutions of stride 2 the first engine does not use
 * them. */
static bool tensor_cores_allowed(const struct engine_problem *problem)
{
    return problem->type != TYPE_FP32 || problem->tf32;
}

bool engine_select(const struct engine_device *device, const struct engine_problem *problem,
                   size_t limit, struct engine *engine)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    const struct graph_parts parts = graph_parts_open(device, problem);
    bool found = false;

    for (int without = !tensor_cores_allowed(problem); without < 2 && !found; without++)
        for (int mode = 0; mode < 2 && !found; mode++) {
            const struct engine_rules rules = {!without, limit};
            found = engine_open(device, parts.graph, modes[mode], &rules, engine);
        }
    graph_parts_close(&parts);
    return found;
}

void engine_run(cudnnHandle_t handle, const struct engine_problem *problem,
                const struct engine *engine, const struct convolution *convolution)
{
    const void *const pointers[] = {convolution->x, convolution->filter, convolution->y};
    ENGINE_CHECK(problem,
                 engine_execute(handle, engine, 3, identifiers, pointers, convolution->workspace));
}
