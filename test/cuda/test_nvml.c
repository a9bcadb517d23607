// SPDX-License-Identifier: BSD-3-Clause
// sources: cuda/nvml.c
/* A GPU's sensors from a replacement of NVML (nvml_stand_in.c), current and old: the values, and
 * all cases without values. */
#include "../cuda/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include "device/device.h"
#include "device_test.h"

static const char uuid[] = "GPU-01234567-89ab";
static struct sensor_reading reading;

static struct nvml *open_library(const char *folder, const char *device, const char *condition)
{
    char path[4096];
    setenv("NVML_STAND_IN", condition, 1);
    snprintf(path, sizeof path, "%s/test/%s/libnvidia-ml.so.1", getenv("TEST_BUILD"), folder);
    return nvml_open(path, device);
}

static void read_all(struct nvml *nvml)
{
    sensor_reading_clear(&reading);
    nvml_read(nvml, &reading);
}

#define assert_value(sensor, expected)                                                             \
    assert_true(fabs(reading.value[sensor] - (expected)) <= 1e-12 * fabs((double)(expected)))
#define assert_unknown(sensor) assert_true(isnan(reading.value[sensor]))

static void assert_nothing_known(void)
{
    for (int i = 0; i < SENSOR_COUNT; i++)
        assert_unknown(i);
}

static void assert_all_values(double memory_used)
{
    assert_value(SENSOR_GPU_BUSY, 0.87);
    assert_value(SENSOR_GPU_MEMORY_TOTAL, 80.0 * (1 << 30));
    assert_value(SENSOR_GPU_MEMORY_USED, memory_used * (1 << 30));
    assert_value(SENSOR_GPU_POWER, 412.345);
    assert_value(SENSOR_GPU_TEMPERATURE, 64);
    assert_string_equal(reading.trouble, "");
    assert_string_equal(reading.alarm, "");
}

/* With old and new drivers, by the id and by the bus. An old driver, or one whose new function
 * fails, counts reserved memory as used. */
TEST(a_gpu_has_all_values)
{
    static const struct {
        const char *folder, *device, *condition;
        double memory_used;
    } cases[] = {{"nvml", uuid, "", 5},
                 {"nvml_old", uuid, "", 6},
                 {"nvml", "0000:3b:00.0", "", 5},
                 {"nvml_old", "0000:3b:00.0", "", 6},
                 {"nvml", uuid, "first version", 6}};
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        struct nvml *nvml = open_library(cases[n].folder, cases[n].device, cases[n].condition);
        read_all(nvml);
        assert_all_values(cases[n].memory_used);
        for (int i = SENSOR_PROCESS_CORES; i < SENSOR_GPU_BUSY; i++)
            assert_unknown(i); /* not its own value */
        nvml_close(nvml);
    }
}

TEST(a_gpu_without_sensors_leaves_the_fields_empty)
{
    struct nvml *nvml = open_library("nvml", uuid, "bare");
    read_all(nvml);
    assert_nothing_known();
    assert_string_equal(reading.trouble, "");
    assert_string_equal(reading.alarm, "");
    setenv("NVML_STAND_IN", "", 1);
    read_all(nvml); /* it is queried again: some sensors work only under load */
    assert_value(SENSOR_GPU_BUSY, 0.87);
    nvml_close(nvml);
}

TEST(a_lost_gpu_is_one_alarm)
{
    struct nvml *nvml = open_library("nvml", uuid, "");
    read_all(nvml);
    setenv("NVML_STAND_IN", "lost", 1);
    read_all(nvml);
    assert_nothing_known();
    assert_string_equal(reading.alarm, "NVIDIA Stand-in (GPU-01234567-89ab) is lost (GPU is lost): "
                                       "the node needs a reset or a restart");
    read_all(nvml);
    assert_nothing_known();
    assert_string_equal(reading.alarm, "");
    nvml_close(nvml);
}

/* One line with the reason in every reading (the caller logs it once). */
static void assert_trouble(struct nvml *nvml, const char *expected)
{
    for (int i = 0; i < 2; i++) {
        read_all(nvml);
        assert_nothing_known();
        assert_has(reading.trouble, expected);
        assert_null(strchr(reading.trouble, '\n'));
    }
    nvml_close(nvml);
}

/* Through the backend's table, with the library found by its name: one with that name is loaded
 * already. */
TEST(the_backend_reads_its_gpu)
{
    char library[4096];
    if (!device_test_emulate())
        SKIP_BECAUSE("no g++ for the emulated GPU");
    setenv("NVML_STAND_IN", "", 1);
    snprintf(library, sizeof library, "%s/test/nvml/libnvidia-ml.so.1", getenv("TEST_BUILD"));
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(loaded);
    const struct device_backend *backend = device_find("cuda", &error);
    if (backend == NULL)
        fail_msg("%s", error.text);
    struct device *device = backend->open(0, 1, &error);
    if (device == NULL)
        fail_msg("%s", error.text);
    sensor_reading_clear(&reading);
    backend->sensors(device, &reading);
    assert_all_values(5);
    setenv("NVML_STAND_IN", "lost", 1);
    sensor_reading_clear(&reading);
    backend->sensors(device, &reading);
    assert_non_null(strstr(reading.alarm, "NVIDIA Stand-in (GPU-656d756c-6174-6564-2d30-"));
    backend->close(device);
    dlclose(loaded);
}

TEST(what_is_missing_is_named)
{
    assert_trouble(nvml_open("./no/libnvidia-ml.so.1", uuid), "./no/libnvidia-ml.so.1: ");
    assert_trouble(nvml_open("libm.so.6", uuid), "(libm.so.6: no reason given by NVML)");
    assert_trouble(open_library("nvml", uuid, "no driver"), "Driver Not Loaded");
    assert_trouble(open_library("nvml", "GPU-none", ""), "(GPU-none: Not Found)");
    assert_trouble(open_library("nvml", "0000:00:00.0", ""), "(0000:00:00.0: Not Found)");
    /* This machine's NVML, if any. */
    assert_trouble(nvml_open(NULL, "GPU-none"), "cannot read the GPU's sensors (");
    nvml_close(NULL);
}

TEST_MAIN()
