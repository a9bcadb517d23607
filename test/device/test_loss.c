// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Cross-entropy against PyTorch (test/vectors/make_device.py) and against double precision: losses,
 * gradients, counters; ties, smoothing, soft targets, extreme logits, NaN. */
#include "device_test.h"
#include "vector_file.h"

/* Sums in device memory. */
static struct loss_sums *sums_of(struct device_test *test, struct loss_sums sums)
{
    return device_test_copy(test, TYPE_FP32, &sums, sizeof sums / sizeof(float));
}

static void check_vector(struct vector_file *file, const char *name, enum cross_entropy_kind kind,
                         float smoothing, bool soft)
{
    char key[64];
    int64_t batch = vector_file_size(file, "logits", 0);
    int64_t classes = vector_file_size(file, "logits", 1), count = batch * classes;
    DEVICE_TEST(test, 2);
    float *losses = device_test_zeros(&test, TYPE_FP32, batch);
    float *gradient = device_test_zeros(&test, TYPE_FP32, count);
    struct loss_sums *sums = sums_of(&test, (struct loss_sums){0});
    const void *labels =
        device_test_copy(&test, TYPE_FP32, vector_file_integers(file, "labels", NULL), batch);
    const void *targets =
        device_test_copy(&test, TYPE_FP32, vector_file_floats(file, "targets", NULL), count);
    DEVICE_RUN(&test, cross_entropy, .kind = kind, .batch = batch, .classes = classes,
               .smoothing = smoothing, .scale = 0.125f,
               .logits = device_test_copy(&test, TYPE_FP32,
                                          vector_file_floats(file, "logits", NULL), count),
               .dlogits = gradient, .sums = sums, .losses = losses, .labels = soft ? NULL : labels,
               .targets = soft ? targets : NULL);
    device_test_wait(&test);
    snprintf(key, sizeof key, "%s.losses", name);
    const double *expected = vector_file_doubles(file, key, NULL);
    double total = 0;
    for (int64_t i = 0; i < batch; i++)
        total += expected[i];
    device_test_near(&test, key, losses, expected, 1e-6, 1);
    assert_true(fabs(sums->loss - total) < 1e-5);
    assert_true(sums->samples == (double)batch);
    snprintf(key, sizeof key, "%s.gradient", name);
    expected = vector_file_doubles(file, key, NULL);
    for (int64_t i = 0; i < batch * classes; i++)
        assert_true(fabs((double)gradient[i] - expected[i] / 8) < 1e-7);
}

TEST(losses_are_pytorchs)
{
    VECTOR_FILE(file, "device_loss.safetensors");
    check_vector(file, "labels", CROSS_ENTROPY_SOFTMAX, 0, false);
    check_vector(file, "smooth", CROSS_ENTROPY_SOFTMAX, 0.1f, false);
    check_vector(file, "targets", CROSS_ENTROPY_SOFTMAX, 0, true);
    check_vector(file, "binary", CROSS_ENTROPY_BINARY, 0.1f, false);
    check_vector(file, "binary_sum", CROSS_ENTROPY_BINARY_SUM, 0, true);
}

struct loss_case {
    enum data_type type;
    int64_t batch, classes;
    float smoothing;
    bool soft, in_place;
    double size; /* scale of the logits */
    enum cross_entropy_kind kind;
    float loss_scale; /* 0: no scaler */
    bool weights;     /* of classes */
};

