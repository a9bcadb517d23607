// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Layer normalisation against double precision: output, statistics and all gradients, for all
 * types, instruction sets and options; bits are identical for any number of threads. */
#include "device_test.h"

/* The tensor that dx overwrites. */
enum place { PLACE_OWN, PLACE_ADD, PLACE_DY };

struct norm_case {
    enum data_type type;
    int64_t rows, width;
    bool add, parameters;
    enum place place;
    double offset;         /* mean of x: large enough to expose cancellation in a sum of squares */
    int64_t shift;         /* elements by which x is misaligned for vectors */
    int64_t group, stride; /* as the queries of heads in [tokens, 3, heads, head_dim]; or 0 */
};

/* The first EMULATED ones are for the emulated GPU: rows that fit registers and vectors, and
 * others, in one and in several chunks. Cases with an odd number of rows overwrite gradients. */
static const struct norm_case cases[] = {
    {TYPE_FP32, 60, 64, false, true, PLACE_DY, 0, 0, 3, 576},
    {TYPE_FP32, 12, 13, false, true, PLACE_DY, 0, 0, 1, 13},
    {TYPE_BF16, 15, 64, false, true, PLACE_DY, 0, 0, 3, 576},
    {TYPE_BF16, 12, 13, false, true, PLACE_DY, 0, 0, 3, 50},
    {TYPE_FP16, 60, 64, false, true, PLACE_DY, 0, 0, 3, 576},
    {TYPE_FP16, 12, 13, false, true, PLACE_DY, 0, 0, 3, 50},
    {TYPE_FP32, 5, 192, true, true, PLACE_OWN, 0, 0, 0, 0},
    {TYPE_FP32, 17, 33, false, false, PLACE_DY, 0, 0, 0, 0},
    {TYPE_FP32, 100, 33, true, true, PLACE_ADD, 0, 0, 0, 0},
    {TYPE_FP32, 3, 1000, true, true, PLACE_DY, 3, 0, 0, 0},
    {TYPE_FP32, 9, 768, true, false, PLACE_OWN, 100, 0, 0, 0},
    {TYPE_FP32, 3, 320, true, true, PLACE_OWN, 0, 1, 0, 0},
    {TYPE_BF16, 19, 13, true, false, PLACE_DY, 0, 0, 0, 0},
    {TYPE_BF16, 90, 192, false, true, PLACE_OWN, 0, 0, 0, 0},
    {TYPE_BF16, 4, 768, true, true, PLACE_ADD, 1, 0, 0, 0},
    {TYPE_BF16, 3, 2056, true, true, PLACE_ADD, 0, 0, 0, 0},
    {TYPE_FP16, 33, 21, true, true, PLACE_ADD, 0, 0, 0, 0},
    {TYPE_FP16, 3, 1416, true, true, PLACE_DY, 0, 0, 0, 0},
    {TYPE_FP16, 2, 520, false, true, PLACE_OWN, 0, 3, 0, 0},
    {TYPE_FP32, 0, 2, false, true, PLACE_OWN, 0, 0, 0, 0},
    {TYPE_FP32, 1, 1, false, true, PLACE_OWN, 0, 0, 0, 0},
    {TYPE_FP32, 3, 7, true, true, PLACE_ADD, 0, 0, 0, 0},
    {TYPE_FP32, 2100, 40, true, true, PLACE_ADD, 0, 0, 0, 0},
    {TYPE_FP32, 70, 1000, true, true, PLACE_DY, 3, 0, 0, 0},
    {TYPE_FP32, 3, 70000, false, true, PLACE_OWN, 0, 0, 0, 0},
    {TYPE_BF16, 2101, 36, false, true, PLACE_OWN, 0, 0, 0, 0},
    {TYPE_BF16, 300, 100, true, true, PLACE_OWN, 2, 0, 0, 0},
    {TYPE_FP16, 400, 64, false, true, PLACE_OWN, 1, 0, 0, 0},
    {TYPE_BF16, 4200, 8, true, true, PLACE_DY, 0, 0, 0, 0},
};

