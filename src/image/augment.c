// SPDX-License-Identifier: BSD-3-Clause
/* Draw the parameters of torchvision's RandomCrop(padding), RandomHorizontalFlip,
 * RandomVerticalFlip, RandomRotation, RandomAffine(0, translate) and RandomErasing from the same
 * distributions; the rotation matrix is that of Pillow's Image.rotate. Each number has a fixed
 * position in the sample's random stream, so disabling one stage does not change the others. */
#include "image/augment.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/error.h"
#include "base/random.h"

/* Blocks of the sample's random stream. */
enum { ERASE_ATTEMPTS = 10 }; /* after these, torchvision erases nothing */
enum {
    BLOCK_MOVE = 0,
    BLOCK_CROP_ERASE = 1,
    BLOCK_ATTEMPT = 2,
    BLOCK_TURN_ROLL = BLOCK_ATTEMPT + ERASE_ATTEMPTS
};

bool augment_open(struct augment *augment, const struct options *options, int64_t width,
                  int64_t height, bool training, struct error *error)
{
    ENSURE(width > 0 && width <= IMAGE_LARGEST && height > 0 && height <= IMAGE_LARGEST,
           "augmentation of images of %lld x %lld pixels", (long long)height, (long long)width);
    *augment = (struct augment){.options = options->augment,
                                .seed = (uint64_t)options->run.seed,
                                .width = width,
                                .height = height,
                                .active = training};
    if (!training || !policy_is_asked_for(options))
        return true;
    augment->host = cpu_kernels_choose(error);
    return augment->host != NULL;
}

/* Same as Python's round(value, 15). */
static double round_15(double value)
{
    return rint(value * 1e15) / 1e15;
}

void augment_rotation(double degrees, int64_t width, int64_t height, struct pixel_plan *plan)
{
    double turn = fmod(degrees, 360.0);
    double angle = -(turn < 0 ? turn + 360.0 : turn) * (M_PI / 180.0);
    double cosine = round_15(cos(angle)), sine = round_15(sin(angle));
    double center_x = (double)width / 2, center_y = (double)height / 2;
    double offset_x = cosine * -center_x + sine * -center_y + center_x;
    double offset_y = -sine * -center_x + cosine * -center_y + center_y;
    plan->rotate = true;
    plan->matrix[0] = fixed_point(cosine);
    plan->matrix[1] = fixed_point(sine);
    plan->matrix[2] = fixed_point(offset_x + cosine * 0.5 + sine * 0.5);
    plan->matrix[3] = fixed_point(-sine);
    plan->matrix[4] = fixed_point(cosine);
    plan->matrix[5] = fixed_point(offset_y + -sine * 0.5 + cosine * 0.5);
}

/* torchvision's RandomErasing.get_params: a rectangle of random area and aspect ratio. Another
 * attempt is made if it does not fit. */
static void draw_erasing(const struct augment *augment, uint32_t epoch, uint32_t sample,
                         struct pixel_plan *plan)
{
    const double *scale = augment->options.erase_scale.value;
    const double *ratios = augment->options.erase_ratio.value;
    double area = (double)(augment->width * augment->height);
    double low = log(ratios[0]), high = log(ratios[1]);
    for (uint32_t attempt = 0; attempt < ERASE_ATTEMPTS; attempt++) {
        struct random_block draw = random_block_at(augment->seed, RANDOM_AUGMENT, 0, epoch, sample,
                                                   BLOCK_ATTEMPT + attempt);
        double erased = area * random_between(draw.word[0], scale[0], scale[1]);
        double ratio = exp(random_between(draw.word[1], low, high));
        int64_t height = (int64_t)rint(sqrt(erased * ratio));
        int64_t width = (int64_t)rint(sqrt(erased / ratio));
        if (height >= augment->height || width >= augment->width)
            continue;
        plan->erase_y = (int16_t)random_integer(draw.word[2], 0, augment->height - height);
        plan->erase_x = (int16_t)random_integer(draw.word[3], 0, augment->width - width);
        plan->erase_height = (int16_t)height;
        plan->erase_width = (int16_t)width;
        return;
    }
}

void augment_turn(int64_t turns, struct pixel_plan *plan)
{
    plan->transpose = turns % 2 == 1;
    plan->flip ^= turns == 1 || turns == 2;
    plan->vflip ^= turns == 2 || turns == 3;
}

static void draw_turn_and_roll(const struct augment *augment, uint32_t epoch, uint32_t sample,
                               struct pixel_plan *plan)
{
    const struct augment_options *options = &augment->options;
    const struct random_block draw =
        random_block_at(augment->seed, RANDOM_AUGMENT, 0, epoch, sample, BLOCK_TURN_ROLL);
    plan->vflip = (double)random_uniform(draw.word[0]) < options->vflip;
    if (options->rot90)
        augment_turn(random_integer(draw.word[1], 0, 3), plan);
    if (options->roll == ROLL_X || options->roll == ROLL_XY)
        plan->roll_x = (int16_t)random_integer(draw.word[2], 0, augment->width - 1);
    if (options->roll == ROLL_Y || options->roll == ROLL_XY)
        plan->roll_y = (int16_t)random_integer(draw.word[3], 0, augment->height - 1);
}

