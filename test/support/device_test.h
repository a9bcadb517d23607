// SPDX-License-Identifier: BSD-3-Clause
/* Shared by tests of the device's operations: a device with a number of threads and its workspace,
 * random tensors of any type, and their values as double. Memory is freed by device_test_close. The
 * device is the CPU, or the one named by VITTRAIN_TEST_DEVICE (test/support/run_test.sh): there
 * operations are only queued, and device_test_wait must be called before results are read. Tensors
 * are in pinned memory, which the host and every device can access. */
#ifndef VITTRAIN_TEST_DEVICE_TEST_H
#define VITTRAIN_TEST_DEVICE_TEST_H

#include "device/device.h"
#include "test.h"

enum { DEVICE_TEST_TENSORS = 64 };

struct device_tensor {
    enum data_type type;
    int64_t count; /* 0: scratch memory */
    void *memory;
    void *given; /* what it contained when it was made; NULL: zeros */
};

struct device_test {
    struct device *device;
    struct stream *stream;
    void *workspace;
    struct device_tensor tensors[DEVICE_TEST_TENSORS];
    double *expected[DEVICE_TEST_TENSORS];
    int tensor_count, expected_count;
};

/* Return the backend under test; NULL and an error if it is not available. */
const struct device_backend *device_test_backend(struct error *failure);

/* Print the name of a GPU once, as proof that the tests ran on it. */
void device_test_print(struct device *device);

/* Open the device; fail the test if that is impossible. */
void device_test_open(struct device_test *test, int threads);
/* The same with the device of this number, as rank `number` of a node does. */
void device_test_open_number(struct device_test *test, int number, int threads);
/* Use a device opened by the caller; it is closed with the test. */
void device_test_take(struct device_test *test, struct device *device);
void device_test_close(struct device_test *test);

/* Declare and open a device that is closed at the end of the block. */
#define DEVICE_TEST(name, threads)                                                                 \
    __attribute__((cleanup(device_test_close))) struct device_test name;                           \
    device_test_open(&name, threads)

/* Queue an operation; its arguments are the members of its struct. */
#define DEVICE_RUN(test, operation, ...)                                                           \
    OPERATION_RUN((test)->device, (test)->stream, operation, __VA_ARGS__)

/* Arguments of an operation; queue it with such arguments. */
#define DEVICE_ARGS(operation, ...) ((struct operation){__VA_ARGS__})
#define DEVICE_QUEUE(test, operation, args) (test)->device->backend->operation((test)->stream, args)

/* Wait for all queued work. */
void device_test_wait(struct device_test *test);

/* Repeat a call on a device `other` with three threads, after it ran on `test`: all tensors must
 * have the same bits. Not on the emulated GPU, which has no threads. */
#define DEVICE_TEST_AGAIN(test, other, ...)                                                        \
    if (!device_test_is_emulated(test)) {                                                          \
        DEVICE_TEST(other, 3);                                                                     \
        device_test_adopt(&(other), test);                                                         \
        (void)__VA_ARGS__;                                                                         \
        device_test_equal(test, &(other));                                                         \
    }

/* Adopt the algorithms of another device, as ranks of a run do: those that a device measures itself
 * can differ and give other bits. */
void device_test_adopt(struct device_test *test, const struct device_test *from);

/* Fail unless the tensors that both tests have made, in the same order, have the same bits. */
void device_test_equal(const struct device_test *a, const struct device_test *b);

/* Return the number of cases to run: all, or on the emulated GPU the first `emulated`, which reach
 * its kernels. */
int device_test_cases(size_t all, int emulated);

/* Use the emulated module for GPUs. Return false if it was not built. */
bool device_test_emulate(void);

/* The same, unless VITTRAIN_TEST_DEVICE is cuda, for a whole test program: it is reported as
 * skipped if the module was not built. */
bool device_test_of_gpu(void);

/* Return true if the device is the emulated GPU. */
bool device_test_is_emulated(const struct device_test *test);

/* Replace the chosen variants with keys that start with `kind` by `variant` (cuda/variant.h).
 * Return true if one changed. */
bool device_test_choose(struct device_test *test, const char *kind, int variant);

/* Skip the calling test unless the device is the CPU. */
void device_test_of_cpu(void);

/* A tensor of zeros; a tensor of uniform random numbers in [-scale, scale], keyed by `seed` and
 * rounded to the type; the same around `offset`. */
