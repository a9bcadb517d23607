// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* Augmentation: with given parameters compared with torchvision through Pillow, pixel for pixel;
 * the distributions of random draws, and their dependence on seed, epoch and sample only. */
#include "device_test.h"
#include "image/augment.h"
#include "options/options.h"
#include "test.h"
#include "vector_file.h"

enum { DRAWS = 20000, SIDE = 32 };
enum { CASE_FIELDS = 10, TURN_FIELDS = 5, MATRIX = 6 };

static struct options options;
static struct error error;
static struct pixel_plan plans[DRAWS]; /* of draw_all */

static void set_pair(struct option_list *list, double first, double second)
{
    list->count = 2;
    list->value[0] = first;
    list->value[1] = second;
}

/* The options of the reference, and a crop. */
static int set_up(void **state)
{
    (void)state;
    options_default(&options);
    options.augment.flip = 0.5;
    options.augment.rotate = 15;
    options.augment.translate = 0.1;
    options.augment.erase = 0.5;
    options.augment.crop_pad = 4;
    set_pair(&options.augment.erase_scale, 0.02, 0.2);
    set_pair(&options.augment.erase_ratio, 0.3, 3.3);
    return 0;
}

static void draw_all(struct pixel_plan *drawn, uint32_t epoch)
{
    struct augment augment;
    assert_true(augment_open(&augment, &options, SIDE, SIDE, true, &error));
    for (uint32_t i = 0; i < DRAWS; i++)
        augment_plan(&augment, epoch, i, &drawn[i]);
}

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
    struct vector_file *file = vector_file_open("augment.safetensors");
    char name[64];
    snprintf(name, sizeof name, "%s.source", size);
    int64_t height = vector_file_size(file, name, 1), width = vector_file_size(file, name, 2);
    const uint8_t *source = vector_file_bytes(file, name, NULL);
    snprintf(name, sizeof name, "%s.%s", size, images);
    const uint8_t *expected = vector_file_bytes(file, name, NULL);
    int64_t count = vector_file_size(file, cases, 0), pixels = 3 * height * width;
    float *moved = calloc((size_t)pixels, sizeof *moved);
    for (int64_t i = 0; i < count; i++) {
        struct pixel_plan plan =
            plan_of(vector_file_doubles(file, cases, NULL) + i * fields, width, height);
        apply(&plan, source, height, width, moved);
        for (int64_t p = 0; p < pixels; p++)
            if (lrintf(moved[p] * 255) != expected[i * pixels + p])
                fail_msg("%s, %s %d, pixel %d: %g, expected %d", size, cases, (int)i, (int)p,
                         (double)moved[p] * 255, expected[i * pixels + p]);
    }
    free(moved);
    vector_file_close(file);
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
    struct vector_file *file = vector_file_open("augment.safetensors");
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
    vector_file_close(file);
}

TEST(test_matrices)
{
    check_matrices("square", 32, 32);
    check_matrices("wide", 28, 20);
}

TEST(test_flip_and_rotation)
{
    draw_all(plans, 0);
    double flips = 0, bins[10] = {0};
    for (int i = 0; i < DRAWS; i++) {
        flips += plans[i].flip;
        assert_true(plans[i].rotate);
        double degrees = -atan2(plans[i].matrix[1], plans[i].matrix[0]) * 180 / 3.14159265358979;
        assert_true(fabs(degrees) <= 15.01);
        int bin = (int)floor((degrees + 15) / 3);
        bins[bin < 0 ? 0 : bin > 9 ? 9 : bin]++;
    }
    assert_share(DRAWS, flips, 0.5);
    for (int i = 0; i < 10; i++)
        assert_share(DRAWS, bins[i], 0.1);
}

/* A member of the drawn plans is `low` to low + bins - 1, with these shares; NULL: equal ones. */
static void check_member(size_t offset, int low, int bins, const double *shares)
{
    double counts[SIDE] = {0};
    for (int i = 0; i < DRAWS; i++) {
        int16_t value;
        memcpy(&value, (const char *)&plans[i] + offset, sizeof value);
        assert_in_range(value - low, 0, bins - 1);
        counts[value - low]++;
    }
    for (int i = 0; i < bins; i++)
        assert_share(DRAWS, counts[i], shares != NULL ? shares[i] : 1.0 / bins);
}

/* A translation is uniform in +-3.2 and rounded: 3 and -3 are less frequent. The shift of a crop is
 * uniform over -4..4, and so are a roll, and the eight symmetries of a square. */
