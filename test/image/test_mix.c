// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* images_mix against torchvision's MixUp and CutMix (test/vectors/make_mix.py) and against double
 * precision, and the distribution of the draws. */
#include "device_test.h"
#include "image/augment.h"
#include "options/options.h"
#include "test.h"
#include "vector_file.h"

enum { DRAWS = 20000 };

static struct options options;
static struct error error;

static int set_up(void **state)
{
    (void)state;
    options_default(&options);
    return 0;
}

/* ---- The operation */
static struct images_mix mix_make(struct device_test *test, enum data_type type, int64_t batch,
                                  int64_t height, int64_t width, int64_t classes)
{
    struct images_mix args = {
        .type = type,
        .batch = batch,
        .channels = 3,
        .height = height,
        .width = width,
        .classes = classes,
        .images = device_test_random(test, type, batch * 3 * height * width, 2, 1),
        .targets = device_test_random(test, TYPE_FP32, batch * classes, 1, 2)};
    int32_t *labels = device_test_zeros(test, TYPE_FP32, batch);
    for (int64_t i = 0; i < batch; i++)
        labels[i] = (int32_t)(i * 5 % classes);
    args.labels = labels;
    return args;
}

static void plans_put(struct device_test *test, struct images_mix *args,
                      const struct mix_plan *plans)
{
    int64_t bytes = args->batch / 2 * (int64_t)sizeof *plans;
    args->plans = device_test_copy(test, TYPE_FP32, plans, bytes / 4);
}

static void mix_run(struct device_test *test, const struct images_mix *args)
{
    test->device->backend->images_mix(test->stream, args);
    device_test_wait(test);
}

/* According to the definition in device.h. */
static double expected_pixel(const struct images_mix *args, const double *images, int64_t sample,
                             int64_t at)
{
    const int64_t elements = args->channels * args->height * args->width, partner = sample ^ 1;
    double own = images[sample * elements + at];
    if (partner >= args->batch)
        return own;
    const struct mix_plan *plan = &args->plans[sample / 2];
    double other = images[partner * elements + at], share = (double)plan->share;
    if (!plan->cut)
        return share * own + (1 - share) * other;
    int64_t x = at % args->width, y = at / args->width % args->height;
    bool inside =
        x >= plan->x && x < plan->x + plan->width && y >= plan->y && y < plan->y + plan->height;
    return inside ? other : own;
}

static void check_definition(enum data_type type, int64_t batch, int64_t side)
{
    DEVICE_TEST(test, 2);
    struct images_mix args = mix_make(&test, type, batch, side, side, 11);
    const struct mix_plan plans[] = {
        {.share = 0.3f},
        {.share = 0.75f, .cut = true, .x = 1, .y = 2, .width = 3, .height = 4},
        {.share = 1, .cut = true, .x = (int16_t)side, .y = 0, .width = 0, .height = 2},
        {.share = 0, .cut = true, .width = (int16_t)side, .height = (int16_t)side},
        {.share = 1},
    };
    args.smoothing = 0.1f;
    plans_put(&test, &args, plans);
    int64_t elements = 3 * side * side, count = batch * elements;
    double *before = calloc((size_t)count, sizeof *before);
    double *expected = calloc((size_t)count, sizeof *expected);
    for (int64_t i = 0; i < count; i++)
        before[i] = device_test_value(type, args.images, i);
    for (int64_t i = 0; i < count; i++)
        expected[i] = expected_pixel(&args, before, i / elements, i % elements);
    mix_run(&test, &args);
    device_test_near(&test, "images", args.images, expected, device_test_precision(type), 1);
    for (int64_t i = 0; i < batch; i++) {
        double share = i + 1 == batch && batch % 2 == 1 ? 1 : (double)plans[i / 2].share, sum = 0;
        for (int64_t c = 0; c < 11; c++) {
            double target = 0.1 / 11;
            target += c == args.labels[i] ? 0.9 * share : 0;
            if ((i ^ 1) < batch)
                target += c == args.labels[i ^ 1] ? 0.9 * (1 - share) : 0;
            assert_true(fabs((double)args.targets[i * 11 + c] - target) < 1e-6);
            sum += (double)args.targets[i * 11 + c];
        }
        assert_true(fabs(sum - 1) < 1e-6);
    }
    free(before);
    free(expected);
}

TEST_KERNELS(every_kernels)
{
    for (int type = 0; type < 3; type++) {
        check_definition((enum data_type)type, 10, 8);
        check_definition((enum data_type)type, 7, 9); /* odd; not a multiple of eight */
        check_definition((enum data_type)type, 1, 9);
    }
    check_definition(TYPE_FP32, 3, 33); /* more than one block of a GPU */
}

