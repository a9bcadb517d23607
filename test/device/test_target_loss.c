// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Losses of float targets against PyTorch (test/vectors/make_target_loss.py) and against double
 * precision, gradients against finite differences: all kinds and types, planes, weights, missing
 * targets. */
#include "device_test.h"
#include "vector_file.h"

enum missing { NONE, SOME, ALL }; /* ALL: in sample 0; SOME elsewhere */

struct loss_case {
    enum data_type type;
    enum target_loss_kind kind;
    int64_t batch, outputs, height, width;
    bool weights, row_weights, in_place;
    enum missing missing;
    float loss_scale; /* 0: no scaler */
    bool is_sum;
};

/* The first EMULATED ones are for the emulated GPU. */
static const struct loss_case cases[] = {
    {TYPE_BF16, TARGET_SQUARED, 33, 5, 1, 1, true, false, true, SOME, 0, false},
    {TYPE_FP32, TARGET_ABSOLUTE, 9, 4, 1, 1, true, false, true, SOME, 2, false},
    {TYPE_FP16, TARGET_HUBER, 2, 2, 8, 16, false, false, true, SOME, 512, false},
    {TYPE_BF16, TARGET_BINARY, 31, 13, 1, 1, true, false, false, ALL, 0, false},
    {TYPE_FP32, TARGET_BINARY, 9, 100, 1, 1, true, false, true, ALL, 2, true},
    {TYPE_FP16, TARGET_CROSS_ENTROPY, 2, 3, 9, 11, true, true, false, SOME, 256, false},
    {TYPE_FP32, TARGET_SQUARED, 0, 4, 1, 1, true, false, true, NONE, 0, false},
    {TYPE_FP32, TARGET_CROSS_ENTROPY, 0, 4, 8, 8, false, true, true, NONE, 0, false},
    {TYPE_FP16, TARGET_SQUARED, 2, 3, 5, 7, true, true, false, ALL, 1024, false},
    {TYPE_BF16, TARGET_ABSOLUTE, 2, 2, 3, 9, false, true, false, ALL, 0, false},
    {TYPE_FP32, TARGET_HUBER, 1, 3, 9, 10, true, true, true, SOME, 0, false},
    {TYPE_FP32, TARGET_CROSS_ENTROPY, 3, 21, 3, 5, true, false, true, ALL, 0, false},
    {TYPE_BF16, TARGET_CROSS_ENTROPY, 2, 5, 4, 3, false, true, true, SOME, 0, false},
    {TYPE_FP32, TARGET_SQUARED, 3, 700, 1, 1, false, false, true, NONE, 0, false},
    {TYPE_FP32, TARGET_SQUARED, 3, 5, 40, 50, false, false, true, NONE, 0, false},
    {TYPE_FP16, TARGET_SQUARED, 2, 3, 37, 29, true, true, false, ALL, 1024, false},
    {TYPE_BF16, TARGET_ABSOLUTE, 2, 2, 17, 65, false, true, false, ALL, 0, false},
    {TYPE_FP32, TARGET_HUBER, 1, 3, 90, 100, true, true, true, SOME, 0, false},
    {TYPE_FP32, TARGET_BINARY, 2, 3, 21, 23, true, true, true, SOME, 0, false},
    {TYPE_BF16, TARGET_BINARY, 2, 3, 41, 43, false, true, false, SOME, 0, true},
    {TYPE_FP32, TARGET_CROSS_ENTROPY, 9, 10, 1, 1, false, false, false, NONE, 0, false},
    {TYPE_FP32, TARGET_CROSS_ENTROPY, 3, 21, 33, 31, true, false, true, ALL, 0, false},
    {TYPE_BF16, TARGET_CROSS_ENTROPY, 2, 5, 40, 32, false, true, true, SOME, 0, false},
    {TYPE_FP32, TARGET_HUBER, 4, 0, 8, 8, false, true, true, NONE, 0, false},
};

enum { CASES = sizeof cases / sizeof cases[0], EMULATED = 13 };

static const float scale = 0.125f;

static struct target_loss loss_args(struct device_test *test, const struct loss_case *it)
{
    const int64_t predictions = it->batch * it->outputs * it->height * it->width;
    struct target_loss args = DEVICE_ARGS(
        target_loss, .type = it->type, .kind = it->kind, .is_sum = it->is_sum, .batch = it->batch,
        .outputs = it->outputs, .height = it->height, .width = it->width, .scale = scale);
    const int64_t count = target_count(&args);
    float *targets = device_test_random(test, TYPE_FP32, it->batch * count, 3, 2);
    float *weights = device_test_random(test, TYPE_FP32, it->outputs, 1, 3);
    const int64_t rows = it->height + 2 * it->batch; /* of the field; two are between samples */
    float *row_weights = device_test_random(test, TYPE_FP32, rows, 1, 4);
    int32_t *first_rows = device_test_zeros(test, TYPE_FP32, it->batch);
    void *values = device_test_random(test, it->type, predictions, 3, 1);
    struct loss_scaler scaler = {.scale = it->loss_scale};

