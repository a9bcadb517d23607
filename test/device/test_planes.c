// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Max pooling and its gradient, transposition between channels first and last, bilinear
 * interpolation and its gradient, against plain loops: all types and instruction sets; equal
 * values, NaN, windows past the edge. */
#include "device_test.h"

struct pool_case {
    enum data_type type;
    int64_t batch, height, width, channels, kernel, stride, padding;
    bool add, equal; /* equal: values are often identical */
};

/* The first EMULATED ones are for the emulated GPU. */
static const struct pool_case cases[] = {
    {TYPE_FP32, 3, 7, 9, 8, 3, 2, 1, true, true},
    {TYPE_FP32, 1, 7, 7, 5, 2, 3, 0, true, false},
    {TYPE_BF16, 2, 6, 6, 17, 2, 2, 0, true, false},
    {TYPE_BF16, 1, 6, 6, 64, 3, 2, 1, false, true},
    {TYPE_FP16, 2, 9, 9, 20, 3, 2, 1, true, true},
    {TYPE_FP32, 2, 8, 8, 4, 2, 2, 0, false, false},
    {TYPE_FP32, 1, 1, 1, 1, 1, 1, 0, false, false},
    {TYPE_FP32, 2, 5, 4, 33, 3, 1, 1, true, true},
    {TYPE_FP32, 1, 16, 15, 2, 15, 1, 7, false, true},
    {TYPE_FP32, 2, 7, 8, 4, 2, 3, 1, true, true}, /* four lanes, disjoint windows */
    {TYPE_FP32, 2, 13, 13, 8, 2, 2, 0, false, true},
    {TYPE_BF16, 2, 12, 12, 64, 3, 2, 1, false, true},
};

enum { CASES = sizeof cases / sizeof cases[0], EMULATED = 5 };

static int64_t down(const struct pool_case *it)
{
    return convolved_size(it->height, it->kernel, it->stride, it->padding);
}

static int64_t across(const struct pool_case *it)
{
    return convolved_size(it->width, it->kernel, it->stride, it->padding);
}

static int64_t x_count(const struct pool_case *it)
{
    return it->batch * it->height * it->width * it->channels;
}

static int64_t y_count(const struct pool_case *it)
{
    return it->batch * down(it) * across(it) * it->channels;
}

struct pool {
    struct max_pool_forward forward;
    struct max_pool_backward backward;
};

/* Some values are NaN; if equal values are requested, there are only a few distinct ones. */
static void *make_x(struct device_test *test, const struct pool_case *it)
{
    float *values = device_test_random(test, TYPE_FP32, x_count(it), 2, 1);
    void *x = device_test_zeros(test, it->type, x_count(it));

    for (int64_t i = 0; i < x_count(it); i++)
        values[i] = i % 97 == 41 ? NAN : it->equal ? floorf(values[i]) : values[i];
    test->device->backend->convert(test->stream, it->type, x, TYPE_FP32, values, x_count(it));
    return x;
}

static struct pool run(struct device_test *test, const struct pool_case *it)
{
    uint8_t *index = device_test_zeros(test, TYPE_BF16, (y_count(it) + 1) / 2);
    const struct pool pool = {
        DEVICE_ARGS(max_pool_forward, it->type, it->batch, it->height, it->width, it->channels,
                    it->kernel, it->stride, it->padding, make_x(test, it),
                    device_test_zeros(test, it->type, y_count(it)), index),
        DEVICE_ARGS(max_pool_backward, it->type, it->batch, it->height, it->width, it->channels,
                    it->kernel, it->stride, it->padding,
                    device_test_random(test, it->type, y_count(it), 1, 2),
                    it->add ? device_test_random(test, it->type, y_count(it), 1, 3) : NULL, index,
                    device_test_random(test, it->type, x_count(it), 1, 4))};

    DEVICE_QUEUE(test, max_pool_forward, &pool.forward);
    DEVICE_QUEUE(test, max_pool_backward, &pool.backward);
    device_test_wait(test);
    return pool;
}

/* The window of one element of y: check it, and return the index of its maximum in x. */
static int64_t check_window(const struct pool_case *it, const struct pool *pool, int64_t number)
{
    const int64_t c = number % it->channels, pixel = number / it->channels;
    const int64_t b = pixel / (down(it) * across(it));
    const int64_t top = pixel / across(it) % down(it) * it->stride - it->padding;
    const int64_t left = pixel % across(it) * it->stride - it->padding;
    int64_t best = -1, place = 0;
    double most = 0;

    for (int64_t i = 0; i < it->kernel * it->kernel; i++) {
        const int64_t row = top + i / it->kernel, column = left + i % it->kernel;
        if (row < 0 || row >= it->height || column < 0 || column >= it->width)
            continue;
        const int64_t at = ((b * it->height + row) * it->width + column) * it->channels + c;
        const double x = device_test_value(it->type, pool->forward.x, at);
        if (best < 0 || x > most || (isnan(x) && !isnan(most))) {
            best = i;
            most = x;
            place = at;
        }
    }
    const double y = device_test_value(it->type, pool->forward.y, number);
    assert_true(isnan(most) ? isnan(y) : y == most);
    assert_int_equal(pool->forward.index[number], best);
    return place;
}

TEST_KERNELS(max_pool_is_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++) {
        const struct pool_case *it = &cases[i];
        DEVICE_TEST(test, 2);
        const struct pool pool = run(&test, it);
        const double *dy = device_test_given(&test, pool.backward.dy);
        const double *add = it->add ? device_test_given(&test, pool.backward.add) : NULL;
        double *dx = device_test_expected(&test, x_count(it));
        for (int64_t number = 0; number < y_count(it); number++)
            dx[check_window(it, &pool, number)] += dy[number] + (it->add ? add[number] : 0);
        device_test_near(&test, "dx", pool.backward.dx, dx, 1.01 * device_test_precision(it->type),
                         it->type == TYPE_FP32 ? 20 : 0.01);
    }
}

