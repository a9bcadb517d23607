// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions of the CPU backend by oneDNN. A plan is one direction of one shape. oneDNN uses all
 * threads of the device, so plans are created and run outside parallel regions. Images are channels
 * last and used in place; the weight is reordered into oneDNN's preferred layout. */
#ifndef VITTRAIN_CPU_CPU_CONVOLUTION_PLAN_H
#define VITTRAIN_CPU_CPU_CONVOLUTION_PLAN_H

#include "cpu/cpu.h"
#include "device/device.h"

enum convolution_pass { CONVOLUTION_FORWARD, CONVOLUTION_INPUT, CONVOLUTION_WEIGHT };

struct convolution {
    enum convolution_pass pass;
    enum data_type type; /* TYPE_FP32, or TYPE_BF16 if product_multiplies_bf16 */
    struct convolution_shape shape;
    bool bias, relu; /* forward only */
};

struct convolution_plan;

/* Return the plan; it is created at the first call. */
const struct convolution_plan *convolution_plan(struct onednn *onednn,
                                                const struct convolution *convolution);

/* Return the bytes of workspace of a run, without creating a plan. */
size_t convolution_plan_workspace(struct onednn *onednn, const struct convolution *convolution);

/* Run a plan. image: x or dx; weight: or its gradient, which is added to; result: y or dy. Shapes
 * and types as in operations.h; bias is used only if the plan has one. */
void convolution_plan_run(const struct convolution_plan *plan, const void *image,
                          const void *weight, const void *bias, const void *result,
                          char *workspace);

/* fp32 convolutions as implicit matrix products (kernels_implicit.c), used without AVX-512, and for
 * the weight's gradient if results must be reproducible. A thread copies a band of the image, a few
 * channels at a time and with zeros around it, and multiplies it while it is in the cache. The
 * order of all sums depends on the shape and the instruction set only. */

/* Return the bytes of workspace; 0 if the shape is not supported or oneDNN is preferred. */
size_t convolution_implicit_workspace(const struct cpu_device *cpu,
                                      const struct convolution_shape *shape);

/* Return the bytes of workspace of convolution_implicit_weight alone, also if oneDNN is preferred.
 */
size_t convolution_implicit_weight_workspace(const struct cpu_device *cpu,
                                             const struct convolution_shape *shape);

void convolution_implicit_forward(const struct cpu_device *cpu,
                                  const struct convolution_forward *args, void *workspace);
/* Compute args->dx, without the mask of x_relu. */
void convolution_implicit_input(const struct cpu_device *cpu,
                                const struct convolution_backward *args, void *workspace);
/* Add to args->dweight. */
void convolution_implicit_weight(const struct cpu_device *cpu,
                                 const struct convolution_backward *args, void *workspace);

/* Large convolutions of 1 x 1 in bf16 as linear layers over pixels, on processors with AMX. */

/* True if convolutions of this type and shape are computed here. */
bool convolution_linear_supports(const struct cpu_device *cpu, enum data_type type,
                                 const struct convolution_shape *shape);

/* Return the bytes of workspace that a supported shape needs. */
size_t convolution_linear_workspace(const struct convolution_shape *shape);

void convolution_linear_forward(struct stream *stream, const struct convolution_forward *args);
void convolution_linear_backward(struct stream *stream, const struct convolution_backward *args);

#endif
