// SPDX-License-Identifier: BSD-3-Clause
/* Kernels and calls of the runtime library with deliberate faults, on THREADS floats:
 * test_emulation runs each and checks that the emulated GPU reports it. */
#include "cuda.h"
#include "kernel.h"
#include "wgmma.h"

#include <sys/wait.h>
#include <thread>
#include <unistd.h>

enum { THREADS = 64, FAULTS_MOST = 64 };

/* says: the message; NULL: no fault. checked: also in a build for AddressSanitizer, where accesses
 * of kernels are not checked. */
struct fault {
    const char *name, *says;
    bool checked;
    void (*run)(cudaStream_t stream, float *values);
};
static struct fault faults[FAULTS_MOST];
static int fault_count;

static bool fault_add(const struct fault &fault)
{
    faults[fault_count++] = fault;
    return true;
}

/* Return the fault's message, and its name or NULL after the last one. */
extern "C" const char *fault_says(int number, const char **name, bool *checked)
{
    *name = faults[number].name;
    *checked = faults[number].checked;
    return faults[number].says;
}

extern "C" void fault_run(int number, struct stream *stream, float *values)
{
    faults[number].run(stream->handle, values);
}

#define FAULT(name, says, checked)                                                                 \
    static void name(cudaStream_t stream, float *values);                                          \
    static const bool name##_added = fault_add({#name, says, checked, name});                      \
    static void name(cudaStream_t stream, float *values)

/* A kernel, and the fault that launches it. */
#define FAULTY_KERNEL(name, blocks, says, checked)                                                 \
    __global__ static void name##_kernel(float *values);                                           \
    FAULT(name, says, checked)                                                                     \
    {                                                                                              \
        KERNEL_LAUNCH(name##_kernel, blocks, THREADS, THREADS * sizeof(float), stream, values);    \
    }                                                                                              \
    __global__ static void name##_kernel(float *values)

FAULTY_KERNEL(right, 1, NULL, true)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *turned = (float *)shared;
    turned[THREADS - 1 - threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = turned[threadIdx.x] + warp_sum(1.0f);
}

FAULTY_KERNEL(divergent_barrier, 1, "not reached by all threads", true)
{
    kernel_begin();
    if (threadIdx.x < THREADS / 2)
        __syncthreads();
    values[threadIdx.x] = 1;
}

FAULTY_KERNEL(two_barriers, 1, "wait at different barriers", true)
{
    kernel_begin();
    if (threadIdx.x < THREADS / 2) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    values[threadIdx.x] = 1;
}

FAULTY_KERNEL(missing_barrier, 1, "race: reads shared", false)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *turned = (float *)shared;
    turned[threadIdx.x] = values[threadIdx.x];
    values[threadIdx.x] = turned[threadIdx.x / 2];
}

FAULTY_KERNEL(overtaking_write, 1, "race: ", false)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *turned = (float *)shared;
    turned[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = turned[(threadIdx.x + 1) % THREADS];
    turned[threadIdx.x] = 0; /* the neighbour may not have read it yet */
}

FAULTY_KERNEL(blocks_race, 2, "race: writes device memory", false)
{
    kernel_begin();
    values[threadIdx.x] = (float)blockIdx.x;
}

FAULTY_KERNEL(unwritten_shared, 1, "was not written", false)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    values[threadIdx.x] = ((float *)shared)[threadIdx.x];
}

FAULTY_KERNEL(outside_read, 1, "outside of memory", false)
{
    kernel_begin();
    float value = values[threadIdx.x + 1];
    __syncthreads();
    values[threadIdx.x] = value;
}

FAULTY_KERNEL(misaligned, 1, "not a multiple of 16", false)
{
    kernel_begin();
    if (threadIdx.x == 0)
        eight_store(values + 1, eight_load(values + 4));
}

FAULTY_KERNEL(lone_exchange, 1, "waits for its warp", true)
{
    kernel_begin();
    if (threadIdx.x % 2 == 0)
        values[threadIdx.x] = warp_sum(values[threadIdx.x]);
}

FAULTY_KERNEL(early_read, 1, "reads device memory before kernel_begin", false)
{
    float value = values[threadIdx.x];
    kernel_begin();
    values[threadIdx.x] = value;
}

FAULTY_KERNEL(no_begin, 1, "ends without kernel_begin", true)
{
}

