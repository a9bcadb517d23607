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

struct norm {
    struct norm_forward forward;
    struct norm_backward backward;
};

static struct norm run(struct device_test *test, const struct norm_case *it)
{
    const int64_t count = it->rows * it->width, width = it->width;
    const bool overwrite = it->parameters && it->rows % 2 == 1;
    const bool sums = it->add && it->parameters && test->device->backend->sums_gradients;
    void *base = device_test_shifted(test, it->type, count + it->shift, 1.5, it->offset, 1);
    void *x = element_to_write(it->type, base, it->shift);
    const void *gamma = device_test_random(test, it->type, width, 1, 2);
    void *dy = device_test_random(test, it->type, count, 1, 4);
    void *add = it->add ? device_test_random(test, it->type, count, 1, 5) : NULL;
    float *mean = device_test_zeros(test, TYPE_FP32, it->rows);
    float *rstd = device_test_zeros(test, TYPE_FP32, it->rows);
    void *dx = it->place == PLACE_ADD  ? add
               : it->place == PLACE_DY ? dy
                                       : device_test_zeros(test, it->type, count);
    struct norm norm = {DEVICE_ARGS(norm_forward, .type = it->type, .rows = it->rows,
                                    .width = width, .epsilon = epsilon, .x = x, .gamma = gamma,
                                    .beta = device_test_random(test, it->type, width, 1, 3),
                                    .y = device_test_zeros(test, it->type, count), .mean = mean,
                                    .rstd = rstd),
                        DEVICE_ARGS(norm_backward, .type = it->type, .rows = it->rows,
                                    .width = width, .x = x, .gamma = gamma, .dy = dy, .mean = mean,
                                    .rstd = rstd, .add = add, .dx = dx, .overwrite = overwrite)};
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

/* Results in double precision, and what the operations were given. The sums of the products are
 * the gradient of gamma. */
struct norm_truth {
    const double *x, *gamma, *beta, *dy, *add;
    double *mean, *rstd, *y, *dx, *products;
};

static void truth_row(const struct norm_case *it, struct norm_truth *t, int64_t row)
{
    const int64_t width = it->width, at = row * width;
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
        t->products[at + i] = dy * normal;
        sum_g += dy * t->gamma[i];
        sum_gx += dy * t->gamma[i] * normal;
    }
    for (int64_t i = 0; i < width; i++) {
        const double normal = (t->x[at + i] - mean) * rstd;
        t->dx[at + i] = rstd * (t->dy[at + i] * t->gamma[i] - sum_g / (double)width -
                                normal * sum_gx / (double)width);
        t->dx[at + i] += it->add ? t->add[at + i] : 0;
    }
}

static void check(struct device_test *test, const struct norm_case *it, const struct norm *norm)
{
    const int64_t width = it->width, count = it->rows * width;
    struct norm_truth truth = {device_test_given(test, norm->forward.x),
                               device_test_given(test, norm->forward.gamma),
                               device_test_given(test, norm->forward.beta),
                               device_test_given(test, norm->backward.dy),
                               it->add ? device_test_given(test, norm->backward.add) : NULL,
                               device_test_expected(test, it->rows),
                               device_test_expected(test, it->rows),
                               device_test_expected(test, count),
                               device_test_expected(test, count),
                               device_test_expected(test, count)};
    /* Rounding of the result to the type, and fp32 rounding of intermediate values. */
    const double rounding = it->type == TYPE_FP32 ? 0 : 1.001 * device_test_precision(it->type);
    const double fp32 = 2e-6 * (1 + it->offset);
    double largest = 0;
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
    device_test_column_sums(test, "dgamma", truth.products, it->rows, width, norm->backward.dgamma,
                            3e-6 * (1 + it->offset));
    device_test_column_sums(test, "dbeta", truth.dy, it->rows, width, norm->backward.dbeta, 3e-6);
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

/* Rows in groups, as the queries of heads are in [tokens, 3, heads, head_dim]: the same bits as for
 * contiguous rows, and nothing else changes. */
static void check_groups(const struct norm_case *it, int64_t group, int64_t stride)
{
    const int64_t width = it->width, count = it->rows * width, span = it->rows / group * stride;
    const size_t size = type_size(it->type);
    DEVICE_TEST(test, 2);
    const struct norm norm = run(&test, it);
    char *x = device_test_random(&test, it->type, span, 1, 8);
    char *before = device_test_random(&test, it->type, span, 1, 8);
    char *dx = device_test_random(&test, it->type, span, 1, 8);
    struct norm again = norm;
    again.forward.group = again.backward.group = group;
    again.forward.stride = again.backward.stride = stride;
    again.forward.x = again.forward.y = x;
    again.backward.x = again.forward.kept = device_test_zeros(&test, it->type, count);
    again.backward.dy = again.backward.dx = dx;
    again.backward.dgamma = device_test_gradient(&test, it->rows % 2 == 1, width, 6);
    again.backward.dbeta = device_test_gradient(&test, it->rows % 2 == 1, width, 7);
    for (int64_t row = 0; row < it->rows; row++) {
        const size_t at = (size_t)(row / group * stride + row % group * width) * size;
        const size_t from = (size_t)(row * width) * size;
        memcpy(x + at, (const char *)norm.forward.x + from, (size_t)width * size);
        memcpy(dx + at, (const char *)norm.backward.dy + from, (size_t)width * size);
    }
    DEVICE_QUEUE(&test, norm_forward, &again.forward);
    DEVICE_QUEUE(&test, norm_backward, &again.backward);
    device_test_wait(&test);
    device_test_same("kept", it->type, again.forward.kept, norm.forward.x, count);
    device_test_same("dgamma", TYPE_FP32, again.backward.dgamma, norm.backward.dgamma, width);
    device_test_same("dbeta", TYPE_FP32, again.backward.dbeta, norm.backward.dbeta, width);
    for (int64_t start = 0; start < span; start += stride) {
        const int64_t row = start / stride * group, rest = stride - group * width;
        device_test_same("y", it->type, element(it->type, x, start),
                         element(it->type, norm.forward.y, row * width), group * width);
        device_test_same("dx", it->type, element(it->type, dx, start),
                         element(it->type, norm.backward.dx, row * width), group * width);
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

TEST_ENDS(a_norm_beyond_the_workspace_ends, "exceeds the workspace")
{
    float sums[1] = {0};
    DEVICE_RUN(test, norm_backward, .rows = 1, .width = 1 << 28, .dgamma = sums, .dbeta = sums);
}

TEST_MAIN()
