// SPDX-License-Identifier: BSD-3-Clause
#include "device_test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/random.h"
#include "test.h"

/* The module for GPUs calls these functions of the program that opens it, which includes their
 * files of libvittrain.a. */
extern void (*const device_test_called[])(void);
void (*const device_test_called[])(void) = {(void (*)(void))comm_broadcast,
                                            (void (*)(void))comm_give_up};

static const char *device_name(void)
{
    const char *name = getenv("VITTRAIN_TEST_DEVICE");
    return name != NULL && name[0] != '\0' ? name : "cpu";
}

const struct device_backend *device_test_backend(struct error *error)
{
    return device_find(device_name(), error);
}

bool device_test_emulate(void)
{
    const char *folder = getenv("TEST_BUILD");
    char module[4096];
    snprintf(module, sizeof module, "%s/test/emulated-cuda.so", folder != NULL ? folder : ".");
    return access(module, R_OK) == 0 && setenv("VITTRAIN_CUDA_MODULE", module, 1) == 0;
}

bool device_test_of_gpu(void)
{
    const bool usable = strcmp(device_name(), "cuda") == 0 || device_test_emulate();
    if (!usable)
        printf("1..0 # SKIP no g++ for the emulated GPU\n");
    return usable;
}

bool device_test_is_emulated(const struct device_test *test)
{
    struct device_limits limits;
    test->device->backend->limits(test->device, &limits);
    return strstr(limits.name, "emulated") != NULL;
}

void device_test_of_cpu(void)
{
    if (strcmp(device_name(), "cpu") != 0)
        SKIP_BECAUSE("only for the CPU");
}

void device_test_open_number(struct device_test *test, int number, int threads)
{
    struct error error = {0};
    const struct device_backend *backend = device_test_backend(&error);
    struct device *device = backend == NULL ? NULL : backend->open(number, threads, &error);
    if (device == NULL)
        fail_msg("%s", error.text);
    device_test_take(test, device);
}

void device_test_open(struct device_test *test, int threads)
{
    device_test_open_number(test, 0, threads);
}

void device_test_print(struct device *device)
{
    static bool printed;
    struct device_limits limits;
    if (printed || strcmp(device_name(), "cpu") == 0)
        return;
    device->backend->limits(device, &limits);
    print_message("# device: %s\n", limits.name);
    printed = true;
}

void device_test_take(struct device_test *test, struct device *device)
{
    struct error error = {0};
    const struct device_backend *backend = device->backend;
    const size_t bytes = backend->workspace_bytes(device);
    device_test_print(device);
    *test = (struct device_test){.device = device};
    test->workspace = backend->allocate(device, bytes, &error);
    assert_non_null(test->workspace);
    backend->workspace_set(device, test->workspace, bytes);
    test->stream = backend->stream_open(device);
}

void device_test_close(struct device_test *test)
{
    const struct device_backend *backend = test->device->backend;
    device_test_wait(test);
    for (int i = 0; i < test->tensor_count; i++)
        backend->release_pinned(test->device, test->tensors[i]);
    for (int i = 0; i < test->expected_count; i++)
        free(test->expected[i]);
    backend->stream_close(test->stream);
    backend->release(test->device, test->workspace);
    backend->close(test->device);
}

void device_test_adopt(struct device_test *test, const struct device_test *from)
{
    const struct device_backend *backend = test->device->backend;
    if (backend->choices_export == NULL)
        return;
    char *choices = backend->choices_export(from->device);
    backend->choices_adopt(test->device, choices);
    free(choices);
}

void device_test_equal(const struct device_test *a, const struct device_test *b)
{
    for (int i = 0; i < a->tensor_count && i < b->tensor_count; i++)
        if (a->bytes[i] != b->bytes[i] || memcmp(a->tensors[i], b->tensors[i], a->bytes[i]) != 0)
            fail_msg("tensor %d has other bits", i);
}

