// SPDX-License-Identifier: BSD-3-Clause
/* NVML's functions are looked up individually: older drivers lack the newer ones, and each GPU has
 * only some of the sensors. Types and numbers are those of NVML's binary interface, which is
 * stable. */
#include "nvml.h"
#include "core/allocate.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocate.h"
#include "core/error.h"

/* The values of nvmlReturn_t that are distinguished. */
enum { NVML_SUCCESS = 0, NVML_GPU_IS_LOST = 15 };

/* nvmlTemperatureSensors_t, nvmlClockType_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t */
enum { TEMPERATURE_GPU = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2 };
enum { ERROR_CORRECTED = 0, ERROR_UNCORRECTED = 1, SINCE_DRIVER_LOAD = 0 };

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
    int (*energy)(device_handle device, large_number *millijoules);
    int (*temperature)(device_handle device, int sensor, unsigned int *celsius);
    int (*clock)(device_handle device, int type, unsigned int *megahertz);
    int (*clock_reasons)(device_handle device, large_number *mask);
    int (*ecc_errors)(device_handle device, int type, int counter, large_number *count);
    int (*pcie_replays)(device_handle device, unsigned int *count);
};

struct nvml {
    void *library;
    struct calls calls;
    bool initialised;
    _Atomic bool busy;    /* a reading is in progress */
    device_handle device; /* NULL: not found, or lost */
    char label[256];      /* "NVIDIA H200 (GPU-...)" */
    char trouble[SENSOR_MESSAGE];
    double throttled_seconds, read_at; /* read_at: time of the previous reading, NAN: none */
    double uncorrected;                /* at the previous reading, NAN: unknown */
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
    call_find(nvml, &calls->energy, "nvmlDeviceGetTotalEnergyConsumption", NULL);
    call_find(nvml, &calls->temperature, "nvmlDeviceGetTemperature", NULL);
    call_find(nvml, &calls->clock, "nvmlDeviceGetClockInfo", NULL);
    call_find(nvml, &calls->clock_reasons, "nvmlDeviceGetCurrentClocksEventReasons",
              "nvmlDeviceGetCurrentClocksThrottleReasons");
    call_find(nvml, &calls->ecc_errors, "nvmlDeviceGetTotalEccErrors", NULL);
    call_find(nvml, &calls->pcie_replays, "nvmlDeviceGetPcieReplayCounter", NULL);
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
    nvml->read_at = nvml->uncorrected = NAN;
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

static void number_read(struct nvml *nvml, int (*call)(device_handle, unsigned int *), double scale,
                        enum sensor sensor, struct sensor_reading *reading)
{
    unsigned int value = 0;
    if (nvml->device != NULL && call != NULL &&
        call_good(nvml, call(nvml->device, &value), reading))
        reading->value[sensor] = value * scale;
}

static void large_number_read(struct nvml *nvml, int (*call)(device_handle, large_number *),
                              double scale, enum sensor sensor, struct sensor_reading *reading)
{
    large_number value = 0;
    if (nvml->device != NULL && call != NULL &&
        call_good(nvml, call(nvml->device, &value), reading))
        reading->value[sensor] = (double)value * scale;
}

/* Read one of several sensors of the same kind. */
static void choice_read(struct nvml *nvml, int (*call)(device_handle, int, unsigned int *),
                        int choice, enum sensor sensor, struct sensor_reading *reading)
{
    unsigned int value = 0;
    if (nvml->device != NULL && call != NULL &&
        call_good(nvml, call(nvml->device, choice, &value), reading))
        reading->value[sensor] = value;
}

static void utilization_read(struct nvml *nvml, struct sensor_reading *reading)
{
    struct utilization percent = {0};
    if (nvml->device == NULL || nvml->calls.utilization == NULL ||
        !call_good(nvml, nvml->calls.utilization(nvml->device, &percent), reading))
        return;
    reading->value[SENSOR_GPU_BUSY] = percent.gpu / 100.0;
    reading->value[SENSOR_GPU_MEMORY_BUSY] = percent.memory / 100.0;
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

/* nvmlClocksEventReasons. `slows`: indicates a problem with cooling or power. */
static const struct {
    large_number bit;
    const char *word;
    bool slows;
} reasons[] = {
    {0x1, "idle", false},
    {0x2, "application-clocks", false},
    {0x4, "power-cap", false},
    {0x8, "hw-slowdown", true},
    {0x10, "sync-boost", false},
    {0x20, "sw-thermal", true},
    {0x40, "hw-thermal", true},
    {0x80, "hw-power-brake", true},
    {0x100, "display-clocks", false},
};

/* Report the mask as a number, as words, and as time: a reading represents the time since the
 * previous one. */
static void throttling_read(struct nvml *nvml, double now, struct sensor_reading *reading)
{
    double seconds = isnan(nvml->read_at) ? 0 : now - nvml->read_at;
    size_t used = 0;
    bool slowed = false;
    large_number_read(nvml, nvml->calls.clock_reasons, 1, SENSOR_GPU_THROTTLE_MASK, reading);
    if (isnan(reading->value[SENSOR_GPU_THROTTLE_MASK]))
        return;
    large_number mask = (large_number)reading->value[SENSOR_GPU_THROTTLE_MASK];
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if ((mask & reasons[i].bit) == 0)
            continue;
        slowed = slowed || reasons[i].slows;
        used += (size_t)snprintf(reading->throttle + used, sizeof reading->throttle - used, "%s%s",
                                 used > 0 ? " " : "", reasons[i].word);
    }
    nvml->throttled_seconds += slowed ? seconds : 0;
    reading->value[SENSOR_GPU_THROTTLED] = nvml->throttled_seconds;
}

static void errors_read(struct nvml *nvml, enum sensor sensor, int type,
                        struct sensor_reading *reading)
{
    large_number count = 0;
    if (nvml->device != NULL && nvml->calls.ecc_errors != NULL &&
        call_good(nvml, nvml->calls.ecc_errors(nvml->device, type, SINCE_DRIVER_LOAD, &count),
                  reading))
        reading->value[sensor] = (double)count;
}

/* Only errors since the start are alarms: older ones may have been handled. */
static void uncorrected_watch(struct nvml *nvml, struct sensor_reading *reading)
{
    double count = reading->value[SENSOR_GPU_ECC_UNCORRECTED];
    if (isnan(count))
        return;
    if (count > nvml->uncorrected)
        snprintf(reading->alarm, sizeof reading->alarm,
                 "%s: %.0f more uncorrected memory error(s) (ECC): results from here on may be "
                 "wrong; resume from the last checkpoint on another GPU, and reset this one",
                 nvml->label, count - nvml->uncorrected);
    nvml->uncorrected = count;
}

void nvml_read(struct nvml *nvml, double now, struct sensor_reading *reading)
{
    const struct calls *calls = &nvml->calls;
    nvml->busy = true;
    snprintf(reading->trouble, sizeof reading->trouble, "%s", nvml->trouble);
    utilization_read(nvml, reading);
    memory_read(nvml, reading);
    number_read(nvml, calls->power, 1e-3, SENSOR_GPU_POWER, reading);
    large_number_read(nvml, calls->energy, 1e-3, SENSOR_GPU_ENERGY, reading);
    choice_read(nvml, calls->temperature, TEMPERATURE_GPU, SENSOR_GPU_TEMPERATURE, reading);
    choice_read(nvml, calls->clock, CLOCK_SM, SENSOR_GPU_SM_CLOCK, reading);
    choice_read(nvml, calls->clock, CLOCK_MEMORY, SENSOR_GPU_MEMORY_CLOCK, reading);
    throttling_read(nvml, now, reading);
    errors_read(nvml, SENSOR_GPU_ECC_CORRECTED, ERROR_CORRECTED, reading);
    errors_read(nvml, SENSOR_GPU_ECC_UNCORRECTED, ERROR_UNCORRECTED, reading);
    uncorrected_watch(nvml, reading);
    number_read(nvml, calls->pcie_replays, 1, SENSOR_GPU_PCIE_REPLAYS, reading);
    nvml->read_at = now;
    nvml->busy = false;
}
