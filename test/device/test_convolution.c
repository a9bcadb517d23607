// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Convolutions and their gradients against sums in double precision. */
#include "device/cpu.h"
#include "device/cpu_convolution_plan.h"
#include "device_test.h"
#include "test.h"

struct convolution_case {
    enum data_type type;
    struct convolution_shape shape;
    bool bias, relu, x_relu;
};

/* {batch, height, width, in, out, kernel, stride, padding}. The first EMULATED ones are for the
 * emulated GPU. Odd batches overwrite gradients. */
static const struct convolution_case cases[] = {
    {TYPE_FP32, {2, 9, 7, 3, 4, 3, 1, 1}, true, true, false},
    {TYPE_FP32, {3, 6, 10, 4, 8, 3, 1, 1}, true, true, true},
    {TYPE_FP32, {40, 8, 8, 4, 8, 3, 1, 1}, false, false, false}, /* in several pieces */
    {TYPE_FP32, {1, 1, 12, 5, 3, 1, 1, 0}, false, true, true},
    {TYPE_FP32, {1, 9, 11, 8, 17, 5, 2, 2}, true, true, false},
    {TYPE_FP32, {2, 9, 7, 17, 5, 3, 2, 3}, true, false, true}, /* more padding than kernel */
    {TYPE_BF16, {2, 9, 7, 3, 4, 3, 1, 1}, true, true, false},
    {TYPE_BF16, {3, 1, 5, 48, 16, 1, 1, 0}, true, false, false},
    {TYPE_FP16, {2, 9, 7, 3, 4, 3, 1, 1}, true, true, true},
    {TYPE_FP16, {2, 6, 5, 17, 32, 3, 2, 1}, false, false, false},
    {TYPE_FP32, {0, 8, 8, 3, 4, 3, 1, 1}, true, false, false},
    {TYPE_FP32, {1, 1, 1, 1, 1, 1, 1, 0}, true, false, false},
    {TYPE_FP32, {2, 14, 14, 3, 16, 7, 2, 3}, false, false, false},
    {TYPE_FP32, {2, 10, 10, 3, 6, 1, 2, 0}, false, false, false}, /* WRONG_WITH_ONEDNN */
    {TYPE_FP32, {2, 6, 6, 33, 48, 3, 2, 1}, false, false, true},
    {TYPE_FP32, {2, 5, 5, 64, 32, 1, 2, 0}, false, false, false},
    {TYPE_FP32, {2, 7, 5, 16, 16, 5, 1, 0}, true, false, true},
    {TYPE_FP32, {2, 4, 4, 80, 96, 3, 1, 1}, true, true, true},
    {TYPE_FP32, {1, 8, 11, 20, 24, 2, 3, 0}, false, true, false},  /* pixels of x without a tap */
    {TYPE_FP32, {1, 4, 2, 16, 3, 2, 3, 0}, false, false, false},   /* the same; narrow */
    {TYPE_FP32, {1, 70, 66, 16, 18, 3, 1, 0}, true, false, true},  /* more than one band */
    {TYPE_FP32, {35, 5, 4, 17, 33, 3, 1, 2}, false, false, false}, /* more than one part */
    {TYPE_BF16, {2, 6, 6, 32, 64, 3, 1, 1}, false, false, false},
    {TYPE_BF16, {1, 13, 9, 3, 32, 7, 2, 3}, false, false, false},
    {TYPE_BF16, {2, 5, 5, 64, 32, 1, 2, 0}, false, true, true},
    {TYPE_BF16, {1, 7, 8, 24, 40, 5, 1, 2}, true, true, true},
    {TYPE_BF16, {2, 6, 9, 20, 40, 3, 2, 1}, false, false, true},
    {TYPE_BF16, {5, 4, 4, 72, 80, 3, 1, 1}, true, false, false}, /* more than one part of out */
    {TYPE_BF16, {1, 3, 5, 300, 8, 1, 1, 0}, true, false, false}, /* more than one part of in */
    {TYPE_BF16, {2, 3, 4, 264, 500, 1, 1, 0}, true, true, true}, /* a linear layer with AMX */
    {TYPE_BF16, {2, 5, 4, 500, 264, 1, 2, 0}, true, true, true}, /* the same, copied pixels */
    {TYPE_BF16, {35, 5, 4, 17, 33, 3, 1, 2}, false, false, false},
    {TYPE_BF16, {1, 70, 66, 5, 18, 3, 1, 0}, true, false, true}, /* more than one chunk of pixels */
    {TYPE_BF16, {4, 8, 1, 64, 64, 3, 2, 1}, false, false, false}, /* wrong with oneDNN 2.6 */
    {TYPE_FP16, {1, 8, 8, 12, 6, 5, 1, 2}, true, true, true},
    {TYPE_FP32,
     {1, 1, 9500, 32, 24, 3, 1, 1},
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

static int64_t out_height(const struct convolution_shape *s)
{
    return convolved_size(s->height, s->kernel, s->stride, s->padding);
}

static int64_t out_width(const struct convolution_shape *s)
{
    return convolved_size(s->width, s->kernel, s->stride, s->padding);
}

static int64_t x_count(const struct convolution_shape *s)
{
    return s->batch * s->height * s->width * s->in;
}

static int64_t y_count(const struct convolution_shape *s)
{
    return s->batch * out_height(s) * out_width(s) * s->out;
}

static int64_t weight_count(const struct convolution_shape *s)
{
    return s->out * s->in * s->kernel * s->kernel;
}

struct convolution_tensors {
    void *x, *weight, *bias, *y, *dy, *dx, *workspace;
    float *dweight, *dbias, *dweight_before, *dbias_before;
};

static struct convolution_tensors make(struct device_test *test, const struct convolution_case *it)
{
    const struct convolution_shape *s = &it->shape;
    const struct device_backend *backend = test->device->backend;
    const bool overwrite = s->batch % 2 == 1;

    return (struct convolution_tensors){
        .x = device_test_random(test, it->type, x_count(s), 1, 1),
        .weight = device_test_random(test, it->type, weight_count(s), 1, 2),
        .bias = device_test_random(test, it->type, s->out, 1, 3),
        .y = device_test_zeros(test, it->type, y_count(s)),
        .dy = device_test_random(test, it->type, y_count(s), 1, 4),
        .dx = device_test_random(test, it->type, x_count(s), 1, 5),
        .dweight = device_test_gradient(test, overwrite, weight_count(s), 6),
        .dbias = device_test_gradient(test, overwrite && it->bias, s->out, 7),
        .dweight_before = device_test_before(test, overwrite, weight_count(s), 6),
        .dbias_before = device_test_before(test, overwrite && it->bias, s->out, 7),
        .workspace =
            device_test_scratch(test, backend->convolution_workspace(test->device, it->type, s))};
}

static struct convolution_tensors run(struct device_test *test, const struct convolution_case *it)
{
    const struct convolution_tensors t = make(test, it);

    DEVICE_RUN(test, convolution_forward, .type = it->type, .shape = it->shape, .x = t.x,
               .weight = t.weight, .bias = it->bias ? t.bias : NULL, .relu = it->relu, .y = t.y,
               .workspace = t.workspace);
    DEVICE_RUN(test, convolution_backward, .type = it->type, .shape = it->shape, .x = t.x,
               .weight = t.weight, .dy = t.dy, .x_relu = it->x_relu, .dx = t.dx,
               .dweight = t.dweight, .dbias = it->bias ? t.dbias : NULL,
               .overwrite = it->shape.batch % 2 == 1, .workspace = t.workspace);
    device_test_wait(test);
    return t;
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

/* Pixels of y meet pixels of x under the kernel's taps. */
static void meet_all(const struct convolution_shape *s, const double *x, const double *weight,
                     const double *dy, struct convolution_truth *truth)
{
    const int64_t taps = s->kernel * s->kernel, height = out_height(s), width = out_width(s);
    for (int64_t i = 0; i < s->batch * height * width * taps; i++) {
        const int64_t pixel = i / taps, tap = i % taps, at = pixel * s->out;
        const int64_t row = pixel / width % height * s->stride - s->padding;
        const int64_t column = pixel % width * s->stride - s->padding;
        const int64_t r = row + tap / s->kernel, q = column + tap % s->kernel;
        if (r < 0 || r >= s->height || q < 0 || q >= s->width)
            continue;
        const int64_t from = ((pixel / (height * width) * s->height + r) * s->width + q) * s->in;
        for (int64_t o = 0; o < s->out; o++)
            for (int64_t c = 0; c < s->in; c++) {
                const int64_t w = (o * s->in + c) * taps + tap;
                product(&truth->y[at + o], x[from + c], weight[w]);
                product(&truth->dx[from + c], dy[at + o], weight[w]);
                product(&truth->dweight[w], dy[at + o], x[from + c]);
            }
    }
}

static struct convolution_truth truth_of(struct device_test *test,
                                         const struct convolution_case *it,
                                         const struct convolution_tensors *t)
{
    const struct convolution_shape *s = &it->shape;
    const double *x = device_test_values(test, it->type, t->x, x_count(s));
    const double *weight = device_test_values(test, it->type, t->weight, weight_count(s));
    const double *dy = device_test_values(test, it->type, t->dy, y_count(s));
    struct convolution_truth truth = {sums_open(test, y_count(s)), sums_open(test, x_count(s)),
                                      sums_open(test, weight_count(s)), sums_open(test, s->out)};

    meet_all(s, x, weight, dy, &truth);
    for (int64_t i = 0; i < y_count(s); i++) {
        const double bias = it->bias ? device_test_value(it->type, t->bias, i % s->out) : 0;
        truth.y[i].between = it->bias ? fabs(truth.y[i].value) : 0;
        product(&truth.y[i], bias, 1);
        if (it->relu && truth.y[i].value < 0)
            truth.y[i].value = 0;
        if (it->bias)
            product(&truth.dbias[i % s->out], dy[i], 1);
    }
    for (int64_t i = 0; i < x_count(s); i++)
        if (it->x_relu && !(x[i] > 0))
            truth.dx[i] = (struct sum){0, 0, 0};
    for (int64_t i = 0; i < weight_count(s); i++) {
        truth.dweight[i].between = truth.dweight[i].size;
        product(&truth.dweight[i], 1, (double)t->dweight_before[i]);
    }
    for (int64_t i = 0; i < s->out; i++)
        product(&truth.dbias[i], 1, (double)t->dbias_before[i]);
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

static void check(int number, struct device_test *test, const struct convolution_tensors *t)
{
    const struct convolution_case *it = &cases[number];
    const struct convolution_shape *s = &it->shape;
    const bool rounds = test->device->backend != &device_cpu && it->type != TYPE_FP32;
    const double between = rounds ? 1.01 * device_test_precision(it->type) : 0;
    const struct convolution_truth truth = truth_of(test, it, t);

    near("y", number, it->type, t->y, truth.y, between, y_count(s));
    near("dx", number, it->type, t->dx, truth.dx, between, x_count(s));
    near("dweight", number, TYPE_FP32, t->dweight, truth.dweight, between, weight_count(s));
    near("dbias", number, TYPE_FP32, t->dbias, truth.dbias, between, s->out);
}

TEST_KERNELS(convolution_is_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++) {
        DEVICE_TEST(test, 2);
        const struct convolution_tensors tensors = run(&test, &cases[i]);
        check(i, &test, &tensors);
    }
}

/* The weight's gradient of oneDNN is an exception. */
static bool sums_have_an_order(const struct device_test *test, const struct convolution_case *it)
{
    const struct cpu_device *cpu = (const struct cpu_device *)test->device;
    const bool fp32 = it->type == TYPE_FP32 || !is_native(cpu, it->type);

    return cpu_convolution_is_direct(&it->shape) || (it->type == TYPE_BF16 && cpu->tiles) ||
           (fp32 && convolution_implicit_workspace(cpu, &it->shape) > 0);
}

TEST_KERNELS(threads_do_not_matter)
{
    device_test_of_cpu();
    for (int i = 0; i < CASES; i++) {
        const struct convolution_case *it = &cases[i];
        const struct convolution_shape *s = &it->shape;
        DEVICE_TEST(one, 1);
        DEVICE_TEST(two, 2);
        const struct convolution_tensors a = run(&one, it), b = run(&two, it);
        device_test_same("y", it->type, a.y, b.y, y_count(s));
        device_test_same("dx", it->type, a.dx, b.dx, x_count(s));
        device_test_same("dbias", TYPE_FP32, a.dbias, b.dbias, s->out);
        if (sums_have_an_order(&one, it))
            device_test_same("dweight", TYPE_FP32, a.dweight, b.dweight, weight_count(s));
    }
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
        const struct convolution_tensors a = run(&one, it), b = run(&two, it);
        check(numbers[i], &one, &a);
        device_test_same("dweight", TYPE_FP32, a.dweight, b.dweight, weight_count(&it->shape));
    }
}

/* dx, dweight and dbias are each computed alone, with identical results. */
TEST(gradients_can_be_left_out)
{
    const struct convolution_case *it = &cases[1];
    const struct convolution_shape *s = &it->shape;
    DEVICE_TEST(test, 2);
    const struct convolution_tensors t = run(&test, it), again = make(&test, it);
    struct convolution_backward args = {.type = it->type,
                                        .shape = *s,
                                        .x = again.x,
                                        .weight = again.weight,
                                        .dy = again.dy,
                                        .x_relu = it->x_relu,
                                        .dx = again.dx,
                                        .overwrite = s->batch % 2 == 1,
                                        .workspace = again.workspace};
    test.device->backend->convolution_backward(test.stream, &args);
    args.dx = NULL;
    args.dweight = again.dweight;
    test.device->backend->convolution_backward(test.stream, &args);
    args.dweight = NULL;
    args.dbias = again.dbias;
    test.device->backend->convolution_backward(test.stream, &args);
    device_test_wait(&test);
    device_test_same("dx", it->type, t.dx, again.dx, x_count(s));
    device_test_same("dweight", TYPE_FP32, t.dweight, again.dweight, weight_count(s));
    device_test_same("dbias", TYPE_FP32, t.dbias, again.dbias, s->out);
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
