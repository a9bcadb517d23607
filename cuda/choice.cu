// SPDX-License-Identifier: BSD-3-Clause
/* Selection of a rank's GPU, its properties, and the errors if no GPU can be used. */
#include "cuda.h"

#include <stdio.h>
#include <string.h>

#include "collective.h"

/* The lowest compute capability that this module contains code for; later GPUs may run it. */
#ifndef CUDA_LEAST_CAPABILITY
#define CUDA_LEAST_CAPABILITY 75
#endif

/* Advice for an error. */
static const char *advice_for(cudaError_t result)
{
    switch ((int)result) {
    case cudaErrorInsufficientDriver:
        return "the driver is older than this program's CUDA: update the driver, or build with an "
               "older toolkit";
    case cudaErrorNoDevice:
        return "no GPU is visible: look at CUDA_VISIBLE_DEVICES and at what the job asked for "
               "(--gpus-per-task), or use run.backend=cpu";
    case cudaErrorDevicesUnavailable:
        return "the GPU is in use in exclusive mode: end the other process (nvidia-smi), or set "
               "`nvidia-smi -c DEFAULT`";
    case cudaErrorNoKernelImageForDevice:
        return "this program has no code for this GPU: build with --with-cuda-arch";
    case cudaErrorECCUncorrectable:
        return "take the GPU out of service (nvidia-smi -q -d ECC) and "
               "resume from the last checkpoint elsewhere";
    case cudaErrorMemoryAllocation:
        return "another process may hold memory (nvidia-smi)";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
        return "a kernel failed; CUDA_LAUNCH_BLOCKING=1 shows which";
    }
    return "see nvidia-smi and the system's log";
}

/* The device of this process, and its description for messages. */
static int device_number;
static char device_text[192] = "no GPU yet";

void cuda_check(cudaError_t result, const char *call, const char *file, int line)
{
    if (result != cudaSuccess)
        error_abort(file, line, "%s: %s: %s (%s); %s", device_text, call,
                    cudaGetErrorString(result), cudaGetErrorName(result), advice_for(result));
}

static bool call_refused(cudaError_t result, const char *call, struct error *error)
{
    (void)cudaGetLastError();
    return error_set(error, ERROR_USAGE, "GPU: %s: %s; %s", call, cudaGetErrorString(result),
                     advice_for(result));
}

static bool driver_check(struct error *error)
{
    int driver = 0, runtime = 0;
    cudaError_t result = cudaDriverGetVersion(&driver);
    if (result != cudaSuccess)
        return call_refused(result, "cudaDriverGetVersion", error);
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    if (driver == 0)
        return error_set(error, ERROR_USAGE,
                         "GPU: no NVIDIA driver: use run.backend=cpu, or a machine with one");
    /* Within a major version every driver runs code of every toolkit. */
    if (driver / 1000 >= runtime / 1000)
        return true;
    return error_set(error, ERROR_USAGE,
                     "GPU: the driver is for CUDA %d.%d, this program was built with CUDA %d.%d: "
                     "update the driver, or build with an older toolkit",
                     driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

/* Nominal dense peak rates of an SXM or PCIe card, in TFLOP/s; 0: unknown, as for a MIG slice. */
struct peaks {
    const char *part;
    double half, tf32, fp32;
};

static struct peaks peaks_of(const char *name)
{
    static const struct peaks known[] = {
        {"H200", 989, 495, 67},    {"H100 PCIe", 756, 378, 51}, {"H100 NVL", 835, 418, 60},
        {"H100", 989, 495, 67},    {"GH200", 989, 495, 67},     {"B200", 2250, 1125, 75},
        {"A100", 312, 156, 19.5},  {"A40", 150, 75, 37},        {"L40S", 362, 183, 92},
        {"RTX 4090", 165, 83, 83}, {"T4", 65, 8.1, 8.1}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strstr(name, known[i].part) != NULL && strstr(name, "MIG") == NULL)
            return known[i];
    return (struct peaks){"", 0, 0, 0};
}

static void uuid_print(const cudaUUID_t *uuid, char *text, size_t size)
{
    const unsigned char *b = (const unsigned char *)uuid->bytes;
    snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
}

static void limits_find(struct cuda_device *cuda, const struct cudaDeviceProp *properties)
{
    struct device_limits *limits = &cuda->limits;
    snprintf(limits->name, sizeof limits->name, "%.60s, sm_%d, %.0f GiB", properties->name,
             cuda->capability, (double)properties->totalGlobalMem / (1 << 30));
    snprintf(limits->instructions, sizeof limits->instructions, "sm_%d", cuda->capability);
    uuid_print(&properties->uuid, limits->identity, sizeof limits->identity);
    limits->memory_bytes = properties->totalGlobalMem;
    limits->multiplies_bf16 = cuda->capability >= 80;
    limits->multiplies_fp16 = true;
    cuda->peak_fp32 = peaks_of(properties->name).fp32 * 1e12;
    cuda->peak_tf32 = peaks_of(properties->name).tf32 * 1e12;
    limits->peak_flops[TYPE_FP32] = cuda->peak_fp32;
    limits->peak_flops[TYPE_BF16] = peaks_of(properties->name).half * 1e12;
    limits->peak_flops[TYPE_FP16] = limits->peak_flops[TYPE_BF16];
    snprintf(device_text, sizeof device_text, "GPU %d (%s)", cuda->number, limits->name);
}

bool choice_open(struct cuda_device *cuda, int number, struct error *error)
{
    int count = 0;
    struct cudaDeviceProp properties;
    if (!driver_check(error))
        return false;
    cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess)
        return call_refused(result, "cudaGetDeviceCount", error);
    cuda->number = number % count;
    result = cudaGetDeviceProperties(&properties, cuda->number);
    if (result != cudaSuccess)
        return call_refused(result, "cudaGetDeviceProperties", error);
    cuda->capability = properties.major * 10 + properties.minor;
    cuda->multiprocessors = properties.multiProcessorCount;
    cuda->shared_bytes = properties.sharedMemPerBlockOptin;
    cuda->l2_bytes = properties.l2CacheSize;
    limits_find(cuda, &properties);
    if (cuda->capability < CUDA_LEAST_CAPABILITY)
        return error_set(
            error, ERROR_USAGE,
            "%s: this program contains code for sm_%d and later: build with --with-cuda-arch=%d",
            device_text, CUDA_LEAST_CAPABILITY, cuda->capability);
    result = cudaSetDevice(cuda->number);
    device_number = cuda->number;
    if (result == cudaSuccess)
        result = cudaFree(NULL); /* creates the context; fails if an exclusive device is in use */
    return result == cudaSuccess || call_refused(result, "cudaSetDevice", error);
}

void choice_enter_thread(void)
{
    static thread_local bool entered;
    if (!entered)
        CUDA_CHECK(cudaSetDevice(device_number));
    entered = true;
}

void choice_survey(const struct cuda_device *cuda, struct device_survey *survey)
{
    char library[64];
    int driver = 0, runtime = 0;
    CUDA_CHECK(cudaDriverGetVersion(&driver));
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    collective_library(library, sizeof library);
    snprintf(survey->software, sizeof survey->software, "driver for CUDA %d.%d, CUDA %d.%d, %s",
             driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, library);
    survey->unreached = 0;
    CUDA_CHECK(cudaGetDeviceCount(&survey->visible));
    for (int other = 0; other < survey->visible; other++) {
        int reaches = 1;
        if (other != cuda->number)
            CUDA_CHECK(cudaDeviceCanAccessPeer(&reaches, cuda->number, other));
        survey->unreached += !reaches;
    }
}
