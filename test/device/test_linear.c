// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Linear layers against double precision: outputs and all gradients, for all options, types and
 * instruction sets; bits are identical for any number of threads. oneDNN, which the CPU uses, must
 * not use its reference loops and must have the version of its headers. */
#include <dlfcn.h>
#include <dnnl.h>

#include "cpu/cpu.h"
#include "device_test.h"

enum {
    BIAS = 1,
    PRE = 2, /* GELU forward, and the gradient through it backward */
    RESIDUAL = 4,
    IN_PLACE = 8, /* y is the residual */
    SCALE = 16,   /* only in forward, with PRE and RESIDUAL */
    TANH = 32,
    RELU = 64, /* of y forward, of the layer that produced x backward */
    OVERWRITE = 128
};

struct linear_case {
    enum data_type type;
    int64_t samples, rows_per_sample, in, out;
    int flags;
    float dropout, drop_path;
};

/* The first EMULATED ones are for the emulated GPU. */
static const struct linear_case cases[] = {
    {TYPE_FP32, 3, 5, 7, 13, BIAS | PRE | OVERWRITE, 0.1f, 0},
    {TYPE_FP32, 5, 3, 16, 21, BIAS | RESIDUAL, 0.3f, 0.5f},
    {TYPE_FP32, 3, 5, 7, 13, BIAS | PRE | RESIDUAL | IN_PLACE | SCALE, 0.2f, 0.3f},
    {TYPE_FP32, 4, 7, 40, 30, BIAS | PRE | TANH | OVERWRITE, 0.1f, 0},
    {TYPE_BF16, 2, 33, 48, 40, BIAS | RELU, 0, 0},
    {TYPE_BF16, 4, 9, 40, 104, BIAS | PRE | RESIDUAL | SCALE, 0.1f, 0.25f},
    {TYPE_FP16, 3, 5, 17, 24, PRE | TANH, 0, 0},
    {TYPE_FP16, 3, 9, 33, 17, BIAS | RESIDUAL | IN_PLACE, 0.5f, 0.5f},
    {TYPE_FP32, 0, 1, 2, 2, BIAS, 0, 0},
    {TYPE_FP32, 2, 65, 48, 40, BIAS, 0, 0},
    {TYPE_FP32, 1, 1, 8, 10, 0, 0, 0},
    {TYPE_FP32, 1, 1, 1, 1, BIAS | RELU, 0, 0},
    {TYPE_FP32, 4, 40, 96, 800, PRE, 0.1f, 0},
    {TYPE_FP32, 1, 130, 40, 801, BIAS | RELU | OVERWRITE, 0, 0},
    {TYPE_FP32, 4, 33, 40, 776, BIAS | RESIDUAL | IN_PLACE, 0, 0.25f},
    {TYPE_FP32, 9, 100, 24, 24, BIAS, 0.2f, 0},
    {TYPE_FP32, 2, 17, 1600, 33, BIAS | RESIDUAL, 0.1f, 0},
    {TYPE_FP32, 1, 70, 1024, 36, BIAS | OVERWRITE, 0, 0}, /* slow strides are copied */
    {TYPE_FP32, 1, 70, 36, 1024, BIAS, 0, 0},
    {TYPE_FP32, 4, 33, 40, 104, BIAS | PRE | RESIDUAL | SCALE, 0, 0},
    {TYPE_FP32, 5, 1000, 3, 5, BIAS | OVERWRITE, 0, 0}, /* chunks of several rows */
    {TYPE_BF16, 2, 65, 48, 40, BIAS, 0, 0},
    {TYPE_BF16, 3, 5, 7, 13, BIAS | PRE, 0.1f, 0},
    {TYPE_BF16, 4, 40, 96, 800, BIAS | PRE | OVERWRITE, 0, 0},
    {TYPE_BF16, 4, 33, 40, 776, BIAS | RESIDUAL | IN_PLACE, 0.1f, 0.25f},
    {TYPE_BF16, 9, 100, 24, 24, OVERWRITE, 0.2f, 0},
    {TYPE_BF16, 1, 500, 17, 3, BIAS | RELU, 0, 0},
    {TYPE_BF16, 3, 1, 2, 33000, BIAS | RESIDUAL, 0, 0}, /* very many columns in a sum */
    {TYPE_BF16, 3, 1, 1, 100000, BIAS | OVERWRITE, 0, 0},
    {TYPE_BF16, 3, 1, 1, 131008, BIAS | OVERWRITE, 0, 0}, /* too many for tiles */
    {TYPE_BF16, 2, 40, 96, 800, BIAS | PRE | TANH, 0, 0},
    {TYPE_FP16, 4, 33, 40, 96, BIAS | PRE | OVERWRITE, 0.1f, 0},
    {TYPE_FP16, 2, 6, 24, 16, RESIDUAL | IN_PLACE, 0, 0},
    {TYPE_FP16, 1, 20, 9, 33, BIAS | RELU, 0, 0},
    {TYPE_FP16, 2, 9, 33, 17, PRE | RESIDUAL | IN_PLACE | SCALE, 0, 0.5f},
};

