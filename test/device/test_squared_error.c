// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Mean squared error of models with one or several outputs, against double precision. */
#include "device_test.h"
#include "test.h"

struct error_case {
    enum data_type type;
    int64_t batch, outputs;
    double label_unit;
    float loss_scale; /* 0: no scaler */
    bool in_place;
};

static const struct error_case cases[] = {
    {TYPE_FP32, 16, 1, 0.001, 0, false}, {TYPE_FP32, 3, 700, 1, 0, true},
    {TYPE_BF16, 33, 5, 0.5, 0, true},    {TYPE_FP16, 9, 1, 0.01, 1024, false},
    {TYPE_FP32, 0, 4, 1, 0, true},       {TYPE_FP32, 4, 0, 1, 0, true},
};

enum { CASES = sizeof cases / sizeof cases[0] };

static const float scale = 0.125f;

static int32_t label_of(int64_t sample)
{
    return (int32_t)(sample * 7 % 5) - 1;
}

/* Gradients and loss according to the definition. */
static double truth_of(const struct error_case *it, const void *predictions, double *gradient)
{
    const double factor = 2 * (double)scale * (it->loss_scale > 0 ? (double)it->loss_scale : 1);
    double loss = 0;

    for (int64_t i = 0; i < it->batch * it->outputs; i++) {
        const double error = device_test_value(it->type, predictions, i) -
                             label_of(i / it->outputs) * it->label_unit;
        loss += error * error / (double)it->outputs;
        gradient[i] = factor * error / (double)it->outputs;
    }
    return loss;
}

static void check(const struct error_case *it)
{
    const int64_t count = it->batch * it->outputs;
    DEVICE_TEST(test, 2);
    void *predictions = device_test_random(&test, it->type, count, 2, 1);
    void *kept = device_test_random(&test, it->type, count, 2, 1);
    int32_t *labels = device_test_zeros(&test, TYPE_FP32, it->batch);
    struct loss_scaler scaler = {.scale = it->loss_scale};
    struct loss_sums *sums =
        device_test_zeros(&test, TYPE_FP32, (int64_t)(sizeof *sums / sizeof(float)));
    double *gradient = device_test_expected(&test, count);
    for (int64_t i = 0; i < it->batch; i++)
        labels[i] = label_of(i);
    sums->loss = sums->samples = 1;
    struct squared_error args = {
        .type = it->type,
        .batch = it->batch,
        .outputs = it->outputs,
        .scale = scale,
        .label_unit = it->label_unit,
        .predictions = predictions,
        .labels = labels,
        .dpredictions = it->in_place ? predictions : device_test_zeros(&test, it->type, count),
        .scaler = it->loss_scale > 0
                      ? device_test_copy(&test, TYPE_FP32, &scaler, sizeof scaler / sizeof(float))
                      : NULL,
        .sums = sums};
    test.device->backend->squared_error(test.stream, &args);
    device_test_wait(&test);
    const double loss = truth_of(it, kept, gradient);
    assert_true(fabs(sums->loss - 1 - loss) <= 1e-6 * (1 + loss));
    assert_true(sums->samples == 1 + (it->outputs > 0 ? (double)it->batch : 0));
    assert_true(sums->top1 == 0 && sums->top5 == 0);
    device_test_near("gradient", it->type, args.dpredictions, gradient, count,
                     2 * device_test_precision(it->type), 1e-3);
}

TEST_KERNELS(error_is_right)
{
    for (int i = 0; i < CASES; i++)
        check(&cases[i]);
}

/* Return the sum of losses of `batch` predictions with label 0, added in parts in reverse order. */
static double loss_in_parts(const float *from, int64_t batch, int64_t part)
{
    struct device_test test;
    device_test_open(&test, 1);
    const float *predictions = device_test_copy(&test, TYPE_FP32, from, batch);
    const int32_t *labels = device_test_zeros(&test, TYPE_FP32, batch);
    struct loss_sums *sums =
        device_test_zeros(&test, TYPE_FP32, (int64_t)(sizeof *sums / sizeof(float)));
    for (int64_t begin = (batch - 1) / part * part; begin >= 0; begin -= part)
        DEVICE_RUN(&test, squared_error, .batch = batch - begin < part ? batch - begin : part,
                   .outputs = 1, .predictions = predictions + begin, .labels = labels + begin,
                   .sums = sums);
    device_test_wait(&test);
    const double loss = sums->loss;
    device_test_close(&test);
    return loss;
}

/* Losses are rounded to multiples of 2^-26 before they are added. */
TEST(parts_do_not_matter)
{
    enum { BATCH = 100 };
    float predictions[BATCH];
    for (int i = 0; i < BATCH; i++)
        predictions[i] = 1 / (float)(i + 3);
    const double whole = loss_in_parts(predictions, BATCH, BATCH);
    assert_true(whole > 0.3 && fmod(whole, 0x1p-26) == 0);
    assert_true(loss_in_parts(predictions, BATCH, 7) == whole);
    assert_true(loss_in_parts(predictions, BATCH, 1) == whole);
}

TEST(large_losses_are_kept)
{
    const float large[] = {1e30f, 0x1.000002p20f, INFINITY, NAN};
    for (int i = 0; i < 3; i++)
        assert_true(loss_in_parts(&large[i], 1, 1) == (double)large[i] * (double)large[i]);
    assert_true(isnan(loss_in_parts(&large[3], 1, 1)));
}

/* Evaluation needs no gradient. */
TEST(everything_can_be_left_out)
{
    DEVICE_TEST(test, 1);
    float *predictions = device_test_random(&test, TYPE_FP32, 4, 1, 1);
    float *before = device_test_random(&test, TYPE_FP32, 4, 1, 1);
    DEVICE_RUN(&test, squared_error, .batch = 4, .outputs = 1, .label_unit = 1,
               .predictions = predictions, .labels = device_test_zeros(&test, TYPE_FP32, 4));
    device_test_wait(&test);
    device_test_same("predictions", TYPE_FP32, predictions, before, 4);
}

TEST_MAIN()