enum { CASES = sizeof cases / sizeof cases[0], EMULATED = 20 };

static const float epsilon = 1e-5f;

struct norm {
    struct norm_forward forward;
    struct norm_backward backward;
};

/* Return the first element of a row. */
static int64_t row_at(const struct norm_case *it, int64_t row)
{
    return it->group == 0 ? row * it->width
                          : row / it->group * it->stride + row % it->group * it->width;
}

/* Groups are overwritten: y is x, of which a copy is kept for the gradients. */
static struct norm run(struct device_test *test, const struct norm_case *it)
{
    const int64_t count = it->rows * it->width, width = it->width, span = row_at(it, it->rows);
    const bool overwrite = it->parameters && it->rows % 2 == 1;
    const bool sums = it->add && it->parameters && test->device->backend->sums_gradients;
    void *base = device_test_shifted(test, it->type, span + it->shift, 1.5, it->offset, 1);
    void *x = element_to_write(it->type, base, it->shift);
    const void *gamma = device_test_random(test, it->type, width, 1, 2);
    void *kept = it->group > 0 ? device_test_zeros(test, it->type, count) : NULL;
    void *dy = device_test_random(test, it->type, span, 1, 4);
    void *add = it->add ? device_test_random(test, it->type, count, 1, 5) : NULL;
    float *mean = device_test_zeros(test, TYPE_FP32, it->rows);
    float *rstd = device_test_zeros(test, TYPE_FP32, it->rows);
    void *dx = it->place == PLACE_ADD  ? add
               : it->place == PLACE_DY ? dy
                                       : device_test_zeros(test, it->type, count);
    struct norm norm = {
        DEVICE_ARGS(norm_forward, .type = it->type, .rows = it->rows, .width = width,
                    .group = it->group, .stride = it->stride, .epsilon = epsilon, .x = x,
                    .gamma = gamma, .beta = device_test_random(test, it->type, width, 1, 3),
                    .y = kept != NULL ? x : device_test_zeros(test, it->type, count), .kept = kept,
                    .mean = mean, .rstd = rstd),
        DEVICE_ARGS(norm_backward, .type = it->type, .rows = it->rows, .width = width,
                    .group = it->group, .stride = it->stride, .x = kept != NULL ? kept : x,
                    .gamma = gamma, .dy = dy, .mean = mean, .rstd = rstd, .add = add, .dx = dx,
                    .overwrite = overwrite)};
    if (it->parameters) {
        norm.backward.dgamma = device_test_gradient(test, overwrite, width, 6);
        norm.backward.dbeta = device_test_gradient(test, overwrite, width, 7);
    }
    if (sums)
        norm.backward.add_sums = device_test_gradient(test, overwrite, width, 8);
    DEVICE_QUEUE(test, norm_forward, &norm.forward);
    DEVICE_QUEUE(test, norm_backward, &norm.backward);
    device_test_wait(test);
    return norm;
}

/* Results in double precision, and what the operations were given. The gradients of gamma and beta
 * are the sums of their terms: [rows, width]. */
struct norm_truth {
    const double *x, *gamma, *beta, *dy, *add;
    double *mean, *rstd, *y, *dx, *gamma_terms, *beta_terms;
};