int device_test_cases(size_t all, int emulated)
{
    static bool known, is_emulated;
    if (!known) {
        DEVICE_TEST(test, 1);
        is_emulated = device_test_is_emulated(&test);
        known = true;
    }
    return is_emulated ? emulated : (int)all;
}

void device_test_wait(struct device_test *test)
{
    test->device->backend->stream_synchronize(test->stream);
}

/* Exactly the requested size: the sanitizer detects an overrun. */
void *device_test_zeros(struct device_test *test, enum data_type type, int64_t count)
{
    struct error error = {0};
    size_t bytes = (size_t)count * type_size(type);
    assert_true(test->tensor_count < DEVICE_TEST_TENSORS);
    void *tensor = test->device->backend->allocate_pinned(test->device, bytes, &error);
    if (tensor == NULL)
        fail_msg("%s", error.text);
    memset(tensor, 0, bytes);
    test->bytes[test->tensor_count] = bytes;
    test->tensors[test->tensor_count++] = tensor;
    return tensor;
}

void *device_test_scratch(struct device_test *test, size_t bytes)
{
    void *memory = device_test_zeros(test, TYPE_FP32, (int64_t)(bytes / sizeof(float)) + 1);
    test->bytes[test->tensor_count - 1] = 0;
    return memset(memory, 0xff, bytes);
}

double *device_test_expected(struct device_test *test, int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    assert_true(values != NULL && test->expected_count < DEVICE_TEST_TENSORS);
    test->expected[test->expected_count++] = values;
    return values;
}

/* Rounds to nearest; the tests do not depend on ties. */
static uint16_t half_from_double(enum data_type type, double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    if (type == TYPE_BF16)
        return (uint16_t)((bits + 0x8000) >> 16);
    const double magnitude = fabs(value);
    int exponent;
    frexp(magnitude, &exponent);
    if (exponent < -13)
        exponent = -13;
    const long steps = lrint(ldexp(magnitude, 11 - exponent));
    const long code = (long)(exponent + 13) * 1024 + steps;
    return (uint16_t)((value < 0 ? 0x8000 : 0) | code);
}

void *device_test_random(struct device_test *test, enum data_type type, int64_t count, double scale,
                         uint64_t seed)
{
    return device_test_shifted(test, type, count, scale, 0, seed);
}

void *device_test_shifted(struct device_test *test, enum data_type type, int64_t count,
                          double scale, double offset, uint64_t seed)
{
    void *tensor = device_test_zeros(test, type, count);
    struct random_block block = {{0}};
    for (int64_t i = 0; i < count; i++) {
        if (i % 4 == 0)
            block = random_block_at(seed, RANDOM_SYNTHETIC, 0, 0, 0, (uint32_t)(i / 4));
        const double unit = 2.0 * random_uniform(block.word[i % 4]) - 1.0;
        const float value = (float)(scale * unit) + (float)offset;
        if (type == TYPE_FP32)
            ((float *)tensor)[i] = value;
        else
            ((uint16_t *)tensor)[i] = half_from_double(type, value);
    }
    return tensor;
}

float *device_test_gradient(struct device_test *test, bool overwrite, int64_t count, uint64_t seed)
{
    float *gradient = device_test_random(test, TYPE_FP32, count, 1, seed);
    for (int64_t i = 0; i < count && overwrite; i++)
        gradient[i] = NAN;
    return gradient;
}

float *device_test_before(struct device_test *test, bool overwrite, int64_t count, uint64_t seed)
{
    return overwrite ? device_test_zeros(test, TYPE_FP32, count)
                     : device_test_random(test, TYPE_FP32, count, 1, seed);
}

void *device_test_copy(struct device_test *test, enum data_type type, const void *from,
                       int64_t count)
{
    void *tensor = device_test_zeros(test, type, count);
    memcpy(tensor, from, (size_t)count * type_size(type));
    return tensor;
}

