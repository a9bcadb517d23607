// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* SwiGLU and its gradient against the definition in double precision, for all types and sizes. */
#include "device_test.h"
#include "test.h"

static void check(enum data_type type, int64_t rows, int64_t width, bool in_place)
{
    const double tolerance = type == TYPE_FP32 ? 2e-6 : 1.001 * device_test_precision(type);
    const int64_t count = rows * width;
    DEVICE_TEST(test, 2);
    void *x = device_test_random(&test, type, 2 * count, 3, 1);
    void *given = device_test_random(&test, type, 2 * count, 3, 1);
    void *dy = device_test_random(&test, type, count, 1, 2);
    void *y = device_test_random(&test, type, count, 1, 3);
    void *dx = in_place ? x : device_test_random(&test, type, 2 * count, 1, 4);
    double *expected = device_test_expected(&test, count);
    double *slope = device_test_expected(&test, 2 * count);
    DEVICE_RUN(&test, glu_forward, .type = type, .rows = rows, .width = width, .x = x, .y = y);
    DEVICE_RUN(&test, glu_backward, .type = type, .rows = rows, .width = width, .x = x, .dy = dy,
               .dx = dx);
    device_test_wait(&test);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i / width * 2 * width + i % width;
        const double a = device_test_value(type, given, at), s = 1 / (1 + exp(-a));
        const double b = device_test_value(type, given, at + width);
        const double g = device_test_value(type, dy, i);
        expected[i] = a * s * b;
        slope[at] = g * b * s * (1 + a * (1 - s));
        slope[at + width] = g * a * s;
    }
    device_test_near("y", type, y, expected, count, tolerance, 1);
    device_test_near("dx", type, dx, slope, 2 * count, tolerance, 1);
}

TEST_KERNELS(all_types_and_sizes)
{
    static const int64_t sizes[][2] = {{0, 8}, {1, 1}, {3, 7}, {5, 24}, {65, 40}, {130, 33}};
    for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++)
        for (int i = 0; i < device_test_cases(6, 4); i++)
            check(type, sizes[i][0], sizes[i][1], i % 2 == 0);
}

TEST_MAIN()
