// SPDX-License-Identifier: BSD-3-Clause
/* The emulated GPU reports faults that a real one may ignore: each kernel and call in
 * faulty_kernels.cu ends the program with its message. Work that the host does not wait
 * for does not run. */
#include <unistd.h>

#include "device/device.h"
#include "device_test.h"

enum { THREADS = 64 };

#if defined(__SANITIZE_ADDRESS__)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

/* Functions of faulty_kernels.cu. */
static const char *(*fault_says)(int number, const char **name, bool *checked);
static void (*fault_run)(int number, struct stream *stream, float *values);

/* Run one kernel; exit status 0 if its result is correct. */
static void kernel_run(void *number)
{
    struct device_test test;
    device_test_open(&test, 1);
    float *values = device_test_random(&test, TYPE_FP32, THREADS, 1, 1);
    float last = values[THREADS - 1];
    fault_run(*(const int *)number, test.stream, values);
    if (values[0] == last + 32)
        _exit(97); /* it ran before the host waited */
    device_test_wait(&test);
    _exit(values[0] == last + 32 ? 0 : 96);
}

TEST(faults_are_found)
{
    char output[65536];
    const char *name;
    bool checked;
    *(void **)&fault_says = device_module_symbol("fault_says", &error);
    *(void **)&fault_run = device_module_symbol("fault_run", &error);
    int number = 0;
    for (; fault_says(number, &name, &checked), name != NULL; number++) {
        const char *says = fault_says(number, &name, &checked);
        if (sanitized && !checked)
            continue;
        const int status = child_run(kernel_run, &number, output, sizeof output);
        if (says == NULL ? status != 0 : status == 0 || status >= 95)
            fail_msg("%s: status %d: %s", name, status, output);
        if (says != NULL && !sanitized && strstr(output, says) == NULL)
            fail_msg("%s: not \"%s\" but: %s", name, says, output);
    }
    assert_in_range(number, 30, 64);
}

int main(void)
{
    if (!device_test_of_gpu())
        return 0;
    setenv("VITTRAIN_TEST_DEVICE", "cuda", 1);
    return TESTS_RUN();
}
