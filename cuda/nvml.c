// SPDX-License-Identifier: BSD-3-Clause
/* NVML's functions are looked up individually: older drivers lack the newer ones, and each GPU has
 * only some of the sensors. Types and numbers are those of NVML's binary interface, which is
 * stable. */
#include "nvml.h"
#include "base/allocate.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/error.h"

/* The values of nvmlReturn_t that are distinguished. */
enum { NVML_SUCCESS = 0, NVML_GPU_IS_LOST = 15 };

enum { TEMPERATURE_GPU = 0 }; /* nvmlTemperatureSensors_t */

typedef struct nvmlDevice_st *device_handle;
typedef unsigned long long large_number;

struct utilization { /* nvmlUtilization_t: percent */
    unsigned int gpu, memory;
};

struct memory { /* nvmlMemory_t: bytes */
    large_number total, free, used;
};

struct memory_v2 { /* nvmlMemory_v2_t; used: excludes memory reserved by the driver */
    unsigned int version;
    large_number total, reserved, free, used;
};

_Static_assert(sizeof(struct utilization) == 8 && sizeof(struct memory) == 24 &&
                   sizeof(struct memory_v2) == 40 && offsetof(struct memory_v2, used) == 32,
               "NVML's structs have this layout on all 64-bit machines");

enum { MEMORY_VERSION_2 = sizeof(struct memory_v2) | 2 << 24 };

struct calls {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int status);
    int (*by_uuid)(const char *uuid, device_handle *device);
    int (*by_bus_id)(const char *id, device_handle *device);
    int (*name)(device_handle device, char *name, unsigned int size);
    int (*utilization)(device_handle device, struct utilization *utilization);
    int (*memory)(device_handle device, struct memory *memory);
    int (*memory_v2)(device_handle device, struct memory_v2 *memory);
    int (*power)(device_handle device, unsigned int *milliwatts);
    int (*temperature)(device_handle device, int sensor, unsigned int *celsius);
};

struct nvml {
    void *library;
    struct calls calls;
    bool initialised;
    _Atomic bool busy;    /* a reading is in progress */
    device_handle device; /* NULL: not found, or lost */
    char label[256];      /* "NVIDIA H200 (GPU-...)" */
    char trouble[SENSOR_MESSAGE];
};

/* ---- Opening */

/* Look up the first of the names that the library has; NULL if none. */
static void call_find(const struct nvml *nvml, void *call, const char *name, const char *older)
{
    void *symbol = dlsym(nvml->library, name);
    if (symbol == NULL && older != NULL)
        symbol = dlsym(nvml->library, older);
    memcpy(call, &symbol, sizeof symbol);
}

static void calls_find(struct nvml *nvml)
{
    struct calls *calls = &nvml->calls;
    call_find(nvml, &calls->init, "nvmlInit_v2", "nvmlInit");
    call_find(nvml, &calls->shutdown, "nvmlShutdown", NULL);
    call_find(nvml, &calls->error_string, "nvmlErrorString", NULL);
    call_find(nvml, &calls->by_uuid, "nvmlDeviceGetHandleByUUID", NULL);
    call_find(nvml, &calls->by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2",
              "nvmlDeviceGetHandleByPciBusId");
    call_find(nvml, &calls->name, "nvmlDeviceGetName", NULL);
    call_find(nvml, &calls->utilization, "nvmlDeviceGetUtilizationRates", NULL);
    call_find(nvml, &calls->memory, "nvmlDeviceGetMemoryInfo", NULL);
    call_find(nvml, &calls->memory_v2, "nvmlDeviceGetMemoryInfo_v2", NULL);
    call_find(nvml, &calls->power, "nvmlDeviceGetPowerUsage", NULL);
    call_find(nvml, &calls->temperature, "nvmlDeviceGetTemperature", NULL);
}

static const char *status_text(const struct nvml *nvml, int status)
{
    const char *text = nvml->calls.error_string != NULL ? nvml->calls.error_string(status) : NULL;
    return text != NULL ? text : "no reason given by NVML";
}

static void trouble_set(struct nvml *nvml, const char *what, const char *why)
{
    snprintf(nvml->trouble, sizeof nvml->trouble,
             "cannot read the GPU's sensors (%s: %s): their columns stay empty", what, why);
}

