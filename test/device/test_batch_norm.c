// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Batch normalisation against double precision: sums, statistics, output and all gradients, for all
 * types, instruction sets and options; bits are identical for any number of threads. */
#include "device_test.h"

struct batch_norm_case {
    enum data_type type;
    int64_t rows, channels;
    bool residual, relu, add, running;
    double offset;  /* mean of x: large enough to expose cancellation in a sum of squares */
    int64_t others; /* rows of other ranks, simulated by repeating this rank's */
};

/* The first EMULATED ones are for the emulated GPU. Cases with an even number of rows overwrite
 * gradients. */
static const struct batch_norm_case cases[] = {
    {TYPE_FP32, 6, 4, false, false, false, false, 0, 0},
    {TYPE_FP32, 9, 24, true, true, true, true, 2, 0},
    {TYPE_FP32, 40, 520, true, true, true, false, 0, 40},
    {TYPE_FP32, 300, 16, true, true, false, false, 3, 0},
    {TYPE_BF16, 33, 7, true, false, true, false, 0, 33},
    {TYPE_BF16, 50, 128, false, true, false, true, 0, 0},
    {TYPE_FP16, 65, 9, false, false, true, false, 2, 0},
    {TYPE_FP16, 20, 40, true, true, false, true, 0, 0},
    {TYPE_FP32, 1, 1, false, false, false, false, 0, 0},
    {TYPE_FP32, 2, 3, true, true, true, false, 0, 0},
    {TYPE_FP32, 1031, 33, false, true, true, false, 1000, 0},
    {TYPE_FP32, 9, 24, false, false, false, true, 0, 0},
    {TYPE_BF16, 300, 64, true, true, true, false, 0, 0},
    {TYPE_BF16, 2050, 20, false, true, false, false, 4, 0},
    {TYPE_FP16, 300, 48, true, true, true, false, 0, 0},
};

enum { CASES = sizeof cases / sizeof cases[0], EMULATED = 8 };

static const float epsilon = 1e-5f, running_weight = 0.1f;

struct batch_norm {
    struct batch_norm_sums sums;
    struct batch_norm_forward forward;
    struct batch_norm_backward_sums backward_sums;
    struct batch_norm_backward backward;
};

static double *numbers(struct device_test *test, int64_t count)
{
    return device_test_zeros(test, TYPE_FP32, 2 * count);
}

/* computes: the ReLU's mask is recomputed from x instead of read from y. */
static struct batch_norm make(struct device_test *test, const struct batch_norm_case *it,
                              bool computes)
{
    const enum data_type type = it->type;
    const int64_t rows = it->rows, channels = it->channels, count = rows * channels;
    const bool overwrite = rows % 2 == 0;
    const void *x = device_test_shifted(test, type, count, 1.5, it->offset, 1);
    const void *gamma = device_test_shifted(test, type, channels, 0.5, 1, 2);
    const void *beta = device_test_random(test, type, channels, 1, 3);
    const void *mean = device_test_shifted(test, type, channels, 0.5, it->offset, 4);
    const void *variance = device_test_shifted(test, type, channels, 0.5, 1, 5);
    const void *residual = it->residual ? device_test_random(test, type, count, 1, 6) : NULL;
    const void *add = it->add ? device_test_random(test, type, count, 1, 8) : NULL;
    void *y = device_test_zeros(test, type, count);
    void *dy = device_test_random(test, type, count, 1, 7);
    double *sums = numbers(test, 2 * channels + 1), *dsums = numbers(test, 2 * channels + 1);
    float *statistics = device_test_zeros(test, TYPE_FP32, 3 * channels), *gradient[4] = {NULL};

    for (int i = 0; i < (it->running ? 2 : 4); i++)
        gradient[i] = device_test_gradient(test, overwrite, channels, 9);
    return (struct batch_norm){
        DEVICE_ARGS(batch_norm_sums, type, rows, channels, x, sums),
        DEVICE_ARGS(batch_norm_forward, type, rows, channels, epsilon, x, gamma, beta,
                    it->running ? NULL : sums, mean, variance, residual, it->relu, y, statistics),
        DEVICE_ARGS(batch_norm_backward_sums, type, rows, channels, x,
                    it->relu && !computes ? y : NULL, computes ? gamma : NULL,
                    computes ? beta : NULL, add, statistics, it->running ? NULL : sums,
                    running_weight, dy, dsums, gradient[0], gradient[1], gradient[2], gradient[3],
                    overwrite),
        DEVICE_ARGS(batch_norm_backward, type, rows, channels, x, gamma, statistics,
                    it->running ? NULL : dsums, computes ? beta : NULL, dy,
                    device_test_zeros(test, type, count))};
}