/* The first EMULATED ones are for the emulated GPU. */
static const struct loss_case cases[] = {
    {TYPE_FP32, 9, 10, 0, false, false, 5, CROSS_ENTROPY_SOFTMAX, 1024, false},
    {TYPE_FP32, 5, 17, 0, false, true, 3000, CROSS_ENTROPY_SOFTMAX, 0, false},
    {TYPE_FP32, 0, 10, 0.1f, false, false, 1, CROSS_ENTROPY_SOFTMAX, 0, false},
    {TYPE_BF16, 3, 133, 0.2f, false, false, 10, CROSS_ENTROPY_SOFTMAX, 0, false},
    {TYPE_FP16, 4, 21, 0.1f, true, true, 8, CROSS_ENTROPY_SOFTMAX, 1024, false},
    {TYPE_FP32, 20, 10, 0, true, true, 9, CROSS_ENTROPY_BINARY, 0x1p-8f, false},
    {TYPE_BF16, 3, 133, 0.2f, false, false, 10, CROSS_ENTROPY_BINARY, 0, false},
    {TYPE_FP16, 4, 21, 0.1f, false, true, 8, CROSS_ENTROPY_BINARY_SUM, 0, false},
    {TYPE_FP32, 9, 13, 0.1f, false, true, 5, CROSS_ENTROPY_SOFTMAX, 1024, true},
    {TYPE_BF16, 3, 270, 0, true, false, 4, CROSS_ENTROPY_SOFTMAX, 0, true},
    {TYPE_FP32, 70, 1000, 0.1f, false, true, 3, CROSS_ENTROPY_SOFTMAX, 0, false},
    {TYPE_FP32, 1, 1, 0.1f, false, false, 5, CROSS_ENTROPY_SOFTMAX, 0, false},
    {TYPE_FP32, 33, 3, 0, true, false, 20, CROSS_ENTROPY_SOFTMAX, 0, false},
    {TYPE_BF16, 64, 10, 0, false, true, 5, CROSS_ENTROPY_SOFTMAX, 0, false},
    {TYPE_BF16, 17, 1000, 0, true, true, 4, CROSS_ENTROPY_SOFTMAX, 0, false},
    {TYPE_FP32, 300, 100, 0, false, false, 9, CROSS_ENTROPY_SOFTMAX, 0, false},
    {TYPE_FP32, 5, 1000, 0, false, true, 300, CROSS_ENTROPY_BINARY_SUM, 0, false},
};

enum { CASES = sizeof cases / sizeof cases[0], EMULATED = 10 };

static const float scale = 0.5f;

static struct cross_entropy run(struct device_test *test, const struct loss_case *it)
{
    const int64_t count = it->batch * it->classes;
    void *logits = device_test_random(test, it->type, count, it->size, 1);
    int32_t *labels = device_test_zeros(test, TYPE_FP32, it->batch);
    float *targets = device_test_random(test, TYPE_FP32, count, 1, 2);
    float *weights = device_test_zeros(test, TYPE_FP32, it->classes);
    const struct loss_scaler scaler = {.scale = it->loss_scale};
    for (int64_t i = 0; i < it->batch; i++)
        labels[i] = (int32_t)(i * 7 % it->classes);
    for (int64_t i = 0; i < count; i++)
        targets[i] = fabsf(targets[i]); /* their sum need not be 1 */
    for (int64_t i = 0; i < it->classes; i++)
        weights[i] = (float)(i * 5 % 8) / 4;
    const struct cross_entropy args =
        DEVICE_ARGS(cross_entropy, .type = it->type, .kind = it->kind, .batch = it->batch,
                    .classes = it->classes, .smoothing = it->smoothing, .scale = scale,
                    .logits = logits, .labels = it->soft ? NULL : labels,
                    .targets = it->soft ? targets : NULL, .weights = it->weights ? weights : NULL,
                    .dlogits = it->in_place ? logits : device_test_zeros(test, it->type, count),
                    .sums = sums_of(test, (struct loss_sums){1, 2, 3, 4, 0, 5, 6}),
                    .losses = device_test_zeros(test, TYPE_FP32, it->batch),
                    .predicted = device_test_zeros(test, TYPE_FP32, it->batch),
                    .probabilities = device_test_zeros(test, TYPE_FP32, count),
                    .scaler = it->loss_scale > 0 ? device_test_copy(test, TYPE_FP32, &scaler,
                                                                    sizeof scaler / sizeof(float))
                                                 : NULL);
    DEVICE_QUEUE(test, cross_entropy, &args);
    device_test_wait(test);
    return args;
}

static int64_t largest_of(const double *values, int64_t count)
{
    int64_t largest = 0;
    for (int64_t i = 1; i < count; i++)
        if (values[i] > values[largest])
            largest = i;
    return largest;
}

