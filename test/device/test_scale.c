// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* The gradient of LayerScale against its definition in double precision, for all types and sizes,
 * with dropout and drop path. */
#include "device_test.h"
#include "test.h"

struct scale_case {
    enum data_type type;
    int64_t samples, rows_per_sample, width;
    float dropout, drop_path;
    bool in_place, overwrite, frozen;
};

/* The first EMULATED ones are for the emulated GPU. */
static const struct scale_case cases[] = {
    {TYPE_FP32, 2, 7, 13, 0.2f, 0, true, true, false},
    {TYPE_FP32, 5, 1, 264, 0.1f, 0.4f, false, true, false},
    {TYPE_FP32, 4, 3, 24, 0.5f, 0, false, false, true},
    {TYPE_BF16, 2, 9, 7, 0, 0, false, true, false},
    {TYPE_BF16, 2, 50, 96, 0.1f, 0.25f, false, false, false},
    {TYPE_FP16, 3, 33, 96, 0.3f, 0, true, false, false},
    {TYPE_FP32, 0, 5, 8, 0.1f, 0, false, true, false},
    {TYPE_FP32, 3, 65, 48, 0, 0, false, false, false},
    {TYPE_FP32, 90, 70, 33, 0, 0.3f, true, false, false},
    {TYPE_BF16, 4, 50, 300, 0.1f, 0.25f, false, false, false},
};

enum { CASES = sizeof cases / sizeof cases[0], EMULATED = 7 };

struct scale_tensors {
    void *pre, *dy, *scale, *dx;
    float *dscale;
    struct dropout dropout, drop_path;
};

static struct scale_tensors run(struct device_test *test, const struct scale_case *it)
{
    const int64_t rows = it->samples * it->rows_per_sample, count = rows * it->width;
    struct scale_tensors t = {
        .pre = device_test_random(test, it->type, count, 1, 1),
        .dy = device_test_random(test, it->type, count, 1, 2),
        .scale = device_test_random(test, it->type, it->width, 1, 3),
        .dx = device_test_random(test, it->type, count, 1, 2),
        .dscale = device_test_gradient(test, it->overwrite && rows > 0, it->width, 4),
        .dropout = device_test_drops(test, it->dropout, 7),
        .drop_path = device_test_drops(test, it->drop_path, 8)};
    DEVICE_RUN(test, scale_backward, .type = it->type, .rows = rows, .width = it->width,
               .rows_per_sample = it->rows_per_sample, .pre = t.pre,
               .dy = it->in_place ? t.dx : t.dy, .scale = t.scale, .dx = t.dx,
               .dscale = it->frozen ? NULL : t.dscale, .overwrite = it->overwrite,
               .dropout = t.dropout, .drop_path = t.drop_path);
    device_test_wait(test);
    return t;
}

static void check(const struct scale_case *it)
{
    const int64_t rows = it->samples * it->rows_per_sample, count = rows * it->width;
    const double tolerance = device_test_rounding(it->type);
    DEVICE_TEST(test, 1);
    const struct scale_tensors t = run(&test, it);
    DEVICE_TEST_AGAIN(&test, other, run(&other, it))
    const float *before = device_test_before(&test, it->overwrite && rows > 0, it->width, 4);
    double *dx = device_test_expected(&test, count);
    double *dscale = device_test_expected(&test, it->width);
    for (int64_t j = 0; j < it->width; j++)
        dscale[j] = (double)before[j];
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / it->width, column = i % it->width;
        const int64_t sample = row / it->rows_per_sample;
        const double g =
            device_test_value(it->type, t.dy, i) *
            device_test_dropout_at(&t.dropout, it->rows_per_sample, row, column, it->width) *
            device_test_drop_path(&t.drop_path, sample);
        dx[i] = g * device_test_value(it->type, t.scale, column);
        if (!it->frozen)
            dscale[column] += g * device_test_value(it->type, t.pre, i);
    }
    device_test_near("dx", it->type, t.dx, dx, count, tolerance, 1e-6 / tolerance);
    device_test_near("dscale", TYPE_FP32, t.dscale, dscale, it->width, 1e-6,
                     sqrt((double)rows + 1));
}

TEST_KERNELS(gradients_are_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++)
        check(&cases[i]);
}

TEST_MAIN()