static int16_t draw_shift(uint32_t word, double largest)
{
    return (int16_t)rint(random_between(word, -largest, largest));
}

void augment_plan(const struct augment *augment, uint32_t epoch, uint32_t sample,
                  struct pixel_plan *plan)
{
    const struct augment_options *options = &augment->options;
    memset(plan, 0, sizeof *plan);
    if (!augment->active)
        return;
    struct random_block move =
        random_block_at(augment->seed, RANDOM_AUGMENT, 0, epoch, sample, BLOCK_MOVE);
    struct random_block crop_erase =
        random_block_at(augment->seed, RANDOM_AUGMENT, 0, epoch, sample, BLOCK_CROP_ERASE);
    plan->flip = (double)random_uniform(move.word[0]) < options->flip;
    draw_turn_and_roll(augment, epoch, sample, plan);
    if (options->rotate > 0)
        augment_rotation(random_between(move.word[1], -options->rotate, options->rotate),
                         augment->width, augment->height, plan);
    plan->translate_x = draw_shift(move.word[2], options->translate * (double)augment->width);
    plan->translate_y = draw_shift(move.word[3], options->translate * (double)augment->height);
    const int64_t pad = options->crop == CROP_RANDOM ? 0 : options->crop_pad;
    plan->shift_x = (int16_t)random_integer(crop_erase.word[0], -pad, pad);
    plan->shift_y = (int16_t)random_integer(crop_erase.word[1], -pad, pad);
    if ((double)random_uniform(crop_erase.word[2]) < options->erase)
        draw_erasing(augment, epoch, sample, plan);
    if (options->noise <= 0 && options->channel_dropout <= 0)
        return;
    plan->noise = (float)options->noise;
    plan->channel_dropout = (float)options->channel_dropout;
    plan->seed = augment->seed;
    plan->epoch = epoch;
    plan->sample = sample;
}

/* ---- RandAugment and colour jitter, each from its own random streams. Plans have stream 0. */

enum { STREAM_JITTER = 1, STREAM_OPERATIONS = 2, STREAM_THREE_AUGMENT = 3 };

/* Blocks of the jitter's stream. */
enum { BLOCK_FACTORS = 0, BLOCK_ORDER = 1 };

bool policy_is_asked_for(const struct options *options)
{
    const struct augment_options *augment = &options->augment;
    return augment->rand_augment > 0 || augment->brightness > 0 || augment->contrast > 0 ||
           augment->saturation > 0 || augment->hue > 0 || augment->greyscale > 0 ||
           augment->three_augment;
}

bool policy_is_on(const struct augment *augment)
{
    return augment->host != NULL;
}

/* ---- RandAugment. */
/* torch.linspace(0, end, POLICY_BINS) in fp32. */
static double linear_step(double end, int64_t magnitude)
{
    const float step = (float)end / (POLICY_BINS - 1);
    if (magnitude < POLICY_BINS / 2)
        return (double)(step * (float)magnitude);
    return (double)((float)end - step * (float)(POLICY_BINS - 1 - magnitude));
}

static struct image_change signed_change(enum image_change_kind kind, double amount, bool negative)
{
    return (struct image_change){kind, negative ? -amount : amount};
}

struct image_change policy_operation(enum image_change_kind kind, int64_t magnitude, bool negative,
                                     int64_t height, int64_t width)
{
    const double translation = 150.0 / 331.0;
    const double bits = 8 - rint((double)((float)magnitude / ((POLICY_BINS - 1) / 4.0f)));
    double factor = linear_step(0.9, magnitude);
    switch (kind) {
    case CHANGE_SHEAR_X:
    case CHANGE_SHEAR_Y:
        return signed_change(kind, linear_step(0.3, magnitude), negative);
    case CHANGE_TRANSLATE_X:
        return signed_change(kind, trunc(linear_step(translation * (double)width, magnitude)),
                             negative);
    case CHANGE_TRANSLATE_Y:
        return signed_change(kind, trunc(linear_step(translation * (double)height, magnitude)),
                             negative);
    case CHANGE_ROTATE:
        return signed_change(kind, linear_step(30, magnitude), negative);
    case CHANGE_BRIGHTNESS:
    case CHANGE_SATURATION:
    case CHANGE_CONTRAST:
    case CHANGE_SHARPNESS:
        return (struct image_change){kind, 1 + (negative ? -factor : factor)};
    case CHANGE_POSTERIZE:
        return (struct image_change){kind, bits};
    case CHANGE_SOLARIZE:
        return (struct image_change){kind, linear_step(255, POLICY_BINS - 1 - magnitude)};
    default:
        return (struct image_change){kind, 0};
    }
}

