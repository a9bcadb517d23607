// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Convolutions and their gradients against sums in double precision. */
#include "cpu/cpu.h"
#include "cpu/cpu_convolution_plan.h"
#include "device_test.h"

struct convolution_case {
    enum data_type type;
    struct convolution_shape shape;
    bool bias, relu, x_relu;
};

/* {batch, height, width, in, out, kernel, stride, padding, images}. The first EMULATED ones are for
 * the emulated GPU. Odd batches overwrite gradients. */
static const struct convolution_case cases[] = {
    {TYPE_FP32, {2, 9, 7, 3, 4, 3, 1, 1, 0}, true, true, false},
    {TYPE_FP32, {3, 6, 10, 4, 8, 3, 1, 1, 0}, true, true, true},
    {TYPE_FP32, {40, 8, 8, 4, 8, 3, 1, 1, 0}, false, false, false}, /* in several pieces */
    {TYPE_FP32, {1, 1, 12, 5, 3, 1, 1, 0, 0}, false, true, true},
    {TYPE_FP32, {1, 9, 11, 8, 17, 5, 2, 2, 0}, true, true, false},
    {TYPE_FP32, {2, 9, 7, 17, 5, 3, 2, 3, 0}, true, false, true}, /* more padding than kernel */
    {TYPE_BF16, {2, 9, 7, 3, 4, 3, 1, 1, 0}, true, true, false},
    {TYPE_BF16, {3, 1, 5, 48, 16, 1, 1, 0, 0}, true, false, false},
    {TYPE_FP16, {2, 9, 7, 3, 4, 3, 1, 1, 0}, true, true, true},
    {TYPE_FP16, {2, 6, 5, 17, 32, 3, 2, 1, 0}, false, false, false},
    {TYPE_FP32, {0, 8, 8, 3, 4, 3, 1, 1, 0}, true, false, false},
    {TYPE_FP32, {1, 1, 1, 1, 1, 1, 1, 0, 0}, true, false, false},
    {TYPE_FP32, {2, 14, 14, 3, 16, 7, 2, 3, 0}, false, false, false},
    {TYPE_FP32, {2, 10, 10, 3, 6, 1, 2, 0, 0}, false, false, false}, /* WRONG_WITH_ONEDNN */
    {TYPE_FP32, {2, 6, 6, 33, 48, 3, 2, 1, 0}, false, false, true},
    {TYPE_FP32, {2, 5, 5, 64, 32, 1, 2, 0, 0}, false, false, false},
    {TYPE_FP32, {2, 7, 5, 16, 16, 5, 1, 0, 0}, true, false, true},
    {TYPE_FP32, {2, 4, 4, 80, 96, 3, 1, 1, 0}, true, true, true},
    {TYPE_FP32, {1, 8, 11, 20, 24, 2, 3, 0, 0}, false, true, false}, /* pixels of x without a tap */
    {TYPE_FP32, {1, 4, 2, 16, 3, 2, 3, 0, 0}, false, false, false},  /* the same; narrow */
    {TYPE_FP32, {1, 70, 66, 16, 18, 3, 1, 0, 0}, true, false, true}, /* more than one band */
    {TYPE_FP32, {35, 5, 4, 17, 33, 3, 1, 2, 0}, false, false, false}, /* more than one part */
    {TYPE_BF16, {2, 6, 6, 32, 64, 3, 1, 1, 0}, false, false, false},
    {TYPE_BF16, {1, 13, 9, 3, 32, 7, 2, 3, 0}, false, false, false},
    {TYPE_BF16, {2, 5, 5, 64, 32, 1, 2, 0, 0}, false, true, true},
    {TYPE_BF16, {1, 7, 8, 24, 40, 5, 1, 2, 0}, true, true, true},
    {TYPE_BF16, {2, 6, 9, 20, 40, 3, 2, 1, 0}, false, false, true},
    {TYPE_BF16, {5, 4, 4, 72, 80, 3, 1, 1, 0}, true, false, false}, /* more than one part of out */
    {TYPE_BF16, {1, 3, 5, 300, 8, 1, 1, 0, 0}, true, false, false}, /* more than one part of in */
    {TYPE_BF16, {2, 3, 4, 264, 500, 1, 1, 0, 0}, true, true, true}, /* a linear layer with AMX */
    {TYPE_BF16, {2, 5, 4, 500, 264, 1, 2, 0, 0}, true, true, true}, /* the same, copied pixels */
    {TYPE_BF16, {35, 5, 4, 17, 33, 3, 1, 2, 0}, false, false, false},
    {TYPE_BF16,
     {1, 70, 66, 5, 18, 3, 1, 0, 0},
     true,
     false,
     true}, /* more than one chunk of pixels */
    {TYPE_BF16, {4, 8, 1, 64, 64, 3, 2, 1, 0}, false, false, false}, /* wrong with oneDNN 2.6 */
    {TYPE_FP16, {1, 8, 8, 12, 6, 5, 1, 2, 0}, true, true, true},
    {TYPE_FP32,
     {1, 1, 9500, 32, 24, 3, 1, 1, 0},
     false,
     false,
     false}, /* more than one band per row */
};

