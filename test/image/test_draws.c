// SPDX-License-Identifier: BSD-3-Clause
/* Random draws of augmentation: their distributions, and their dependence on seed, epoch and sample
 * only. */
#include "data/crop.h"
#include "image/augment.h"
#include "options/options.h"
#include "test.h"

enum { DRAWS = 20000, HEIGHT = 30, WIDTH = 40, SIDE = 32 };

/* The plans of the reference, with a crop. */
static const char plan_settings[] =
    "augment.flip=0.5 augment.rotate=15 augment.translate=0.1 augment.erase=0.5 "
    "augment.erase_scale=0.02,0.2 augment.erase_ratio=0.3,3.3 augment.crop_pad=4";
static const char jitter_settings[] =
    "augment.brightness=0.4 augment.contrast=1.5 augment.saturation=0.2 augment.hue=0.1";

static struct options options;
static struct pixel_plan plans[DRAWS]; /* of plans_draw */

/* Set the options to these settings. */
static struct augment augment_with(const char *settings, const char *more)
{
    struct augment augment;
    settings_set(&options, settings);
    settings_apply(&options, more);
    assert_true(augment_open(&augment, &options, WIDTH, HEIGHT, true, &error));
    return augment;
}

/* ---- Plans of square images */

static void plans_draw(const char *more)
{
    struct augment augment = augment_with(plan_settings, more);
    augment.width = augment.height = SIDE;
    for (uint32_t i = 0; i < DRAWS; i++)
        augment_plan(&augment, 3, i, &plans[i]);
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

TEST(flips_and_rotations_are_distributed)
{
    static double degrees[DRAWS];
    double flips = 0, vertical = 0;
    plans_draw("augment.vflip=0.25");
    for (int i = 0; i < DRAWS; i++) {
        flips += plans[i].flip;
        vertical += plans[i].vflip;
        assert_true(plans[i].rotate && !plans[i].transpose);
        degrees[i] = -atan2(plans[i].matrix[1], plans[i].matrix[0]) * 180 / 3.14159265358979;
        assert_true(fabs(degrees[i]) <= 15.01);
    }
    assert_share(DRAWS, flips, 0.5);
    assert_share(DRAWS, vertical, 0.25);
    assert_uniform(degrees, DRAWS, -15, 15);
}

/* A translation is uniform in +-3.2 and rounded: 3 and -3 are less frequent. The shift of a crop is
 * uniform over -4..4, and so are a roll, and the eight symmetries of a square. */
TEST(moves_turns_and_rolls_are_distributed)
{
    static const double moves[] = {0.7 / 6.4, 1 / 6.4, 1 / 6.4,  1 / 6.4,
                                   1 / 6.4,   1 / 6.4, 0.7 / 6.4};
    double turns[8] = {0};
    plans_draw("");
    check_member(offsetof(struct pixel_plan, translate_x), -3, 7, moves);
    check_member(offsetof(struct pixel_plan, translate_y), -3, 7, moves);
    check_member(offsetof(struct pixel_plan, shift_x), -4, 9, NULL);
    check_member(offsetof(struct pixel_plan, shift_y), -4, 9, NULL);
    check_member(offsetof(struct pixel_plan, roll_x), 0, 1, NULL);
    plans_draw("augment.vflip=0.25 augment.rot90=on augment.roll=xy");
    check_member(offsetof(struct pixel_plan, roll_x), 0, SIDE, NULL);
    check_member(offsetof(struct pixel_plan, roll_y), 0, SIDE, NULL);
    for (int i = 0; i < DRAWS; i++)
        turns[plans[i].flip + 2 * plans[i].vflip + 4 * plans[i].transpose]++;
    for (int i = 0; i < 8; i++)
        assert_share(DRAWS, turns[i], 0.125);
}

TEST(erased_rectangles_are_distributed)
{
    double erased = 0, small = 0, tall = 0, left = 0;
    plans_draw("");
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

    /* This rectangle never fits. */
    plans_draw("augment.erase=1 augment.erase_scale=1,1 augment.erase_ratio=1,1");
    for (int i = 0; i < DRAWS; i++)
        assert_int_equal(plans[i].erase_width, 0);
}

/* ---- Mixup and CutMix */

/* Mean 1/2, variance 1 / (4 (2 alpha + 1)), fourth moment about the middle 3 / (16 (2 alpha + 1)
 * (2 alpha + 3)): of Beta(alpha, alpha). */
static void check_beta(const struct augment *mix, double alpha)
{
    double mean = 0, square = 0, fourth = 0, variance = 1 / (4 * (2 * alpha + 1));
    for (uint32_t i = 0; i < DRAWS; i++) {
        double share = mix_draw_share(mix, 3, i, alpha), off = share - 0.5;
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

TEST(shares_have_the_moments_of_beta)
{
    const struct augment mix = augment_with("augment.mixup=1", "");
    const double alphas[] = {1e-300, 0.001, 0.2, 0.5, 0.8, 1, 1.5, 8, 100};
    for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++)
        check_beta(&mix, alphas[i]);
}

static int cuts(const struct augment *mix)
{
    int count = 0;
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct mix_plan plan;
        mix_plan(mix, 1, i, &plan);
        count += plan.cut;
        assert_true(plan.share >= 0 && plan.share <= 1);
        assert_true(plan.x >= 0 && plan.width >= 0 && plan.x + plan.width <= WIDTH);
        assert_true(plan.y >= 0 && plan.height >= 0 && plan.y + plan.height <= HEIGHT);
        if (plan.cut)
            assert_true(fabs(1 - plan.width * plan.height / 1200.0 - (double)plan.share) < 1e-6);
    }
    return count;
}

TEST(half_of_the_pairs_are_cut)
{
    const struct augment mixup = augment_with("augment.mixup=0.2", "");
    const struct augment cutmix = augment_with("augment.cutmix=1", "");
    const struct augment both = augment_with("augment.mixup=0.2 augment.cutmix=1", "");
    assert_int_equal(cuts(&mixup), 0);
    assert_int_equal(cuts(&cutmix), DRAWS);
    assert_share(DRAWS, cuts(&both), 0.5);
}

/* ---- RandAugment and colour changes */

TEST(operations_are_as_likely)
{
    struct augment policy = augment_with("augment.rand_augment=2", "");
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
TEST(three_augments_are_as_likely)
{
    int grey = 0, solarized = 0, blurred = 0, small = 0;
    struct augment policy = augment_with("augment.three_augment=on", "");
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

/* Each factor is uniform between its bounds. All 24 orders occur equally often. */
TEST(factors_and_orders_are_uniform)
{
    static const double bounds[POLICY_OPERATIONS + 1][2] = {[CHANGE_BRIGHTNESS] = {0.6, 1.4},
                                                            [CHANGE_CONTRAST] = {0, 2.5},
                                                            [CHANGE_SATURATION] = {0.8, 1.2},
                                                            [CHANGE_HUE] = {-0.1, 0.1}};
    static double amounts[POLICY_OPERATIONS + 1][DRAWS];
    static int orders[16 * 16 * 16];
    int grey = 0, seen = 0;
    struct augment policy = augment_with(jitter_settings, "augment.greyscale=0.2");
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct image_change changes[POLICY_MOST];
        int count = policy_draw(&policy, 0, i, HEIGHT, WIDTH, changes);
        orders[(changes[0].kind * 16 + changes[1].kind) * 16 + changes[2].kind]++;
        grey += count == 5;
        assert_true(count == 4 || (count == 5 && changes[4].kind == CHANGE_GREYSCALE));
        for (int c = 0; c < 4; c++) {
            const double *bound = bounds[changes[c].kind], amount = changes[c].amount;
            assert_true(amount > bound[0] - 1e-6 && amount < bound[1] + 1e-6);
            amounts[changes[c].kind][i] = amount;
        }
    }
    assert_share(DRAWS, grey, 0.2);
    for (int kind = 0; kind <= POLICY_OPERATIONS; kind++)
        if (bounds[kind][1] > 0)
            assert_uniform(amounts[kind], DRAWS, bounds[kind][0], bounds[kind][1]);
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

/* Other stages that are switched on or off do not change the draws of a stage. */
TEST(stages_draw_apart)
{
    static struct pixel_plan rotated[DRAWS];
    plans_draw("");
    memcpy(rotated, plans, sizeof plans);
    plans_draw("augment.rotate=0");
    for (int i = 0; i < DRAWS; i++) {
        assert_false(plans[i].rotate);
        memcpy(plans[i].matrix, rotated[i].matrix, sizeof rotated[i].matrix);
        plans[i].rotate = true;
    }
    assert_memory_equal(plans, rotated, sizeof plans);
    struct augment jitter = augment_with(jitter_settings, "");
    struct augment both = augment_with(jitter_settings, "augment.rand_augment=2");
    struct augment less = augment_with(jitter_settings, "augment.rand_augment=2 augment.hue=0");
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

/* Noise has the key of the sample. */
TEST(plans_have_their_keys)
{
    const struct augment augment =
        augment_with("augment.noise=0.5 augment.channel_dropout=0.25", "");
    struct pixel_plan plan;
    augment_plan(&augment, 7, 11, &plan);
    assert_true(plan.noise == 0.5f && plan.channel_dropout == 0.25f);
    assert_true(plan.seed == augment.seed && plan.epoch == 7 && plan.sample == 11);
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
    struct augment augment;
    struct image_change changes[POLICY_MOST];
    struct crop crop;
    memset(&draws, 0, sizeof draws);
    assert_true(augment_open(&augment, &options, WIDTH, HEIGHT, true, &error));
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
TEST(draws_have_their_keys)
{
    augment_with(jitter_settings, "augment.greyscale=0.2 augment.mixup=0.4 augment.rotate=15 "
                                  "augment.random_resized_crop=on");
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
    struct pixel_plan plan, none = {0};
    assert_true(augment_open(&evaluation, &options, WIDTH, HEIGHT, false, &error));
    assert_false(policy_is_on(&evaluation) || mix_is_on(&evaluation));
    augment_plan(&evaluation, 7, 11, &plan);
    assert_memory_equal(&plan, &none, sizeof plan);
}

TEST_MAIN()