static void device_find(struct nvml *nvml, const char *device)
{
    const struct calls *calls = &nvml->calls;
    bool is_uuid = strncmp(device, "GPU-", 4) == 0 || strncmp(device, "MIG-", 4) == 0;
    int (*find)(const char *, device_handle *) = is_uuid ? calls->by_uuid : calls->by_bus_id;
    char name[96] = "GPU"; /* NVML_DEVICE_NAME_V2_BUFFER_SIZE */
    if (find == NULL) {
        trouble_set(nvml, device, "NVML cannot look it up");
        return;
    }
    int status = find(device, &nvml->device);
    if (status != NVML_SUCCESS) {
        nvml->device = NULL;
        trouble_set(nvml, device, status_text(nvml, status));
        return;
    }
    if (calls->name != NULL)
        calls->name(nvml->device, name, sizeof name);
    snprintf(nvml->label, sizeof nvml->label, "%s (%.128s)", name, device);
}

struct nvml *nvml_open(const char *library, const char *device)
{
    const char *file = library != NULL ? library : "libnvidia-ml.so.1";
    struct nvml *nvml = allocate(1, sizeof *nvml);
    nvml->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL) {
        const char *why = dlerror();
        trouble_set(nvml, file, why != NULL ? why : "it cannot be opened");
        return nvml;
    }
    calls_find(nvml);
    int status = nvml->calls.init != NULL ? nvml->calls.init() : -1;
    nvml->initialised = status == NVML_SUCCESS;
    if (nvml->initialised)
        device_find(nvml, device);
    else
        trouble_set(nvml, file, status_text(nvml, status));
    return nvml;
}

void nvml_close(struct nvml *nvml)
{
    if (nvml == NULL || nvml->busy)
        return;
    if (nvml->initialised && nvml->calls.shutdown != NULL)
        nvml->calls.shutdown();
    if (nvml->library != NULL)
        dlclose(nvml->library);
    free(nvml);
}

/* ---- Readings */

/* True if the call succeeded. A lost GPU is not queried any more. */
static bool call_good(struct nvml *nvml, int status, struct sensor_reading *reading)
{
    if (status == NVML_GPU_IS_LOST && nvml->device != NULL) {
        snprintf(reading->alarm, sizeof reading->alarm,
                 "%s is lost (%s): the node needs a reset or a restart", nvml->label,
                 status_text(nvml, status));
        nvml->device = NULL;
    }
    return status == NVML_SUCCESS;
}

static void power_read(struct nvml *nvml, struct sensor_reading *reading)
{
    unsigned int milliwatts = 0;
    if (nvml->device != NULL && nvml->calls.power != NULL &&
        call_good(nvml, nvml->calls.power(nvml->device, &milliwatts), reading))
        reading->value[SENSOR_GPU_POWER] = milliwatts * 1e-3;
}

static void temperature_read(struct nvml *nvml, struct sensor_reading *reading)
{
    unsigned int celsius = 0;
    if (nvml->device != NULL && nvml->calls.temperature != NULL &&
        call_good(nvml, nvml->calls.temperature(nvml->device, TEMPERATURE_GPU, &celsius), reading))
        reading->value[SENSOR_GPU_TEMPERATURE] = celsius;
}

static void utilization_read(struct nvml *nvml, struct sensor_reading *reading)
{
    struct utilization percent = {0};
    if (nvml->device == NULL || nvml->calls.utilization == NULL ||
        !call_good(nvml, nvml->calls.utilization(nvml->device, &percent), reading))
        return;
    reading->value[SENSOR_GPU_BUSY] = percent.gpu / 100.0;
}

static void memory_read(struct nvml *nvml, struct sensor_reading *reading)
{
    struct memory_v2 newer = {.version = MEMORY_VERSION_2};
    struct memory older = {0};
    if (nvml->device != NULL && nvml->calls.memory_v2 != NULL &&
        call_good(nvml, nvml->calls.memory_v2(nvml->device, &newer), reading)) {
        reading->value[SENSOR_GPU_MEMORY_USED] = (double)newer.used;
        reading->value[SENSOR_GPU_MEMORY_TOTAL] = (double)newer.total;
    } else if (nvml->device != NULL && nvml->calls.memory != NULL &&
               call_good(nvml, nvml->calls.memory(nvml->device, &older), reading)) {
        reading->value[SENSOR_GPU_MEMORY_USED] = (double)older.used;
        reading->value[SENSOR_GPU_MEMORY_TOTAL] = (double)older.total;
    }
}

void nvml_read(struct nvml *nvml, struct sensor_reading *reading)
{
    nvml->busy = true;
    snprintf(reading->trouble, sizeof reading->trouble, "%s", nvml->trouble);
    utilization_read(nvml, reading);
    memory_read(nvml, reading);
    power_read(nvml, reading);
    temperature_read(nvml, reading);
    nvml->busy = false;
}
