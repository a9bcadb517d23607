// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Bilinear interpolation against PyTorch's numbers and its definition in double precision; its
 * gradient against the transposed sum. */
#include "device_test.h"
#include "test.h"

struct upsample_case {
    enum data_type type;
    int64_t batch, channels, height, width, out_height, out_width;
};

/* The first EMULATED ones are for the emulated GPU. */
static const struct upsample_case cases[] = {
    {TYPE_FP32, 1, 5, 2, 3, 17, 10}, {TYPE_FP32, 1, 2, 9, 10, 4, 3},
    {TYPE_FP32, 0, 3, 2, 2, 8, 8},   {TYPE_BF16, 2, 3, 3, 4, 12, 13},
    {TYPE_FP16, 2, 9, 2, 2, 8, 12},  {TYPE_FP32, 1, 3, 7, 7, 64, 224},
    {TYPE_FP32, 1, 5, 2, 3, 33, 50}, {TYPE_FP32, 3, 1, 1, 1, 9, 8},
    {TYPE_FP32, 2, 2, 1, 4, 1, 4},   {TYPE_FP32, 1, 4, 5, 6, 7, 6},
    {TYPE_FP16, 2, 9, 2, 2, 64, 40},
};
enum { CASES = sizeof cases / sizeof cases[0], EMULATED = 5 };

static int64_t x_count(const struct upsample_case *it)
{
    return it->batch * it->channels * it->height * it->width;
}

static int64_t y_count(const struct upsample_case *it)
{
    return it->batch * it->channels * it->out_height * it->out_width;
}

static void forward(struct device_test *test, const struct upsample_case *it, const void *x,
                    void *y)
{
    DEVICE_RUN(test, upsample_forward, .type = it->type, .batch = it->batch,
               .channels = it->channels, .height = it->height, .width = it->width,
               .out_height = it->out_height, .out_width = it->out_width, .x = x, .y = y);
}

static void backward(struct device_test *test, const struct upsample_case *it, const void *dy,
                     void *dx)
{
    DEVICE_RUN(test, upsample_backward, .type = it->type, .batch = it->batch,
               .channels = it->channels, .height = it->height, .width = it->width,
               .out_height = it->out_height, .out_width = it->out_width, .dy = dy, .dx = dx);
}

/* Return the weight of input `at` in output `out`: 1 - distance of their positions, with the
 * positions of outputs limited to those of inputs. */
static double weight_of(int64_t at, int64_t out, int64_t size, int64_t out_size)
{
    const double position = ((double)out + 0.5) * (double)size / (double)out_size - 0.5;
    const double limited = fmin(fmax(position, 0), (double)(size - 1));
    return fmax(0, 1 - fabs(limited - (double)at));
}

/* Add the interpolation of `from` to sums or, if `back`, its transpose. */
static void sums_add(const struct upsample_case *it, double *sums, const void *from, bool back)
{
    for (int64_t y = 0; y < y_count(it); y++) {
        const int64_t column = y % it->out_width, row = y / it->out_width % it->out_height;
        const int64_t plane = y / it->out_width / it->out_height;
        const int64_t sample = plane / it->channels, channel = plane % it->channels;
        for (int64_t i = 0; i < it->height * it->width; i++) {
            const int64_t x = (sample * it->height * it->width + i) * it->channels + channel;
            const double weight = weight_of(i / it->width, row, it->height, it->out_height) *
                                  weight_of(i % it->width, column, it->width, it->out_width);
            sums[back ? x : y] += weight * device_test_value(it->type, from, back ? y : x);
        }
    }
}

struct upsample_tensors {
    const void *x, *dy;
    void *y, *dx;
};

static struct upsample_tensors run(struct device_test *test, const struct upsample_case *it)
{
    const struct upsample_tensors t = {.x = device_test_random(test, it->type, x_count(it), 1, 1),
                                       .dy = device_test_random(test, it->type, y_count(it), 1, 2),
                                       .y = device_test_zeros(test, it->type, y_count(it)),
                                       .dx = device_test_random(test, it->type, x_count(it), 1, 3)};
    forward(test, it, t.x, t.y);
    backward(test, it, t.dy, t.dx);
    device_test_wait(test);
    return t;
}

TEST_KERNELS(upsampling_is_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++) {
        const struct upsample_case *it = &cases[i];
        const double tolerance = device_test_rounding(it->type);
        DEVICE_TEST(test, 1);
        const struct upsample_tensors t = run(&test, it);
        DEVICE_TEST_AGAIN(&test, other, run(&other, it))
        double *expected = device_test_expected(&test, y_count(it));
        double *gradient = device_test_expected(&test, x_count(it));
        sums_add(it, expected, t.x, false);
        sums_add(it, gradient, t.dy, true);
        device_test_near("y", it->type, t.y, expected, y_count(it), tolerance, 1);
        device_test_near("dx", it->type, t.dx, gradient, x_count(it), tolerance,
                         it->type == TYPE_FP32 ? 30 : 1e-3);
    }
}

/* torch.nn.functional.interpolate(x, (5, 4), mode="bilinear", align_corners=False) of x[0, 0] =
 * [[1, 4, 2], [8, 5, 7]]. */
TEST(numbers_of_pytorch)
{
    static const float from[] = {1, 4, 2, 8, 5, 7};
    static const double expected[] = {1,   2.875, 3.25, 2,   1.7, 3.2, 3.5, 2.5,   4.5,  4.5,
                                      4.5, 4.5,   7.3,  5.8, 5.5, 6.5, 8,   6.125, 5.75, 7};
    const struct upsample_case it = {TYPE_FP32, 1, 1, 2, 3, 5, 4};
    DEVICE_TEST(test, 2);
    const void *x = device_test_copy(&test, TYPE_FP32, from, 6);
    float *y = device_test_zeros(&test, TYPE_FP32, 20);
    forward(&test, &it, x, y);
    device_test_wait(&test);
    device_test_near("y", TYPE_FP32, y, expected, 20, 1e-6, 1);
}

TEST_MAIN()
