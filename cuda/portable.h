// SPDX-License-Identifier: BSD-3-Clause
/* Included instead of CUDA's headers: the same source is compiled by nvcc for GPUs, and by the
 * host's compiler for tests without a GPU (emulation/). Constructs that differ between the two have
 * one name here. */
#ifndef VITTRAIN_CUDA_PORTABLE_H
#define VITTRAIN_CUDA_PORTABLE_H

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define KERNEL_START(kernel, grid, block, shared_bytes, stream, ...)                               \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)

/* All shared memory is dynamic; a kernel divides it itself. */
#define SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]

/* Precedes a loop of few iterations whose arrays must stay in registers. */
#define UNROLL _Pragma("unroll")

#else
#include "emulation/emulation.h"
#endif

extern "C" {
#include "core/error.h"
#include "core/text.h"
#include "device/device.h"
}

/* KERNEL_LAUNCH(kernel, grid, block, bytes of shared memory, stream, arguments...); aborts if the
 * launch fails. */
#define KERNEL_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                              \
    do {                                                                                           \
        KERNEL_START(kernel, grid, block, shared_bytes, stream, __VA_ARGS__);                      \
        CUDA_CHECK(cudaGetLastError());                                                            \
    } while (0)

/* Every call of the runtime library is checked. An error reported by a launch may be that of an
 * earlier kernel. */
#define CUDA_CHECK(call) cuda_check(call, #call, __FILE__, __LINE__)
void cuda_check(cudaError_t result, const char *call, const char *file, int line);

#endif