double *device_test_number(struct device_test *test, double value)
{
    return device_test_copy(test, TYPE_FP32, &value, sizeof value / sizeof(float));
}

struct step_params *device_test_params(struct device_test *test, uint32_t step, uint32_t position,
                                       double rate, int64_t update)
{
    struct step_params *params =
        device_test_zeros(test, TYPE_FP32, (int64_t)(sizeof *params / sizeof(float)));
    *params =
        (struct step_params){.step = step, .position = position, .update = update, .rate = rate};
    return params;
}

void device_test_set_kernels(const char *name)
{
    static char given[64];
    static bool known;
    if (!known) {
        const char *value = getenv("VITTRAIN_CPU");
        snprintf(given, sizeof given, "%s", value != NULL ? value : "");
        known = true;
    }
    setenv("VITTRAIN_CPU", name != NULL ? name : given, 1);
}

void device_test_every_kernels(void (*test)(void **state), void **state)
{
    static const char *const names[] = {"baseline", "avx2",         "avx512",
                                        "amx",      "amx-emulated", "neon_bf16"};
    if (strcmp(device_name(), "cpu") != 0) {
        test(state);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct error error = {0};
        device_test_set_kernels(names[i]);
        struct device *device = device_cpu.open(0, 1, &error);
        if (device == NULL) {
            print_message("# no %s here\n", names[i]);
            continue;
        }
        device_cpu.close(device);
        test(state);
    }
    device_test_set_kernels(NULL);
}

/* ---- Calls that end the program. Each runs in a new process, because CUDA does not work in a
 * forked one. */
#define ENDING_CALL "VITTRAIN_TEST_ENDS"

/* In the new process, before main: run the call. The environment has its address relative to
 * device_test_ends. */
__attribute__((constructor)) static void ending_call_run(void)
{
    enum { SECONDS = 120 };
    const char *distance = getenv(ENDING_CALL);
    if (distance == NULL)
        return;
    struct device_test test;
    void (*const call)(struct device_test *) = (void (*)(struct device_test *))(
        (uintptr_t)device_test_ends + (uintptr_t)strtoull(distance, NULL, 10));
    unsetenv(ENDING_CALL);
    alarm(SECONDS);
    dup2(STDOUT_FILENO, STDERR_FILENO);
    device_test_open(&test, 1);
    call(&test);
    _exit(0);
}

void device_test_ends(void (*call)(struct device_test *test), const char *message)
{
    char distance[32], output[4096];
    int status = 0, ends[2];
    size_t length = 0;
    ssize_t got;
    snprintf(distance, sizeof distance, "%llu",
             (unsigned long long)((uintptr_t)call - (uintptr_t)device_test_ends));
    setenv(ENDING_CALL, distance, 1);
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "test", (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    unsetenv(ENDING_CALL);
    while (length + 1 < sizeof output &&
           (got = read(ends[0], output + length, sizeof output - 1 - length)) > 0)
        length += (size_t)got;
    output[length] = '\0';
    close(ends[0]);
    assert_true(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != ERROR_INTERNAL ||
        strstr(output, message) == NULL)
        fail_msg("not \"%s\" but wait status %d: %s", message, status, output);
}

void device_test_same(const char *what, enum data_type type, const void *a, const void *b,
                      int64_t count)
{
    if (count > 0 && memcmp(a, b, (size_t)count * type_size(type)) != 0)
        fail_msg("%s: not the same bits", what);
}

double device_test_value(enum data_type type, const void *tensor, int64_t index)
{
    if (type == TYPE_FP32)
        return ((const float *)tensor)[index];
    const uint16_t half = ((const uint16_t *)tensor)[index];
    if (type == TYPE_BF16) {
        const uint32_t bits = (uint32_t)half << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    const double sign = half >> 15 ? -1 : 1;
    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25));
}