enum { CASES = sizeof cases / sizeof cases[0], EMULATED = 9 };

static int64_t rows_of(const struct linear_case *it)
{
    return it->samples * it->rows_per_sample;
}

static double gelu(double x, bool approximate)
{
    const double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1 + (approximate ? tanh(u) : erf(x / sqrt(2))));
}

static double gelu_slope(double x, bool approximate)
{
    const double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = tanh(u);
    const double du = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    if (approximate)
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du;
    return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
}

/* y is the residual if it is overwritten. */
static struct linear_forward run_forward(struct device_test *test, const struct linear_case *it)
{
    const int64_t rows = rows_of(it), count = rows * it->out;
    const void *x = device_test_random(test, it->type, rows * it->in, 1, 1);
    const void *weight = device_test_random(test, it->type, it->out * it->in, 1, 2);
    void *residual = it->flags & RESIDUAL ? device_test_random(test, it->type, count, 1, 4) : NULL;
    const struct linear_forward args = DEVICE_ARGS(
        linear_forward, .type = it->type, .rows = rows, .in = it->in, .out = it->out,
        .rows_per_sample = it->rows_per_sample, .x = x, .weight = weight,
        .bias = it->flags & BIAS ? device_test_random(test, it->type, it->out, 1, 3) : NULL,
        .residual = residual,
        .scale = it->flags & SCALE ? device_test_random(test, it->type, it->out, 1, 9) : NULL,
        .pre = it->flags & PRE ? device_test_zeros(test, it->type, count) : NULL,
        .gelu_tanh = it->flags & TANH, .relu = it->flags & RELU,
        .y = it->flags & IN_PLACE ? residual : device_test_zeros(test, it->type, count),
        .dropout = device_test_drops(test, it->dropout, 7),
        .drop_path = device_test_drops(test, it->drop_path, 7));
    DEVICE_QUEUE(test, linear_forward, &args);
    device_test_wait(test);
    return args;
}

/* Fail if an element differs by more than its own rounding, that of its inputs (`rounded`), and
 * that of the product's sums. */
static void check_rounded(const char *what, const struct linear_case *it, const void *tensor,
                          const double *expected, const double *rounded, int64_t count,
                          int64_t products)
{
    const double precision = device_test_precision(it->type), tolerance = 1.1 * precision + 1e-6;
    const double scale = (it->type == TYPE_FP32 ? 1 : 2e-3) * sqrt((double)products);
    for (int64_t i = 0; i < count; i++) {
        const double value = device_test_value(it->type, tensor, i);
        if (!(fabs(value - expected[i]) <=
              tolerance * (fabs(expected[i]) + scale + fabs(rounded[i]))))
            fail_msg("%s: element %lld is %.9g, not %.9g", what, (long long)i, value, expected[i]);
    }
}

