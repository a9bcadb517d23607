// SPDX-License-Identifier: BSD-3-Clause
/* cuDNN's graph API: descriptors, and execution plans of the engines that its heuristics propose.
 * Plans can be built for a GPU that is described by its properties, so tests need no GPU. Plain C,
 * for those tests. */
#ifndef VITTRAIN_CUDA_ENGINE_H
#define VITTRAIN_CUDA_ENGINE_H

#include <cudnn_graph.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "device/device.h"

/* Alignment of all tensors in bytes. */
enum { ENGINE_ALIGNMENT = 16 };

/* The GPU that engines are selected for. Exactly one field is not NULL. */
struct engine_device {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties; /* a finalized CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR */
};

struct engine {
    cudnnBackendDescriptor_t config, plan; /* NULL: none is selected */
    size_t bytes;                          /* bytes of workspace */
};
void engine_close(struct engine *engine);

/* Abort with the call that failed, what it was for (may be "") and cuDNN's message. */
void engine_fail(cudnnStatus_t result, const char *call, const char *file, int line,
                 const char *name);
#define GRAPH_CHECK(call)                                                                          \
    do {                                                                                           \
        cudnnStatus_t graph_result = call;                                                         \
        if (graph_result != CUDNN_STATUS_SUCCESS)                                                  \
            engine_fail(graph_result, #call, __FILE__, __LINE__, "");                              \
    } while (0)

/* ---- Descriptors */
cudnnBackendDescriptor_t descriptor_open(cudnnBackendDescriptorType_t type);
void descriptor_close(cudnnBackendDescriptor_t made);
void attribute_set_descriptor(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                              cudnnBackendDescriptor_t value);
void attribute_set_float(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                         float value);
#define SET(descriptor, attribute, type, count, values)                                            \
    GRAPH_CHECK(cudnnBackendSetAttribute(descriptor, CUDNN_ATTR_##attribute, CUDNN_TYPE_##type,    \
                                         count, values))
cudnnDataType_t engine_type(enum data_type type);

/* Open a graph of these operations. */
cudnnBackendDescriptor_t engine_graph_open(const struct engine_device *device,
                                           const cudnnBackendDescriptor_t *operations,
                                           int64_t count);

/* ---- Engines */

/* Requirements on engines, besides determinism, no compilation at run time, and sums in fp32 of
 * operands that are not rounded further than their type (or TF32). */
struct engine_rules {
    bool tensor_cores; /* must be used; false: must not be used */
    size_t limit;      /* bytes of workspace */
};

/* Build the plan of the first engine in cuDNN's list for the graph that follows the rules and whose
 * plan can be built. Return false if no plan was built. */
bool engine_open(const struct engine_device *device, cudnnBackendDescriptor_t graph,
                 cudnnBackendHeurMode_t mode, const struct engine_rules *rules,
                 struct engine *engine);

/* Queue the plan on the handle's stream with these tensors. */
cudnnStatus_t engine_execute(cudnnHandle_t handle, const struct engine *engine, int64_t count,
                             const int64_t *identifiers, const void *const *pointers,
                             const void *workspace);

#ifdef __cplusplus
}
#endif

#endif
