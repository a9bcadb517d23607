// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Augmentation with given parameters, compared with torchvision through Pillow: transforms of a
 * plan, pixel for pixel; MixUp and CutMix (test/vectors/make_mix.py), also with double precision;
 * every operation of RandAugment and colour jitter (test/vectors/make_policy.py), byte for byte and
 * with every instruction set. */
#include "device_test.h"
#include "image/augment.h"
#include "vector_file.h"

enum { CASE_FIELDS = 10, TURN_FIELDS = 5, MATRIX = 6 };

static struct pixel_plan plan_of_turn(const double *values, int64_t width, int64_t height)
{
    (void)width, (void)height;
    struct pixel_plan plan = {.roll_x = (int16_t)values[0],
                              .roll_y = (int16_t)values[1],
                              .flip = values[2] != 0,
                              .vflip = values[3] != 0};
    augment_turn((int64_t)values[4], &plan);
    return plan;
}

static struct pixel_plan plan_of_case(const double *values, int64_t width, int64_t height)
{
    struct pixel_plan plan = {.shift_x = (int16_t)values[0],
                              .shift_y = (int16_t)values[1],
                              .flip = values[2] != 0,
                              .translate_x = (int16_t)values[4],
                              .translate_y = (int16_t)values[5],
                              .erase_x = (int16_t)values[6],
                              .erase_y = (int16_t)values[7],
                              .erase_width = (int16_t)values[8],
                              .erase_height = (int16_t)values[9]};
    if (values[3] != 0)
        augment_rotation(values[3], width, height, &plan);
    return plan;
}

static void apply(const struct pixel_plan *plan, const uint8_t *source, int64_t height,
                  int64_t width, float *moved)
{
    static const float mean[3] = {0, 0, 0}, std[3] = {1, 1, 1};
    const int64_t pixels = 3 * height * width;
    DEVICE_TEST(test, 1);
    void *rows = device_test_zeros(&test, TYPE_FP32, (int64_t)(sizeof *plan + 3) / 4);
    void *planes = device_test_zeros(&test, TYPE_FP32, (pixels + 3) / 4);
    const struct image_transform transform = {.type = TYPE_FP32,
                                              .batch = 1,
                                              .channels = 3,
                                              .source_height = height,
                                              .source_width = width,
                                              .height = height,
                                              .width = width,
                                              .source = memcpy(planes, source, (size_t)pixels),
                                              .plans = memcpy(rows, plan, sizeof *plan),
                                              .mean = mean,
                                              .std = std,
                                              .images =
                                                  device_test_zeros(&test, TYPE_FP32, pixels)};
    test.device->backend->image_transform(test.stream, &transform);
    device_test_wait(&test);
    memcpy(moved, transform.images, (size_t)pixels * sizeof *moved);
}

/* Compare images of a size with those of the vectors `cases`. */
static void check_pixels(const char *size, const char *cases, const char *images, int fields,
                         struct pixel_plan (*plan_of)(const double *, int64_t, int64_t))
{
    VECTOR_FILE(file, "augment.safetensors");
    char name[64];
    snprintf(name, sizeof name, "%s.source", size);
    int64_t height = vector_file_size(file, name, 1), width = vector_file_size(file, name, 2);
    const uint8_t *source = vector_file_bytes(file, name, NULL);
    snprintf(name, sizeof name, "%s.%s", size, images);
    const uint8_t *expected = vector_file_bytes(file, name, NULL);
    int64_t count = vector_file_size(file, cases, 0), pixels = 3 * height * width;
    OWNED float *moved = allocate((size_t)pixels, sizeof *moved);
    for (int64_t i = 0; i < count; i++) {
        struct pixel_plan plan =
            plan_of(vector_file_doubles(file, cases, NULL) + i * fields, width, height);
        apply(&plan, source, height, width, moved);
        for (int64_t p = 0; p < pixels; p++)
            if (lrintf(moved[p] * 255) != expected[i * pixels + p])
                fail_msg("%s, %s %d, pixel %d: %g, expected %d", size, cases, (int)i, (int)p,
                         (double)moved[p] * 255, expected[i * pixels + p]);
    }
}

