/* Kernels with a fault on purpose: test_emulation runs each and sees it found. */
#include "cuda.h"
#include "kernel.h"

enum { THREADS = 64 };

__global__ static void right_kernel(float *values)
{
    SHARED_MEMORY(shared);
    float *turned = (float *)shared;
    turned[THREADS - 1 - threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = turned[threadIdx.x] + warp_sum(1.0f);
}

__global__ static void divergent_barrier_kernel(float *values)
{
    if (threadIdx.x < THREADS / 2)
        __syncthreads();
    values[threadIdx.x] = 1;
}

__global__ static void two_barriers_kernel(float *values)
{
    if (threadIdx.x < THREADS / 2) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    values[threadIdx.x] = 1;
}

__global__ static void missing_barrier_kernel(float *values)
{
    SHARED_MEMORY(shared);
    float *turned = (float *)shared;
    turned[threadIdx.x] = values[threadIdx.x];
    values[threadIdx.x] = turned[threadIdx.x / 2];
}

__global__ static void overtaking_write_kernel(float *values)
{
    SHARED_MEMORY(shared);
    float *turned = (float *)shared;
    turned[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = turned[(threadIdx.x + 1) % THREADS];
    turned[threadIdx.x] = 0; /* the neighbour may not have read it yet */
}

__global__ static void blocks_race_kernel(float *values)
{
    values[threadIdx.x] = (float)blockIdx.x;
}

__global__ static void unwritten_shared_kernel(float *values)
{
    SHARED_MEMORY(shared);
    values[threadIdx.x] = ((float *)shared)[threadIdx.x];
}

__global__ static void outside_read_kernel(float *values)
{
    float value = values[threadIdx.x + 1];
    __syncthreads();
    values[threadIdx.x] = value;
}

__global__ static void outside_shared_kernel(float *values)
{
    SHARED_MEMORY(shared);
    ((float *)shared)[threadIdx.x + 1] = values[threadIdx.x];
}

__global__ static void misaligned_kernel(float *values)
{
    if (threadIdx.x == 0)
        eight_store(values + 1, eight_load(values + 4));
}

__global__ static void lone_exchange_kernel(float *values)
{
    if (threadIdx.x % 2 == 0)
        values[threadIdx.x] = warp_sum(values[threadIdx.x]);
}

__global__ static void host_memory_kernel(float *values, const float *host)
{
    values[threadIdx.x] = host[threadIdx.x];
}

/* Runs the kernel of that number on THREADS floats; false when there is none. */
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
                                               lone_exchange_kernel};
    const int count = sizeof kernels / sizeof kernels[0];
    if (number > count)
        return false;
    if (number == count) {
        KERNEL_LAUNCH(host_memory_kernel, 1, THREADS, 0, stream->handle, values, host);
        return true;
    }
    void (*kernel)(float *) = kernels[number];
    KERNEL_LAUNCH(kernel, kernel == blocks_race_kernel ? 2 : 1, THREADS, THREADS * sizeof(float),
                  stream->handle, values);
    return true;
}
