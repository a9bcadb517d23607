// SPDX-License-Identifier: BSD-3-Clause
/* A replacement for the driver's libnvidia-ml.so.1 with one GPU whose sensors have known values. It
 * checks arguments strictly. Environment variables select failures; -DOLD leaves out functions that
 * older drivers lack. Structs and numbers are copied from NVML's documentation, not from the code
 * under test. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, NO_DRIVER = 9, LOST = 15 };

static int open_count, the_gpu;

static int has(const char *word)
{
    const char *state = getenv("NVML_STAND_IN");
    return state != NULL && strstr(state, word) != NULL;
}

/* Result of a query of a sensor. */
static int answer(const void *device)
{
    if (open_count == 0 || device != &the_gpu)
        return INVALID;
    return has("lost") ? LOST : has("bare") ? NOT_SUPPORTED : SUCCESS;
}

static int start(void)
{
    if (has("no driver"))
        return NO_DRIVER;
    open_count++;
    return SUCCESS;
}

int nvmlInit(void)
{
#ifdef OLD
    return start();
#else
    abort(); /* the newer function must be used */
#endif
}

int nvmlShutdown(void)
{
    open_count--;
    return SUCCESS;
}

const char *nvmlErrorString(int status)
{
    return status == NO_DRIVER   ? "Driver Not Loaded"
           : status == NOT_FOUND ? "Not Found"
           : status == LOST      ? "GPU is lost"
                                 : "Unknown Error";
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = &the_gpu;
    /* The second one is the emulated GPU's: "emulated-0". */
    return strcmp(uuid, "GPU-01234567-89ab") == 0 ||
                   strcmp(uuid, "GPU-656d756c-6174-6564-2d30-000000000000") == 0
               ? SUCCESS
               : NOT_FOUND;
}

#ifdef OLD
int nvmlDeviceGetHandleByPciBusId(const char *id, void **device)
#else
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device)
#endif
{
    *device = &the_gpu;
    return strcmp(id, "0000:3b:00.0") == 0 ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetName(void *device, char *name, unsigned int size)
{
    if (device != &the_gpu || size < 96)
        return INVALID;
    strcpy(name, "NVIDIA Stand-in");
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, uint32_t percent[2])
{
    percent[0] = 87;
    percent[1] = 41;
    return answer(device);
}

/* total, free, used */
int nvmlDeviceGetMemoryInfo(void *device, uint64_t bytes[3])
{
    bytes[0] = 80ULL << 30;
    bytes[1] = 74ULL << 30;
    bytes[2] = 6ULL << 30;
    return answer(device);
}

int nvmlDeviceGetPowerUsage(void *device, uint32_t *milliwatts)
{
    *milliwatts = 412345;
    if (has("stuck"))
        sleep(9);
    return answer(device);
}

int nvmlDeviceGetTemperature(void *device, int sensor, uint32_t *celsius)
{
    *celsius = 64;
    return sensor == 0 ? answer(device) : INVALID;
}

#ifndef OLD

int nvmlInit_v2(void)
{
    return start();
}

/* version, padding, total, reserved, free, used: 40 bytes, version 2 */
int nvmlDeviceGetMemoryInfo_v2(void *device, uint64_t fields[5])
{
    uint32_t version;
    memcpy(&version, fields, sizeof version);
    if (version != 0x2000028)
        return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    if (has("first version"))
        return NOT_SUPPORTED;
    fields[1] = 80ULL << 30;
    fields[2] = 1ULL << 30;
    fields[3] = 74ULL << 30;
    fields[4] = 5ULL << 30;
    return answer(device);
}

#endif
