// SPDX-License-Identifier: BSD-3-Clause
/* RandAugment and colour jitter: every operation compared with torchvision through Pillow
 * (test/vectors/make_policy.py), byte for byte and with every instruction set; the distributions of
 * random draws, and their dependence on seed, epoch and sample only. */
#include "data/crop.h"
#include "device_test.h"
#include "image/augment.h"
#include "options/options.h"
#include "test.h"
#include "vector_file.h"

enum { DRAWS = 20000, HEIGHT = 30, WIDTH = 40 };

static struct options options;

static int set_up(void **state)
{
    (void)state;
    options_default(&options);
    return 0;
}

static struct augment policy_of_options(void)
{
    struct augment policy;
    struct error error = {0};
    assert_true(augment_open(&policy, &options, WIDTH, HEIGHT, true, &error));
    return policy;
}

/* ---- Pixels. */

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
    struct vector_file *file = vector_file_open("policy.safetensors");
    for (size_t set = 0; set < sizeof sets / sizeof *sets; set++) {
        struct error error = {0};
        device_test_set_kernels(sets[set]);
        const struct cpu_kernels *host = cpu_kernels_choose(&error);
        device_test_set_kernels(NULL);
        for (size_t i = 0; host != NULL && i < sizeof names / sizeof *names; i++)
            check_picture(file, names[i], host);
        tried += host != NULL;
    }
    assert_true(tried > 0);
    vector_file_close(file);
}

/* ---- Draws. */
TEST_WITH(operations_are_as_likely, set_up, NULL)
{
    options.augment.rand_augment = 2;
    struct augment policy = policy_of_options();
    int kinds[2][POLICY_OPERATIONS] = {{0}}, pairs = 0, negative = 0, sheared = 0;
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct image_change changes[POLICY_MOST];
        assert_int_equal(policy_draw(&policy, 0, i, HEIGHT, WIDTH, changes), 2);
        kinds[0][changes[0].kind]++;
        kinds[1][changes[1].kind]++;
        pairs += changes[0].kind == changes[1].kind;
        sheared += changes[0].kind == CHANGE_SHEAR_X;
        negative += changes[0].kind == CHANGE_SHEAR_X && changes[0].amount < 0;
    }
    for (int i = 0; i < POLICY_OPERATIONS; i++) {
        assert_share(DRAWS, kinds[0][i], 1.0 / POLICY_OPERATIONS);
        assert_share(DRAWS, kinds[1][i], 1.0 / POLICY_OPERATIONS);
    }
    assert_share(DRAWS, pairs, 1.0 / POLICY_OPERATIONS);
    assert_true(fabs(negative - sheared / 2.0) < 4.5 * sqrt(sheared / 4.0));
}

/* Each third of the images has one change, and radii of blurs are uniform. */
TEST_WITH(three_augments_are_as_likely, set_up, NULL)
{
    int grey = 0, solarized = 0, blurred = 0, small = 0;
    options.augment.three_augment = true;
    struct augment policy = policy_of_options();
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct image_change change[POLICY_MOST];
        assert_int_equal(policy_draw(&policy, 0, i, HEIGHT, WIDTH, change), 1);
        grey += change->kind == CHANGE_GREYSCALE;
        solarized += change->kind == CHANGE_SOLARIZE && change->amount == 128;
        if (change->kind != CHANGE_BLUR)
            continue;
        assert_true(change->amount >= 0.1 && change->amount <= 2);
        blurred++;
        small += change->amount < 1.05;
    }
    assert_share(DRAWS, grey, 1.0 / 3);
    assert_share(DRAWS, solarized, 1.0 / 3);
    assert_share(DRAWS, blurred, 1.0 / 3);
    assert_share(DRAWS, small, 1.0 / 6);
}

static void set_jitter(void)
{
    options.augment.brightness = 0.4;
    options.augment.contrast = 1.5;
    options.augment.saturation = 0.2;
    options.augment.hue = 0.1;
    options.augment.greyscale = 0.2;
}

/* Each factor is uniform between its bounds: check mean and variance. All 24 orders occur equally
 * often. */
