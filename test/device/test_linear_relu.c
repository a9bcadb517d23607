// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Linear layers with ReLU: linear_forward and linear_backward must give the values without ReLU
 * where these are positive, or where x is. The variants without ReLU are tested in test_linear.c.
 */
#include "device_test.h"
#include "test.h"

struct relu_case {
    enum data_type type;
    int64_t rows, in, out;
};

static const struct relu_case cases[] = {
    {TYPE_FP32, 16, 72, 10},  {TYPE_FP32, 1, 1, 1},    {TYPE_FP32, 130, 40, 801},
    {TYPE_BF16, 33, 64, 100}, {TYPE_BF16, 500, 17, 3}, {TYPE_FP16, 20, 9, 33},
};

enum { CASES = sizeof cases / sizeof cases[0] };

/* Keep only values where `by` is positive. */
static void mask(enum data_type type, void *values, const void *by, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(device_test_value(type, by, i) > 0))
            memset((char *)values + (size_t)i * type_size(type), 0, type_size(type));
}

static void check_forward(const struct relu_case *it)
{
    DEVICE_TEST(test, 2);
    void *y = device_test_zeros(&test, it->type, it->rows * it->out);
    struct linear_forward args = {.type = it->type,
                                  .rows = it->rows,
                                  .in = it->in,
                                  .out = it->out,
                                  .rows_per_sample = 1,
                                  .x = device_test_random(&test, it->type, it->rows * it->in, 1, 1),
                                  .weight =
                                      device_test_random(&test, it->type, it->in * it->out, 1, 2),
                                  .bias = device_test_random(&test, it->type, it->out, 1, 3),
                                  .y = y};
    test.device->backend->linear_forward(test.stream, &args);
    args.relu = true;
    args.y = device_test_zeros(&test, it->type, it->rows * it->out);
    test.device->backend->linear_forward(test.stream, &args);
    device_test_wait(&test);
    mask(it->type, y, y, it->rows * it->out);
    device_test_same("y", it->type, y, args.y, it->rows * it->out);
}

static void check_backward(const struct relu_case *it)
{
    const int64_t count = it->rows * it->in;
    DEVICE_TEST(test, 2);
    void *x = device_test_random(&test, it->type, count, 1, 1), *dx;
    mask(it->type, x, x, count);
    struct linear_backward args = {
        .type = it->type,
        .rows = it->rows,
        .in = it->in,
        .out = it->out,
        .rows_per_sample = 1,
        .x = x,
        .weight = device_test_random(&test, it->type, it->in * it->out, 1, 2),
        .dy = device_test_random(&test, it->type, it->rows * it->out, 1, 3),
        .dx = device_test_zeros(&test, it->type, count)};
    test.device->backend->linear_backward(test.stream, &args);
    dx = args.dx;
    args.x_relu = true;
    args.dx = device_test_zeros(&test, it->type, count);
    test.device->backend->linear_backward(test.stream, &args);
    device_test_wait(&test);
    mask(it->type, dx, x, count);
    device_test_same("dx", it->type, dx, args.dx, count);
}

TEST_KERNELS(relu_is_right)
{
    for (int i = 0; i < CASES; i++) {
        check_forward(&cases[i]);
        check_backward(&cases[i]);
    }
}

/* A loss of NaN must not be hidden. */
TEST(not_a_number_gets_through)
{
    DEVICE_TEST(test, 1);
    float *x = device_test_random(&test, TYPE_FP32, 8, 1, 1);
    float *y = device_test_zeros(&test, TYPE_FP32, 2);
    x[3] = NAN;
    DEVICE_RUN(&test, linear_forward, .rows = 1, .in = 8, .out = 2, .rows_per_sample = 1, .x = x,
               .weight = device_test_random(&test, TYPE_FP32, 16, 1, 2), .relu = true, .y = y);
    device_test_wait(&test);
    assert_true(isnan(y[0]) && isnan(y[1]));
}

TEST_MAIN()
