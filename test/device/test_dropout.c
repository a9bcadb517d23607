// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Dropout masks: the definition in device.h, drawn from base/random.h, for every step, sample and
 * instruction set; parts draw the same mask. */
#include "device_test.h"
#include "test.h"

static struct dropout dropout_of(struct device_test *test, float rate, uint32_t layer)
{
    return (struct dropout){.rate = rate,
                            .seed = 0x8877665544332211ULL,
                            .layer = layer,
                            /* The position wraps around: counters have 32 bits. */
                            .params = device_test_params(test, 0xfffffff0, 0xfffffffe, 0, 1)};
}

struct dropout_case {
    enum data_type type;
    int64_t samples, rows_per_sample, width;
    float rate, path_rate;
};

static const struct dropout_case cases[] = {
    {TYPE_FP32, 3, 5, 8, 0.5f, 0},     {TYPE_FP32, 2, 7, 13, 0.1f, 0},
    {TYPE_FP32, 5, 1, 1000, 0.9f, 0},  {TYPE_FP32, 4, 3, 100, 0.1f, 0.5f},
    {TYPE_FP32, 40, 2, 6, 0, 0.3f},    {TYPE_FP32, 2, 2, 5, 0, 0},
    {TYPE_FP32, 2, 2, 20, 1, 0},       {TYPE_FP32, 2, 2, 20, 1e-6f, 0}, /* a threshold of 0 */
    {TYPE_FP32, 0, 2, 20, 0.1f, 0.1f}, {TYPE_BF16, 2, 3, 37, 0.4f, 0},
    {TYPE_FP16, 2, 3, 37, 0.4f, 0},
};

TEST_KERNELS(factors_are_the_definition)
{
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        const struct dropout_case *it = &cases[n];
        const int64_t rows = it->samples * it->rows_per_sample, count = rows * it->width;
        DEVICE_TEST(test, 2);
        void *x = device_test_random(&test, it->type, count, 1, 4);
        void *y = device_test_zeros(&test, it->type, count);
        const double *given = device_test_given(&test, x);
        double *expected = device_test_expected(&test, count);
        const struct dropout dropout = dropout_of(&test, it->rate, 9);
        const struct dropout path = dropout_of(&test, it->path_rate, 10);
        DEVICE_RUN(&test, dropout_apply, it->type, rows, it->width, it->rows_per_sample, x, y,
                   dropout, path);
        device_test_wait(&test);
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = i / it->width;
            expected[i] = given[i] *
                          device_test_dropout_at(&dropout, it->rows_per_sample, row, i % it->width,
                                                 it->width) *
                          device_test_drop_path(&path, row / it->rows_per_sample);
        }
        device_test_near(&test, "y", y, expected, device_test_rounding(it->type), 1e-6);
    }
}

/* Apply dropout and drop path to samples begin..end - 1. */
static void apply_part(struct device_test *test, const struct dropout_apply *whole, int64_t begin,
                       int64_t end)
{
    const int64_t sample = whole->rows_per_sample * whole->width;
    struct dropout_apply part = *whole;
    part.rows = (end - begin) * whole->rows_per_sample;
    part.x = (const float *)whole->x + begin * sample;
    part.y = (float *)whole->y + begin * sample;
    part.dropout.first = part.drop_path.first = (uint32_t)begin;
    DEVICE_QUEUE(test, dropout_apply, &part);
}

TEST(parts_equal_one_call)
{
    enum { SAMPLES = 11, ROWS = SAMPLES * 3, WIDTH = 37 };
    DEVICE_TEST(test, 2);
    const float *x = device_test_random(&test, TYPE_FP32, ROWS * WIDTH, 1, 5);
    float *y = device_test_zeros(&test, TYPE_FP32, ROWS * WIDTH);
    float *parts = device_test_zeros(&test, TYPE_FP32, ROWS * WIDTH);
    struct dropout_apply args = DEVICE_ARGS(dropout_apply, TYPE_FP32, ROWS, WIDTH, 3, x, y,
                                            dropout_of(&test, 0.4f, 2), dropout_of(&test, 0.5f, 3));
    DEVICE_QUEUE(&test, dropout_apply, &args);
    args.y = parts;
    apply_part(&test, &args, 0, 4);
    apply_part(&test, &args, 4, 5);
    apply_part(&test, &args, 5, SAMPLES);
    device_test_wait(&test);
    device_test_same("y", TYPE_FP32, y, parts, ROWS * WIDTH);
}

TEST_MAIN()