/* ---- 3-Augment, with the default threshold of Pillow's solarize and the blur radii of DeiT III */
static struct image_change three_augment_draw(const struct augment *augment, uint32_t epoch,
                                              uint32_t sample)
{
    const struct random_block draw =
        random_block_at(augment->seed, RANDOM_AUGMENT, STREAM_THREE_AUGMENT, epoch, sample, 0);
    const struct image_change changes[3] = {
        {CHANGE_GREYSCALE, 0},
        {CHANGE_SOLARIZE, 128},
        {CHANGE_BLUR, 0.1 + 1.9 * (double)random_uniform(draw.word[1])}};
    return changes[((uint64_t)draw.word[0] * 3) >> 32];
}

/* ---- Colour jitter. */
static double factor_between(uint32_t word, double low, double high)
{
    return (double)(float)random_between(word, low, high);
}

static double factor_draw(uint32_t word, double spread)
{
    return factor_between(word, spread < 1 ? 1 - spread : 0, 1 + spread);
}

/* Return permutation `number` (0 to 23) of 0..3. */
static void permute_four(int64_t number, int order[4])
{
    int left[4] = {0, 1, 2, 3};
    for (int64_t count = 4; count > 0; number /= count, count--) {
        int64_t chosen = number % count;
        order[4 - count] = left[chosen];
        memmove(left + chosen, left + chosen + 1, (size_t)(count - 1 - chosen) * sizeof *left);
    }
}

static int jitter_draw(const struct augment *augment, uint32_t epoch, uint32_t sample,
                       struct image_change *changes)
{
    const struct augment_options *options = &augment->options;
    struct random_block factors =
        random_block_at(augment->seed, RANDOM_AUGMENT, STREAM_JITTER, epoch, sample, BLOCK_FACTORS);
    struct random_block others =
        random_block_at(augment->seed, RANDOM_AUGMENT, STREAM_JITTER, epoch, sample, BLOCK_ORDER);
    const struct image_change all[4] = {
        {CHANGE_BRIGHTNESS, factor_draw(factors.word[0], options->brightness)},
        {CHANGE_CONTRAST, factor_draw(factors.word[1], options->contrast)},
        {CHANGE_SATURATION, factor_draw(factors.word[2], options->saturation)},
        {CHANGE_HUE, factor_between(factors.word[3], -options->hue, options->hue)}};
    const bool on[4] = {options->brightness > 0, options->contrast > 0, options->saturation > 0,
                        options->hue > 0};
    int order[4], count = 0;
    permute_four((int64_t)(((uint64_t)others.word[0] * 24) >> 32), order);
    for (int i = 0; i < 4; i++)
        if (on[order[i]])
            changes[count++] = all[order[i]];
    if ((double)random_uniform(others.word[1]) < options->greyscale)
        changes[count++] = (struct image_change){CHANGE_GREYSCALE, 0};
    return count;
}

int policy_draw(const struct augment *augment, uint32_t epoch, uint32_t sample, int64_t height,
                int64_t width, struct image_change changes[POLICY_MOST])
{
    int count = (int)augment->options.rand_augment;
    for (int i = 0; i < count; i++) {
        const struct random_block draw = random_block_at(
            augment->seed, RANDOM_AUGMENT, STREAM_OPERATIONS, epoch, sample, (uint32_t)i);
        const enum image_change_kind kind =
            (enum image_change_kind)(((uint64_t)draw.word[0] * POLICY_OPERATIONS) >> 32);
        changes[i] = policy_operation(kind, augment->options.rand_magnitude, draw.word[1] >> 31,
                                      height, width);
    }
    if (augment->options.three_augment)
        changes[count++] = three_augment_draw(augment, epoch, sample);
    return count + jitter_draw(augment, epoch, sample, changes + count);
}

/* ---- Application. */
void policy_apply(const struct augment *augment, uint32_t epoch, uint32_t sample, int64_t height,
                  int64_t width, uint8_t *planes, uint8_t *scratch)
{
    const struct changed_image image = {planes, scratch, height, width, augment->host};
    struct image_change changes[POLICY_MOST];
    int count = policy_draw(augment, epoch, sample, height, width, changes);
    for (int i = 0; i < count; i++)
        image_change(&image, &changes[i]);
}

/* ---- Mixup and CutMix. A Beta(alpha, alpha) number is x / (x + y) of two Gamma(alpha) numbers
 * by Marsaglia and Tsang (2000); each attempt uses its own block of random numbers. For alpha < 1,
 * alpha is raised by 1 and the number multiplied by uniform^(1 / alpha). Logarithms are used, since
 * these powers underflow for small alpha. */

