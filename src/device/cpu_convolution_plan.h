// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions of the CPU backend by oneDNN. A plan is one direction of one shape. oneDNN uses all
 * threads of the device, so plans are created and run outside parallel regions. Images are channels
 * last and used in place; the weight is reordered into oneDNN's preferred layout. */
#ifndef VITTRAIN_DEVICE_CPU_CONVOLUTION_PLAN_H
#define VITTRAIN_DEVICE_CPU_CONVOLUTION_PLAN_H

#include "device/device.h"

enum convolution_pass { CONVOLUTION_FORWARD, CONVOLUTION_INPUT, CONVOLUTION_WEIGHT };

struct convolution {
    enum convolution_pass pass;
    enum data_type type; /* TYPE_FP32, or TYPE_BF16 if product_multiplies_bf16 */
    struct convolution_shape shape;
    bool bias, relu; /* forward only */
};

struct convolution_cache;
struct convolution_plan;

struct convolution_cache *convolution_cache_open(int threads);
void convolution_cache_close(struct convolution_cache *cache);

/* Return the plan; it is created at the first call. */
const struct convolution_plan *convolution_plan(struct convolution_cache *cache,
                                                const struct convolution *convolution);

/* Return the bytes of workspace of a run, without creating a plan. */
size_t convolution_plan_workspace(struct convolution_cache *cache,
                                  const struct convolution *convolution);

/* Shapes and types as in operations.h; bias is used only if the plan has one. */
void convolution_run_forward(const struct convolution_plan *plan, const void *x, const void *weight,
                             const void *bias, void *y, void *workspace);
void convolution_run_input(const struct convolution_plan *plan, void *dx, const void *weight,
                           const void *dy, void *workspace);
/* Adds to dweight. */
void convolution_run_weight(const struct convolution_plan *plan, const void *x, const void *dy,
                            float *dweight, void *workspace);

#endif
