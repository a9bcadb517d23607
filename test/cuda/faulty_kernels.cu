// SPDX-License-Identifier: BSD-3-Clause
/* Kernels and calls of the runtime library with deliberate faults: test_emulation runs each and
 * checks that the emulated GPU reports it. */
#include "cuda.h"
#include "kernel.h"
#include "tensor_core.h"

#include <sys/wait.h>
#include <thread>
#include <unistd.h>

enum { THREADS = 64 };

__global__ static void right_kernel(float *values)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *turned = (float *)shared;
    turned[THREADS - 1 - threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = turned[threadIdx.x] + warp_sum(1.0f);
}

__global__ static void divergent_barrier_kernel(float *values)
{
    kernel_begin();
    if (threadIdx.x < THREADS / 2)
        __syncthreads();
    values[threadIdx.x] = 1;
}

__global__ static void two_barriers_kernel(float *values)
{
    kernel_begin();
    if (threadIdx.x < THREADS / 2) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    values[threadIdx.x] = 1;
}

__global__ static void missing_barrier_kernel(float *values)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *turned = (float *)shared;
    turned[threadIdx.x] = values[threadIdx.x];
    values[threadIdx.x] = turned[threadIdx.x / 2];
}

__global__ static void overtaking_write_kernel(float *values)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *turned = (float *)shared;
    turned[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = turned[(threadIdx.x + 1) % THREADS];
    turned[threadIdx.x] = 0; /* the neighbour may not have read it yet */
}

__global__ static void blocks_race_kernel(float *values)
{
    kernel_begin();
    values[threadIdx.x] = (float)blockIdx.x;
}

__global__ static void unwritten_shared_kernel(float *values)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    values[threadIdx.x] = ((float *)shared)[threadIdx.x];
}

__global__ static void outside_read_kernel(float *values)
{
    kernel_begin();
    float value = values[threadIdx.x + 1];
    __syncthreads();
    values[threadIdx.x] = value;
}

__global__ static void outside_shared_kernel(float *values)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    ((float *)shared)[threadIdx.x + 1] = values[threadIdx.x];
}

__global__ static void misaligned_kernel(float *values)
{
    kernel_begin();
    if (threadIdx.x == 0)
        eight_store(values + 1, eight_load(values + 4));
}

__global__ static void lone_exchange_kernel(float *values)
{
    kernel_begin();
    if (threadIdx.x % 2 == 0)
        values[threadIdx.x] = warp_sum(values[threadIdx.x]);
}

__global__ static void early_read_kernel(float *values)
{
    float value = values[threadIdx.x];
    kernel_begin();
    values[threadIdx.x] = value;
}

__global__ static void no_begin_kernel(float *)
{
}

__global__ static void host_memory_kernel(float *values, const float *host)
{
    kernel_begin();
    values[threadIdx.x] = host[threadIdx.x];
}

__global__ static void __launch_bounds__(THREADS / 2) bounded_kernel(float *values)
{
    kernel_begin(THREADS / 2);
    values[threadIdx.x] = 1;
}

/* Return 1 + 2^-12 (first + 15 others) as tensor cores add. */
__device__ static float tensor_core_sum(float first, float others)
{
    const uint32_t word = word_pack(others, others, bf16{});
    const uint32_t right = word_pack(0x1p-12f, 0x1p-12f, bf16{});
    struct left_matrix left = {{word, word, word, word}};
    struct sum_matrix sum = {{1, 1, 1, 1}};
    if (threadIdx.x % 4 == 0)
        left.word[0] = word_pack(first, others, bf16{});
    product_add(sum, left, right, right, bf16{});
    return sum.value[0];
}

/* No fault: results in which a GPU differs from IEEE arithmetic. */
__global__ static void arithmetic_kernel(float *values)
{
    kernel_begin();
    const float last = values[THREADS - 1];
    bool right = tensor_core_sum(0x1p-13f, 0x1p-13f) == 1 + 0x1p-21f; /* rounded once */
    right &= tensor_core_sum(0x3p-13f, 0) == 1;                       /* truncated */
    right &= tensor_core_sum(0x1p-14f, 0x1p-14f) == 1;                /* aligned to 25 bits */
    right &= exp2_quick(-126) == 0x1p-126f && exp2_quick(-126.5f) == 0;
    right &= __fdividef(1, 0x1p126f) == 0x1p-126f && __fdividef(1, 0x1.8p126f) == 0;
    right &= isnan(__fdividef(INFINITY, 0x1.8p126f));
    __syncthreads();
    values[threadIdx.x] = right ? last + 32 : 0;
}

static void right_launch(cudaStream_t stream, float *values, size_t shared_bytes)
{
    KERNEL_LAUNCH(right_kernel, 1, THREADS, shared_bytes, stream, values);
}

/* ---- Shared memory above 48 KiB */
enum { SHARED_PRESET = 48 * 1024, SHARED_WANTED = 64 * 1024 };