void *device_test_zeros(struct device_test *test, enum data_type type, int64_t count);
void *device_test_random(struct device_test *test, enum data_type type, int64_t count, double scale,
                         uint64_t seed);
void *device_test_shifted(struct device_test *test, enum data_type type, int64_t count,
                          double scale, double offset, uint64_t seed);

/* The gradient of parameters before an operation: random numbers if it adds to them, NaN if it
 * overwrites them. device_test_given returns what the sums begin with: these numbers, or 0. */
float *device_test_gradient(struct device_test *test, bool overwrite, int64_t count, uint64_t seed);

/* Memory filled with NaN, whose contents must not matter. */
void *device_test_scratch(struct device_test *test, size_t bytes);

/* Zeros in host memory, for expected values. */
double *device_test_expected(struct device_test *test, int64_t count);

/* The values of a tensor, or of the rest of it from an element on, in host memory: those that it
 * has now, and those with which it was made. */
const double *device_test_values(struct device_test *test, const void *tensor);
const double *device_test_given(struct device_test *test, const void *tensor);

/* A tensor with a copy of `from`; one number. */
void *device_test_copy(struct device_test *test, enum data_type type, const void *from,
                       int64_t count);
double *device_test_number(struct device_test *test, double value);

/* Step parameters in the same memory as tensors; beta1 and momentum are 0. */
struct step_params *device_test_params(struct device_test *test, uint32_t step, uint32_t position,
                                       double rate, int64_t update);

/* Set VITTRAIN_CPU. NULL: to its value at the start of the program. */
void device_test_set_kernels(const char *name);

/* Run a test once for each instruction set of this processor; devices opened by the test use it. On
 * other devices: once. */
void device_test_every_kernels(void (*test)(void));

/* TEST for device_test_every_kernels. */
#define TEST_KERNELS(function)                                                                     \
    static void function##_of_device(void);                                                        \
    TEST(function)                                                                                 \
    {                                                                                              \
        device_test_every_kernels(function##_of_device);                                           \
    }                                                                                              \
    static void function##_of_device(void)

/* Fail unless `call` ends the program because of a programming error, with a text that contains
 * `message`. Only on the CPU: it runs in a forked process, where CUDA does not work. */
void device_test_ends(void (*call)(struct device_test *test), const char *message);

/* TEST for device_test_ends: the block is the call. */
#define TEST_ENDS(function, message)                                                               \
    static void function##_call(struct device_test *test);                                         \
    TEST(function)                                                                                 \
    {                                                                                              \
        device_test_ends(function##_call, message);                                                \
    }                                                                                              \
    static void function##_call(__attribute__((unused)) struct device_test *test)

/* Fail unless the bits are identical. */
void device_test_same(const char *what, enum data_type type, const void *a, const void *b,
                      int64_t count);

double device_test_value(enum data_type type, const void *tensor, int64_t index);

/* Fail unless the norm of the difference is at most `tolerance` times that of the expected values.
 */
void device_test_near_in_norm(const char *what, enum data_type type, const void *expected,
                              const void *is, int64_t count, double tolerance);

/* Return the maximum relative error of one rounding to this type, and that of a value computed in
 * fp32 and then rounded. */
double device_test_precision(enum data_type type);
double device_test_rounding(enum data_type type);

/* Fail with `what` and the first element that differs by more than tolerance * (|expected| +
 * scale). */
void device_test_near(struct device_test *test, const char *what, const void *tensor,
                      const double *expected, double tolerance, double scale);

/* Fail unless each of the sums is what it was given and the sum of a column of the values [rows,
 * width], up to `tolerance` times the sum of the magnitudes. NULL sums are not checked. */
void device_test_column_sums(struct device_test *test, const char *what, const double *values,
                             int64_t rows, int64_t width, const float *sums, double tolerance);

/* Dropout at this rate in the masks of `layer`. The position of samples, which has 32 bits, wraps
 * around. */
struct dropout device_test_drops(struct device_test *test, float rate, uint32_t layer);

/* Return the factor of element `element` of sample `sample` by the definition of struct dropout,
 * that of an element of a matrix with some rows per sample, and that of drop path. */
double device_test_dropout(const struct dropout *dropout, int64_t sample, int64_t element);
double device_test_dropout_at(const struct dropout *dropout, int64_t rows_per_sample, int64_t row,
                              int64_t column, int64_t width);
double device_test_drop_path(const struct dropout *dropout, int64_t sample);

#endif
