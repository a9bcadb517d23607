// SPDX-License-Identifier: BSD-3-Clause
/* The emulated devices: one per rank of the node, or VITTRAIN_EMULATION_DEVICES. Each has 1 GiB, or
 * VITTRAIN_EMULATION_MEMORY bytes, and the name "emulated GPU", or VITTRAIN_EMULATION_NAME.
 * VITTRAIN_EMULATION_FAULT=CALL:CODE makes that call of the runtime library return that error.
 * VITTRAIN_EMULATION_CAPTURE=FILE lists the kernels launched between cudaProfilerStart and
 * cudaProfilerStop. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern "C" {
#include "base/launcher.h"
}

static FILE *captured;
static thread_local int device_number; /* a new thread has device 0, as in CUDA */

#define ERROR_NAME(name, number, text)                                                             \
    case name:                                                                                     \
        return #name;
#define ERROR_TEXT(name, number, text)                                                             \
    case name:                                                                                     \
        return text;

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
        EMULATED_ERRORS(ERROR_NAME)
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
        EMULATED_ERRORS(ERROR_TEXT)
    }
    return "unrecognized error code";
}

bool is_forked(void)
{
    static const pid_t first = getpid(); /* the process of the first call */
    return getpid() != first;
}

cudaError_t fault_of(const char *call)
{
    if (is_forked())
        return cudaErrorInitializationError;
    const char *wanted = getenv("VITTRAIN_EMULATION_FAULT");
    size_t length = strlen(call);
    if (wanted == NULL || strncmp(wanted, call, length) != 0 || wanted[length] != ':')
        return cudaSuccess;
    return (cudaError_t)atoi(wanted + length + 1);
}

static long long setting(const char *name, long long preset)
{
    const char *value = getenv(name);
    return value == NULL ? preset : atoll(value);
}

cudaError_t cudaProfilerStart(void)
{
    RUNTIME_CALL;
    const char *name = getenv("VITTRAIN_EMULATION_CAPTURE");
    if (name == NULL)
        return cudaSuccess;
    captured = fopen(name, "w");
    ENSURE(captured != NULL, "%s cannot be written", name);
    return cudaSuccess;
}

cudaError_t cudaProfilerStop(void)
{
    RUNTIME_CALL;
    if (captured != NULL)
        ENSURE(fclose(captured) == 0, "cannot write the list of captured kernels");
    captured = NULL;
    return cudaSuccess;
}

void launch_capture(const char *kernel, dim3 grid, dim3 block)
{
    EMULATED_CALL;
    if (captured != NULL)
        fprintf(captured, "%ux%ux%u,%ux%ux%u,%s\n", grid.x, grid.y, grid.z, block.x, block.y,
                block.z, kernel);
}

cudaError_t cudaGetLastError(void)
{
    return fault_of("cudaGetLastError");
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)setting("VITTRAIN_EMULATION_DRIVER", 13000);
    return fault_of("cudaDriverGetVersion");
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return fault_of("cudaRuntimeGetVersion");
}

cudaError_t cudaGetDeviceCount(int *count)
{
    const int ranks_here = launcher_local_size();
    *count = (int)setting("VITTRAIN_EMULATION_DEVICES", ranks_here > 0 ? ranks_here : 1);
    return *count == 0 ? cudaErrorNoDevice : fault_of("cudaGetDeviceCount");
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int number, int other)
{
    *can = number != other;
    return fault_of("cudaDeviceCanAccessPeer");
}

cudaError_t cudaSetDevice(int number)
{
    int count = 0;
    cudaGetDeviceCount(&count);
    if (number >= count)
        return cudaErrorInvalidDevice;
    device_number = number;
    return fault_of("cudaSetDevice");
}

int device_current(void)
{
    return device_number;
}

void device_must_be(int number, const char *call)
{
    if (number != device_number)
        emulated_fault("%s: a handle of device %d in a thread with device %d", call, number,
                       device_number);
}

int device_capability(void)
{
    return (int)setting("VITTRAIN_EMULATION_CAPABILITY", 90);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int number)
{
    const int capability = device_capability();
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "%s",
             getenv("VITTRAIN_EMULATION_NAME") != NULL ? getenv("VITTRAIN_EMULATION_NAME")
                                                       : "emulated GPU");
    snprintf(properties->uuid.bytes, sizeof properties->uuid.bytes, "emulated-%d", number);
    properties->totalGlobalMem = (size_t)setting("VITTRAIN_EMULATION_MEMORY", 1 << 30);
    properties->sharedMemPerBlockOptin = SHARED_MOST;
    properties->major = capability / 10;
    properties->minor = capability % 10;
    properties->multiProcessorCount = 4;
    properties->l2CacheSize = 64 << 10; /* small, so that tests exceed it */
    properties->pciBusID = number + 1;
    return fault_of("cudaGetDeviceProperties");
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    *total = (size_t)setting("VITTRAIN_EMULATION_MEMORY", 1 << 30);
    *free = *total - memory_in_use();
    return fault_of("cudaMemGetInfo");
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    RUNTIME_CALL;
    thread_must_not_capture("cudaMalloc");
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    if (bytes > free)
        return cudaErrorMemoryAllocation;
    *memory = memory_allocate(bytes, EMULATED_DEVICE);
    return fault_of("cudaMalloc");
}

cudaError_t cudaFree(void *memory)
{
    RUNTIME_CALL;
    thread_must_not_capture("cudaFree");
    if (memory != NULL)
        memory_release(memory, EMULATED_DEVICE);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    RUNTIME_CALL;
    thread_must_not_capture("cudaHostAlloc");
    *memory = memory_allocate(bytes, EMULATED_PINNED);
    return fault_of("cudaHostAlloc");
}

cudaError_t cudaFreeHost(void *memory)
{
    RUNTIME_CALL;
    thread_must_not_capture("cudaFreeHost");
    if (memory != NULL)
        memory_release(memory, EMULATED_PINNED);
    return cudaSuccess;
}

/* ---- Atomic operations: blocks and threads run one at a time */
unsigned long long atomicAdd(unsigned long long *sum, unsigned long long value)
{
    unsigned long long before = *sum;
    *sum += value;
    return before;
}

unsigned long long atomicMin(unsigned long long *least, unsigned long long value)
{
    unsigned long long before = *least;
    if (value < before)
        *least = value;
    return before;
}