/* Simulates the all-reduce: the other ranks' rows are this rank's repeated. */
static void add_ranks(struct device_test *test, const struct batch_norm_case *it, double *sums)
{
    device_test_wait(test);
    for (int64_t i = 0; i < 2 * it->channels + 1; i++)
        sums[i] *= (double)(it->rows + it->others) / (double)it->rows;
}

static void run_on(struct device_test *test, const struct batch_norm_case *it,
                   const struct batch_norm *norm)
{
    DEVICE_QUEUE(test, batch_norm_sums, &norm->sums);
    add_ranks(test, it, norm->sums.sums);
    DEVICE_QUEUE(test, batch_norm_forward, &norm->forward);
    DEVICE_QUEUE(test, batch_norm_backward_sums, &norm->backward_sums);
    add_ranks(test, it, norm->backward_sums.sums);
    DEVICE_QUEUE(test, batch_norm_backward, &norm->backward);
    device_test_wait(test);
}

static struct batch_norm run(struct device_test *test, const struct batch_norm_case *it)
{
    const struct batch_norm norm = make(test, it, false);

    run_on(test, it, &norm);
    return norm;
}

/* One channel in double precision, and values to compare with it. */
struct channel {
    const struct batch_norm_case *it;
    const struct batch_norm *norm;
    const double *dy, *before; /* what gradients were given */
    int64_t number;
    double mean, variance, rstd, gamma;
    double sum, product, sizes; /* sums of g, of g * xhat, of the magnitudes of their terms */
};

static double value(const struct channel *c, const void *tensor, int64_t row)
{
    return device_test_value(c->it->type, tensor, row * c->it->channels + c->number);
}

static double xhat(const struct channel *c, int64_t row)
{
    return (value(c, c->norm->forward.x, row) - c->mean) * c->rstd;
}

/* dy + add where y is positive. */
static double gradient_at(const struct channel *c, int64_t row)
{
    const double add = c->it->add ? value(c, c->norm->backward_sums.add, row) : 0;

    return c->it->relu && !(value(c, c->norm->forward.y, row) > 0)
               ? 0
               : c->dy[row * c->it->channels + c->number] + add;
}

static void near(const char *what, const struct channel *c, double is, double should, double room)
{
    if (!(fabs(is - should) <= room))
        fail_msg("%s of %lld x %lld %s: channel %lld is %.9g, not %.9g", what,
                 (long long)c->it->rows, (long long)c->it->channels, type_name(c->it->type),
                 (long long)c->number, is, should);
}

/* Rounding of fp32, larger if the mean is large compared to the deviation. */
static double fp32(const struct channel *c)
{
    return 3e-6 * (1 + fabs(c->mean) * c->rstd / 4);
}

static double rounding(const struct channel *c)
{
    return c->it->type == TYPE_FP32 ? 0 : 1.01 * device_test_precision(c->it->type);
}

