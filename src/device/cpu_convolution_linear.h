// SPDX-License-Identifier: BSD-3-Clause
/* Large convolutions of 1 x 1 in bf16 as linear layers over pixels, on processors with AMX. */
#ifndef VITTRAIN_DEVICE_CPU_CONVOLUTION_LINEAR_H
#define VITTRAIN_DEVICE_CPU_CONVOLUTION_LINEAR_H

#include "device/cpu.h"

/* True if convolutions of this type and shape are computed here. */
bool convolution_linear_supports(const struct cpu_device *cpu, enum data_type type,
                                 const struct convolution_shape *shape);

/* Return the bytes of workspace that a supported shape needs. */
size_t convolution_linear_workspace(const struct convolution_shape *shape);

void convolution_linear_forward(struct stream *stream, const struct convolution_forward *args);
void convolution_linear_backward(struct stream *stream, const struct convolution_backward *args);

#endif