__global__ static void copy_kernel(float *values, const float *from)
{
    kernel_begin();
    values[threadIdx.x] = from[threadIdx.x];
}

FAULT(host_memory, "not the device's", false)
{
    const float host[THREADS] = {};
    KERNEL_LAUNCH(copy_kernel, 1, THREADS, 0, stream, values, (const float *)host);
}

FAULTY_KERNEL(bounded, 1, "__launch_bounds__ allows 32", true)
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
FAULTY_KERNEL(arithmetic, 1, NULL, true)
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

FAULT(shared_launch, NULL, true)
{
    CUDA_CHECK(cudaFuncSetAttribute(right_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    SHARED_WANTED));
    right_launch(stream, values, SHARED_WANTED);
}

FAULT(shared_without_attribute, "cudaFuncSetAttribute allows 49152", true)
{
    right_launch(stream, values, SHARED_PRESET + 4);
}

FAULT(shared_above_device, "cudaErrorInvalidValue", true)
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
FAULT(captured_fork, NULL, true)
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

FAULT(unjoined_fork, "before all of its streams are joined", true)
{
    cudaStream_t fork = stream_create();
    capture_begin(stream);
    CUDA_CHECK(cudaStreamWaitEvent(fork, event_record(stream), 0));
    CUDA_CHECK(cudaStreamWaitEvent(stream, event_record(fork), 0));
    right_launch(fork, values, THREADS * sizeof(float)); /* after the join */
    capture_end(stream);
}

FAULT(query_of_captured_stream, "cudaStreamQuery on a stream that is being", true)
{
    capture_begin(stream);
    CUDA_CHECK(cudaStreamQuery(stream));
}

FAULT(query_of_another_stream, "cudaStreamQuery during a stream capture", true)
{
    capture_begin(stream);
    CUDA_CHECK(cudaStreamQuery(stream_create()));
}

FAULT(query_of_captured_event, "cudaEventQuery on an event that was recorded in", true)
{
    capture_begin(stream);
    cudaEvent_t event = event_record(stream);
    capture_end(stream);
    CUDA_CHECK(cudaEventQuery(event));
}

FAULT(wait_for_ended_capture, "event of a capture that has ended", true)
{
    capture_begin(stream);
    cudaEvent_t event = event_record(stream);
    CUDA_CHECK(cudaGraphDestroy(capture_end(stream)));
    capture_begin(stream);
    CUDA_CHECK(cudaStreamWaitEvent(stream, event, 0));
}

FAULT(wait_for_event_outside, "event from outside of the capture", true)
{
    cudaEvent_t event = event_record(stream);
    capture_begin(stream);
    CUDA_CHECK(cudaStreamWaitEvent(stream, event, 0));
}

FAULT(legacy_stream, "on the legacy default stream", true)
{
    right_launch(NULL, values, THREADS * sizeof(float));
}

/* A new thread has device 0. */
FAULT(event_of_another_device, "a handle of device 1 in a thread with device 0", true)
{
    setenv("VITTRAIN_EMULATION_DEVICES", "2", 1);
    CUDA_CHECK(cudaSetDevice(1));
    const cudaEvent_t event = event_record(stream_create());
    std::thread([&]() { CUDA_CHECK(cudaEventQuery(event)); }).join();
}

/* The last block's threads would wrap around to the first octets. */
FAULT(octets_beyond_32_bits, "4294967195 rows of 8 are too many", true)
{
    struct stream on = {NULL, stream};
    cuda_bias_relu(&on, TYPE_FP32, (int64_t)UINT32_MAX - 100, 8, NULL, false, values);
}

/* Launch a kernel in a child process, and end as it does. */
FAULT(launch_after_fork, "cudaErrorInitializationError", true)
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

/* The caller changes pageable memory before the stream has executed the copy. */
FAULT(early_change, "the copy read what was written after its call", true)
{
    float host[THREADS] = {}, copied = 0;
    setenv("VITTRAIN_EMULATION_ATS", "1", 1);
    CUDA_CHECK(cudaMemcpyAsync(values, host, sizeof host, cudaMemcpyDefault, stream));
    host[0] = 1;
    CUDA_CHECK(cudaMemcpyAsync(&copied, values, sizeof copied, cudaMemcpyDefault, stream));
    CUDA_CHECK(cudaEventSynchronize(event_record(stream)));
    ENSURE(copied == 0, "the copy read what was written after its call");
}