/* `apart`: the bias may be added to a product that was already rounded. */
static void check_forward(struct device_test *test, const struct linear_case *it,
                          const struct linear_forward *args, bool apart)
{
    const int64_t count = args->rows * it->out;
    double *pre = device_test_expected(test, count), *y = device_test_expected(test, count);
    /* The value that y is computed from, times the slope. */
    double *rounded = device_test_expected(test, count);
    double *product = device_test_expected(test, count);
    const double *x = device_test_given(test, args->x);
    const double *weight = device_test_given(test, args->weight);
    const double *residual = it->flags & RESIDUAL ? device_test_given(test, args->residual) : NULL;
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / it->out, column = i % it->out;
        const double factor =
            device_test_dropout_at(&args->dropout, it->rows_per_sample, row, column, it->out);
        const double bias = args->bias ? device_test_value(it->type, args->bias, column) : 0;
        double sum = bias;
        for (int64_t k = 0; k < it->in; k++)
            sum += x[row * it->in + k] * weight[column * it->in + k];
        pre[i] = sum;
        product[i] = args->bias && apart ? fabs(sum - bias) : 0;
        const double scale = args->scale ? device_test_value(it->type, args->scale, column) : 1;
        const bool activated = (it->flags & (PRE | SCALE)) == PRE;
        y[i] = (activated ? gelu(sum, it->flags & TANH) : sum * scale) * factor;
        rounded[i] = (fabs(sum) + product[i]) * factor *
                     (activated ? gelu_slope(sum, it->flags & TANH) : scale);
        if (it->flags & RELU)
            y[i] = fmax(0, y[i]);
        if (it->flags & RESIDUAL) {
            const double path = device_test_drop_path(&args->drop_path, row / it->rows_per_sample);
            y[i] = y[i] * path + residual[i];
            rounded[i] = fabs(rounded[i]) * path + (product[i] > 0 ? fabs(residual[i]) : 0);
        }
    }
    if (it->flags & PRE)
        check_rounded("pre", it, args->pre, pre, product, count, it->in);
    check_rounded("y", it, args->y, y, rounded, count, it->in);
}

/* On the emulated GPU also without an algorithm that adds the bias. */
TEST_KERNELS(forward_is_right)
{
    const int count = device_test_cases(CASES, EMULATED);
    for (int i = 0; i < count + (count < CASES); i++) {
        const struct linear_case *it = &cases[i % count];
        if (i == count)
            setenv("VITTRAIN_EMULATION_REFUSE", "find-bias", 1);
        DEVICE_TEST(test, 1);
        const struct linear_forward args = run_forward(&test, it);
        DEVICE_TEST_AGAIN(&test, other, run_forward(&other, it))
        check_forward(&test, it, &args, test.device->backend != &device_cpu);
    }
    unsetenv("VITTRAIN_EMULATION_REFUSE");
}

/* pre, if the case has it, belongs to the layer that produced x. */
static struct linear_backward run_backward(struct device_test *test, const struct linear_case *it)
{
    const int64_t rows = rows_of(it), weights = it->out * it->in;
    const bool overwrite = it->flags & OVERWRITE;
    void *x = device_test_random(test, it->type, rows * it->in, 1, 1);
    struct linear_backward args = DEVICE_ARGS(
        linear_backward, .type = it->type, .rows = rows, .in = it->in, .out = it->out,
        .rows_per_sample = it->rows_per_sample, .x = x,
        .weight = device_test_random(test, it->type, weights, 1, 2),
        .dy = device_test_random(test, it->type, rows * it->out, 1, 5),
        .pre = it->flags & PRE ? device_test_random(test, it->type, rows * it->in, 4, 6) : NULL,
        .gelu_tanh = it->flags & TANH, .x_relu = it->flags & RELU,
        .dx = device_test_zeros(test, it->type, rows * it->in),
        .dweight = device_test_gradient(test, overwrite, weights, 7),
        .dbias = it->flags & BIAS ? device_test_gradient(test, overwrite, it->out, 8) : NULL,
        .overwrite = overwrite, .dropout = device_test_drops(test, it->dropout, 7));
    if ((it->flags & PRE) && test->device->backend->sums_gradients)
        args.dx_sums = device_test_gradient(test, overwrite, it->in, 10);
    for (int64_t i = 0; i < rows * it->in && it->flags & RELU; i++)
        if (device_test_value(it->type, x, i) < 0)
            memset(element_to_write(it->type, x, i), 0, type_size(it->type));
    DEVICE_QUEUE(test, linear_backward, &args);
    device_test_wait(test);
    return args;
}

