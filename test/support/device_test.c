// SPDX-License-Identifier: BSD-3-Clause
#include "device_test.h"

#include <unistd.h>

#include "base/base.h"
#include "base/random.h"
#include "comm/comm.h"

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

const struct device_backend *device_test_backend(struct error *failure)
{
    return device_find(device_name(), failure);
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

bool device_test_choose(struct device_test *test, const char *kind, int variant)
{
    const struct device_backend *backend = test->device->backend;
    OWNED char *text = backend->choices_export(test->device);
    char *end;
    for (char *line = text; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        char sum[9];
        if (strncmp(line, kind, strlen(kind)) != 0)
            continue;
        strstr(line, " = ")[strlen(" = ") + 15] = (char)('0' + variant);
        snprintf(sum, sizeof sum, "%08" PRIx32, crc32c_update(0, line, (size_t)(end - 9 - line)));
        memcpy(end - 8, sum, 8);
    }
    return backend->choices_adopt(test->device, text);
}

void device_test_of_cpu(void)
{
    if (strcmp(device_name(), "cpu") != 0)
        SKIP_BECAUSE("only for the CPU");
}

void device_test_open_number(struct device_test *test, int number, int threads)
{
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
    for (int i = 0; i < test->tensor_count; i++) {
        backend->release_pinned(test->device, test->tensors[i].memory);
        free(test->tensors[i].given);
    }
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
    OWNED char *choices = backend->choices_export(from->device);
    backend->choices_adopt(test->device, choices);
}

void device_test_equal(const struct device_test *a, const struct device_test *b)
{
    for (int i = 0; i < a->tensor_count && i < b->tensor_count; i++) {
        const struct device_tensor *own = &a->tensors[i], *other = &b->tensors[i];
        if (own->count != other->count ||
            memcmp(own->memory, other->memory, (size_t)own->count * type_size(own->type)) != 0)
            fail_msg("tensor %d has other bits", i);
    }
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
    size_t bytes = (size_t)count * type_size(type);
    assert_true(test->tensor_count < DEVICE_TEST_TENSORS);
    void *memory = test->device->backend->allocate_pinned(test->device, bytes, &error);
    if (memory == NULL)
        fail_msg("%s", error.text);
    test->tensors[test->tensor_count++] =
        (struct device_tensor){.type = type, .count = count, .memory = memory};
    return memset(memory, 0, bytes);
}

void *device_test_scratch(struct device_test *test, size_t bytes)
{
    void *memory = device_test_zeros(test, TYPE_FP32, (int64_t)(bytes / sizeof(float)) + 1);
    test->tensors[test->tensor_count - 1].count = 0;
    return memset(memory, 0xff, bytes);
}

double *device_test_expected(struct device_test *test, int64_t count)
{
    double *values = allocate((size_t)count, sizeof *values);
    assert_true(test->expected_count < DEVICE_TEST_TENSORS);
    test->expected[test->expected_count++] = values;
    return values;
}

/* Find the tensor that contains an element, and the index of the element. */
static const struct device_tensor *tensor_of(const struct device_test *test, const void *element,
                                             int64_t *index)
{
    for (int i = test->tensor_count - 1; i >= 0; i--) {
        const struct device_tensor *tensor = &test->tensors[i];
        const uintptr_t distance = (uintptr_t)element - (uintptr_t)tensor->memory;
        *index = (int64_t)(distance / type_size(tensor->type));
        if (*index < tensor->count || distance == 0)
            return tensor;
    }
    fail_msg("no tensor of the test");
    return NULL;
}

static const double *values_of(struct device_test *test, const void *element, bool given)
{
    int64_t first;
    const struct device_tensor *tensor = tensor_of(test, element, &first);
    const void *memory = given ? tensor->given : tensor->memory;
    double *values = device_test_expected(test, tensor->count - first);
    for (int64_t i = first; i < tensor->count && memory != NULL; i++)
        values[i - first] = device_test_value(tensor->type, memory, i);
    return values;
}

const double *device_test_values(struct device_test *test, const void *tensor)
{
    return values_of(test, tensor, false);
}

const double *device_test_given(struct device_test *test, const void *tensor)
{
    return values_of(test, tensor, true);
}

/* Remember the contents of the newest tensor. */
static void *given_set(struct device_test *test)
{
    struct device_tensor *tensor = &test->tensors[test->tensor_count - 1];
    const size_t bytes = (size_t)tensor->count * type_size(tensor->type);
    tensor->given = allocate(bytes, 1);
    memcpy(tensor->given, tensor->memory, bytes);
    return tensor->memory;
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
            ((uint16_t *)tensor)[i] = type == TYPE_BF16 ? to_bf16(value) : to_fp16(value);
    }
    return given_set(test);
}

