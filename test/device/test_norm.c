// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Layer normalisation against double precision: output, statistics and all gradients, for all
 * types, instruction sets and options; bits are identical for any number of threads. */
#include "device_test.h"
#include "test.h"

/* The tensor that dx overwrites. */
enum place { PLACE_OWN, PLACE_ADD, PLACE_DY };

struct norm_case {
    enum data_type type;
    int64_t rows, width;
    bool add, parameters;
    enum place place;
    double offset; /* mean of x: large enough to expose cancellation in a sum of squares */
    int64_t shift; /* elements by which x is misaligned for vectors */
};

/* The first EMULATED ones are for the emulated GPU: rows that fit registers and vectors, and
 * others, in one and in several chunks. Cases with an odd number of rows overwrite gradients. */
static const struct norm_case cases[] = {
    {TYPE_FP32, 5, 192, true, true, PLACE_OWN, 0, 0},
    {TYPE_FP32, 17, 33, false, false, PLACE_DY, 0, 0},
    {TYPE_FP32, 100, 33, true, true, PLACE_ADD, 0, 0},
    {TYPE_FP32, 3, 1000, true, true, PLACE_DY, 3, 0},
    {TYPE_FP32, 9, 768, true, false, PLACE_OWN, 100, 0},
    {TYPE_FP32, 3, 320, true, true, PLACE_OWN, 0, 1},
    {TYPE_BF16, 19, 13, true, false, PLACE_DY, 0, 0},
    {TYPE_BF16, 90, 192, false, true, PLACE_OWN, 0, 0},
    {TYPE_BF16, 4, 768, true, true, PLACE_ADD, 1, 0},
    {TYPE_BF16, 3, 2056, true, true, PLACE_ADD, 0, 0},
    {TYPE_FP16, 33, 21, true, true, PLACE_ADD, 0, 0},
    {TYPE_FP16, 3, 1416, true, true, PLACE_DY, 0, 0},
    {TYPE_FP16, 2, 520, false, true, PLACE_OWN, 0, 3},
    {TYPE_FP32, 0, 2, false, true, PLACE_OWN, 0, 0},
    {TYPE_FP32, 1, 1, false, true, PLACE_OWN, 0, 0},
    {TYPE_FP32, 3, 7, true, true, PLACE_ADD, 0, 0},
    {TYPE_FP32, 2100, 40, true, true, PLACE_ADD, 0, 0},
    {TYPE_FP32, 70, 1000, true, true, PLACE_DY, 3, 0},
    {TYPE_FP32, 3, 70000, false, true, PLACE_OWN, 0, 0},
    {TYPE_BF16, 2101, 36, false, true, PLACE_OWN, 0, 0},
    {TYPE_BF16, 300, 100, true, true, PLACE_OWN, 2, 0},
    {TYPE_FP16, 400, 64, false, true, PLACE_OWN, 1, 0},
    {TYPE_BF16, 4200, 8, true, true, PLACE_DY, 0, 0},
};

enum { CASES = sizeof cases / sizeof cases[0], EMULATED = 14 };

static const float epsilon = 1e-5f;

struct norm_tensors {
    void *x, *gamma, *beta, *dy, *dy_kept, *add, *add_kept, *y, *dx;
    float *mean, *rstd, *dgamma, *dbeta, *add_sums, *dgamma_before, *dbeta_before, *add_sums_before;
};

/* x is random numbers around the offset. */
static void *make_x(struct device_test *test, const struct norm_case *it)
{
    int64_t count = it->rows * it->width;
    void *x = device_test_shifted(test, it->type, count + it->shift, 1.5, it->offset, 1);
    return element_to_write(it->type, x, it->shift);
}

static struct norm_tensors run(struct device_test *test, const struct norm_case *it)
{
    const int64_t count = it->rows * it->width, width = it->width;
    const bool overwrite = it->parameters && it->rows % 2 == 1;
    struct norm_tensors t = {
        .x = make_x(test, it),
        .gamma = device_test_random(test, it->type, width, 1, 2),
        .beta = device_test_random(test, it->type, width, 1, 3),
        .dy = device_test_random(test, it->type, count, 1, 4),
        .dy_kept = device_test_random(test, it->type, count, 1, 4),
        .add = device_test_random(test, it->type, count, 1, 5),
        .add_kept = device_test_random(test, it->type, count, 1, 5),
        .y = device_test_zeros(test, it->type, count),
        .mean = device_test_zeros(test, TYPE_FP32, it->rows),
        .rstd = device_test_zeros(test, TYPE_FP32, it->rows),
        .dgamma = device_test_gradient(test, overwrite, width, 6),
        .dbeta = device_test_gradient(test, overwrite, width, 7),
        .dgamma_before = device_test_before(test, overwrite, width, 6),
        .dbeta_before = device_test_before(test, overwrite, width, 7),
        .add_sums_before = device_test_before(test, overwrite, width, 8),
    };
    if (it->add && it->parameters && test->device->backend->sums_gradients)
        t.add_sums = device_test_gradient(test, overwrite, width, 8);
    t.dx = it->place == PLACE_ADD  ? t.add
           : it->place == PLACE_DY ? t.dy
                                   : device_test_zeros(test, it->type, count);
    DEVICE_RUN(test, norm_forward, .type = it->type, .rows = it->rows, .width = width,
               .epsilon = epsilon, .x = t.x, .gamma = t.gamma, .beta = t.beta, .y = t.y,
               .mean = t.mean, .rstd = t.rstd);
    DEVICE_RUN(test, norm_backward, .type = it->type, .rows = it->rows, .width = width, .x = t.x,
               .gamma = t.gamma, .dy = t.dy, .mean = t.mean, .rstd = t.rstd,
               .add = it->add ? t.add : NULL, .dx = t.dx,
               .dgamma = it->parameters ? t.dgamma : NULL, .dbeta = it->parameters ? t.dbeta : NULL,
               .add_sums = t.add_sums, .overwrite = overwrite);
    device_test_wait(test);
    return t;
}