/* Blocks of the pair's stream. An attempt succeeds with a probability above 0.95; if all fail (once
 * in 10^41 numbers), the mode of the distribution is used. */
enum { GAMMA_ATTEMPTS = 32, BLOCK_CHOICE = 0, BLOCK_CENTER = 1, BLOCK_FIRST = 2 };
enum { BLOCK_SECOND = BLOCK_FIRST + GAMMA_ATTEMPTS };

bool mix_is_asked_for(const struct options *options)
{
    return options->augment.mixup > 0 || options->augment.cutmix > 0;
}

bool mix_is_on(const struct augment *augment)
{
    return augment->active && (augment->options.mixup > 0 || augment->options.cutmix > 0);
}

/* Uniform in (0, 1]. */
static double open_uniform(uint32_t word)
{
    return ((double)word + 1) * 0x1p-32;
}

/* Draw the logarithm of a Gamma(shape) number, shape >= 1. */
static double log_gamma_draw(const struct augment *augment, uint32_t epoch, uint32_t index,
                             uint32_t first, double shape)
{
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (uint32_t attempt = 0; attempt < GAMMA_ATTEMPTS; attempt++) {
        struct random_block draw =
            random_block_at(augment->seed, RANDOM_MIX, 0, epoch, index, first + attempt);
        float normal[2];
        random_normal_pair(draw.word[0], draw.word[1], normal);
        double x = (double)normal[0], v = (1 + c * x) * (1 + c * x) * (1 + c * x);
        if (v > 0 && log(open_uniform(draw.word[2])) < x * x / 2 + d - d * v + d * log(v))
            return log(d * v);
    }
    return log(d);
}

double mix_draw_share(const struct augment *augment, uint32_t epoch, uint32_t index, double alpha)
{
    double shape = alpha < 1 ? alpha + 1 : alpha;
    double first = log_gamma_draw(augment, epoch, index, BLOCK_FIRST, shape);
    double second = log_gamma_draw(augment, epoch, index, BLOCK_SECOND, shape);
    if (alpha < 1) {
        struct random_block draw =
            random_block_at(augment->seed, RANDOM_MIX, 0, epoch, index, BLOCK_CHOICE);
        const double logs[2] = {log(open_uniform(draw.word[0])), log(open_uniform(draw.word[1]))};
        first += logs[0] / alpha;
        second += logs[1] / alpha;
        /* Both are infinite with a tiny alpha: Beta(0, 0) is 0 or 1 with equal probability. */
        if (isinf(first) && isinf(second))
            return logs[0] > logs[1];
    }
    return 1 / (1 + exp(second - first));
}

void mix_cut(double share, int64_t center_x, int64_t center_y, int64_t width, int64_t height,
             struct mix_plan *plan)
{
    double reach = 0.5 * sqrt(1 - share);
    int64_t half_width = (int64_t)(reach * (double)width);
    int64_t half_height = (int64_t)(reach * (double)height);
    int64_t left = integer_clamp(center_x - half_width, 0, width);
    int64_t top = integer_clamp(center_y - half_height, 0, height);
    int64_t right = integer_clamp(center_x + half_width, 0, width);
    int64_t bottom = integer_clamp(center_y + half_height, 0, height);
    double area = (double)((right - left) * (bottom - top));
    *plan = (struct mix_plan){.share = (float)(1 - area / (double)(width * height)),
                              .cut = true,
                              .x = (int16_t)left,
                              .y = (int16_t)top,
                              .width = (int16_t)(right - left),
                              .height = (int16_t)(bottom - top)};
}

void mix_plan(const struct augment *augment, uint32_t epoch, uint32_t index, struct mix_plan *plan)
{
    const double mixup = augment->options.mixup, cutmix = augment->options.cutmix;
    struct random_block choice =
        random_block_at(augment->seed, RANDOM_MIX, 0, epoch, index, BLOCK_CHOICE);
    double cut_share = mixup > 0 ? cutmix > 0 ? 0.5 : 0 : 1;
    bool cut = (double)random_uniform(choice.word[2]) < cut_share;
    double share = mix_draw_share(augment, epoch, index, cut ? cutmix : mixup);
    if (!cut) {
        *plan = (struct mix_plan){.share = (float)share};
        return;
    }
    struct random_block center =
        random_block_at(augment->seed, RANDOM_MIX, 0, epoch, index, BLOCK_CENTER);
    int64_t x = (int64_t)(((uint64_t)center.word[0] * (uint64_t)augment->width) >> 32);
    int64_t y = (int64_t)(((uint64_t)center.word[1] * (uint64_t)augment->height) >> 32);
    mix_cut(share, x, y, augment->width, augment->height, plan);
}
