// SPDX-License-Identifier: BSD-3-Clause
/* The emulated GPU reports faults that a real one may ignore: each kernel and call in
 * faulty_kernels.cu ends the program with the expected message. Work that the host does not wait
 * for does not run. */
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "device_test.h"
#include "test.h"

enum { THREADS = 64 };

/* Indexed by the fault's number in faulty_kernels.cu. says: NULL for no fault. With
 * AddressSanitizer, accesses of kernels are not checked. */
static const struct {
    const char *what, *says;
    bool sanitized;
} faults[] = {
    {"no fault", NULL, true},
    {"a barrier that half of the block reaches", "not reached by all threads", true},
    {"two barriers", "wait at different barriers", true},
    {"no barrier between write and read", "race: reads shared", false},
    {"no barrier between read and write", "race: ", false},
    {"two blocks write the same", "race: writes device memory", false},
    {"shared memory that nobody wrote", "was not written", false},
    {"a read behind the end", "outside of memory", false},
    {"shared memory behind the end", "outside of memory", false},
    {"a vector at an odd address", "not a multiple of 16", false},
    {"a warp of which half exchanges", "waits for its warp", true},
    {"a read before kernel_begin", "reads device memory before kernel_begin", false},
    {"no kernel_begin", "ends without kernel_begin", true},
    {"arithmetic of a GPU", NULL, true},
    {"more threads than __launch_bounds__", "__launch_bounds__ allows 32", true},
    {"memory of the host", "not the device's", false},
    {"shared memory that was asked for", NULL, true},
    {"49156 bytes of shared memory", "cudaFuncSetAttribute allows 49152", true},
    {"more shared memory than asked for", "cudaFuncSetAttribute allows 65536", true},
    {"more shared memory than a GPU has", "cudaErrorInvalidValue", true},
    {"a captured fork", NULL, true},
    {"a fork that is not joined", "before all of its streams are joined", true},
    {"cudaMalloc in a capture", "cudaMalloc during a stream capture", true},
    {"cudaFree in a capture", "cudaFree during a stream capture", true},
    {"cudaHostAlloc in a capture", "cudaHostAlloc during a stream capture", true},
    {"cudaFreeHost in a capture", "cudaFreeHost during a stream capture", true},
    {"cudaMalloc by another thread in a global capture", "cudaMalloc during a stream", true},
    {"waiting for a captured stream", "cudaStreamSynchronize on a stream that is being", true},
    {"querying another stream", "cudaStreamQuery during a stream capture", true},
    {"querying an event in a capture", "cudaEventQuery during a stream capture", true},
    {"querying a captured event", "cudaEventQuery on an event that was recorded in", true},
    {"waiting for a captured event", "cudaEventSynchronize on an event that was", true},
    {"an event of a capture that has ended", "event of a capture that has ended", true},
    {"an event from outside", "event from outside of the capture", true},
    {"an event of another capture", "event of another capture", true},
    {"the end in another thread", "cudaStreamEndCapture in another thread", true},
    {"the legacy stream", "on the legacy default stream", true},
    {"an event of another device", "a handle of device 1 in a thread with device 0", true},
    {"octets beyond 32 bits", "4294967195 rows of 8 are too many", true},
    {"sums of a norm without its gradients", "add_sums requires add and dgamma", true},
    {"a launch in a forked process", "cudaErrorInitializationError", true},
    {"a read of device memory by the host", "the host accesses device memory", false},
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

#if defined(__SANITIZE_ADDRESS__)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

typedef bool (*run_function)(struct stream *stream, int number, float *values, const float *host);

/* A program that runs one kernel: exit status 0 if its result is correct. */
static void kernel_run(int number)
{
    struct device_test test;
    struct error error = {0};
    device_test_open(&test, 1);
    run_function run;
    *(void **)&run = device_module_symbol("faulty_kernel_run", &error);
    float *values = device_test_random(&test, TYPE_FP32, THREADS, 1, 1), host[THREADS] = {0};
    float last = values[THREADS - 1];
    if (!run(test.stream, number, values, host))
        _exit(98);
    if (values[0] == last + 32)
        _exit(97); /* it ran before the host waited */
    device_test_wait(&test);
    _exit(values[0] == last + 32 ? 0 : 96);
}

static int kernel_watch(int number, char *output, size_t size)
{
    int ends[2], status = 0;
    size_t length = 0;
    ssize_t got;
    fflush(NULL);
    assert_true(pipe(ends) == 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        kernel_run(number);
    }
    close(ends[1]);
    while (length + 1 < size && (got = read(ends[0], output + length, size - 1 - length)) > 0)
        length += (size_t)got;
    output[length] = '\0';
    close(ends[0]);
    assert_true(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 95;
}

TEST(faults_are_found)
{
    char output[65536];
    for (int i = 0; i < FAULTS; i++) {
        if (sanitized && !faults[i].sanitized)
            continue;
        int status = kernel_watch(i, output, sizeof output);
        if (faults[i].says == NULL ? status != 0 : status == 0 || status >= 95)
            fail_msg("%s: status %d: %s", faults[i].what, status, output);
        if (faults[i].says != NULL && !sanitized && strstr(output, faults[i].says) == NULL)
            fail_msg("%s: not \"%s\" but: %s", faults[i].what, faults[i].says, output);
    }
    assert_int_equal(kernel_watch(FAULTS, output, sizeof output), 98);
}

int main(void)
{
    if (!device_test_of_gpu())
        return 0;
    setenv("VITTRAIN_TEST_DEVICE", "cuda", 1);
    return TESTS_RUN();
}