static void shared_launch(cudaStream_t stream, float *values)
{
    CUDA_CHECK(cudaFuncSetAttribute(right_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    SHARED_WANTED));
    right_launch(stream, values, SHARED_WANTED);
}

static void shared_without_attribute(cudaStream_t stream, float *values)
{
    right_launch(stream, values, SHARED_PRESET + 4);
}

static void shared_above_attribute(cudaStream_t stream, float *values)
{
    shared_launch(stream, values);
    right_launch(stream, values, SHARED_WANTED + 4);
}

static void shared_above_device(cudaStream_t, float *)
{
    CUDA_CHECK(cudaFuncSetAttribute(right_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    228 * 1024));
}

/* ---- Stream capture */
static cudaStream_t stream_create(void)
{
    cudaStream_t stream;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static cudaEvent_t event_record(cudaStream_t stream)
{
    cudaEvent_t event;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventRecord(event, stream));
    return event;
}

static void capture_begin(cudaStream_t stream)
{
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

static cudaGraph_t capture_end(cudaStream_t stream)
{
    cudaGraph_t graph;
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    return graph;
}

/* Another thread may allocate during a capture in thread-local mode. */
static void captured_fork(cudaStream_t stream, float *values)
{
    cudaStream_t fork = stream_create();
    cudaGraphExec_t executable;
    void *memory = NULL;
    capture_begin(stream);
    CUDA_CHECK(cudaStreamWaitEvent(fork, event_record(stream), 0));
    right_launch(fork, values, THREADS * sizeof(float));
    std::thread([&]() { CUDA_CHECK(cudaMalloc(&memory, 1)); }).join();
    CUDA_CHECK(cudaStreamWaitEvent(stream, event_record(fork), 0));
    CUDA_CHECK(cudaGraphInstantiate(&executable, capture_end(stream), 0));
    CUDA_CHECK(cudaGraphLaunch(executable, stream));
}

static void unjoined_fork(cudaStream_t stream, float *values)
{
    cudaStream_t fork = stream_create();
    capture_begin(stream);
    CUDA_CHECK(cudaStreamWaitEvent(fork, event_record(stream), 0));
    CUDA_CHECK(cudaStreamWaitEvent(stream, event_record(fork), 0));
    right_launch(fork, values, THREADS * sizeof(float)); /* after the join */
    capture_end(stream);
}

static void captured_malloc(cudaStream_t stream, float *)
{
    void *memory;
    capture_begin(stream);
    CUDA_CHECK(cudaMalloc(&memory, 1));
}

static void captured_free(cudaStream_t stream, float *)
{
    void *memory;
    CUDA_CHECK(cudaMalloc(&memory, 1));
    capture_begin(stream);
    CUDA_CHECK(cudaFree(memory));
}

static void captured_host_alloc(cudaStream_t stream, float *)
{
    void *memory;
    capture_begin(stream);
    CUDA_CHECK(cudaHostAlloc(&memory, 1, cudaHostAllocDefault));
}

static void captured_free_host(cudaStream_t stream, float *)
{
    void *memory;
    CUDA_CHECK(cudaHostAlloc(&memory, 1, cudaHostAllocDefault));
    capture_begin(stream);
    CUDA_CHECK(cudaFreeHost(memory));
}

static void malloc_by_another_thread(cudaStream_t stream, float *)
{
    void *memory;
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    std::thread([&]() { CUDA_CHECK(cudaMalloc(&memory, 1)); }).join();
}

static void captured_synchronize(cudaStream_t stream, float *)
{
    capture_begin(stream);
    CUDA_CHECK(cudaStreamSynchronize(stream));
}

static void query_of_another_stream(cudaStream_t stream, float *)
{
    capture_begin(stream);
    CUDA_CHECK(cudaStreamQuery(stream_create()));
}

static void query_in_capture(cudaStream_t stream, float *)
{
    cudaEvent_t event = event_record(stream);
    capture_begin(stream);
    CUDA_CHECK(cudaEventQuery(event));
}

static void query_of_captured_event(cudaStream_t stream, float *)
{
    capture_begin(stream);
    cudaEvent_t event = event_record(stream);
    capture_end(stream);
    CUDA_CHECK(cudaEventQuery(event));
}

static void synchronize_with_captured_event(cudaStream_t stream, float *)
{
    capture_begin(stream);
    cudaEvent_t event = event_record(stream);
    capture_end(stream);
    CUDA_CHECK(cudaEventSynchronize(event));
}

static void wait_for_ended_capture(cudaStream_t stream, float *)
{
    capture_begin(stream);
    cudaEvent_t event = event_record(stream);
    CUDA_CHECK(cudaGraphDestroy(capture_end(stream)));
    capture_begin(stream);
    CUDA_CHECK(cudaStreamWaitEvent(stream, event, 0));
}

static void wait_for_event_outside(cudaStream_t stream, float *)
{
    cudaEvent_t event = event_record(stream);
    capture_begin(stream);
    CUDA_CHECK(cudaStreamWaitEvent(stream, event, 0));
}

static void wait_for_another_capture(cudaStream_t stream, float *)
{
    cudaStream_t other = stream_create();
    capture_begin(stream);
    capture_begin(other);
    CUDA_CHECK(cudaStreamWaitEvent(stream, event_record(other), 0));
}

static void end_in_another_thread(cudaStream_t stream, float *)
{
    capture_begin(stream);
    std::thread([&]() { capture_end(stream); }).join();
}

static void legacy_stream(cudaStream_t, float *values)
{
    right_launch(NULL, values, THREADS * sizeof(float));
}

/* A new thread has device 0. */
static void event_of_another_device(cudaStream_t, float *)
{
    setenv("VITTRAIN_EMULATION_DEVICES", "2", 1);
    CUDA_CHECK(cudaSetDevice(1));
    const cudaEvent_t event = event_record(stream_create());
    std::thread([&]() { CUDA_CHECK(cudaEventQuery(event)); }).join();
}

/* The last block's threads would wrap around to the first octets. */
static void octets_beyond_32_bits(cudaStream_t stream, float *values)
{
    struct stream on = {NULL, stream};
    cuda_bias_relu(&on, TYPE_FP32, (int64_t)UINT32_MAX - 100, 8, NULL, false, values);
}

static void norm_sums_alone(cudaStream_t stream, float *values)
{
    struct stream on = {NULL, stream};
    struct norm_backward args = {};
    args.rows = THREADS / 8;
    args.width = 8;
    args.x = args.gamma = args.dy = args.add = values;
    args.mean = args.rstd = values;
    args.dx = args.add_sums = values;
    cuda_norm_backward(&on, &args);
}

/* Launch a kernel in a child process, and end as it does. */
static void launch_after_fork(cudaStream_t stream, float *values)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        right_launch(stream, values, THREADS * sizeof(float));
        _exit(0);
    }
    waitpid(child, &status, 0);
    _exit(WEXITSTATUS(status));
}

