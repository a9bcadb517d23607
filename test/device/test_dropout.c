// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Dropout masks: the definition in device.h, drawn from core/random.h, for every step, sample and
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

/* Apply dropout to ones, so that the output is the factors. */
static void check_factors(int64_t samples, int64_t rows_per_sample, int64_t width, float rate,
                          float path_rate)
{
    const int64_t rows = samples * rows_per_sample;
    DEVICE_TEST(test, 2);
    float *x = device_test_zeros(&test, TYPE_FP32, rows * width);
    for (int64_t i = 0; i < rows * width; i++)
        x[i] = 1;
    const struct dropout_apply args = {.rows = rows,
                                       .width = width,
                                       .rows_per_sample = rows_per_sample,
                                       .x = x,
                                       .y = x,
                                       .dropout = dropout_of(&test, rate, 9),
                                       .drop_path = dropout_of(&test, path_rate, 10)};
    test.device->backend->dropout_apply(test.stream, &args);
    device_test_wait(&test);
    for (int64_t i = 0; i < rows * width; i++) {
        const double expected =
            device_test_dropout_at(&args.dropout, rows_per_sample, i / width, i % width, width) *
            device_test_drop_path(&args.drop_path, i / width / rows_per_sample);
        if (fabs(x[i] - expected) > 1e-6 * expected)
            fail_msg("element %lld is %g, not %g", (long long)i, (double)x[i], expected);
    }
}

TEST_KERNELS(factors_are_the_definition)
{
    check_factors(3, 5, 8, 0.5f, 0);
    check_factors(2, 7, 13, 0.1f, 0);
    check_factors(5, 1, 1000, 0.9f, 0);
    check_factors(4, 3, 100, 0.1f, 0.5f);
    check_factors(40, 2, 6, 0, 0.3f);
    check_factors(2, 2, 5, 0, 0);
    check_factors(2, 2, 20, 1, 0);
    check_factors(2, 2, 20, 1e-6f, 0); /* rounds to a threshold of 0 */
    check_factors(0, 2, 20, 0.1f, 0.1f);
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
    test->device->backend->dropout_apply(test->stream, &part);
}

TEST(parts_equal_one_call)
{
    enum { SAMPLES = 11, ROWS = SAMPLES * 3, WIDTH = 37 };
    DEVICE_TEST(test, 2);
    const float *x = device_test_random(&test, TYPE_FP32, ROWS * WIDTH, 1, 5);
    float *y = device_test_zeros(&test, TYPE_FP32, ROWS * WIDTH);
    float *parts = device_test_zeros(&test, TYPE_FP32, ROWS * WIDTH);
    struct dropout_apply args = {.rows = ROWS,
                                 .width = WIDTH,
                                 .rows_per_sample = 3,
                                 .x = x,
                                 .y = y,
                                 .dropout = dropout_of(&test, 0.4f, 2),
                                 .drop_path = dropout_of(&test, 0.5f, 3)};
    test.device->backend->dropout_apply(test.stream, &args);
    args.y = parts;
    apply_part(&test, &args, 0, 4);
    apply_part(&test, &args, 4, 5);
    apply_part(&test, &args, 5, SAMPLES);
    device_test_wait(&test);
    device_test_same("y", TYPE_FP32, y, parts, ROWS * WIDTH);
}

TEST(all_types)
{
    enum { ROWS = 6, WIDTH = 37 };
    for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++) {
        DEVICE_TEST(test, 1);
        void *x = device_test_random(&test, type, ROWS * WIDTH, 1, 4);
        void *y = device_test_zeros(&test, type, ROWS * WIDTH);
        const struct dropout_apply args = {.type = type,
                                           .rows = ROWS,
                                           .width = WIDTH,
                                           .rows_per_sample = 3,
                                           .x = x,
                                           .y = y,
                                           .dropout = dropout_of(&test, 0.4f, 2)};
        test.device->backend->dropout_apply(test.stream, &args);
        device_test_wait(&test);
        double expected[ROWS * WIDTH];
        for (int i = 0; i < ROWS * WIDTH; i++)
            expected[i] = device_test_value(type, x, i) *
                          device_test_dropout_at(&args.dropout, 3, i / WIDTH, i % WIDTH, WIDTH);
        device_test_near("y", type, y, expected, ROWS * WIDTH,
                         1.01 * device_test_precision(type) + 1e-6, 1e-6);
    }
}

TEST_MAIN()
