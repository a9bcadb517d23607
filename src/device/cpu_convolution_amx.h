/* Gradients of convolutions' weights in bf16 on processors with AMX: a product over pixels, of dy
 * turned round with x moved by each place of the kernel. oneDNN 2.6 reaches a tenth to a third of
 * this speed. Threads take parts of the weight and of the batch; how these are cut, and so the
 * order of all sums, depends on the shape alone. */
#ifndef VITTRAIN_DEVICE_CPU_CONVOLUTION_AMX_H
#define VITTRAIN_DEVICE_CPU_CONVOLUTION_AMX_H

#include "device/cpu.h"

/* Has this processor AMX with bf16, may this process use it, and do the device's kernels go as far?
 */
bool convolution_amx_usable(const struct cpu_device *cpu);

/* Bytes of workspace; 0: not for this shape. */
size_t convolution_amx_workspace(const struct convolution_shape *shape);

/* Adds to args->dweight. */
void convolution_amx_weight(const struct cpu_device *cpu, const struct convolution_backward *args,
                            void *workspace);

#endif
