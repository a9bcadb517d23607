// SPDX-License-Identifier: BSD-3-Clause
/* cuDNN's engines for matrix products with GELU (gelu_product.h). Plain C, for tests without a GPU.
 */
#ifndef VITTRAIN_CUDA_GELU_ENGINE_H
#define VITTRAIN_CUDA_GELU_ENGINE_H

#include "engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything that a plan depends on, besides the GPU; compared as bytes. */
struct gelu_shape {
    int64_t type, tanh, gradient, rows, columns, inner; /* as in struct gelu_product */
};

/* Build a plan with at most `limit` bytes of workspace, skipping `skip` engines of cuDNN's list
 * (engine_open). Engines are compiled at run time, which takes about a second. */
bool gelu_engine_open(const struct engine_device *device, const struct gelu_shape *shape, int skip,
                      size_t limit, struct engine *engine);

/* Queue the product on the handle's stream. */
struct gelu_operands {
    const void *a, *b, *bias, *pre, *c, *workspace;
};
cudnnStatus_t gelu_engine_run(cudnnHandle_t handle, const struct gelu_shape *shape,
                              const struct engine *engine, const struct gelu_operands *operands);

#ifdef __cplusplus
}
#endif

#endif
