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
    char last[512] = "", name[256] = "";
    if (result == CUDNN_STATUS_SUCCESS)
        return;
    if (problem != NULL)
        engine_problem_name(problem, name, sizeof name);
    cudnnGetLastErrorString(last, sizeof last);
    for (char *c = last; *c != '\0'; c++)
        *c = *c == '\n' ? ' ' : *c;
    error_abort(file, line, "%.60s failed%s%s: %s%s%s", call, name[0] != '\0' ? " for a " : "",
                name, cudnnGetErrorString(result), last[0] != '\0' ? ": " : "", last);
}

/* ---- Descriptors of cuDNN's graph API */
#define SET(descriptor, attribute, type, count, values)                                            \
    GRAPH_CHECK(cudnnBackendSetAttribute(descriptor, CUDNN_ATTR_##attribute, CUDNN_TYPE_##type,    \
                                         count, values))

static descriptor descriptor_open(cudnnBackendDescriptorType_t type)
{
    descriptor made = NULL;
    GRAPH_CHECK(cudnnBackendCreateDescriptor(type, &made));
    return made;
}

static void descriptor_close(descriptor made)
{
    GRAPH_CHECK(cudnnBackendDestroyDescriptor(made));
}

/* Return the number of values read, at most `capacity`. */
static int64_t attribute_read(descriptor from, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t capacity, void *values)
{
    int64_t count = 0;
    GRAPH_CHECK(cudnnBackendGetAttribute(from, name, type, capacity, &count, values));
    return count < capacity ? count : capacity;
}

static void attribute_set_descriptor(descriptor to, cudnnBackendAttributeName_t name,
                                     descriptor value)
{
    GRAPH_CHECK(cudnnBackendSetAttribute(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value));
}

static void attribute_set_float(descriptor to, cudnnBackendAttributeName_t name, float value)
{
    GRAPH_CHECK(cudnnBackendSetAttribute(to, name, CUDNN_TYPE_FLOAT, 1, &value));
}

static cudnnDataType_t engine_type(enum data_type type)
{
    return type == TYPE_FP32   ? CUDNN_DATA_FLOAT
           : type == TYPE_BF16 ? CUDNN_DATA_BFLOAT16
                               : CUDNN_DATA_HALF;
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
    parts.graph = descriptor_open(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    SET(parts.graph, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1, &parts.operation);
    if (device->handle != NULL)
        SET(parts.graph, OPERATIONGRAPH_HANDLE, HANDLE, 1, &device->handle);
    GRAPH_CHECK(cudnnBackendFinalize(parts.graph));
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

/* ---- Engines */

/* Engines with one of these notes are never selected. */
static bool note_is_refused(cudnnBackendNumericalNote_t note)
{
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return true;
    default:
        return false;
    }
}

static bool config_is_accepted(descriptor config, bool tensor_cores)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviors[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    descriptor engine = descriptor_open(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    bool accepted = true, has_tensor_cores = false;

    attribute_read(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    int64_t count =
        attribute_read(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                       CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
    for (int64_t i = 0; i < count; i++) {
        accepted = accepted && !note_is_refused(notes[i]);
        has_tensor_cores = has_tensor_cores || notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    }
    count = attribute_read(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                           CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, behaviors);
    for (int64_t i = 0; i < count; i++)
        accepted = accepted && behaviors[i] != CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    descriptor_close(engine);
    return accepted && has_tensor_cores == tensor_cores;
}

/* Build the execution plan of an engine's configuration into `engine`. False if cuDNN cannot, or if
 * the plan needs more than `limit` bytes. */
static bool plan_open(const struct engine_device *device, descriptor config, size_t limit,
                      struct engine *engine)
{
    int64_t bytes = 0;
    descriptor plan = descriptor_open(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

    attribute_set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (device->handle != NULL)
        SET(plan, EXECUTION_PLAN_HANDLE, HANDLE, 1, &device->handle);
    else
        attribute_set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device->properties);
    bool built = cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS;
    if (built)
        attribute_read(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
    if (!built || (size_t)bytes > limit) {
        descriptor_close(plan);
        return false;
    }
    *engine = (struct engine){config, plan, (size_t)bytes};
    return true;
}

/* Read the heuristics' list for the graph, best first; return its length. */
enum { CONFIGS = 64 };
static int64_t configs_read(const struct engine_device *device, descriptor graph,
                            cudnnBackendHeurMode_t mode, descriptor *configs)
{
    int64_t count = 0;
    descriptor heuristics = descriptor_open(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);

    attribute_set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    SET(heuristics, ENGINEHEUR_MODE, HEUR_MODE, 1, &mode);
    if (device->handle == NULL)
        attribute_set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device->properties);
    if (cudnnBackendFinalize(heuristics) == CUDNN_STATUS_SUCCESS)
        count = attribute_read(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, configs);
    descriptor_close(heuristics);
    return count;
}

/* Build the plan of the first accepted engine in cuDNN's list that can be built. Return false if
 * no such engine exists. */
static bool engine_open(const struct engine_device *device, descriptor graph,
                        cudnnBackendHeurMode_t mode, bool tensor_cores, size_t limit,
                        struct engine *engine)
{
    descriptor configs[CONFIGS];
    bool found = false;

    for (int i = 0; i < CONFIGS; i++)
        configs[i] = descriptor_open(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = configs_read(device, graph, mode, configs);
    for (int64_t i = 0; i < count && !found; i++)
        if (config_is_accepted(configs[i], tensor_cores))
            found = plan_open(device, configs[i], limit, engine);
    for (int i = 0; i < CONFIGS; i++)
        if (!found || configs[i] != engine->config)
            descriptor_close(configs[i]);
    return found;
}

void engine_close(struct engine *engine)
{
    if (engine->plan == NULL)
        return;
    descriptor_close(engine->plan);
    descriptor_close(engine->config);
    *engine = (struct engine){NULL, NULL, 0};
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
        for (int mode = 0; mode < 2 && !found; mode++)
            found = engine_open(device, parts.graph, modes[mode], !without, limit, engine);
    graph_parts_close(&parts);
    return found;
}

void engine_run(cudnnHandle_t handle, const struct engine_problem *problem,
                const struct engine *engine, const struct convolution *convolution)
{
    const void *const pointers[] = {convolution->x, convolution->filter, convolution->y};
    /* A variant pack cannot be changed once it is finalized, so each call creates one. */
    descriptor pack = descriptor_open(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);

    SET(pack, VARIANT_PACK_UNIQUE_IDS, INT64, 3, identifiers);
    SET(pack, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 3, pointers);
    SET(pack, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &convolution->workspace);
    GRAPH_CHECK(cudnnBackendFinalize(pack));
    ENGINE_CHECK(problem, cudnnBackendExecute(handle, engine->plan, pack));
    descriptor_close(pack);
}