static void statistics_of(struct channel *c)
{
    const double n = (double)c->it->rows;

    c->gamma = value(c, c->norm->forward.gamma, 0);
    if (c->it->running) {
        c->mean = value(c, c->norm->forward.running_mean, 0);
        c->variance = value(c, c->norm->forward.running_variance, 0);
    } else {
        for (int64_t row = 0; row < c->it->rows; row++)
            c->mean += value(c, c->norm->forward.x, row) / n;
        for (int64_t row = 0; row < c->it->rows; row++)
            c->variance += pow(value(c, c->norm->forward.x, row) - c->mean, 2) / n;
    }
    c->rstd = 1 / sqrt(c->variance + (double)epsilon);
    for (int64_t row = 0; row < c->it->rows; row++) {
        const double g = gradient_at(c, row);
        c->sum += g;
        c->product += g * xhat(c, row);
        c->sizes += fabs(g) * (1 + fabs(xhat(c, row)));
    }
}

static void check_statistics(const struct channel *c)
{
    const struct batch_norm_backward_sums *backward = &c->norm->backward_sums;
    const float *statistics = backward->statistics + c->number;
    const int64_t channels = c->it->channels;
    const double all = (double)(c->it->rows + c->it->others), share = (double)c->it->rows / all;
    const double unbiased = c->variance * all / (all > 1 ? all - 1 : 1);
    const double weight = share * (double)running_weight, before = c->before[c->number];

    near("mean", c, (double)statistics[0], c->mean, 1e-6 * (1 + fabs(c->mean)));
    near("rstd", c, (double)statistics[channels], c->rstd, fp32(c) * c->rstd);
    if (c->it->running)
        return;
    near("variance", c, (double)statistics[2 * channels], unbiased, fp32(c) * (1e-6 + unbiased));
    near("drunning_mean", c, (double)backward->drunning_mean[c->number], before + weight * c->mean,
         1e-6 * (1 + fabs(c->mean)));
    near("drunning_variance", c, (double)backward->drunning_variance[c->number],
         before + weight * unbiased, fp32(c) * (1 + unbiased));
    assert_true(c->norm->sums.sums[2 * channels] == all && backward->sums[2 * channels] == all);
}

static void check_channel(const struct channel *c)
{
    const struct batch_norm_backward_sums *backward = &c->norm->backward_sums;
    const double n = (double)c->it->rows, factor = c->gamma * c->rstd;
    const double before = c->before[c->number], least = 2e-6 + fp32(c);

    for (int64_t row = 0; row < c->it->rows; row++) {
        double y = xhat(c, row) * c->gamma + value(c, c->norm->forward.beta, 0),
               dx = gradient_at(c, row);
        const double g = dx, size = 2 + fabs(xhat(c, row)) + c->sizes / n;
        y += c->it->residual ? value(c, c->norm->forward.residual, row) : 0;
        y = c->it->relu && y < 0 ? 0 : y;
        dx -= c->it->running ? 0 : (c->sum + xhat(c, row) * c->product) / n;
        near("y", c, value(c, c->norm->forward.y, row), y, rounding(c) * fabs(y) + least * size);
        near("dy", c, value(c, backward->dy, row), g, rounding(c) * fabs(g) + 1e-6);
        /* dy was rounded, then dx. */
        near("dx", c, value(c, c->norm->backward.dx, row), factor * dx,
             (rounding(c) * (fabs(g) + fabs(dx)) + least * size * (1 + fabs(c->product) / n)) *
                 fabs(factor));
    }
    near("dbeta", c, (double)backward->dbeta[c->number], before + c->sum, least * (1 + c->sizes));
    near("dgamma", c, (double)backward->dgamma[c->number], before + c->product,
         least * (1 + c->sizes));
}

TEST_KERNELS(batch_norm_is_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++) {
        DEVICE_TEST(test, 1);
        const struct batch_norm norm = run(&test, &cases[i]);
        DEVICE_TEST_AGAIN(&test, other, run(&other, &cases[i]))
        const double *dy = device_test_given(&test, norm.backward_sums.dy);
        const double *before = device_test_given(&test, norm.backward_sums.dgamma);
        for (int64_t number = 0; number < cases[i].channels; number++) {
            struct channel channel = {&cases[i], &norm, dy, before, .number = number};
            statistics_of(&channel);
            check_statistics(&channel);
            check_channel(&channel);
        }
    }
}