    for (int64_t i = 0; i < it->outputs; i++)
        weights[i] = fabsf(weights[i]);
    for (int64_t i = 0; i < rows; i++)
        row_weights[i] = fabsf(row_weights[i]);
    for (int64_t i = 0; i < it->batch; i++)
        first_rows[i] = (int32_t)(2 * i);
    for (int64_t i = 0; i < it->batch * count; i++) {
        if (it->kind == TARGET_CROSS_ENTROPY)
            targets[i] = (float)(i * 7 % 11 % it->outputs);
        if ((it->missing == ALL && i < count) || (it->missing != NONE && i % 5 == 3))
            targets[i] = NAN;
    }
    args.weights = it->weights ? weights : NULL;
    args.row_weights = it->row_weights ? row_weights : NULL;
    args.first_rows = it->weights ? first_rows : NULL;
    args.predictions = values;
    args.targets = targets;
    args.dpredictions = it->in_place ? values : device_test_zeros(test, it->type, predictions);
    if (it->loss_scale > 0)
        args.scaler = device_test_copy(test, TYPE_FP32, &scaler, sizeof scaler / sizeof(float));
    args.sums = device_test_zeros(test, TYPE_FP32, (int64_t)(sizeof *args.sums / sizeof(float)));
    return args;
}

/* Return the loss of element or pixel i of a sample, whose predictions are p. */
static double loss_of(const struct target_loss *args, const double *p, double target, int64_t i)
{
    const int64_t pixels = args->height * args->width;
    const double gap = p[i] - target;
    double sum = 0;

    if (args->kind == TARGET_SQUARED)
        return gap * gap;
    if (args->kind == TARGET_ABSOLUTE)
        return fabs(gap);
    if (args->kind == TARGET_HUBER)
        return fabs(gap) < 1 ? gap * gap / 2 : fabs(gap) - 0.5;
    if (args->kind == TARGET_BINARY)
        return log1p(exp(p[i])) - p[i] * target;
    for (int64_t c = 0; c < args->outputs; c++)
        sum += exp(p[i + c * pixels]);
    return log(sum) - p[i + (int64_t)target * pixels];
}

static double weight_of(const struct target_loss *args, double target, int64_t i)
{
    const int64_t output =
        args->kind == TARGET_CROSS_ENTROPY ? (int64_t)target : i / args->width / args->height;
    const double weight = args->weights != NULL ? (double)args->weights[output] : 1;

    if (args->row_weights == NULL)
        return weight;
    return weight * (double)args->row_weights[i / args->width % args->height];
}

/* Add the gradient of target i's loss by finite differences. */
static void gradient_add(const struct target_loss *args, double *p, double target, int64_t i,
                         double factor, double *gradient)
{
    const double step = 1e-5;
    const int64_t stride =
        args->kind == TARGET_CROSS_ENTROPY ? args->height * args->width : INT64_MAX / 2;

    for (int64_t j = i; j < args->outputs * args->height * args->width; j += stride) {
        const double kept = p[j];
        p[j] = kept + step;
        const double above = loss_of(args, p, target, i);
        p[j] = kept - step;
        const double below = loss_of(args, p, target, i);
        p[j] = kept;
        gradient[j] += factor * (above - below) / (2 * step);
    }
}

/* Loss and gradient of a sample by the definition. p: its predictions. Add 1 to *counted if it has
 * targets. */
static double sample_truth(const struct target_loss *args, double *p, const float *targets,
                           double *gradient, double *counted)
{
    const double s = (double)args->scale * (args->scaler != NULL ? (double)args->scaler->scale : 1);
    double weights = 0, loss = 0;

    for (int64_t i = 0; i < target_count(args); i++)
        if (!isnan(targets[i]))
            weights += weight_of(args, (double)targets[i], i);
    *counted += weights != 0;
    if (args->is_sum)
        weights = 1;
    for (int64_t i = 0; i < target_count(args); i++) {
        const double target = (double)targets[i];
        if (isnan(targets[i]))
            continue;
        const double share = weight_of(args, target, i) / weights;
        loss += share * loss_of(args, p, target, i);
        gradient_add(args, p, target, i, s * share, gradient);
    }
    return loss;
}

/* Run a case in calls of `part` samples, from the last to the first, with three threads. The losses
 * of samples are rounded to multiples of 2^-26 before they are added, so sum and gradient have the
 * same bits. */