/* The last case is too large for tests of all cases. */
enum {
    CASES = sizeof cases / sizeof cases[0] - 1,
    WIDE = CASES,
    WRONG_WITH_ONEDNN = 13,
    EMULATED = 11
};

/* For devices whose convolutions read images. */
static const struct convolution_case of_images[] = {
    {TYPE_BF16, {2, 14, 14, 3, 16, 7, 2, 3, 1}, false, false, false},
    {TYPE_BF16, {19, 14, 14, 3, 16, 7, 2, 3, 1}, false, false, false}, /* in several pieces */
    {TYPE_FP16, {1, 13, 9, 1, 8, 7, 2, 3, 1}, true, true, false},
    {TYPE_FP16, {2, 9, 12, 4, 8, 7, 2, 3, 1}, true, false, false},
    {TYPE_BF16, {3, 7, 10, 3, 8, 3, 2, 1, 1}, false, true, false},
    {TYPE_FP16, {1, 8, 6, 2, 8, 4, 2, 0, 1}, false, false, false},
};

static int64_t x_count(const struct convolution_shape *s)
{
    return convolution_pixels(s) * s->in;
}

static int64_t y_count(const struct convolution_shape *s)
{
    return convolved_pixels(s) * s->out;
}

struct convolution_run {
    struct convolution_forward forward;
    struct convolution_backward backward;
};

static struct convolution_run make(struct device_test *test, const struct convolution_case *it)
{
    const struct convolution_shape *s = &it->shape;
    const struct device_backend *backend = test->device->backend;
    const bool overwrite = s->batch % 2 == 1;
    const void *x = device_test_random(test, it->type, x_count(s), 1, 1);
    const void *weight = device_test_random(test, it->type, convolution_weights(s), 1, 2);
    void *workspace =
        device_test_scratch(test, backend->convolution_workspace(test->device, it->type, s));

    return (struct convolution_run){
        DEVICE_ARGS(convolution_forward, it->type, *s, x, weight,
                    it->bias ? device_test_random(test, it->type, s->out, 1, 3) : NULL, it->relu,
                    device_test_zeros(test, it->type, y_count(s)), workspace),
        DEVICE_ARGS(convolution_backward, it->type, *s, x, weight,
                    device_test_random(test, it->type, y_count(s), 1, 4), it->x_relu,
                    s->images ? NULL : device_test_random(test, it->type, x_count(s), 1, 5),
                    device_test_gradient(test, overwrite, convolution_weights(s), 6),
                    it->bias ? device_test_gradient(test, overwrite, s->out, 7) : NULL, overwrite,
                    workspace)};
}

static struct convolution_run run(struct device_test *test, const struct convolution_case *it)
{
    const struct convolution_run r = make(test, it);

    DEVICE_QUEUE(test, convolution_forward, &r.forward);
    DEVICE_QUEUE(test, convolution_backward, &r.backward);
    device_test_wait(test);
    return r;
}

/* A sum in double, the sum of the magnitudes of its terms, which scales the rounding error of fp32,
 * and of values that a GPU's library rounds to the type on the way: before a bias is added, or for
 * each piece of the batch. The CPU does not round in between. */
struct sum {
    double value, size, between;
};

struct convolution_truth {
    struct sum *y, *dx, *dweight, *dbias;
};

static struct sum *sums_open(struct device_test *test, int64_t count)
{
    return (struct sum *)device_test_expected(test, 3 * count);
}

static inline void product(struct sum *sum, double a, double b)
{
    sum->value += a * b;
    sum->size += fabs(a * b);
}

/* Return the element of x at a pixel of the batch and a channel. */
static inline int64_t x_at(const struct convolution_shape *s, int64_t pixel, int64_t channel)
{
    const int64_t plane = s->height * s->width;
    return s->images ? (pixel / plane * s->in + channel) * plane + pixel % plane
                     : pixel * s->in + channel;
}

