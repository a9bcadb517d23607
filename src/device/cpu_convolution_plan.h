/* Convolutions of the CPU backend by oneDNN: a plan is one direction of one shape. oneDNN splits
 * the work over all threads of the device, so a plan is made and run outside of parallel regions.
 * Images are channels last and read and written where they are; the weight is reordered into the
 * layout that oneDNN prefers. */
#ifndef VITTRAIN_DEVICE_CPU_CONVOLUTION_PLAN_H
#define VITTRAIN_DEVICE_CPU_CONVOLUTION_PLAN_H

#include "device/device.h"

enum convolution_pass { CONVOLUTION_FORWARD, CONVOLUTION_INPUT, CONVOLUTION_WEIGHT };

struct convolution {
    enum convolution_pass pass;
    enum data_type type; /* TYPE_FP32, or TYPE_BF16 where product_multiplies_bf16 */
    struct convolution_shape shape;
    bool bias, relu; /* forward */
};

struct convolution_cache;
struct convolution_plan;

struct convolution_cache *convolution_cache_open(int threads);
void convolution_cache_close(struct convolution_cache *cache);

/* The plan, made when it is asked for the first time. */
const struct convolution_plan *convolution_plan(struct convolution_cache *cache,
                                                const struct convolution *convolution);

/* Bytes of workspace that a run takes; makes no plan. */
size_t convolution_plan_workspace(struct convolution_cache *cache,
                                  const struct convolution *convolution);

/* oneDNN's name of how it does it. */
const char *convolution_implementation(const struct convolution_plan *plan);

/* Shapes and types as in device.h; bias only where the plan has one. */
void convolution_run_forward(const struct convolution_plan *plan, const void *x, const void *weight,
                             const void *bias, void *y, void *workspace);
void convolution_run_input(const struct convolution_plan *plan, void *dx, const void *weight,
                           const void *dy, void *workspace);
/* Adds to dweight. */
void convolution_run_weight(const struct convolution_plan *plan, const void *x, const void *dy,
                            float *dweight, void *workspace);

#endif