float *device_test_gradient(struct device_test *test, bool overwrite, int64_t count, uint64_t seed)
{
    if (!overwrite)
        return device_test_random(test, TYPE_FP32, count, 1, seed);
    float *gradient = device_test_zeros(test, TYPE_FP32, count);
    for (int64_t i = 0; i < count; i++)
        gradient[i] = NAN;
    return gradient;
}

void *device_test_copy(struct device_test *test, enum data_type type, const void *from,
                       int64_t count)
{
    void *tensor = device_test_zeros(test, type, count);
    memcpy(tensor, from, (size_t)count * type_size(type));
    return given_set(test);
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

void device_test_every_kernels(void (*test)(void))
{
    static const char *const names[] = {"baseline", "avx2",         "avx512",
                                        "amx",      "amx-emulated", "neon_bf16"};
    if (strcmp(device_name(), "cpu") != 0) {
        test();
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        device_test_set_kernels(names[i]);
        struct device *device = device_cpu.open(0, 1, &error);
        if (device == NULL) {
            error_clear(&error);
            print_message("# no %s here\n", names[i]);
            continue;
        }
        device_cpu.close(device);
        test();
    }
    device_test_set_kernels(NULL);
}

/* In a child process. */
static void ending_call_run(void *context)
{
    struct device_test test;
    device_test_open(&test, 1);
    (*(void (**)(struct device_test *))context)(&test);
}

void device_test_ends(void (*call)(struct device_test *test), const char *message)
{
    char output[4096];
    device_test_of_cpu();
    const int status = child_run(ending_call_run, &call, output, sizeof output);
    if (status != ERROR_INTERNAL || strstr(output, message) == NULL)
        fail_msg("not \"%s\" but exit status %d: %s", message, status, output);
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
    return type == TYPE_BF16 ? (double)from_bf16(half) : from_fp16(half);
}

void device_test_near_in_norm(const char *what, enum data_type type, const void *expected,
                              const void *is, int64_t count, double tolerance)
{
    double difference = 0, norm = 1e-12; /* some gradients are only rounding errors of 0 */

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

void device_test_near(struct device_test *test, const char *what, const void *tensor,
                      const double *expected, double tolerance, double scale)
{
    int64_t first;
    const struct device_tensor *found = tensor_of(test, tensor, &first);
    for (int64_t i = first; i < found->count; i++, expected++) {
        const double value = device_test_value(found->type, found->memory, i);
        if (!(fabs(value - *expected) <= tolerance * (fabs(*expected) + scale)))
            fail_msg("%s: element %lld is %.9g, not %.9g", what, (long long)(i - first), value,
                     *expected);
    }
}

void device_test_column_sums(struct device_test *test, const char *what, const double *values,
                             int64_t rows, int64_t width, const float *sums, double tolerance)
{
    const double *before = sums != NULL ? device_test_given(test, sums) : NULL;
    for (int64_t column = 0; column < width && sums != NULL; column++) {
        double sum = before[column], sizes = fabs(sum);
        for (int64_t row = 0; row < rows; row++) {
            sum += values[row * width + column];
            sizes += fabs(values[row * width + column]);
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
                            .params = device_test_params(test, 12, UINT32_MAX, 0, 1)};
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