TEST_WITH(factors_and_orders_are_uniform, set_up, NULL)
{
    static const double bounds[POLICY_OPERATIONS + 1][2] = {[CHANGE_BRIGHTNESS] = {0.6, 1.4},
                                                            [CHANGE_CONTRAST] = {0, 2.5},
                                                            [CHANGE_SATURATION] = {0.8, 1.2},
                                                            [CHANGE_HUE] = {-0.1, 0.1}};
    double sums[POLICY_OPERATIONS + 1] = {0}, squares[POLICY_OPERATIONS + 1] = {0};
    static int orders[16 * 16 * 16];
    int grey = 0, seen = 0;
    set_jitter();
    struct augment policy = policy_of_options();
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct image_change changes[POLICY_MOST];
        int count = policy_draw(&policy, 0, i, HEIGHT, WIDTH, changes);
        orders[(changes[0].kind * 16 + changes[1].kind) * 16 + changes[2].kind]++;
        grey += count == 5;
        assert_true(count == 4 || (count == 5 && changes[4].kind == CHANGE_GREYSCALE));
        for (int c = 0; c < 4; c++) {
            const double *bound = bounds[changes[c].kind];
            double place = (changes[c].amount - bound[0]) / (bound[1] - bound[0]) - 0.5;
            assert_true(fabs(place) < 0.5 + 1e-6);
            sums[changes[c].kind] += place;
            squares[changes[c].kind] += place * place;
        }
    }
    assert_share(DRAWS, grey, 0.2);
    for (int kind = 0; kind <= POLICY_OPERATIONS; kind++)
        if (bounds[kind][1] > 0) {
            assert_true(fabs(sums[kind] / DRAWS) < 4.5 * sqrt(1.0 / 12 / DRAWS));
            assert_true(fabs(squares[kind] / DRAWS - 1.0 / 12) < 4.5 * sqrt(1.0 / 180 / DRAWS));
        }
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        seen += orders[i] > 0;
        if (orders[i] > 0)
            assert_share(DRAWS, orders[i], 1.0 / 24);
    }
    assert_int_equal(seen, 24);
}

static void same_changes(const struct image_change *a, const struct image_change *b, int count)
{
    for (int i = 0; i < count; i++)
        assert_true(a[i].kind == b[i].kind && a[i].amount == b[i].amount);
}

/* Other stages that are switched on do not change the draws of a stage. */
TEST_WITH(stages_draw_apart, set_up, NULL)
{
    set_jitter();
    options.augment.greyscale = 0;
    struct augment jitter = policy_of_options();
    options.augment.rand_augment = 2;
    struct augment both = policy_of_options();
    options.augment.hue = 0;
    struct augment less = policy_of_options();
    for (uint32_t i = 0; i < 100; i++) {
        struct image_change a[POLICY_MOST], b[POLICY_MOST], c[POLICY_MOST];
        assert_int_equal(policy_draw(&jitter, 3, i, HEIGHT, WIDTH, a), 4);
        assert_int_equal(policy_draw(&both, 3, i, HEIGHT, WIDTH, b), 6);
        assert_int_equal(policy_draw(&less, 3, i, HEIGHT, WIDTH, c), 5);
        same_changes(a, b + 2, 4);
        same_changes(b, c, 2);
        int kept = 0;
        for (int j = 0; j < 4; j++)
            if (a[j].kind != CHANGE_HUE)
                same_changes(&a[j], &c[2 + kept++], 1);
    }
}

/* What is drawn for a sample. */
struct draws {
    struct pixel_plan plan;
    struct mix_plan mix;
    struct crop_plan crop;
    double changes[POLICY_MOST][2]; /* kind and amount */
};

static struct draws draws_of(uint32_t epoch, uint32_t sample)
{
    struct draws draws;
    struct image_change changes[POLICY_MOST];
    struct crop crop;
    struct error error = {0};
    const struct augment augment = policy_of_options();
    memset(&draws, 0, sizeof draws);
    assert_true(crop_open(&crop, &options, true, (struct image_size){WIDTH, WIDTH}, true, &error));
    augment_plan(&augment, epoch, sample, &draws.plan);
    mix_plan(&augment, epoch, sample, &draws.mix);
    crop_plan_make(&crop, epoch, sample, 500, 375, &draws.crop);
    const int count = policy_draw(&augment, epoch, sample, HEIGHT, WIDTH, changes);
    for (int i = 0; i < count; i++) {
        draws.changes[i][0] = changes[i].kind;
        draws.changes[i][1] = changes[i].amount;
    }
    return draws;
}

/* All draws depend on seed, epoch and sample only. */
TEST_WITH(draws_have_their_keys, set_up, NULL)
{
    set_jitter();
    options.augment.mixup = 0.4;
    options.augment.rotate = 15;
    options.augment.random_resized_crop = SWITCH_ON;
    for (uint32_t i = 0; i < 100; i++) {
        const struct draws one = draws_of(5, i), again = draws_of(5, i);
        assert_memory_equal(&one, &again, sizeof one);
        for (int key = 0; key < 3; key++) {
            options.run.seed += key == 0;
            const struct draws other = draws_of(key == 1 ? 6 : 5, key == 2 ? i + 1 : i);
            options.run.seed -= key == 0;
            assert_memory_not_equal(one.plan.matrix, other.plan.matrix, sizeof one.plan.matrix);
            assert_memory_not_equal(&one.crop.box, &other.crop.box, sizeof one.crop.box);
            assert_memory_not_equal(one.changes, other.changes, sizeof one.changes);
            assert_true(one.mix.share != other.mix.share);
        }
    }
    struct augment evaluation;
    struct error error = {0};
    assert_true(augment_open(&evaluation, &options, WIDTH, HEIGHT, false, &error));
    assert_false(policy_is_on(&evaluation) || mix_is_on(&evaluation));
}

TEST_MAIN()