double *device_test_values(struct device_test *test, enum data_type type, const void *tensor,
                           int64_t count)
{
    double *values = device_test_expected(test, count);
    for (int64_t i = 0; i < count; i++)
        values[i] = device_test_value(type, tensor, i);
    return values;
}

void device_test_near_in_norm(const char *what, enum data_type type, const void *expected,
                              const void *is, int64_t count, double tolerance)
{
    double difference = 0, norm = 0;

    for (int64_t i = 0; i < count; i++) {
        const double value = device_test_value(type, expected, i);
        difference += pow(device_test_value(type, is, i) - value, 2);
        norm += value * value;
    }
    if (!(difference <= tolerance * tolerance * norm))
        fail_msg("%s: differs by %g of its norm", what, sqrt(difference / norm));
}

double device_test_precision(enum data_type type)
{
    return type == TYPE_FP32 ? 0x1p-24 : type == TYPE_BF16 ? 0x1p-8 : 0x1p-11;
}

double device_test_rounding(enum data_type type)
{
    return type == TYPE_FP32 ? 1e-6 : 1.01 * device_test_precision(type);
}

void device_test_near(const char *what, enum data_type type, const void *tensor,
                      const double *expected, int64_t count, double tolerance, double scale)
{
    for (int64_t i = 0; i < count; i++) {
        const double value = device_test_value(type, tensor, i);
        if (!(fabs(value - expected[i]) <= tolerance * (fabs(expected[i]) + scale)))
            fail_msg("%s: element %lld is %.9g, not %.9g", what, (long long)i, value, expected[i]);
    }
}

void device_test_column_sums(const char *what, enum data_type type, const void *tensor,
                             int64_t rows, int64_t width, const float *before, const float *sums,
                             double tolerance)
{
    for (int64_t column = 0; column < width && sums != NULL; column++) {
        double sum = (double)before[column], sizes = fabs(sum);
        for (int64_t row = 0; row < rows; row++) {
            const double value = device_test_value(type, tensor, row * width + column);
            sum += value;
            sizes += fabs(value);
        }
        if (!(fabs((double)sums[column] - sum) <= tolerance * (0.1 + sizes)))
            fail_msg("%s: column %lld is %.9g, not %.9g", what, (long long)column,
                     (double)sums[column], sum);
    }
}

struct dropout device_test_drops(struct device_test *test, float rate, uint32_t layer)
{
    return (struct dropout){.rate = rate,
                            .seed = 0x123456789abcdefULL,
                            .layer = layer,
                            .params = device_test_params(test, 12, 1000, 0, 1)};
}

double device_test_dropout(const struct dropout *dropout, int64_t sample, int64_t element)
{
    if (dropout->rate == 0)
        return 1;
    const double threshold = round((double)dropout->rate * 65536);
    const struct random_block block =
        random_block_at(dropout->seed, RANDOM_DROPOUT, dropout->layer, dropout->params->step,
                        dropout->params->position + (uint32_t)sample, (uint32_t)(element / 8));
    const int lane = (int)(element % 8);
    const uint32_t bits = block.word[lane / 2] >> (lane % 2 * 16) & 0xffff;
    return bits >= threshold ? 65536 / (65536 - threshold) : 0;
}

double device_test_dropout_at(const struct dropout *dropout, int64_t rows_per_sample, int64_t row,
                              int64_t column, int64_t width)
{
    const int64_t padded = (width + 7) / 8 * 8;
    return device_test_dropout(dropout, row / rows_per_sample,
                               row % rows_per_sample * padded + column);
}

double device_test_drop_path(const struct dropout *dropout, int64_t sample)
{
    if (dropout->rate == 0)
        return 1;
    const struct random_block block =
        random_block_at(dropout->seed, RANDOM_DROP_PATH, dropout->layer, dropout->params->step,
                        dropout->params->position + (uint32_t)sample, 0);
    return random_uniform(block.word[0]) < dropout->rate ? 0 : 1 / (1 - (double)dropout->rate);
}