static void truth_row(const struct norm_case *it, struct norm_truth *t, int64_t row)
{
    const int64_t width = it->width, at = row_at(it, row), packed = row * width;
    double sum = 0, squares = 0, sum_g = 0, sum_gx = 0;

    for (int64_t i = 0; i < width; i++)
        sum += t->x[at + i];
    const double mean = t->mean[row] = sum / (double)width;
    for (int64_t i = 0; i < width; i++)
        squares += pow(t->x[at + i] - mean, 2);
    const double rstd = t->rstd[row] = 1 / sqrt(squares / (double)width + (double)epsilon);
    for (int64_t i = 0; i < width; i++) {
        const double normal = (t->x[at + i] - mean) * rstd, dy = t->dy[at + i];
        t->y[at + i] = normal * t->gamma[i] + t->beta[i];
        t->gamma_terms[packed + i] = dy * normal;
        t->beta_terms[packed + i] = dy;
        sum_g += dy * t->gamma[i];
        sum_gx += dy * t->gamma[i] * normal;
    }
    for (int64_t i = 0; i < width; i++) {
        const double normal = (t->x[at + i] - mean) * rstd;
        t->dx[at + i] = rstd * (t->dy[at + i] * t->gamma[i] - sum_g / (double)width -
                                normal * sum_gx / (double)width);
        t->dx[at + i] += it->add ? t->add[packed + i] : 0;
    }
}

static void check(struct device_test *test, const struct norm_case *it, const struct norm *norm)
{
    const int64_t width = it->width, count = it->rows * width, span = row_at(it, it->rows);
    struct norm_truth truth = {device_test_given(test, norm->forward.x),
                               device_test_given(test, norm->forward.gamma),
                               device_test_given(test, norm->forward.beta),
                               device_test_given(test, norm->backward.dy),
                               it->add ? device_test_given(test, norm->backward.add) : NULL,
                               device_test_expected(test, it->rows),
                               device_test_expected(test, it->rows),
                               device_test_expected(test, span),
                               device_test_expected(test, span),
                               device_test_expected(test, count),
                               device_test_expected(test, count)};
    /* Rounding of the result to the type, and fp32 rounding of intermediate values. */
    const double rounding = it->type == TYPE_FP32 ? 0 : 1.001 * device_test_precision(it->type);
    const double fp32 = 2e-6 * (1 + it->offset);
    double largest = 0;
    /* Nothing changes between groups. */
    memcpy(truth.y, truth.x, (size_t)span * sizeof *truth.y);
    memcpy(truth.dx, truth.dy, (size_t)span * sizeof *truth.dx);
    for (int64_t row = 0; row < it->rows; row++) {
        truth_row(it, &truth, row);
        largest = fmax(largest, truth.rstd[row]);
    }
    device_test_near(test, "mean", norm->forward.mean, truth.mean, 1e-6, 1);
    device_test_near(test, "rstd", norm->forward.rstd, truth.rstd, fp32, 0);
    device_test_near(test, "y", norm->forward.y, truth.y, rounding + fp32,
                     it->type == TYPE_FP32 ? 1 : fp32 / rounding);
    const double fp32_dx = fp32 * (1 + largest);
    device_test_near(test, "dx", norm->backward.dx, truth.dx, rounding + fp32_dx,
                     it->type == TYPE_FP32 ? 1 : fp32_dx / rounding);
    device_test_column_sums(test, "dgamma", truth.gamma_terms, it->rows, width,
                            norm->backward.dgamma, 3e-6 * (1 + it->offset));
    device_test_column_sums(test, "dbeta", truth.beta_terms, it->rows, width, norm->backward.dbeta,
                            3e-6);
    device_test_column_sums(test, "add_sums", truth.add, it->rows, width, norm->backward.add_sums,
                            1e-6);
}

TEST_KERNELS(norm_is_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++) {
        DEVICE_TEST(test, 1);
        const struct norm norm = run(&test, &cases[i]);
        DEVICE_TEST_AGAIN(&test, other, run(&other, &cases[i]))
        check(&test, &cases[i], &norm);
    }
}

TEST_ENDS(a_norm_beyond_the_workspace_ends, "exceeds the workspace")
{
    float sums[1] = {0};
    DEVICE_RUN(test, norm_backward, .rows = 1, .width = 1 << 28, .dgamma = sums, .dbeta = sums);
}

TEST_MAIN()