/* The sums are of dx before it is rounded. */
static void check_dx_sums(struct device_test *test, const struct linear_case *it,
                          const struct linear_backward *args)
{
    device_test_column_sums(test, "dx_sums", device_test_values(test, args->dx), args->rows, it->in,
                            args->dx_sums, 1.01 * device_test_precision(it->type) + 1e-6);
}

static void check_backward(struct device_test *test, const struct linear_case *it,
                           const struct linear_backward *args)
{
    const int64_t in = it->in, out = it->out, count = args->rows * in;
    double *dx = device_test_expected(test, count);
    double *dweight = device_test_expected(test, out * in);
    const double *dy = device_test_given(test, args->dy), *x = device_test_values(test, args->x);
    const double *weight = device_test_given(test, args->weight);
    const double *before = device_test_given(test, args->dweight);
    memcpy(dweight, before, (size_t)(out * in) * sizeof *dweight);
    for (int64_t row = 0; row < args->rows; row++)
        for (int64_t k = 0; k < out; k++)
            for (int64_t i = 0; i < in; i++) {
                dx[row * in + i] += dy[row * out + k] * weight[k * in + i];
                dweight[k * in + i] += dy[row * out + k] * x[row * in + i];
            }
    for (int64_t i = 0; i < count; i++) {
        if (it->flags & RELU && x[i] == 0)
            dx[i] = 0;
        if (it->flags & PRE)
            dx[i] *=
                gelu_slope(device_test_value(it->type, args->pre, i), it->flags & TANH) *
                device_test_dropout_at(&args->dropout, it->rows_per_sample, i / in, i % in, in);
    }
    check_rounded("dx", it, args->dx, dx, dx, count, out);
    check_dx_sums(test, it, args);
    device_test_near(test, "dweight", args->dweight, dweight, 1e-6, sqrt((double)args->rows));
    device_test_column_sums(test, "dbias", dy, args->rows, out, args->dbias, 1e-6);
}