/* One row in double; `sums` are those of the previous rows. */
static void check_row(const struct loss_case *it, const struct cross_entropy *t,
                      const double *logits, int64_t row, struct loss_sums *sums)
{
    enum { CLASSES = 1000 };
    bool softmax = it->kind == CROSS_ENTROPY_SOFTMAX;
    double targets[CLASSES], sum = 0, weight = 0, loss = 0;
    double factor = it->kind == CROSS_ENTROPY_BINARY ? 1 / (double)it->classes : 1;
    const double scaled = (double)scale * (it->loss_scale > 0 ? (double)it->loss_scale : 1);
    int64_t classes = it->classes, rank = 0;
    for (int64_t i = 0; i < classes; i++) {
        targets[i] = it->soft ? (double)t->targets[row * classes + i]
                              : (double)it->smoothing / (double)classes +
                                    (i == t->labels[row] ? 1 - (double)it->smoothing : 0);
    }
    int64_t label = it->soft ? largest_of(targets, classes) : t->labels[row];
    for (int64_t i = 0; i < classes; i++) {
        targets[i] *= it->weights ? (double)t->weights[i] : 1;
        weight += targets[i];
    }
    if (it->weights) {
        sums->weight += it->soft ? 1 : (double)t->weights[label];
        sums->counted += it->soft ? 1 : (double)t->weights[label];
    }
    int64_t best = largest_of(logits, classes);
    for (int64_t i = 0; i < classes; i++) {
        sum += exp(logits[i] - logits[best]);
        rank += logits[i] > logits[label] || (logits[i] == logits[label] && i < label);
    }
    for (int64_t i = 0; i < classes; i++) {
        double log_probability = logits[i] - logits[best] - log(sum), p = exp(log_probability);
        double gradient = device_test_value(it->type, t->dlogits, row * classes + i);
        double sigmoid = 1 / (1 + exp(-logits[i]));
        double expected = scaled * (p * weight - targets[i]);
        if (!softmax)
            expected = scaled * factor * (sigmoid - targets[i]);
        double step = it->type == TYPE_FP32 ? 0 : 1.001 * device_test_precision(it->type);
        loss -= softmax ? targets[i] * log_probability
                        : factor * (fmin(logits[i], 0) - log1p(exp(-fabs(logits[i]))) -
                                    (1 - targets[i]) * logits[i]);
        assert_true(fabs((double)t->probabilities[row * classes + i] - p) <= 3e-6 * p + 1e-37);
        assert_true(fabs(gradient - expected) <=
                    step * fabs(expected) + 0x1p-25 +
                        6e-7 * scaled * ((softmax ? weight * p : sigmoid) + targets[i]));
    }
    assert_true(fabs((double)t->losses[row] - loss) <= 1e-6 * (1 + fabs(loss) + weight));
    assert_int_equal(t->predicted[row], best);
    sums->loss += loss;
    sums->top1 += rank < 1;
    sums->top5 += rank < 5;
    sums->samples += 1;
}

TEST_KERNELS(losses_are_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++) {
        DEVICE_TEST(test, 1);
        const struct cross_entropy t = run(&test, &cases[i]);
        DEVICE_TEST_AGAIN(&test, other, run(&other, &cases[i]))
        const double *logits = device_test_given(&test, t.logits);
        struct loss_sums sums = {1, 2, 3, 4, 0, 5, 6};
        for (int64_t row = 0; row < cases[i].batch; row++)
            check_row(&cases[i], &t, logits + row * cases[i].classes, row, &sums);
        assert_true(fabs(t.sums->loss - sums.loss) <= 1e-6 * sums.loss);
        assert_true(t.sums->top1 == sums.top1 && t.sums->top5 == sums.top5);
        assert_true(t.sums->samples == sums.samples);
        assert_true(t.sums->weight == sums.weight && t.sums->counted == sums.counted);
    }
}

/* torch.nn.functional.cross_entropy(logits, labels, weight=weights, label_smoothing=0.1) and its
 * gradient, and the loss of torch's targets of classes, which is no weighted mean. */
TEST(weighted_losses_are_pytorchs)
{
    static const float logits[] = {1, 2, 3, 0, -1, 2, 3, 0, 0.5f}, weights[] = {1, 0.5f, 4};
    static const float targets[] = {0.7f, 0.3f, 0, 0, 0.5f, 0.5f, 0.2f, 0.2f, 0.6f};
    static const int32_t labels[] = {0, 2, 1};
    static const double expected[] = {
        -0.15196367498159172, 0.04517378975321774,  0.10678988522837406,
        0.07249184927364528,  0.025867530340706043, -0.09835937961435133,
        0.09567484488797996,  -0.07978337499667212, -0.015891469891307835};
    for (int soft = 0; soft < 2; soft++) {
        DEVICE_TEST(test, 1);
        float *gradient = device_test_zeros(&test, TYPE_FP32, 9);
        struct loss_sums *sums = sums_of(&test, (struct loss_sums){0});
        DEVICE_RUN(&test, cross_entropy, .batch = 3, .classes = 3, .smoothing = 0.1f,
                   .scale = 1 / 5.5f, .logits = device_test_copy(&test, TYPE_FP32, logits, 9),
                   .labels = soft ? NULL : device_test_copy(&test, TYPE_FP32, labels, 3),
                   .targets = soft ? device_test_copy(&test, TYPE_FP32, targets, 9) : NULL,
                   .weights = device_test_copy(&test, TYPE_FP32, weights, 3), .dlogits = gradient,
                   .sums = sums);
        device_test_wait(&test);
        assert_true(sums->counted == (soft ? 3 : 5.5));
        assert_true(fabs(loss_mean(sums) - (soft ? 3.221025200458886 : 0.8901715349884775)) < 1e-6);
        for (int i = 0; i < 9 && !soft; i++)
            assert_true(fabs((double)gradient[i] - expected[i]) < 1e-6);
    }
}

