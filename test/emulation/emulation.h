// SPDX-License-Identifier: BSD-3-Clause
/* The subset of CUDA that cuda/ uses, on the host, so that the same kernel sources run in tests
 * without a GPU. The threads of a block are fibres, and blocks run one after the other
 * (blocks.cpp). Every memory access of a kernel is checked (check.cpp). Streams run as late as the
 * host allows, so that a missing wait is detected (streams.cpp). The device is emulated
 * (runtime.cpp). Errors that a GPU might detect only sometimes always end the program here, with
 * kernel, block and thread. */
#ifndef VITTRAIN_CUDA_EMULATION_H
#define VITTRAIN_CUDA_EMULATION_H

#include <functional>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tuple>

/* ---- Language */
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
    {
    }
};

/* The current thread. */
struct emulated_thread {
    dim3 block_index, thread_index, block_size, grid_size;
};
extern struct emulated_thread emulated_thread;
#define blockIdx emulated_thread.block_index
#define threadIdx emulated_thread.thread_index
#define blockDim emulated_thread.block_size
#define gridDim emulated_thread.grid_size

/* Shared memory has the size given by the launch and initially contains signalling NaNs. */
unsigned char *emulated_shared_memory(void);
#define SHARED_MEMORY(name) unsigned char *name = emulated_shared_memory()

/* Must be reached by all threads of the block at the same source line. */
void emulated_barrier(const char *file, int line);
#define __syncthreads() emulated_barrier(__FILE__, __LINE__)

/* Before it a kernel must not access device memory: with a dependent launch the preceding kernel
 * may still run. threads_most: the bound that __launch_bounds__ states. */
void kernel_begin(int threads_most = 1024);

/* Must be called by all threads of the warp. Each passes a value of up to 32 bytes; `values` then
 * holds the warp's values by lane, until the thread's next exchange. Orders memory within the warp
 * if `fence`. */
struct emulated_exchange {
    alignas(16) unsigned char bytes[32];
};
const struct emulated_exchange *emulated_warp_exchange(const void *value, size_t size, bool fence);
int emulated_lane(void);

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    (void)mask;
    emulated_warp_exchange(NULL, 0, true);
}

template <typename type> static inline type emulated_shuffle(type value, int lane)
{
    type other;
    memcpy(&other, emulated_warp_exchange(&value, sizeof value, false)[lane & 31].bytes,
           sizeof other);
    return other;
}
template <typename type> static inline type __shfl_sync(unsigned, type value, int lane)
{
    return emulated_shuffle(value, lane);
}
template <typename type> static inline type __shfl_xor_sync(unsigned, type value, int mask)
{
    return emulated_shuffle(value, emulated_lane() ^ mask);
}

/* Tensor core instructions (tensor_core.h), implemented by warp exchanges. A row is the 16 bytes at
 * this lane's address; `value` converts its bits to a number. */
void emulated_blocks_load(uint32_t word[4], const uint32_t row[4], bool transposed);
void emulated_product_add(float sum[4], const uint32_t left[4], uint32_t right0, uint32_t right1,
                          float (*value)(uint16_t bits));

/* Asynchronous copies of 16 bytes, and products (wgmma.h). emulated_wgmma_add: sums of `blocks`
 * blocks of eight columns, four per block and thread. */
void emulated_copy_start(void *to, const void *from);
void emulated_copies_wait(void);
uint32_t emulated_shared_address(const void *shared);
void emulated_proxy_fence(void);
void emulated_wgmma_fence(void);
void emulated_wgmma_add(float *sums, int blocks, const uint32_t left[4], uint64_t right, bool adds,
                        bool transposed, float (*value)(uint16_t bits));
void emulated_wgmma_commit(void);
void emulated_wgmma_wait(void);
#define UNROLL

/* Atomic operations belong to no thread, so they never race. */
unsigned long long atomicAdd(unsigned long long *sum, unsigned long long value);
unsigned long long atomicMin(unsigned long long *least, unsigned long long value);