/* Pixels of y meet pixels of x under the kernel's taps. */
static void meet_all(const struct convolution_shape *s, const double *x, const double *weight,
                     const double *dy, struct convolution_truth *truth)
{
    const int64_t taps = s->kernel * s->kernel;
    const int64_t height = convolved_height(s);
    const int64_t width = convolved_width(s);
    for (int64_t p = 0; p < s->batch * height * width * taps; p++) {
        const int64_t pixel = p / taps, tap = p % taps, at = pixel * s->out;
        const int64_t row = pixel / width % height * s->stride - s->padding;
        const int64_t column = pixel % width * s->stride - s->padding;
        const int64_t r = row + tap / s->kernel, q = column + tap % s->kernel;
        if (r < 0 || r >= s->height || q < 0 || q >= s->width)
            continue;
        const int64_t from = (pixel / (height * width) * s->height + r) * s->width + q;
        for (int64_t o = 0; o < s->out; o++)
            for (int64_t c = 0; c < s->in; c++) {
                const int64_t w = (o * s->in + c) * taps + tap, i = x_at(s, from, c);
                product(&truth->y[at + o], x[i], weight[w]);
                product(&truth->dx[i], dy[at + o], weight[w]);
                product(&truth->dweight[w], dy[at + o], x[i]);
            }
    }
}

static struct convolution_truth truth_of(struct device_test *test,
                                         const struct convolution_case *it,
                                         const struct convolution_run *r)
{
    const struct convolution_shape *s = &it->shape;
    const double *x = device_test_given(test, r->forward.x);
    const double *weight = device_test_given(test, r->forward.weight);
    const double *bias = it->bias ? device_test_given(test, r->forward.bias) : NULL;
    const double *dy = device_test_given(test, r->backward.dy);
    const double *dweight_before = device_test_given(test, r->backward.dweight);
    const double *dbias_before = it->bias ? device_test_given(test, r->backward.dbias) : NULL;
    struct convolution_truth truth = {sums_open(test, y_count(s)), sums_open(test, x_count(s)),
                                      sums_open(test, convolution_weights(s)),
                                      sums_open(test, s->out)};

    meet_all(s, x, weight, dy, &truth);
    for (int64_t i = 0; i < y_count(s); i++) {
        if (it->bias) {
            truth.y[i].between = fabs(truth.y[i].value);
            product(&truth.y[i], bias[i % s->out], 1);
            product(&truth.dbias[i % s->out], dy[i], 1);
        }
        if (it->relu && truth.y[i].value < 0)
            truth.y[i].value = 0;
    }
    for (int64_t i = 0; i < x_count(s); i++)
        if (it->x_relu && !(x[i] > 0))
            truth.dx[i] = (struct sum){0, 0, 0};
    for (int64_t i = 0; i < convolution_weights(s); i++) {
        truth.dweight[i].between = truth.dweight[i].size;
        product(&truth.dweight[i], 1, dweight_before[i]);
    }
    for (int64_t i = 0; i < s->out && it->bias; i++)
        product(&truth.dbias[i], 1, dbias_before[i]);
    return truth;
}

/* Rounding of the result to the type, and fp32 rounding of the terms of a sum. between: the
 * relative error of values that are rounded on the way. */
static void near(const char *what, int number, enum data_type type, const void *tensor,
                 const struct sum *truth, double between, int64_t count)
{
    const double rounding = type == TYPE_FP32 ? 0 : 1.01 * device_test_precision(type);

    for (int64_t i = 0; i < count; i++) {
        const double value = device_test_value(type, tensor, i);
        const double room =
            rounding * fabs(truth[i].value) + 1e-6 * truth[i].size + between * truth[i].between;
        if (!(fabs(value - truth[i].value) <= room))
            fail_msg("case %d: %s[%lld] is %.9g, not %.9g", number, what, (long long)i, value,
                     truth[i].value);
    }
}

static void check(const struct convolution_case *it, struct device_test *test,
                  const struct convolution_run *r)
{
    const int number = (int)(it - (it->shape.images ? of_images : cases));
    const struct convolution_shape *s = &it->shape;
    const bool rounds = test->device->backend != &device_cpu && it->type != TYPE_FP32;
    const double between = rounds ? 1.01 * device_test_precision(it->type) : 0;
    const struct convolution_truth truth = truth_of(test, it, r);

    near("y", number, it->type, r->forward.y, truth.y, between, y_count(s));
    if (!s->images)
        near("dx", number, it->type, r->backward.dx, truth.dx, between, x_count(s));
    near("dweight", number, TYPE_FP32, r->backward.dweight, truth.dweight, between,
         convolution_weights(s));
    if (it->bias)
        near("dbias", number, TYPE_FP32, r->backward.dbias, truth.dbias, between, s->out);
}

