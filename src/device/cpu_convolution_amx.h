/* Gradients of convolution weights in bf16 on processors with AMX, as a matrix product of dy^T with
 * x shifted by each kernel tap. oneDNN 2.6 reaches a tenth to a third of this speed. Threads
 * process parts of the weight and of the batch; the split, and with it the order of all sums,
 * depends on the shape only. */
#ifndef VITTRAIN_DEVICE_CPU_CONVOLUTION_AMX_H
#define VITTRAIN_DEVICE_CPU_CONVOLUTION_AMX_H

#include "device/cpu.h"

/* True if the processor has AMX with bf16, this process may use it, and the AVX-512 kernels are
 * selected. */
bool convolution_amx_usable(const struct cpu_device *cpu);

/* Return the bytes of workspace; 0 if the shape is not supported. */
size_t convolution_amx_workspace(const struct convolution_shape *shape);

/* Adds to args->dweight. */
void convolution_amx_weight(const struct cpu_device *cpu, const struct convolution_backward *args,
                            void *workspace);

#endif