/* One row in double precision. */
struct norm_truth {
    double *y, *dx, *dgamma, *dbeta, *dgamma_sizes, *dbeta_sizes;
    double mean, rstd;
};

static void truth_row(const struct norm_case *it, const struct norm_tensors *t, int64_t row,
                      struct norm_truth *truth)
{
    int64_t width = it->width, at = row * width;
    double sum = 0, squares = 0, sum_g = 0, sum_gx = 0;

    for (int64_t i = 0; i < width; i++)
        sum += device_test_value(it->type, t->x, at + i);
    truth->mean = sum / (double)width;
    for (int64_t i = 0; i < width; i++)
        squares += pow(device_test_value(it->type, t->x, at + i) - truth->mean, 2);
    truth->rstd = 1 / sqrt(squares / (double)width + (double)epsilon);
    for (int64_t i = 0; i < width; i++) {
        double normal = (device_test_value(it->type, t->x, at + i) - truth->mean) * truth->rstd;
        double gamma = device_test_value(it->type, t->gamma, i);
        double dy = device_test_value(it->type, t->dy_kept, at + i);
        truth->y[i] = normal * gamma + device_test_value(it->type, t->beta, i);
        truth->dgamma[i] += dy * normal;
        truth->dbeta[i] += dy;
        truth->dgamma_sizes[i] += fabs(dy * normal);
        truth->dbeta_sizes[i] += fabs(dy);
        sum_g += dy * gamma;
        sum_gx += dy * gamma * normal;
    }
    for (int64_t i = 0; i < width; i++) {
        double normal = (device_test_value(it->type, t->x, at + i) - truth->mean) * truth->rstd;
        double g = device_test_value(it->type, t->dy_kept, at + i) *
                   device_test_value(it->type, t->gamma, i);
        truth->dx[i] = truth->rstd * (g - sum_g / (double)width - normal * sum_gx / (double)width);
        if (it->add)
            truth->dx[i] += device_test_value(it->type, t->add_kept, at + i);
    }
}

static void check_parameters(const struct norm_case *it, const struct norm_tensors *t,
                             const struct norm_truth *truth)
{
    for (int64_t i = 0; i < it->width; i++) {
        double dgamma = (double)t->dgamma_before[i], dbeta = (double)t->dbeta_before[i];
        if (it->parameters) {
            dgamma += truth->dgamma[i];
            dbeta += truth->dbeta[i];
        }
        double room = it->parameters ? 3e-6 * (1 + it->offset) : 0;
        assert_true(fabs((double)t->dgamma[i] - dgamma) <= room * (1 + truth->dgamma_sizes[i]));
        assert_true(fabs((double)t->dbeta[i] - dbeta) <= 3e-6 * (1 + truth->dbeta_sizes[i]));
    }
}

static void check(struct device_test *test, const struct norm_case *it,
                  const struct norm_tensors *t)
{
    int64_t width = it->width;
    struct norm_truth truth = {device_test_expected(test, width),
                               device_test_expected(test, width),
                               device_test_expected(test, width),
                               device_test_expected(test, width),
                               device_test_expected(test, width),
                               device_test_expected(test, width),
                               0,
                               0};
    /* Rounding of the result to the type, and fp32 rounding of intermediate values. */
    double rounding = it->type == TYPE_FP32 ? 0 : 1.001 * device_test_precision(it->type);
    double fp32 = 2e-6 * (1 + it->offset);
    for (int64_t row = 0; row < it->rows; row++) {
        truth_row(it, t, row, &truth);
        assert_true(fabs((double)t->mean[row] - truth.mean) <= 1e-6 * (1 + fabs(truth.mean)));
        assert_true(fabs((double)t->rstd[row] - truth.rstd) <= fp32 * truth.rstd);
        device_test_near("y", it->type, element(it->type, t->y, row * width), truth.y, width,
                         rounding + fp32, it->type == TYPE_FP32 ? 1 : fp32 / rounding);
        device_test_near("dx", it->type, element(it->type, t->dx, row * width), truth.dx, width,
                         rounding + fp32 * (1 + truth.rstd),
                         it->type == TYPE_FP32 ? 1 : fp32 * (1 + truth.rstd) / rounding);
    }
    check_parameters(it, t, &truth);
    device_test_column_sums("add_sums", it->type, t->add_kept, it->rows, width, t->add_sums_before,
                            t->add_sums, 1e-6);
}