/* A pair mixed by torchvision, with its share and rectangle. */
static void check_torchvision(struct vector_file *file, const char *name, bool cut)
{
    char key[64];
    DEVICE_TEST(test, 1);
    snprintf(key, sizeof key, "%s.parameters", name);
    const double *parameters = vector_file_doubles(file, key, NULL);
    int64_t cases = vector_file_size(file, key, 0), height = vector_file_size(file, "images", 2);
    int64_t width = vector_file_size(file, "images", 3), classes = 7,
            count = 2 * 3 * height * width;
    for (int64_t i = 0; i < cases; i++, parameters += 3) {
        struct mix_plan plan = {.share = (float)parameters[0]};
        if (cut)
            mix_cut(parameters[0], (int64_t)parameters[1], (int64_t)parameters[2], width, height,
                    &plan);
        struct images_mix args = mix_make(&test, TYPE_FP32, 2, height, width, classes);
        memcpy(args.images, vector_file_floats(file, "images", NULL), (size_t)count * 4);
        args.labels =
            device_test_copy(&test, TYPE_FP32, vector_file_integers(file, "labels", NULL), 2);
        plans_put(&test, &args, &plan);
        mix_run(&test, &args);
        snprintf(key, sizeof key, "%s.images", name);
        const float *images = vector_file_floats(file, key, NULL) + i * count;
        for (int64_t p = 0; p < count; p++)
            if (fabsf(((float *)args.images)[p] - images[p]) > (cut ? 0 : 1e-6f))
                fail_msg("%s, case %d, pixel %d", name, (int)i, (int)p);
        snprintf(key, sizeof key, "%s.targets", name);
        const float *targets = vector_file_floats(file, key, NULL) + i * 2 * classes;
        for (int64_t c = 0; c < 2 * classes; c++)
            assert_true(fabsf(args.targets[c] - targets[c]) < 1e-6f);
    }
}

/* Also a batch without samples. */
TEST(test_torchvision)
{
    struct vector_file *file = vector_file_open("mix.safetensors");
    check_torchvision(file, "mixup", false);
    check_torchvision(file, "cutmix", true);
    vector_file_close(file);
    DEVICE_TEST(test, 1);
    struct images_mix args = mix_make(&test, TYPE_FP32, 2, 4, 4, 3);
    args.batch = 0;
    mix_run(&test, &args);
}

/* Aborts on a CPU; targets are NaN elsewhere. */
static void run_bad_label(struct device_test *test)
{
    struct images_mix args = mix_make(test, TYPE_FP32, 2, 4, 4, 3);
    int32_t *labels = device_test_zeros(test, TYPE_FP32, 2);
    labels[1] = 3;
    args.labels = labels;
    plans_put(test, &args, &(struct mix_plan){.share = 0.5f});
    mix_run(test, &args);
    assert_true(isnan(args.targets[4]));
}

TEST(test_bad_label)
{
    DEVICE_TEST(test, 1);
    if (strcmp(test.device->backend->name, "cpu") == 0)
        device_test_ends(run_bad_label, "not one of 3 classes");
    else
        run_bad_label(&test);
}

/* ---- The draws */
static struct augment drawn(double mixup, double cutmix)
{
    struct augment mix;
    options.augment.mixup = mixup;
    options.augment.cutmix = cutmix;
    assert_true(augment_open(&mix, &options, 40, 30, true, &error));
    return mix;
}

/* Mean 1/2, variance 1 / (4 (2 alpha + 1)), fourth moment about the middle 3 / (16 (2 alpha + 1)
 * (2 alpha + 3)): of Beta(alpha, alpha). */
static void check_beta(double alpha)
{
    struct augment mix = drawn(alpha, 0);
    double mean = 0, square = 0, fourth = 0, variance = 1 / (4 * (2 * alpha + 1));
    for (uint32_t i = 0; i < DRAWS; i++) {
        double share = mix_draw_share(&mix, 3, i, alpha), off = share - 0.5;
        assert_true(share >= 0 && share <= 1);
        mean += off / DRAWS;
        square += off * off / DRAWS;
        fourth += off * off * off * off / DRAWS;
    }
    double expected4 = 3 / (16 * (2 * alpha + 1) * (2 * alpha + 3));
    if (fabs(mean) > 4.5 * sqrt(variance / DRAWS) ||
        fabs(square - variance) > 4.5 * sqrt((expected4 - variance * variance) / DRAWS) + 1e-9 ||
        fabs(fourth - expected4) > 0.05 * expected4)
        fail_msg("alpha %g: %g, %g (%g), %g (%g)", alpha, mean, square, variance, fourth,
                 expected4);
}

TEST_WITH(test_beta, set_up, NULL)
{
    const double alphas[] = {1e-300, 0.001, 0.2, 0.5, 0.8, 1, 1.5, 8, 100};
    for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++)
        check_beta(alphas[i]);
}

static int cuts(const struct augment *mix)
{
    int count = 0;
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct mix_plan plan;
        mix_plan(mix, 1, i, &plan);
        count += plan.cut;
        assert_true(plan.share >= 0 && plan.share <= 1);
        assert_true(plan.x >= 0 && plan.width >= 0 && plan.x + plan.width <= 40);
        assert_true(plan.y >= 0 && plan.height >= 0 && plan.y + plan.height <= 30);
        if (plan.cut)
            assert_true(fabs(1 - plan.width * plan.height / 1200.0 - (double)plan.share) < 1e-6);
    }
    return count;
}

TEST_WITH(test_choice, set_up, NULL)
{
    struct augment mix = drawn(0.2, 0);
    assert_int_equal(cuts(&mix), 0);
    mix = drawn(0, 1);
    assert_int_equal(cuts(&mix), DRAWS);
    mix = drawn(0.2, 1);
    assert_share(DRAWS, cuts(&mix), 0.5);
}

TEST_MAIN()
