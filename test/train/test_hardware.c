// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Options of the device take effect: run.backend, cuda.tf32, cuda.dependent_launch,
 * and the folder of cuda.cache=auto. */
#include "train/hardware.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "device_test.h"
#include "model_fixture.h"
#include "options/options.h"
#include "temporary.h"

/* Open the device under test as the program does. */
static void open_with(const char *setting, struct device_test *test)
{
    error_clear(&error);
    struct options options;
    const char *device = getenv("VITTRAIN_TEST_DEVICE");
    const bool cuda = device != NULL && strcmp(device, "cuda") == 0;
    char words[128];
    snprintf(words, sizeof words, "run.backend=%s cuda.cache=none %s", cuda ? "cuda" : "cpu",
             setting);
    settings_set(&options, words);
    struct device *opened = hardware_open(&options, world, &error);
    assert_ok(opened != NULL, &error);
    assert_ptr_equal(opened->backend, device_test_backend(&error));
    device_test_take(test, opened);
}

/* Run a kernel in a child process. Return whether it succeeds if the emulated GPU's compute
 * capability is `opened` when the device is opened, and 8.0 when the kernel is launched. */
static bool launch_succeeds(const char *setting, const char *opened)
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct device_test test;
        assert_non_null(freopen("/dev/null", "w", stderr));
        setenv("VITTRAIN_EMULATION_CAPABILITY", opened, 1);
        open_with(setting, &test);
        setenv("VITTRAIN_EMULATION_CAPABILITY", "80", 1);
        float *x = device_test_zeros(&test, TYPE_FP32, 8);
        test.device->backend->add(test.stream, x, x, 8);
        device_test_wait(&test);
        _exit(0);
    }
    int status = 0;
    assert_true(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The emulated GPU refuses dependent launches below compute capability 9.0. The first test, because
 * a child process cannot use CUDA after its parent has. */
TEST(dependent_launches_are_the_options)
{
    const char *module = getenv("VITTRAIN_CUDA_MODULE");
    if (module == NULL || strstr(module, "emulated") == NULL)
        skip();
    assert_false(launch_succeeds("cuda.dependent_launch=on", "90"));
    assert_true(launch_succeeds("cuda.dependent_launch=on", "80"));
    assert_true(launch_succeeds("cuda.dependent_launch=off", "90"));
}

/* Multiply 1 by a number that TF32 cannot represent. */
static float product_of(struct device_test *test, float value)
{
    enum { SIZE = 8 };
    float *x = device_test_zeros(test, TYPE_FP32, SIZE * SIZE);
    float *weight = device_test_zeros(test, TYPE_FP32, SIZE * SIZE);
    float *y = device_test_zeros(test, TYPE_FP32, SIZE * SIZE);
    for (int i = 0; i < SIZE; i++)
        x[i * SIZE] = value;
    weight[0] = 1;
    DEVICE_RUN(test, linear_forward, .rows = SIZE, .in = SIZE, .out = SIZE, .rows_per_sample = 1,
               .x = x, .weight = weight, .y = y);
    device_test_wait(test);
    return y[0];
}

TEST(tf32_is_the_options)
{
    const float value = 1 + 0x1p-12f;
    for (int tf32 = 0; tf32 < 2; tf32++) {
        struct device_test test;
        struct device_limits limits;
        open_with(tf32 ? "cuda.tf32=on" : "cuda.tf32=off", &test);
        test.device->backend->limits(test.device, &limits);
        /* GPUs with bf16 have TF32; the CPU ignores the setting. */
        const bool rounds = tf32 && test.device->backend != &device_cpu && limits.multiplies_bf16;
        const float product = product_of(&test, value);
        /* For this shape the fastest algorithm of a library may use fp32. */
        assert_true(product == (rounds ? 1 : value) ||
                    (product == value && !device_test_is_emulated(&test)));
        device_test_close(&test);
    }
}

TEST(the_cache_folder_follows_the_environment)
{
    char home[512], below[1024];
    snprintf(home, sizeof home, "%s", temporary_directory("home"));
    snprintf(below, sizeof below, "%s/.cache/vittrain", home);
    const struct {
        const char *cache, *home, *expected; /* cache, home: NULL: unset */
    } rows[] = {{"/caches", home, "/caches/vittrain"},
                {NULL, home, below},
                {"not/absolute", home, below},
                {NULL, temporary_path("missing"), ""},
                {NULL, NULL, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char found[1024];
        rows[i].cache != NULL ? setenv("XDG_CACHE_HOME", rows[i].cache, 1)
                              : unsetenv("XDG_CACHE_HOME");
        rows[i].home != NULL ? setenv("HOME", rows[i].home, 1) : unsetenv("HOME");
        folder_cache(found, sizeof found);
        assert_string_equal(found, rows[i].expected);
    }
}

TEST_MAIN_WORLD(.setup = temporary_setup, .teardown = temporary_close)