/* Counters and prediction of one row. */
static struct loss_sums count_row(const float *logits, int64_t classes, int32_t label,
                                  int32_t *predicted)
{
    struct device_test test;
    device_test_open(&test, 1);
    struct loss_sums *sums = sums_of(&test, (struct loss_sums){0});
    int32_t *guess = device_test_zeros(&test, TYPE_FP32, 1);
    DEVICE_RUN(&test, cross_entropy, .batch = 1, .classes = classes,
               .logits = device_test_copy(&test, TYPE_FP32, logits, classes),
               .labels = device_test_copy(&test, TYPE_FP32, &label, 1), .sums = sums,
               .predicted = guess);
    device_test_wait(&test);
    const struct loss_sums counted = *sums;
    *predicted = *guess;
    device_test_close(&test);
    return counted;
}

TEST(ties_are_won_by_the_lower_class)
{
    const float logits[] = {1, 2, 2, 2, 0, 2, 2, 2};
    int32_t predicted = -1;
    struct loss_sums sums = count_row(logits, 8, 1, &predicted);
    assert_true(predicted == 1 && sums.top1 == 1 && sums.top5 == 1);
    sums = count_row(logits, 8, 2, &predicted);
    assert_true(sums.top1 == 0 && sums.top5 == 1);
    sums = count_row(logits, 8, 6, &predicted); /* beaten by 1, 2, 3, 5 */
    assert_true(sums.top1 == 0 && sums.top5 == 1);
    sums = count_row(logits, 8, 7, &predicted); /* and by 6 */
    assert_true(sums.top1 == 0 && sums.top5 == 0);
    sums = count_row(logits, 8, 4, &predicted);
    assert_true(sums.top1 == 0 && sums.top5 == 0);
}

/* NaN anywhere makes the loss NaN, so that training can stop, and does not count as correct. */
TEST(not_a_number_is_seen)
{
    for (int32_t at = 0; at < 19; at++) {
        float logits[19] = {0};
        int32_t predicted;
        logits[at] = NAN;
        assert_true(isnan(count_row(logits, 19, 3, &predicted).loss));
        assert_true(count_row(logits, 19, at, &predicted).top5 == 0);
        assert_true(predicted >= 0 && predicted < 19);
        logits[at] = INFINITY;
        assert_true(isnan(count_row(logits, 19, 3, &predicted).loss));
    }
}

/* One row of three equal logits. */
static struct cross_entropy equal_row(struct device_test *test, int32_t label)
{
    return (struct cross_entropy){.batch = 1,
                                  .classes = 3,
                                  .logits = device_test_zeros(test, TYPE_FP32, 3),
                                  .labels = device_test_copy(test, TYPE_FP32, &label, 1),
                                  .sums = sums_of(test, (struct loss_sums){0})};
}

/* Data sets check labels earlier. Other devices detect them too late to end the program. */
TEST_ENDS(a_negative_label_ends, "not one of 3 classes")
{
    const struct cross_entropy args = equal_row(test, -1);
    DEVICE_QUEUE(test, cross_entropy, &args);
}

TEST_ENDS(a_large_label_ends, "not one of 3 classes")
{
    const struct cross_entropy args = equal_row(test, 3);
    DEVICE_QUEUE(test, cross_entropy, &args);
}

/* If a label is not checked in time, its loss and gradient are NaN, which stops a run. */
TEST(a_label_outside_is_not_a_number)
{
    const char *device = getenv("VITTRAIN_TEST_DEVICE");
    if (device == NULL || strcmp(device, "cuda") != 0)
        SKIP_BECAUSE("needs a GPU or the emulated one");
    const int32_t labels[] = {-1, 3, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        DEVICE_TEST(test, 1);
        struct cross_entropy args = equal_row(&test, labels[i]);
        float *gradient = device_test_zeros(&test, TYPE_FP32, 3);
        args.dlogits = gradient;
        args.scale = 1;
        DEVICE_QUEUE(&test, cross_entropy, &args);
        device_test_wait(&test);
        assert_true(isnan(args.sums->loss) && args.sums->top1 == 0);
        for (int class = 0; class < 3; class ++)
            assert_true(isnan(gradient[class]));
    }
}

TEST_MAIN()
