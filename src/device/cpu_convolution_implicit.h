// SPDX-License-Identifier: BSD-3-Clause
/* fp32 convolutions as implicit matrix products (kernels_implicit.c), used without AVX-512, and for
 * the weight's gradient if results must be reproducible. A thread copies a band of the image, a few
 * channels at a time and with zeros around it, and multiplies it while it is in the cache. The
 * order of all sums depends on the shape and the instruction set only. */
#ifndef VITTRAIN_DEVICE_CPU_CONVOLUTION_IMPLICIT_H
#define VITTRAIN_DEVICE_CPU_CONVOLUTION_IMPLICIT_H

#include "device/cpu.h"

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

#endif
