// SPDX-License-Identifier: BSD-3-Clause
/* Included instead of CUDA's headers: the same source is compiled by nvcc for GPUs, and by the
 * host's compiler for tests without a GPU (test/emulation/). Constructs that differ between the two
 * have one name here. */
#ifndef VITTRAIN_CUDA_PORTABLE_H
#define VITTRAIN_CUDA_PORTABLE_H

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <stdint.h>

/* A dependent launch (CUDA Programming Guide, "Programmatic Dependent Launch") may start before the
 * preceding kernel of the stream has ended. */
template <typename... parameters, typename... arguments>
static inline void kernel_start(void (*kernel)(parameters...), dim3 grid, dim3 block,
                                size_t shared_bytes, cudaStream_t stream, bool dependent,
                                arguments... given)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = dependent ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, given...); /* KERNEL_LAUNCH reads the error */
}

/* The first statement of every kernel: wait until the preceding kernel of the stream has ended and
 * its writes are visible, then allow the next one to start. Without dependent launches it does
 * nothing. A kernel with __launch_bounds__ passes its number of threads, which only the emulation
 * checks. */
__device__ static inline void kernel_begin(int = 1024)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

#define KERNEL_START kernel_start

/* All shared memory is dynamic; a kernel divides it itself. */
#define SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]

/* Precedes a loop of few iterations whose arrays must stay in registers. */
#define UNROLL _Pragma("unroll")

#else
#include "emulation/emulation.h"
#endif

extern "C" {
#include "base/allocate.h"
#include "base/error.h"
#include "base/text.h"
#include "device/device.h"
}

/* True if kernels are launched as dependent ones (cuda.dependent_launch, cuda.cu). */
extern bool kernel_dependent;

/* KERNEL_LAUNCH(kernel, grid, block, bytes of shared memory, stream, arguments...); aborts if the
 * launch fails. */
#define KERNEL_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                              \
    do {                                                                                           \
        KERNEL_START(kernel, grid, block, shared_bytes, stream, kernel_dependent, __VA_ARGS__);    \
        CUDA_CHECK(cudaGetLastError());                                                            \
    } while (0)

/* Every call of the runtime library is checked. An error reported by a launch may be that of an
 * earlier kernel. */
#define CUDA_CHECK(call) cuda_check(call, #call, __FILE__, __LINE__)
void cuda_check(cudaError_t result, const char *call, const char *file, int line);

#endif