FAULT(host_read, "the host accesses device memory", false)
{
    float *memory;
    CUDA_CHECK(cudaMalloc((void **)&memory, THREADS * sizeof(float)));
    CUDA_CHECK(cudaMemsetAsync(memory, 0, THREADS * sizeof(float), stream));
    CUDA_CHECK(cudaEventSynchronize(event_record(stream)));
    values[0] = *(volatile float *)memory;
}

/* ---- Asynchronous copies, and products by a warpgroup that multiplies a row of zeros. */
enum product_fault {
    PRODUCT_RIGHT,
    COPY_NOT_WAITED,
    ROWS_NOT_PUBLISHED,
    ROWS_PUBLISHED_LATE,
    ROWS_NOT_ALIGNED,
    REGISTERS_NOT_FENCED,
    NOT_COMMITTED,
    NOT_WAITED,
    LEFT_CHANGED,
    SUMS_CHANGED,
    ROWS_CHANGED,
    WARPS_DIFFER
};

__global__ static void product_kernel(float *values, enum product_fault fault)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    unsigned char *rows = shared + (0u - shared_address(shared)) % WGMMA_ALIGNMENT +
                          (fault == ROWS_NOT_ALIGNED ? WGMMA_ROW_BYTES : 0);
    struct left_matrix left = {};
    struct sum_matrix sums[2];
    for (unsigned i = threadIdx.x; i < 16 * WGMMA_ROW_BYTES / 4; i += WARPGROUP)
        ((uint32_t *)rows)[i] = 0;
    if (fault == COPY_NOT_WAITED)
        copy_start(rows + 16 * WGMMA_ROW_BYTES, values);
    if (fault != ROWS_NOT_PUBLISHED && fault != ROWS_PUBLISHED_LATE)
        wgmma_publish();
    __syncthreads();
    if (fault == ROWS_PUBLISHED_LATE)
        wgmma_publish();
    if (fault != REGISTERS_NOT_FENCED)
        wgmma_begin();
    const uint32_t further = fault == WARPS_DIFFER && threadIdx.x >= WARP ? 32 : 0;
    wgmma_add(sums, left, wgmma_rows(shared_address(rows) + further), false, bf16{});
    if (fault != NOT_COMMITTED)
        wgmma_commit();
    if (fault == LEFT_CHANGED)
        left.word[0]++;
    if (fault == SUMS_CHANGED)
        sums[0].value[0] = 1;
    if (fault == ROWS_CHANGED) {
        __syncthreads();
        if (threadIdx.x == 0)
            ((uint32_t *)rows)[0] = 1;
    }
    if (fault != NOT_WAITED)
        wgmma_wait();
    if (threadIdx.x == 0)
        values[0] = values[THREADS - 1] + 32 + sums[0].value[0];
}

#define PRODUCT_FAULT(name, fault, says, checked)                                                  \
    FAULT(name, says, checked)                                                                     \
    {                                                                                              \
        KERNEL_LAUNCH(product_kernel, 1, WARPGROUP, 4 * WGMMA_ALIGNMENT, stream, values, fault);   \
    }
PRODUCT_FAULT(product_right, PRODUCT_RIGHT, NULL, true)
PRODUCT_FAULT(copy_not_waited, COPY_NOT_WAITED, "ends before a product or copy", true)
PRODUCT_FAULT(rows_not_published, ROWS_NOT_PUBLISHED, "without a proxy fence and a barrier", false)
PRODUCT_FAULT(rows_published_late, ROWS_PUBLISHED_LATE, "without a proxy fence and", false)
PRODUCT_FAULT(rows_not_aligned, ROWS_NOT_ALIGNED, "not at a multiple of 1024 bytes", true)
PRODUCT_FAULT(registers_not_fenced, REGISTERS_NOT_FENCED, "without wgmma.fence", true)
PRODUCT_FAULT(not_committed, NOT_COMMITTED, "a product that is in no group", true)
PRODUCT_FAULT(not_waited, NOT_WAITED, "ends before a product or copy", true)
PRODUCT_FAULT(left_changed, LEFT_CHANGED, "registers of a product changed", true)
PRODUCT_FAULT(sums_changed, SUMS_CHANGED, "sums of a product changed", true)
PRODUCT_FAULT(rows_changed, ROWS_CHANGED, "shared memory of a product changed", true)
PRODUCT_FAULT(warps_differ, WARPS_DIFFER, "issue different products", true)
