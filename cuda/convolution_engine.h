// SPDX-License-Identifier: BSD-3-Clause
/* Selection and execution of cuDNN's engines for convolutions, through its graph API. Selection
 * runs on the host only; given a GPU's device properties it needs no GPU, so tests check it on any
 * machine. Plain C, for those tests. */
#ifndef VITTRAIN_CUDA_CONVOLUTION_ENGINE_H
#define VITTRAIN_CUDA_CONVOLUTION_ENGINE_H

#include <cudnn_graph.h>

#include "convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* One part of a convolution. */
struct engine_problem {
    enum convolution_part part;
    enum data_type type;
    bool tf32; /* fp32 operands may be rounded to TF32 */
    struct convolution_shape shape;
};

/* Bytes of workspace that every caller of convolution_run provides; the maximum that an engine may
 * use. */
enum { ENGINE_WORKSPACE = 32 << 20 };
size_t engine_workspace_limit(enum data_type type, const struct convolution_shape *shape);

/* Select the first engine of cuDNN's heuristics (mode A, then fallback) that is deterministic, sums
 * in fp32 without rounding its operands further than the type (TF32 if allowed), is not compiled at
 * run time, needs at most `limit` bytes of workspace and whose execution plan can be built. Where
 * the precision allows tensor cores, engines that use them come first. The result depends on the
 * problem, `limit`, the version of cuDNN and the GPU only. Return false if no engine qualifies. */
bool engine_select(const struct engine_device *device, const struct engine_problem *problem,
                   size_t limit, struct engine *engine);

/* Queue the convolution on the handle's stream. Data pointers are aligned to ENGINE_ALIGNMENT. */
void engine_run(cudnnHandle_t handle, const struct engine_problem *problem,
                const struct engine *engine, const struct convolution *convolution);

/* Abort with the call that failed, the shape (problem may be NULL) and cuDNN's message. */
void engine_check(cudnnStatus_t result, const char *call, const char *file, int line,
                  const struct engine_problem *problem);
#define ENGINE_CHECK(problem, call) engine_check(call, #call, __FILE__, __LINE__, problem)
#define GRAPH_CHECK(call) ENGINE_CHECK(NULL, call)

/* Write "convolution of ..." for messages. */
void engine_problem_name(const struct engine_problem *problem, char *name, size_t size);

#ifdef __cplusplus
}
#endif

#endif