static void check_parts(const struct loss_case *it, int64_t part, double loss, const void *gradient)
{
    const int64_t sample = it->outputs * it->height * it->width;
    DEVICE_TEST(test, 3);
    const struct target_loss all = loss_args(&test, it);
    struct target_loss args = all;

    for (int64_t begin = (it->batch - 1) / part * part; begin >= 0; begin -= part) {
        args.batch = it->batch - begin < part ? it->batch - begin : part;
        args.predictions = element(it->type, all.predictions, begin * sample);
        args.dpredictions = element_to_write(it->type, all.dpredictions, begin * sample);
        args.targets = all.targets + begin * target_count(&all);
        args.first_rows = all.first_rows != NULL ? all.first_rows + begin : NULL;
        DEVICE_QUEUE(&test, target_loss, &args);
    }
    device_test_wait(&test);
    assert_true(all.sums->loss == loss);
    device_test_same("gradient", it->type, all.dpredictions, gradient, it->batch * sample);
}

/* Evaluation needs no gradient. */
static void check_evaluation(const struct loss_case *it)
{
    DEVICE_TEST(test, 1);
    struct target_loss args = loss_args(&test, it);
    args.dpredictions = NULL;
    DEVICE_QUEUE(&test, target_loss, &args);
    device_test_wait(&test);
    device_test_near(&test, "predictions", args.predictions,
                     device_test_given(&test, args.predictions), 0, 0);
}

static void check(const struct loss_case *it)
{
    DEVICE_TEST(test, 2);
    const struct target_loss args = loss_args(&test, it);
    const int64_t sample = it->outputs * it->height * it->width, count = it->batch * sample;
    double *gradient = device_test_expected(&test, count);
    double *p = (double *)(uintptr_t)device_test_given(&test, args.predictions);
    double loss = 0, largest = 0, counted = 0;

    args.sums->loss = args.sums->samples = args.sums->empty = args.sums->counted = 1;
    DEVICE_QUEUE(&test, target_loss, &args);
    device_test_wait(&test);
    for (int64_t b = 0; b < it->batch; b++) {
        struct target_loss own = args;
        if (args.row_weights != NULL && args.first_rows != NULL)
            own.row_weights += args.first_rows[b];
        loss += sample_truth(&own, p + b * sample, args.targets + b * target_count(&args),
                             gradient + b * sample, &counted);
    }
    assert_true(fabs(args.sums->loss - 1 - loss) <= 1e-6 * (1 + loss));
    assert_true(args.sums->samples == 1 + counted && args.sums->counted == 1 + counted);
    assert_true(args.sums->empty == 1 + (sample > 0 ? (double)it->batch : 0) - counted);
    assert_true(args.sums->top1 == 0 && args.sums->top5 == 0);
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(gradient[i]));
    device_test_near(&test, "gradient", args.dpredictions, gradient,
                     2 * device_test_precision(it->type) + 1e-6, largest);
    for (int64_t part = 1; part <= 3; part += 2)
        check_parts(it, part, args.sums->loss - 1, args.dpredictions);
    check_evaluation(it);
}

TEST_KERNELS(losses_are_right)
{
    for (int i = 0; i < device_test_cases(CASES, EMULATED); i++)
        check(&cases[i]);
}

/* A copy of a tensor of the file in memory of the device. */
static float *copy_of(struct device_test *test, const struct vector_file *file, const char *name)
{
    int64_t count;
    const float *values = vector_file_floats(file, name, &count);
    return device_test_copy(test, TYPE_FP32, values, count);
}

static void check_vector(struct vector_file *file, const char *name, enum target_loss_kind kind,
                         bool weights)
{
    char key[64];
    double loss = 0;
    DEVICE_TEST(test, 2);
    float *gradient = copy_of(&test, file, "predictions");
    struct loss_sums *sums =
        device_test_zeros(&test, TYPE_FP32, (int64_t)(sizeof *sums / sizeof(float)));
    const int64_t batch = vector_file_size(file, "predictions", 0);
    DEVICE_RUN(&test, target_loss, .kind = kind, .batch = batch,
               .outputs = vector_file_size(file, "predictions", 1),
               .height = vector_file_size(file, "predictions", 2),
               .width = vector_file_size(file, "predictions", 3), .scale = 1,
               .weights = weights ? copy_of(&test, file, "weights") : NULL, .predictions = gradient,
               .targets =
                   copy_of(&test, file, kind == TARGET_CROSS_ENTROPY ? "classes" : "targets"),
               .dpredictions = gradient, .sums = sums);
    device_test_wait(&test);
    snprintf(key, sizeof key, "%s%s.losses", name, weights ? "_weights" : "");
    const double *losses = vector_file_doubles(file, key, NULL);
    for (int64_t i = 0; i < batch; i++)
        loss += losses[i];
    assert_true(fabs(sums->loss - loss) <= 1e-6 * loss);
    snprintf(key, sizeof key, "%s%s.gradient", name, weights ? "_weights" : "");
    const double *expected = vector_file_doubles(file, key, NULL);
    device_test_near(&test, key, gradient, expected, 1e-6, 0.01);
}