TEST_KERNELS(norm_is_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++) {
        DEVICE_TEST(test, 1);
        const struct norm_tensors tensors = run(&test, &cases[i]);
        DEVICE_TEST_AGAIN(&test, other, run(&other, &cases[i]))
        check(&test, &cases[i], &tensors);
    }
}

/* Evaluation stores no statistics and computes the same y. */
TEST(statistics_can_be_left_out)
{
    const struct norm_case *it = &cases[0];
    DEVICE_TEST(test, 2);
    const struct norm_tensors t = run(&test, it);
    void *y = device_test_zeros(&test, it->type, it->rows * it->width);
    DEVICE_RUN(&test, norm_forward, .type = it->type, .rows = it->rows, .width = it->width,
               .epsilon = epsilon, .x = t.x, .gamma = t.gamma, .beta = t.beta, .y = y);
    device_test_wait(&test);
    device_test_same("y", it->type, t.y, y, it->rows * it->width);
}

/* Rows in groups, as the queries of heads are in [tokens, 3, heads, head_dim]: the same bits as for
 * contiguous rows, and nothing else changes. */
static void check_groups(const struct norm_case *it, int64_t group, int64_t stride)
{
    const int64_t width = it->width, count = it->rows * width, span = it->rows / group * stride;
    const size_t size = type_size(it->type);
    DEVICE_TEST(test, 2);
    const struct norm_tensors t = run(&test, it);
    char *x = device_test_random(&test, it->type, span, 1, 8);
    char *before = device_test_random(&test, it->type, span, 1, 8);
    char *dx = device_test_random(&test, it->type, span, 1, 8);
    void *kept = device_test_zeros(&test, it->type, count);
    float *mean = device_test_zeros(&test, TYPE_FP32, it->rows);
    float *rstd = device_test_zeros(&test, TYPE_FP32, it->rows);
    float *dgamma = device_test_random(&test, TYPE_FP32, width, 1, 6);
    float *dbeta = device_test_random(&test, TYPE_FP32, width, 1, 7);
    for (int64_t row = 0; row < it->rows; row++) {
        const size_t at = (size_t)(row / group * stride + row % group * width) * size;
        memcpy(x + at, element(it->type, t.x, row * width), (size_t)width * size);
        memcpy(dx + at, element(it->type, t.dy_kept, row * width), (size_t)width * size);
    }
    DEVICE_RUN(&test, norm_forward, .type = it->type, .rows = it->rows, .width = width,
               .group = group, .stride = stride, .epsilon = epsilon, .x = x, .gamma = t.gamma,
               .beta = t.beta, .y = x, .kept = kept, .mean = mean, .rstd = rstd);
    DEVICE_RUN(&test, norm_backward, .type = it->type, .rows = it->rows, .width = width,
               .group = group, .stride = stride, .x = kept, .gamma = t.gamma, .dy = dx,
               .mean = mean, .rstd = rstd, .dx = dx, .dgamma = dgamma, .dbeta = dbeta);
    device_test_wait(&test);
    device_test_same("kept", it->type, kept, t.x, count);
    device_test_same("dgamma", TYPE_FP32, dgamma, t.dgamma, width);
    device_test_same("dbeta", TYPE_FP32, dbeta, t.dbeta, width);
    for (int64_t start = 0; start < span; start += stride) {
        const int64_t row = start / stride * group, rest = stride - group * width;
        device_test_same("y", it->type, element(it->type, x, start),
                         element(it->type, t.y, row * width), group * width);
        device_test_same("dx", it->type, element(it->type, dx, start),
                         element(it->type, t.dx, row * width), group * width);
        for (int side = 0; side < 2; side++)
            device_test_same("rest", it->type,
                             element(it->type, side ? x : dx, start + group * width),
                             element(it->type, before, start + group * width), rest);
    }
}

TEST(groups_of_rows)
{
    for (enum data_type type = TYPE_FP32; type <= TYPE_FP16; type++) {
        const struct norm_case heads = {type, 60, 64, false, true, PLACE_OWN, 0, 0};
        const struct norm_case odd = {type, 12, 13, false, true, PLACE_OWN, 0, 0};
        check_groups(&heads, 3, 3 * 3 * 64);
        check_groups(&odd, 3, 50);
        check_groups(&odd, 1, 13);
    }
}

static void too_wide(struct device_test *test)
{
    float sums[1] = {0};
    DEVICE_RUN(test, norm_backward, .rows = 1, .width = 1 << 28, .dgamma = sums, .dbeta = sums);
}

TEST(a_norm_beyond_the_workspace_ends_the_program)
{
    device_test_ends(too_wide, "exceeds the workspace");
}

TEST_MAIN()