/* Of each type. */
static const struct batch_norm_case masked_cases[] = {
    {TYPE_FP32, 300, 24, false, true, false, false, 0, 0},
    {TYPE_FP32, 70, 33, false, true, true, false, 1, 0},
    {TYPE_FP32, 40, 24, false, true, false, true, 0, 0},
};

/* Parameters for which y is close to the smallest number of the type: some positive values are
 * stored as 0. */
static void make_small(struct device_test *test, const struct batch_norm_case *it,
                       const struct batch_norm *norm)
{
    static const float smallest[] = {0x1p-147f, 0x1p-133f, 0x1p-24f};
    const float small = smallest[it->type];
    float *gamma = device_test_zeros(test, TYPE_FP32, it->channels);
    float *beta = device_test_zeros(test, TYPE_FP32, it->channels);

    for (int64_t i = 0; i < it->channels; i++) {
        gamma[i] = i % 5 == 0 ? 1 : i % 2 == 0 ? small : -2 * small;
        beta[i] = i % 3 == 0 ? small : i % 3 == 1 ? 0 : -small;
    }
    const struct device_backend *backend = test->device->backend;
    backend->convert(test->stream, it->type, (void *)(uintptr_t)norm->forward.gamma, TYPE_FP32,
                     gamma, it->channels);
    backend->convert(test->stream, it->type, (void *)(uintptr_t)norm->forward.beta, TYPE_FP32, beta,
                     it->channels);
}

/* The mask recomputed from x equals that of the stored y bit for bit, even for y near 0. */
TEST_KERNELS(a_computed_mask_is_the_stored_one)
{
    for (int i = 0; i < 9; i++) {
        struct batch_norm_case masked = masked_cases[i / 3];
        const struct batch_norm_case *it = &masked;
        masked.type = (enum data_type)(i % 3);
        DEVICE_TEST(read, 2);
        DEVICE_TEST(computed, 2);
        const struct batch_norm a = make(&read, it, false), b = make(&computed, it, true);
        make_small(&read, it, &a);
        make_small(&computed, it, &b);
        run_on(&read, it, &a);
        run_on(&computed, it, &b);
        device_test_same("dgamma", TYPE_FP32, a.backward_sums.dgamma, b.backward_sums.dgamma,
                         it->channels);
        device_test_same("dbeta", TYPE_FP32, a.backward_sums.dbeta, b.backward_sums.dbeta,
                         it->channels);
        device_test_same("dx", it->type, a.backward.dx, b.backward.dx, it->rows * it->channels);
    }
}

/* A rank without rows contributes zeros. */
TEST(no_rows_sum_to_zero)
{
    DEVICE_TEST(test, 2);
    double *sums = numbers(&test, 7);
    float *gradient = device_test_random(&test, TYPE_FP32, 3, 1, 1);
    const float *before = device_test_random(&test, TYPE_FP32, 3, 1, 1);
    float *statistics = device_test_zeros(&test, TYPE_FP32, 9);
    sums[0] = sums[5] = sums[6] = 1;
    DEVICE_RUN(&test, batch_norm_sums, .channels = 3, .sums = sums);
    device_test_wait(&test);
    for (int i = 0; i < 7; i++)
        assert_true(sums[i] == 0);
    sums[6] = 1;
    DEVICE_RUN(&test, batch_norm_backward_sums, .channels = 3, .statistics = statistics,
               .forward_sums = sums, .sums = sums, .dgamma = gradient, .dbeta = gradient);
    DEVICE_RUN(&test, batch_norm_backward, .channels = 3);
    device_test_wait(&test);
    assert_true(sums[6] == 0);
    device_test_same("gradient", TYPE_FP32, gradient, before, 3);
}

/* Partial sums per channel in the workspace. */
TEST_ENDS(too_many_channels_end, "exceed the workspace")
{
    double sums[1] = {0};
    DEVICE_RUN(test, batch_norm_sums, .rows = 1, .channels = 1 << 28, .sums = sums);
}

TEST_MAIN()