TEST_KERNELS(losses_are_pytorchs)
{
    VECTOR_FILE(file, "target_loss.safetensors");
    for (int weights = 0; weights < 2; weights++) {
        check_vector(file, "squared", TARGET_SQUARED, weights);
        check_vector(file, "absolute", TARGET_ABSOLUTE, weights);
        check_vector(file, "huber", TARGET_HUBER, weights);
        check_vector(file, "binary", TARGET_BINARY, weights);
        check_vector(file, "cross_entropy", TARGET_CROSS_ENTROPY, weights);
    }
}

/* Run one sample of two values and two outputs. Return its loss; args.dpredictions: its gradient.
 */
static double loss_of_pair(struct target_loss *args, const float *predictions, const float *targets,
                           float *gradient)
{
    DEVICE_TEST(test, 1);
    args->batch = args->height = 1;
    args->outputs = 2;
    args->scale = 1;
    args->width = args->kind == TARGET_CROSS_ENTROPY ? 2 : 1;
    const int64_t count = 2 * args->width;
    float *written = device_test_zeros(&test, TYPE_FP32, count);
    args->predictions = device_test_copy(&test, TYPE_FP32, predictions, count);
    args->targets = device_test_copy(&test, TYPE_FP32, targets, 2);
    args->dpredictions = written;
    args->sums = device_test_zeros(&test, TYPE_FP32, (int64_t)(sizeof *args->sums / sizeof(float)));
    DEVICE_QUEUE(&test, target_loss, args);
    device_test_wait(&test);
    for (int64_t i = 0; i < count; i++)
        gradient[i] = written[i];
    return args->sums->loss;
}

static const enum target_loss_kind elementwise[] = {TARGET_SQUARED, TARGET_ABSOLUTE, TARGET_HUBER,
                                                    TARGET_BINARY};

TEST_KERNELS(nan_predictions_are_found)
{
    const float first[] = {NAN, 1, 2, 3}, targets[] = {1, 0}, missing[] = {NAN, 0};
    float gradient[4];

    for (int i = 0; i < 4; i++) {
        struct target_loss args = {.kind = elementwise[i]};
        assert_true(isnan(loss_of_pair(&args, first, targets, gradient)));
        assert_true(isnan(gradient[0]) && isfinite(gradient[1]));
        assert_true(isfinite(loss_of_pair(&args, first, missing, gradient)));
        assert_true(gradient[0] == 0 && isfinite(gradient[1]) && gradient[1] != 0);
    }
    struct target_loss args = {.kind = TARGET_CROSS_ENTROPY};
    assert_true(isnan(loss_of_pair(&args, first, targets, gradient)) && isnan(gradient[0]));
    assert_true(isfinite(loss_of_pair(&args, first, missing, gradient)));
    assert_true(gradient[0] == 0 && gradient[2] == 0 && gradient[3] != 0);
}

/* Targets of planes are not checked before the operation. */
TEST_KERNELS(invalid_classes_are_nan)
{
    const float logits[] = {0, 1, 2, 3}, invalid[] = {-1, 2, 0.5f, INFINITY, 1e30f};
    float gradient[4];

    for (int i = 0; i < 5; i++) {
        struct target_loss args = {.kind = TARGET_CROSS_ENTROPY};
        const float targets[] = {1, invalid[i]};
        assert_true(isnan(loss_of_pair(&args, logits, targets, gradient)));
        assert_true(isnan(gradient[0]) && isnan(gradient[3]));
    }
}

TEST(large_losses_are_kept)
{
    const float large[] = {1e30f, 0}, targets[] = {0, 0};
    float gradient[2];
    struct target_loss args = {.kind = TARGET_SQUARED};
    assert_true(loss_of_pair(&args, large, targets, gradient) ==
                (double)large[0] * (double)large[0] / 2);
    args.kind = TARGET_HUBER;
    assert_true(loss_of_pair(&args, large, targets, gradient) == (double)large[0] / 2);
    args.kind = TARGET_BINARY;
    assert_true(loss_of_pair(&args, large, targets, gradient) > 4e29);
    assert_true(gradient[0] == 0.5f && gradient[1] == 0.25f);
}

TEST_MAIN()