/* The weight's gradient of oneDNN is an exception. */
static bool sums_have_an_order(const struct device_test *test, const struct convolution_case *it)
{
    const struct cpu_device *cpu = (const struct cpu_device *)test->device;
    const bool fp32 = it->type == TYPE_FP32 || !is_native(cpu, it->type);

    return cpu_convolution_is_direct(&it->shape) || (it->type == TYPE_BF16 && cpu->tiles) ||
           (fp32 && convolution_implicit_workspace(cpu, &it->shape) > 0);
}

/* Fail unless two runs have the same bits, if `sums` also in the weight's gradient. */
static void check_same(const struct convolution_case *it, const struct convolution_run *a,
                       const struct convolution_run *b, bool sums)
{
    const struct convolution_shape *s = &it->shape;
    device_test_same("y", it->type, a->forward.y, b->forward.y, y_count(s));
    device_test_same("dx", it->type, a->backward.dx, b->backward.dx, x_count(s));
    if (it->bias)
        device_test_same("dbias", TYPE_FP32, a->backward.dbias, b->backward.dbias, s->out);
    if (sums)
        device_test_same("dweight", TYPE_FP32, a->backward.dweight, b->backward.dweight,
                         convolution_weights(s));
}

/* The CPU also on one thread. */
TEST_KERNELS(convolution_is_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++) {
        DEVICE_TEST(test, 2);
        const struct convolution_run r = run(&test, &cases[i]);
        check(&cases[i], &test, &r);
        if (test.device->backend == &device_cpu) {
            DEVICE_TEST(one, 1);
            const struct convolution_run other = run(&one, &cases[i]);
            check_same(&cases[i], &r, &other, sums_have_an_order(&one, &cases[i]));
        }
    }
}

/* Only 16-bit convolutions of few channels with stride 2 read images. */
TEST(convolution_of_images_is_right)
{
    const struct device_backend *backend = device_test_backend(&error);
    assert_non_null(backend);
    if (backend->convolution_reads_images == NULL)
        SKIP_BECAUSE("convolutions of this device do not read images");
    for (size_t i = 0; i < sizeof of_images / sizeof of_images[0]; i++) {
        DEVICE_TEST(test, 1);
        const struct convolution_case *it = &of_images[i];
        assert_true(backend->convolution_reads_images(it->type, &it->shape));
        const struct convolution_run r = run(&test, it);
        check(it, &test, &r);
    }
    struct convolution_shape shape = of_images[0].shape;
    assert_false(backend->convolution_reads_images(TYPE_FP32, &shape));
    shape.in = 5;
    assert_false(backend->convolution_reads_images(TYPE_BF16, &shape));
    shape.in = 3, shape.stride = 1;
    assert_false(backend->convolution_reads_images(TYPE_BF16, &shape));
}

TEST(reproducible_gradients_do_not_depend_on_threads)
{
    static const int numbers[] = {14, 15, 17, 20, 22, 33, WIDE};
    device_test_of_cpu();
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct convolution_case *it = &cases[numbers[i]];
        DEVICE_TEST(one, 1);
        DEVICE_TEST(two, 2);
        one.device->reproducible = two.device->reproducible = true;
        const struct convolution_run a = run(&one, it), b = run(&two, it);
        check(it, &one, &a);
        check_same(it, &a, &b, true);
    }
}

/* dx, dweight and dbias are each computed alone, with identical results. */
TEST(gradients_can_be_left_out)
{
    const struct convolution_case *it = &cases[1];
    DEVICE_TEST(test, 2);
    const struct convolution_run r = run(&test, it), again = make(&test, it);
    DEVICE_QUEUE(&test, convolution_forward, &again.forward);
    for (int part = 0; part < 3; part++) {
        struct convolution_backward alone = again.backward;
        alone.dx = part == 0 ? alone.dx : NULL;
        alone.dweight = part == 1 ? alone.dweight : NULL;
        alone.dbias = part == 2 ? alone.dbias : NULL;
        DEVICE_QUEUE(&test, convolution_backward, &alone);
    }
    device_test_wait(&test);
    check_same(it, &r, &again, true);
}

/* oneDNN 2.6 computes this case wrongly with AVX2, which ONEDNN_MAX_CPU_ISA selects with kernels of
 * any instruction set. */
TEST_KERNELS(onednn_does_not_compute_what_it_gets_wrong)
{
    device_test_of_cpu();
    DEVICE_TEST(test, 1);
    const struct cpu_device *cpu = (const struct cpu_device *)test.device;
    assert_true(convolution_implicit_workspace(cpu, &cases[WRONG_WITH_ONEDNN].shape) > 0);
}

TEST_MAIN()
