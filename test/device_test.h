/* What tests of the device's operations share: a device of so many threads with its workspace,
 * random tensors of any type, and their values as double. Memory lives until device_test_close.
 * The device is the CPU, or the one that VITTRAIN_TEST_DEVICE names (test/run_test.sh): operations
 * are only queued there, and device_test_wait comes before anything is looked at. Tensors lie in
 * pinned memory, which the host and every device can read and write. */
#ifndef VITTRAIN_TEST_DEVICE_TEST_H
#define VITTRAIN_TEST_DEVICE_TEST_H

#include <stdint.h>

#include "device/device.h"

enum { DEVICE_TEST_TENSORS = 64 };

struct device_test {
    struct device *device;
    struct stream *stream;
    void *workspace;
    void *tensors[DEVICE_TEST_TENSORS];
    int tensor_count;
};

/* The backend that tests are about; NULL and an error when it cannot be had. */
const struct device_backend *device_test_backend(struct error *error);

/* Prints the name of a GPU once, as proof that the tests ran on it. */
void device_test_print(struct device *device);

/* Fails the test when the device cannot be opened. */
void device_test_open(struct device_test *test, int threads);
/* With a device that was opened otherwise, and is closed with the test. */
void device_test_take(struct device_test *test, struct device *device);
void device_test_close(struct device_test *test);

/* What was queued is done. */
void device_test_wait(struct device_test *test);

/* The program's module for GPUs is the emulated one. False where there is none: says that the whole
 * test program is skipped. */
bool device_test_emulates(void);

/* Skips the test that calls it where the device is not the CPU: what it is about is the CPU's. */
void device_test_of_cpu(void);

/* A tensor of zeros; of uniform numbers in [-scale, scale] that depend on `seed`, as the type holds
 * them. */
void *device_test_zeros(struct device_test *test, enum data_type type, int64_t count);
void *device_test_random(struct device_test *test, enum data_type type, int64_t count, double scale,
                         uint64_t seed);

/* A tensor that holds what lies at `from`; one number. */
void *device_test_copy(struct device_test *test, enum data_type type, const void *from,
                       int64_t count);
double *device_test_number(struct device_test *test, double value);

/* A place in the run, in memory like the tensors'; beta1 and momentum are 0. */
struct step_params *device_test_params(struct device_test *test, uint32_t step, uint32_t position,
                                       double rate, int64_t update);

/* Runs a test once for each instruction set that this processor has; devices opened in it use it.
 * On other devices: once. */
void device_test_every_kernels(void (*test)(void **state), void **state);

/* Fails unless `call`, in a process of its own, is ended as a programmer's mistake. */
void device_test_ends(void (*call)(struct device_test *test));

/* The same bits. */
void device_test_same(const char *what, enum data_type type, const void *a, const void *b,
                      int64_t count);

double device_test_value(enum data_type type, const void *tensor, int64_t index);

/* What one rounding to this type may change a value near 1 by. */
double device_test_precision(enum data_type type);

/* Fails with `what` and the first element that differs by more than
 * tolerance * (|expected| + scale). */
void device_test_near(const char *what, enum data_type type, const void *tensor,
                      const double *expected, int64_t count, double tolerance, double scale);

/* The factor of element `element` of sample `sample` by struct dropout's definition, and drop
 * path's. */
double device_test_dropout(const struct dropout *dropout, int64_t sample, int64_t element);
double device_test_drop_path(const struct dropout *dropout, int64_t sample);

#endif