TEST_KERNELS(backward_is_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++) {
        DEVICE_TEST(test, 1);
        const struct linear_backward args = run_backward(&test, &cases[i]);
        DEVICE_TEST_AGAIN(&test, other, run_backward(&other, &cases[i]))
        check_backward(&test, &cases[i], &args);
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

TEST(an_unknown_instruction_set_is_an_error)
{
    device_test_of_cpu();
    device_test_set_kernels("abacus");
    assert_null(device_cpu.open(0, 1, &error));
    assert_int_equal(error.kind, ERROR_USAGE);
    device_test_set_kernels(NULL);
}

static void check_on_two_threads(const struct linear_case *it, bool converts)
{
    DEVICE_TEST(test, 2);
    if (converts)
        ((struct cpu_device *)test.device)->limits.multiplies_bf16 = false;
    const struct linear_forward forward = run_forward(&test, it);
    check_forward(&test, it, &forward, false);
    const struct linear_backward backward = run_backward(&test, it);
    check_backward(&test, it, &backward);
}

/* Operands to be converted exceed the workspace: tasks of all rows, of very many inputs or outputs,
 * and a weight of many elements. bf16 is also tested on processors that multiply it. */
TEST(wide_layers_fit)
{
    device_test_of_cpu();
    const struct linear_case layers[] = {{TYPE_BF16, 1, 1151, 6000, 6, BIAS, 0, 0},
                                         {TYPE_BF16, 1, 1151, 6, 6000, BIAS | RESIDUAL, 0, 0},
                                         {TYPE_BF16, 1, 5, 1100, 4200, BIAS, 0, 0}};
    for (int i = 0; i < 3; i++)
        for (int converts = 0; converts < 2; converts++)
            check_on_two_threads(&layers[i], converts);
}

/* More rows than a GPU's workspace has room for if the sums cannot be stored in y. */
TEST(much_in_place)
{
    const struct linear_case it = {TYPE_FP32, 3,   240, 3, 6000, BIAS | RESIDUAL | IN_PLACE,
                                   0.1f,      0.5f};
    DEVICE_TEST(test, 2);
    const struct linear_forward args = run_forward(&test, &it);
    check_forward(&test, &it, &args, false);
}

/* Frozen weights, and the first layer of a model: each gradient is computed alone. On a GPU, two of
 * them together may be computed by another algorithm. */
static void check_parts(int64_t grain_rows)
{
    enum { ROWS = 20, IN = 12, OUT = 9 };
    const struct linear_case it = {TYPE_FP32, ROWS, 1, IN, OUT, BIAS | OVERWRITE, 0, 0};
    DEVICE_TEST(test, 2);
    const struct linear_backward all = run_backward(&test, &it);
    struct linear_backward apart = all;
    apart.grain_rows = grain_rows;
    apart.dx = device_test_zeros(&test, TYPE_FP32, ROWS * IN);
    apart.dweight = device_test_zeros(&test, TYPE_FP32, OUT * IN);
    apart.dbias = device_test_zeros(&test, TYPE_FP32, OUT);
    for (int part = 0; part < 3; part++) {
        struct linear_backward alone = apart;
        alone.dx = part == 0 ? alone.dx : NULL;
        alone.dweight = part == 1 ? alone.dweight : NULL;
        alone.dbias = part == 2 ? alone.dbias : NULL;
        DEVICE_QUEUE(&test, linear_backward, &alone);
    }
    device_test_wait(&test);
    device_test_near_in_norm("dx", TYPE_FP32, all.dx, apart.dx, ROWS * IN, 1e-6);
    device_test_near_in_norm("dweight", TYPE_FP32, all.dweight, apart.dweight, OUT * IN, 1e-6);
    device_test_near_in_norm("dbias", TYPE_FP32, all.dbias, apart.dbias, OUT, 1e-6);
}

TEST(parts_can_be_left_out)
{
    check_parts(0);
    check_parts(24);
}

/* TF32 on request: products that are exact in fp32 lose digits only with TF32. */
TEST(tf32_is_on_request)
{
    enum { ROWS = 64, WIDTH = 64 };
    DEVICE_TEST(test, 1);
    const struct device_backend *backend = test.device->backend;
    struct device_limits limits;
    backend->limits(test.device, &limits);
    /* GPUs that support bf16 also support TF32. */
    const bool rounds = backend != &device_cpu && limits.multiplies_bf16;
    float *x = device_test_zeros(&test, TYPE_FP32, ROWS * WIDTH);
    float *weight = device_test_zeros(&test, TYPE_FP32, WIDTH * WIDTH);
    float *y = device_test_zeros(&test, TYPE_FP32, ROWS * WIDTH);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        x[i] = 1 + 0x1p-12f;
        weight[i] = i % (WIDTH + 1) == 0;
    }
    for (int tf32 = 0; tf32 < 2; tf32++) {
        if (backend->settings_set != NULL)
            backend->settings_set(test.device,
                                  &(struct device_settings){.tf32 = tf32, .cache = ""});
        DEVICE_RUN(&test, linear_forward, .rows = ROWS, .in = WIDTH, .out = WIDTH,
                   .rows_per_sample = 1, .x = x, .weight = weight, .y = y);
        device_test_wait(&test);
        /* With tf32 the library's fastest algorithm may still use fp32. */
        const bool expects = tf32 && rounds && (y[0] == 1 || device_test_is_emulated(&test));
        for (int i = 0; i < ROWS * WIDTH; i++)
            assert_true(y[i] == (expects ? 1 : x[i]));
    }
}

/* Replaces oneDNN's function, to see which implementation it creates. */
dnnl_status_t dnnl_primitive_create(dnnl_primitive_t *primitive,
                                    const_dnnl_primitive_desc_t description)
{
    dnnl_status_t (*create)(dnnl_primitive_t *, const_dnnl_primitive_desc_t);
    const char *name = "";
    dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, (void *)&name);