TEST(test_pixels)
{
    check_pixels("square", "cases", "moved", CASE_FIELDS, plan_of_case);
    check_pixels("wide", "cases", "moved", CASE_FIELDS, plan_of_case);
    check_pixels("square", "square.turns", "turned", TURN_FIELDS, plan_of_turn);
    check_pixels("wide", "wide.turns", "turned", TURN_FIELDS, plan_of_turn);
}

static void check_matrices(const char *size, int64_t width, int64_t height)
{
    VECTOR_FILE(file, "augment.safetensors");
    char name[64];
    int64_t count;
    snprintf(name, sizeof name, "%s.angles", size);
    const double *angles = vector_file_doubles(file, name, &count);
    snprintf(name, sizeof name, "%s.matrices", size);
    const int32_t *expected = vector_file_integers(file, name, NULL);
    assert_true(count >= 100);
    for (int64_t i = 0; i < count; i++) {
        struct pixel_plan plan = {0};
        augment_rotation(angles[i], width, height, &plan);
        assert_true(plan.rotate);
        assert_memory_equal(plan.matrix, expected + i * MATRIX, sizeof plan.matrix);
    }
}

TEST(test_matrices)
{
    check_matrices("square", 32, 32);
    check_matrices("wide", 28, 20);
}

/* ---- Mixup and CutMix */
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
    const double *before = device_test_values(&test, args.images);
    double *expected = device_test_expected(&test, count);
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
    VECTOR_FILE(file, "mix.safetensors");
    check_torchvision(file, "mixup", false);
    check_torchvision(file, "cutmix", true);
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

/* ---- RandAugment and colour changes, on the host */

static void change_check(const struct changed_image *image, const uint8_t *source, size_t bytes,
                         const struct image_change *change, const uint8_t *expected)
{
    memcpy(image->planes, source, bytes);
    image_change(image, change);
    for (size_t i = 0; i < bytes; i++)
        if (image->planes[i] != expected[i])
            fail_msg("kind %d, %g, %d x %d, byte %zu: %d, torchvision has %d", (int)change->kind,
                     change->amount, (int)image->height, (int)image->width, i, image->planes[i],
                     expected[i]);
}

static void check_picture(struct vector_file *file, const char *name,
                          const struct cpu_kernels *host)
{
    char key[64];
    int64_t count;
    snprintf(key, sizeof key, "%s.source", name);
    const uint8_t *source = vector_file_bytes(file, key, &count);
    const size_t bytes = (size_t)count;
    const struct changed_image image = {.planes = malloc(bytes),
                                        .scratch = malloc(bytes),
                                        .height = vector_file_size(file, key, 1),
                                        .width = vector_file_size(file, key, 2),
                                        .host = host};
    const double *operation = vector_file_doubles(file, "operations", NULL);
    snprintf(key, sizeof key, "%s.operations", name);
    const uint8_t *expected = vector_file_bytes(file, key, NULL);
    for (int64_t i = 0; i < vector_file_size(file, "operations", 0); i++, operation += 3) {
        const struct image_change change =
            policy_operation((enum image_change_kind)operation[0], (int64_t)operation[1],
                             operation[2] != 0, image.height, image.width);
        change_check(&image, source, bytes, &change, expected + i * count);
    }
    const double *given = vector_file_doubles(file, "changes", NULL);
    snprintf(key, sizeof key, "%s.changes", name);
    expected = vector_file_bytes(file, key, NULL);
    for (int64_t i = 0; i < vector_file_size(file, "changes", 0); i++, given += 2)
        change_check(&image, source, bytes,
                     &(struct image_change){(enum image_change_kind)given[0], given[1]},
                     expected + i * count);
    free(image.planes);
    free(image.scratch);
}

TEST(changes_are_torchvisions)
{
    static const char *const names[] = {"noise", "ramps", "grey", "pixel", "lines"};
    static const char *const sets[] = {"baseline", "avx2", "avx512", "neon_bf16"};
    int tried = 0;
    VECTOR_FILE(file, "policy.safetensors");
    for (size_t set = 0; set < sizeof sets / sizeof *sets; set++) {
        error_clear(&error);
        device_test_set_kernels(sets[set]);
        const struct cpu_kernels *host = cpu_kernels_choose(&error);
        device_test_set_kernels(NULL);
        for (size_t i = 0; host != NULL && i < sizeof names / sizeof *names; i++)
            check_picture(file, names[i], host);
        tried += host != NULL;
    }
    assert_true(tried > 0);
}

TEST_MAIN()