TEST(test_moves_turns_and_rolls)
{
    static const double moves[] = {0.7 / 6.4, 1 / 6.4, 1 / 6.4,  1 / 6.4,
                                   1 / 6.4,   1 / 6.4, 0.7 / 6.4};
    double turns[8] = {0}, flips = 0;
    options.augment.vflip = 0.25;
    draw_all(plans, 0);
    check_member(offsetof(struct pixel_plan, translate_x), -3, 7, moves);
    check_member(offsetof(struct pixel_plan, translate_y), -3, 7, moves);
    check_member(offsetof(struct pixel_plan, shift_x), -4, 9, NULL);
    check_member(offsetof(struct pixel_plan, shift_y), -4, 9, NULL);
    check_member(offsetof(struct pixel_plan, roll_x), 0, 1, NULL);
    for (int i = 0; i < DRAWS; i++) {
        flips += plans[i].vflip;
        assert_false(plans[i].transpose);
    }
    assert_share(DRAWS, flips, 0.25);
    options.augment.rot90 = true;
    options.augment.roll = ROLL_XY;
    draw_all(plans, 0);
    check_member(offsetof(struct pixel_plan, roll_x), 0, SIDE, NULL);
    check_member(offsetof(struct pixel_plan, roll_y), 0, SIDE, NULL);
    for (int i = 0; i < DRAWS; i++)
        turns[plans[i].flip + 2 * plans[i].vflip + 4 * plans[i].transpose]++;
    for (int i = 0; i < 8; i++)
        assert_share(DRAWS, turns[i], 0.125);
}

TEST(test_erasing)
{
    draw_all(plans, 0);
    double erased = 0, small = 0, tall = 0, left = 0;
    for (int i = 0; i < DRAWS; i++) {
        const struct pixel_plan *plan = &plans[i];
        if (plan->erase_width == 0)
            continue;
        erased++;
        double area = plan->erase_width * plan->erase_height / (double)(SIDE * SIDE);
        double ratio = plan->erase_height / (double)plan->erase_width;
        assert_true(area > 0.015 && area < 0.23);
        assert_true(ratio > 0.22 && ratio < 4.5);
        assert_true(plan->erase_x >= 0 && plan->erase_x + plan->erase_width <= SIDE);
        assert_true(plan->erase_y >= 0 && plan->erase_y + plan->erase_height <= SIDE);
        small += area < 0.11;
        tall += ratio > 1;
        left += plan->erase_x < (SIDE - plan->erase_width + 1) / 2.0;
    }
    assert_share(DRAWS, erased, 0.5);
    /* Half of the erased area, minus the part that rounding to whole pixels moves over the middle.
     */
    assert_true(fabs(small / erased - 0.5) < 0.02);
    assert_true(fabs(tall / erased - 0.5) < 0.06);
    assert_true(fabs(left / erased - 0.5) < 0.05);

    options.augment.erase = 1;
    set_pair(&options.augment.erase_scale, 1, 1); /* never fits */
    set_pair(&options.augment.erase_ratio, 1, 1);
    draw_all(plans, 0);
    for (int i = 0; i < DRAWS; i++)
        assert_int_equal(plans[i].erase_width, 0);
}

/* Switching a stage off does not change the draws of the others. */
TEST(test_stages_draw_apart)
{
    static struct pixel_plan other[DRAWS];
    draw_all(plans, 3);
    options.augment.rotate = 0;
    draw_all(other, 3);
    for (int i = 0; i < DRAWS; i++) {
        assert_false(other[i].rotate);
        memcpy(other[i].matrix, plans[i].matrix, sizeof plans[i].matrix);
        other[i].rotate = true;
    }
    assert_memory_equal(plans, other, sizeof plans);
}

/* Noise has the key of the sample. In evaluation nothing is drawn. */
TEST(test_noise_and_evaluation)
{
    struct augment augment;
    struct pixel_plan plan, none = {0};
    options.augment.vflip = 1;
    options.augment.noise = 0.5;
    options.augment.channel_dropout = 0.25;
    assert_true(augment_open(&augment, &options, SIDE, SIDE, true, &error));
    augment_plan(&augment, 7, 11, &plan);
    assert_float_equal(plan.noise, 0.5, 0);
    assert_float_equal(plan.channel_dropout, 0.25, 0);
    assert_int_equal(plan.seed, options.run.seed);
    assert_int_equal(plan.epoch, 7);
    assert_int_equal(plan.sample, 11);
    assert_true(augment_open(&augment, &options, SIDE, SIDE, false, &error));
    augment_plan(&augment, 7, 11, &plan);
    assert_memory_equal(&plan, &none, sizeof plan);
}

TEST_MAIN(.before = set_up)
