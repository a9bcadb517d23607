// SPDX-License-Identifier: BSD-3-Clause
/* The emulated GPU reports faults that a real one may ignore: each kernel and call in
 * faulty_kernels.cu ends the program with the expected message. Work that the host does not wait
 * for does not run. */
#include <unistd.h>

#include "device/device.h"
#include "device_test.h"
#include "test.h"

enum { THREADS = 64 };

/* Functions of faulty_kernels.cu. says: NULL for no fault. With AddressSanitizer, accesses of
 * kernels are not checked. */
static const struct {
    const char *name, *says;
    bool sanitized;
} faults[] = {
    {"right", NULL, true},
    {"divergent_barrier", "not reached by all threads", true},
    {"two_barriers", "wait at different barriers", true},
    {"missing_barrier", "race: reads shared", false},
    {"overtaking_write", "race: ", false},
    {"blocks_race", "race: writes device memory", false},
    {"unwritten_shared", "was not written", false},
    {"outside_read", "outside of memory", false},
    {"outside_shared", "outside of memory", false},
    {"misaligned", "not a multiple of 16", false},
    {"lone_exchange", "waits for its warp", true},
    {"early_read", "reads device memory before kernel_begin", false},
    {"no_begin", "ends without kernel_begin", true},
    {"arithmetic", NULL, true},
    {"bounded", "__launch_bounds__ allows 32", true},
    {"host_memory", "not the device's", false},
    {"shared_launch", NULL, true},
    {"shared_without_attribute", "cudaFuncSetAttribute allows 49152", true},
    {"shared_above_attribute", "cudaFuncSetAttribute allows 65536", true},
    {"shared_above_device", "cudaErrorInvalidValue", true},
    {"captured_fork", NULL, true},
    {"unjoined_fork", "before all of its streams are joined", true},
    {"captured_malloc", "cudaMalloc during a stream capture", true},
    {"malloc_by_another_thread", "cudaMalloc during a stream", true},
    {"captured_synchronize", "cudaStreamSynchronize on a stream that is being", true},
    {"query_of_another_stream", "cudaStreamQuery during a stream capture", true},
    {"query_in_capture", "cudaEventQuery during a stream capture", true},
    {"query_of_captured_event", "cudaEventQuery on an event that was recorded in", true},
    {"wait_for_ended_capture", "event of a capture that has ended", true},
    {"wait_for_event_outside", "event from outside of the capture", true},
    {"wait_for_another_capture", "event of another capture", true},
    {"end_in_another_thread", "cudaStreamEndCapture in another thread", true},
    {"legacy_stream", "on the legacy default stream", true},
    {"event_of_another_device", "a handle of device 1 in a thread with device 0", true},
    {"octets_beyond_32_bits", "4294967195 rows of 8 are too many", true},
    {"norm_sums_alone", "add_sums requires add and dgamma", true},
    {"launch_after_fork", "cudaErrorInitializationError", true},
    {"host_read", "the host accesses device memory", false},
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

#if defined(__SANITIZE_ADDRESS__)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

/* Run one kernel; exit status 0 if its result is correct. */
static void kernel_run(void *name)
{
    struct device_test test;
    struct error error = {0};
    device_test_open(&test, 1);
    void (*run)(struct stream * stream, float *values);
    *(void **)&run = device_module_symbol(name, &error);
    float *values = device_test_random(&test, TYPE_FP32, THREADS, 1, 1);
    float last = values[THREADS - 1];
    run(test.stream, values);
    if (values[0] == last + 32)
        _exit(97); /* it ran before the host waited */
    device_test_wait(&test);
    _exit(values[0] == last + 32 ? 0 : 96);
}

TEST(faults_are_found)
{
    char output[65536];
    for (int i = 0; i < FAULTS; i++) {
        if (sanitized && !faults[i].sanitized)
            continue;
        char name[32];
        snprintf(name, sizeof name, "%s", faults[i].name);
        const int status = child_run(kernel_run, name, output, sizeof output);
        if (faults[i].says == NULL ? status != 0 : status == 0 || status >= 95)
            fail_msg("%s: status %d: %s", faults[i].name, status, output);
        if (faults[i].says != NULL && !sanitized && strstr(output, faults[i].says) == NULL)
            fail_msg("%s: not \"%s\" but: %s", faults[i].name, faults[i].says, output);
    }
}

int main(void)
{
    if (!device_test_of_gpu())
        return 0;
    setenv("VITTRAIN_TEST_DEVICE", "cuda", 1);
    return TESTS_RUN();
}