TEST_ENDS(a_window_beyond_the_index_ends, "max pool")
{
    DEVICE_RUN(test, max_pool_forward, .batch = 1, .height = 20, .width = 20, .channels = 1,
               .kernel = 16, .stride = 1);
}

static void check_transpose(enum data_type type, int64_t batch, int64_t rows, int64_t columns)
{
    const size_t size = type_size(type);
    DEVICE_TEST(test, 2);
    const char *x = device_test_random(&test, type, batch * rows * columns, 1, 1);
    char *y = device_test_zeros(&test, type, batch * rows * columns);
    DEVICE_RUN(&test, transpose, type, batch, rows, columns, x, y);
    device_test_wait(&test);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++) {
                const int64_t from = (b * rows + r) * columns + c;
                const int64_t to = (b * columns + c) * rows + r;
                assert_memory_equal(x + (size_t)from * size, y + (size_t)to * size, size);
            }
}

TEST(transpose_is_right)
{
    check_transpose(TYPE_FP32, 2, 3, 1024);
    check_transpose(TYPE_FP32, 1, 70, 67);
    check_transpose(TYPE_BF16, 3, 49, 130);
    check_transpose(TYPE_FP16, 1, 1, 5);
    check_transpose(TYPE_BF16, 0, 4, 4);
}

/* ---- Bilinear interpolation */

struct upsample_case {
    enum data_type type;
    int64_t batch, channels, height, width, out_height, out_width;
};

/* The first UPSAMPLE_EMULATED ones are for the emulated GPU. */
static const struct upsample_case upsample_cases[] = {
    {TYPE_FP32, 1, 5, 2, 3, 17, 10}, {TYPE_FP32, 1, 2, 9, 10, 4, 3},
    {TYPE_FP32, 0, 3, 2, 2, 8, 8},   {TYPE_BF16, 2, 3, 3, 4, 12, 13},
    {TYPE_FP16, 2, 9, 2, 2, 8, 12},  {TYPE_FP32, 1, 3, 7, 7, 64, 224},
    {TYPE_FP32, 1, 5, 2, 3, 33, 50}, {TYPE_FP32, 3, 1, 1, 1, 9, 8},
    {TYPE_FP32, 2, 2, 1, 4, 1, 4},   {TYPE_FP32, 1, 4, 5, 6, 7, 6},
    {TYPE_FP16, 2, 9, 2, 2, 64, 40},
};
enum { UPSAMPLE_CASES = sizeof upsample_cases / sizeof upsample_cases[0], UPSAMPLE_EMULATED = 5 };

static int64_t in_count(const struct upsample_case *it)
{
    return it->batch * it->channels * it->height * it->width;
}

static int64_t out_count(const struct upsample_case *it)
{
    return it->batch * it->channels * it->out_height * it->out_width;
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
static void sums_add(const struct upsample_case *it, double *sums, const double *from, bool back)
{
    for (int64_t y = 0; y < out_count(it); y++) {
        const int64_t column = y % it->out_width, row = y / it->out_width % it->out_height;
        const int64_t plane = y / it->out_width / it->out_height;
        const int64_t sample = plane / it->channels, channel = plane % it->channels;
        for (int64_t i = 0; i < it->height * it->width; i++) {
            const int64_t x = (sample * it->height * it->width + i) * it->channels + channel;
            const double weight = weight_of(i / it->width, row, it->height, it->out_height) *
                                  weight_of(i % it->width, column, it->width, it->out_width);
            sums[back ? x : y] += weight * from[back ? y : x];
        }
    }
}

struct upsample_tensors {
    const void *x, *dy;
    void *y, *dx;
};

static struct upsample_tensors run_upsample(struct device_test *test,
                                            const struct upsample_case *it)
{
    const struct upsample_tensors t = {
        .x = device_test_random(test, it->type, in_count(it), 1, 1),
        .dy = device_test_random(test, it->type, out_count(it), 1, 2),
        .y = device_test_zeros(test, it->type, out_count(it)),
        .dx = device_test_random(test, it->type, in_count(it), 1, 3)};
    DEVICE_RUN(test, upsample_forward, it->type, it->batch, it->channels, it->height, it->width,
               it->out_height, it->out_width, t.x, t.y);
    DEVICE_RUN(test, upsample_backward, it->type, it->batch, it->channels, it->height, it->width,
               it->out_height, it->out_width, t.dy, t.dx);
    device_test_wait(test);
    return t;
}

TEST_KERNELS(upsampling_is_right)
{
    for (int i = 0; i < device_test_cases(UPSAMPLE_CASES, UPSAMPLE_EMULATED); i++) {
        const struct upsample_case *it = &upsample_cases[i];
        const double tolerance = device_test_rounding(it->type);
        DEVICE_TEST(test, 1);
        const struct upsample_tensors t = run_upsample(&test, it);
        DEVICE_TEST_AGAIN(&test, other, run_upsample(&other, it))
        double *expected = device_test_expected(&test, out_count(it));
        double *gradient = device_test_expected(&test, in_count(it));
        sums_add(it, expected, device_test_given(&test, t.x), false);
        sums_add(it, gradient, device_test_given(&test, t.dy), true);
        device_test_near(&test, "y", t.y, expected, tolerance, 1);
        device_test_near(&test, "dx", t.dx, gradient, tolerance, it->type == TYPE_FP32 ? 30 : 1e-3);
    }
}

TEST_MAIN()