static void host_read(cudaStream_t stream, float *values)
{
    float *memory;
    CUDA_CHECK(cudaMalloc((void **)&memory, THREADS * sizeof(float)));
    CUDA_CHECK(cudaMemsetAsync(memory, 0, THREADS * sizeof(float), stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
    values[0] = *(volatile float *)memory;
}

/* Run fault `number` on THREADS floats; false if the number does not exist. */
extern "C" bool faulty_kernel_run(struct stream *stream, int number, float *values,
                                  const float *host)
{
    static void (*const kernels[])(float *) = {right_kernel,
                                               divergent_barrier_kernel,
                                               two_barriers_kernel,
                                               missing_barrier_kernel,
                                               overtaking_write_kernel,
                                               blocks_race_kernel,
                                               unwritten_shared_kernel,
                                               outside_read_kernel,
                                               outside_shared_kernel,
                                               misaligned_kernel,
                                               lone_exchange_kernel,
                                               early_read_kernel,
                                               no_begin_kernel,
                                               arithmetic_kernel,
                                               bounded_kernel};
    static void (*const calls[])(cudaStream_t, float *) = {shared_launch,
                                                           shared_without_attribute,
                                                           shared_above_attribute,
                                                           shared_above_device,
                                                           captured_fork,
                                                           unjoined_fork,
                                                           captured_malloc,
                                                           captured_free,
                                                           captured_host_alloc,
                                                           captured_free_host,
                                                           malloc_by_another_thread,
                                                           captured_synchronize,
                                                           query_of_another_stream,
                                                           query_in_capture,
                                                           query_of_captured_event,
                                                           synchronize_with_captured_event,
                                                           wait_for_ended_capture,
                                                           wait_for_event_outside,
                                                           wait_for_another_capture,
                                                           end_in_another_thread,
                                                           legacy_stream,
                                                           event_of_another_device,
                                                           octets_beyond_32_bits,
                                                           norm_sums_alone,
                                                           launch_after_fork,
                                                           host_read};
    const int kernel_count = sizeof kernels / sizeof kernels[0];
    const int call_count = sizeof calls / sizeof calls[0];
    if (number > kernel_count + call_count)
        return false;
    if (number > kernel_count) {
        calls[number - kernel_count - 1](stream->handle, values);
        return true;
    }
    if (number == kernel_count) {
        KERNEL_LAUNCH(host_memory_kernel, 1, THREADS, 0, stream->handle, values, host);
        return true;
    }
    void (*kernel)(float *) = kernels[number];
    KERNEL_LAUNCH(kernel, kernel == blocks_race_kernel ? 2 : 1, THREADS, THREADS * sizeof(float),
                  stream->handle, values);
    return true;
}