#ifdef __x86_64__
    assert_null(strstr(name, "ref"));
#endif
    *(void **)&create = dlsym(RTLD_NEXT, "dnnl_primitive_create");
    return create(primitive, description);
}

static int library_major = DNNL_VERSION_MAJOR;

/* Replaces oneDNN's function. */
const dnnl_version_t *dnnl_version(void)
{
    static dnnl_version_t version = {.minor = 6, .patch = 3};
    version.major = library_major;
    return &version;
}

TEST(a_library_of_other_headers_is_refused)
{
    device_test_of_cpu();
    library_major++;
    assert_null(device_cpu.open(0, 1, &error));
    library_major--;
    assert_has(error.text, "was built with the headers of oneDNN");
}

enum { LARGE_ROWS = 8192, LARGE_WIDTH = 2048, LARGE_INNER = 256, LARGE_SAMPLES = 2000 };

/* Compare an element with a tolerance that allows a fast approximation of tanh. */
static void check_element(const char *what, const void *tensor, int64_t i, double expected)
{
    const double value = device_test_value(TYPE_BF16, tensor, i);
    if (!(fabs(value - expected) <= 0.01 * (1 + fabs(expected))))
        fail_msg("%s: element %lld is %.9g, not %.9g", what, (long long)i, value, expected);
}

static void check_large_forward(int flags)
{
    const struct linear_case it = {TYPE_BF16, LARGE_ROWS, 1, LARGE_INNER, LARGE_WIDTH, flags, 0, 0};
    DEVICE_TEST(test, 1);
    const struct linear_forward t = run_forward(&test, &it);
    for (int64_t sample = 0; sample < LARGE_SAMPLES; sample++) {
        const int64_t row = sample * 7919 % LARGE_ROWS, column = sample * 104729 % LARGE_WIDTH;
        double sum = device_test_value(TYPE_BF16, t.bias, column);
        for (int64_t k = 0; k < LARGE_INNER; k++)
            sum += device_test_value(TYPE_BF16, t.x, row * LARGE_INNER + k) *
                   device_test_value(TYPE_BF16, t.weight, column * LARGE_INNER + k);
        check_element("pre", t.pre, row * LARGE_WIDTH + column, sum);
        check_element("y", t.y, row * LARGE_WIDTH + column, gelu(sum, flags & TANH));
    }
}

static void check_large_backward(int flags)
{
    const struct linear_case it = {TYPE_BF16, LARGE_ROWS, 1, LARGE_WIDTH, LARGE_INNER, flags, 0, 0};
    DEVICE_TEST(test, 1);
    const struct linear_backward t = run_backward(&test, &it);
    for (int64_t sample = 0; sample < LARGE_SAMPLES; sample++) {
        const int64_t row = sample * 7919 % LARGE_ROWS, column = sample * 104729 % LARGE_WIDTH;
        double sum = 0;
        for (int64_t k = 0; k < LARGE_INNER; k++)
            sum += device_test_value(TYPE_BF16, t.dy, row * LARGE_INNER + k) *
                   device_test_value(TYPE_BF16, t.weight, k * LARGE_WIDTH + column);
        const int64_t i = row * LARGE_WIDTH + column;
        sum *= gelu_slope(device_test_value(TYPE_BF16, t.pre, i), flags & TANH);
        check_element("dx", t.dx, i, sum);
    }
    check_dx_sums(&test, &it, &t);
}

/* So large that a GPU's libraries may compute GELU in the product. */
TEST(large_gelu_is_right)
{
    struct device_test test;
    device_test_open(&test, 1);
    const bool is_gpu = test.device->backend != &device_cpu && !device_test_is_emulated(&test);
    device_test_close(&test);
    if (!is_gpu)
        SKIP_BECAUSE("needs a GPU");
    for (int tanh = 0; tanh <= TANH; tanh += TANH) {
        check_large_forward(BIAS | PRE | tanh);
        check_large_backward(BIAS | PRE | tanh);
    }
}

TEST_MAIN()
