// SPDX-License-Identifier: BSD-3-Clause
#include "engine.h"

#include <stdio.h>

typedef cudnnBackendDescriptor_t descriptor;

void engine_fail(cudnnStatus_t result, const char *call, const char *file, int line,
                 const char *name)
{
    char last[512] = "";
    cudnnGetLastErrorString(last, sizeof last);
    for (char *c = last; *c != '\0'; c++)
        *c = *c == '\n' ? ' ' : *c;
    error_abort(file, line, "%.60s failed%s%s: %s%s%s", call, name[0] != '\0' ? " for a " : "",
                name, cudnnGetErrorString(result), last[0] != '\0' ? ": " : "", last);
}

/* ---- Descriptors */
cudnnBackendDescriptor_t descriptor_open(cudnnBackendDescriptorType_t type)
{
    descriptor made = NULL;
    GRAPH_CHECK(cudnnBackendCreateDescriptor(type, &made));
    return made;
}

void descriptor_close(descriptor made)
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

void attribute_set_descriptor(descriptor to, cudnnBackendAttributeName_t name, descriptor value)
{
    GRAPH_CHECK(cudnnBackendSetAttribute(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value));
}

void attribute_set_float(descriptor to, cudnnBackendAttributeName_t name, float value)
{
    GRAPH_CHECK(cudnnBackendSetAttribute(to, name, CUDNN_TYPE_FLOAT, 1, &value));
}

cudnnDataType_t engine_type(enum data_type type)
{
    return type == TYPE_FP32   ? CUDNN_DATA_FLOAT
           : type == TYPE_BF16 ? CUDNN_DATA_BFLOAT16
                               : CUDNN_DATA_HALF;
}

descriptor engine_graph_open(const struct engine_device *device, const descriptor *operations,
                             int64_t count)
{
    descriptor graph = descriptor_open(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    SET(graph, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, count, operations);
    if (device->handle != NULL)
        SET(graph, OPERATIONGRAPH_HANDLE, HANDLE, 1, &device->handle);
    GRAPH_CHECK(cudnnBackendFinalize(graph));
    return graph;
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

static bool config_is_accepted(descriptor config, const struct engine_rules *rules)
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
    return accepted && has_tensor_cores == rules->tensor_cores;
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

bool engine_open(const struct engine_device *device, descriptor graph, cudnnBackendHeurMode_t mode,
                 const struct engine_rules *rules, struct engine *engine)
{
    descriptor configs[CONFIGS];
    bool found = false;

    for (int i = 0; i < CONFIGS; i++)
        configs[i] = descriptor_open(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = configs_read(device, graph, mode, configs);
    for (int64_t i = 0; i < count && !found; i++)
        if (config_is_accepted(configs[i], rules))
            found = plan_open(device, configs[i], rules->limit, engine);
    for (int i = 0; i < CONFIGS; i++)
        if (!found || configs[i] != engine->config)
            descriptor_close(configs[i]);
    return found;
}

cudnnStatus_t engine_execute(cudnnHandle_t handle, const struct engine *engine, int64_t count,
                             const int64_t *identifiers, const void *const *pointers,
                             const void *workspace)
{
    /* A variant pack cannot be changed once it is finalized, so each call creates one. */
    descriptor pack = descriptor_open(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);

    SET(pack, VARIANT_PACK_UNIQUE_IDS, INT64, count, identifiers);
    SET(pack, VARIANT_PACK_DATA_POINTERS, VOID_PTR, count, pointers);
    SET(pack, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &workspace);
    GRAPH_CHECK(cudnnBackendFinalize(pack));
    cudnnStatus_t result = cudnnBackendExecute(handle, engine->plan, pack);
    descriptor_close(pack);
    return result;
}

void engine_close(struct engine *engine)
{
    if (engine->plan == NULL)
        return;
    descriptor_close(engine->plan);
    descriptor_close(engine->config);
    *engine = (struct engine){NULL, NULL, 0};
}