/* The C library declares these names without defining them. */
#define __expf expf
#define cospi(x) cos(M_PI *(x))
#define __cosf cosf
#define __sinf sinf
/* Divided by more than 2^126, a finite number gives 0 and an infinite one NaN. */
static inline float __fdividef(float x, float y)
{
    return fabsf(y) > 0x1p126f && fabsf(y) < INFINITY ? x * 0.0f : x / y;
}
/* A product that is rounded before it is added. */
static inline double __dmul_rn(double a, double b)
{
    volatile double product = a * b;
    return product;
}
static inline float __uint_as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline uint32_t __float_as_uint(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- Launches. The kernel runs when its stream executes it. Its arguments are copied at the
 * launch, to memory that threads may read. */
typedef struct emulated_stream *cudaStream_t;
struct emulated_call {
    size_t bytes; /* size of the whole object */
    virtual void run(void) const = 0;
    virtual ~emulated_call()
    {
    }
};
template <typename kernel_type, typename... arguments>
struct emulated_kernel_call : public emulated_call {
    kernel_type kernel;
    std::tuple<arguments...> given;
    emulated_kernel_call(kernel_type kernel, arguments... given) : kernel(kernel), given(given...)
    {
        bytes = sizeof *this;
    }
    void run(void) const
    {
        std::apply(kernel, given);
    }
};
template <typename kernel_type, typename... arguments>
static const struct emulated_call *emulated_bind(kernel_type kernel, arguments... given)
{
    return new emulated_kernel_call<kernel_type, arguments...>(kernel, given...);
}
/* The call is freed when no graph or stream can execute it any more. `function` identifies the
 * kernel. */
void emulated_launch(const char *kernel, const void *function, dim3 grid, dim3 block,
                     size_t shared_bytes, cudaStream_t stream, bool dependent,
                     const struct emulated_call *call);
#define KERNEL_START(kernel, grid, block, shared_bytes, stream, dependent, ...)                    \
    emulated_launch(#kernel, emulated_address(kernel), grid, block, shared_bytes, stream,          \
                    dependent, emulated_bind(kernel, __VA_ARGS__))
template <typename... arguments>
static inline const void *emulated_address(void (*kernel)(arguments...))
{
    return reinterpret_cast<const void *>(kernel);
}

/* Queue host work of a library, such as matrix products, on a stream. */
void emulated_enqueue(cudaStream_t stream, const char *what, std::function<void(void)> body);
/* Queue work that depends on other processes: called repeatedly until it returns true. */
void emulated_enqueue_turns(cudaStream_t stream, const char *what, std::function<bool(void)> turn);

/* ---- The runtime library: names and meanings as in CUDA */
/* ROW(name, number, text) of each error. */
#define EMULATED_ERRORS(ROW)                                                                       \
    ROW(cudaSuccess, 0, "no error")                                                                \
    ROW(cudaErrorInvalidValue, 1, "invalid argument")                                              \
    ROW(cudaErrorMemoryAllocation, 2, "out of memory")                                             \
    ROW(cudaErrorInitializationError, 3, "initialization error")                                   \
    ROW(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for the runtime")    \
    ROW(cudaErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable")      \
    ROW(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                              \
    ROW(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                     \
    ROW(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for the device")       \
    ROW(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                     \
    ROW(cudaErrorNotReady, 600, "device not ready")                                                \
    ROW(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                  \
    ROW(cudaErrorLaunchFailure, 719, "unspecified launch failure")
#define EMULATED_ERROR_NUMBER(name, number, text) name = number,
typedef enum { EMULATED_ERRORS(EMULATED_ERROR_NUMBER) } cudaError_t;
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
typedef struct emulated_event *cudaEvent_t;
typedef struct emulated_graph *cudaGraph_t, *cudaGraphExec_t;
typedef struct {
    char bytes[16];
} cudaUUID_t;
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlockOptin;
    int major, minor, multiProcessorCount, l2CacheSize, ECCEnabled, pciBusID, pciDeviceID,
        pciDomainID;
};

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaDeviceCanAccessPeer(int *can, int number, int other);
cudaError_t cudaSetDevice(int number);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int number);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t emulated_shared_allow(const void *function, int bytes);
template <typename kernel_type>
static inline cudaError_t cudaFuncSetAttribute(kernel_type kernel, enum cudaFuncAttribute,
                                               int value)
{
    return emulated_shared_allow(emulated_address(kernel), value);
}

#endif
