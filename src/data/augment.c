// SPDX-License-Identifier: BSD-3-Clause
/* Draw the parameters of torchvision's RandomCrop(padding), RandomHorizontalFlip,
 * RandomVerticalFlip, RandomRotation, RandomAffine(0, translate) and RandomErasing from the same
 * distributions; the rotation matrix is that of Pillow's Image.rotate. Each number has a fixed
 * position in the sample's random stream, so disabling one stage does not change the others. */
#include "data/augment.h"

#include <math.h>
#include <string.h>

#include "config/options.h"
#include "core/error.h"
#include "core/random.h"

/* Blocks of the sample's random stream. */
enum { ERASE_ATTEMPTS = 10 }; /* after these, torchvision erases nothing */
enum {
    BLOCK_MOVE = 0,
    BLOCK_CROP_ERASE = 1,
    BLOCK_ATTEMPT = 2,
    BLOCK_TURN_ROLL = BLOCK_ATTEMPT + ERASE_ATTEMPTS
};

void augment_open(struct augment *augment, const struct options *options, int64_t width,
                  int64_t height, bool training)
{
    ENSURE(width > 0 && width <= IMAGE_LARGEST && height > 0 && height <= IMAGE_LARGEST,
           "augmentation of images of %lld x %lld pixels", (long long)height, (long long)width);
    *augment = (struct augment){
        .seed = (uint64_t)options->run.seed,
        .width = width,
        .height = height,
        .flip = options->augment.flip,
        .vflip = options->augment.vflip,
        .rot90 = options->augment.rot90,
        .roll = options->augment.roll,
        .noise = options->augment.noise,
        .channel_dropout = options->augment.channel_dropout,
        .rotate = options->augment.rotate,
        .translate = options->augment.translate,
        .erase = options->augment.erase,
        .erase_scale = {options->augment.erase_scale.value[0],
                        options->augment.erase_scale.value[1]},
        .erase_ratio = {options->augment.erase_ratio.value[0],
                        options->augment.erase_ratio.value[1]},
        .crop_pad = options->augment.crop == CROP_RANDOM ? 0 : options->augment.crop_pad,
        .active = training,
    };
    mix_open(&augment->mix, options, width, height, training);
}

/* Same as Python's round(value, 15). */
static double round_15(double value)
{
    return rint(value * 1e15) / 1e15;
}

static int32_t fixed_point(double value)
{
    return (int32_t)floor(value * 65536.0 + 0.5);
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
    double area = (double)(augment->width * augment->height);
    double low = log(augment->erase_ratio[0]), high = log(augment->erase_ratio[1]);
    for (uint32_t attempt = 0; attempt < ERASE_ATTEMPTS; attempt++) {
        struct random_block draw = random_block_at(augment->seed, RANDOM_AUGMENT, 0, epoch, sample,
                                                   BLOCK_ATTEMPT + attempt);
        double erased =
            area * random_between(draw.word[0], augment->erase_scale[0], augment->erase_scale[1]);
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
    const struct random_block draw =
        random_block_at(augment->seed, RANDOM_AUGMENT, 0, epoch, sample, BLOCK_TURN_ROLL);
    plan->vflip = (double)random_uniform(draw.word[0]) < augment->vflip;
    if (augment->rot90)
        augment_turn(random_integer(draw.word[1], 0, 3), plan);
    if (augment->roll == ROLL_X || augment->roll == ROLL_XY)
        plan->roll_x = (int16_t)random_integer(draw.word[2], 0, augment->width - 1);
    if (augment->roll == ROLL_Y || augment->roll == ROLL_XY)
        plan->roll_y = (int16_t)random_integer(draw.word[3], 0, augment->height - 1);
}

static int16_t draw_shift(uint32_t word, double largest)
{
    return (int16_t)rint(random_between(word, -largest, largest));
}

void augment_plan(const struct augment *augment, uint32_t epoch, uint32_t sample,
                  struct pixel_plan *plan)
{
    memset(plan, 0, sizeof *plan);
    if (!augment->active)
        return;
    struct random_block move =
        random_block_at(augment->seed, RANDOM_AUGMENT, 0, epoch, sample, BLOCK_MOVE);
    struct random_block crop_erase =
        random_block_at(augment->seed, RANDOM_AUGMENT, 0, epoch, sample, BLOCK_CROP_ERASE);
    plan->flip = (double)random_uniform(move.word[0]) < augment->flip;
    draw_turn_and_roll(augment, epoch, sample, plan);
    if (augment->rotate > 0)
        augment_rotation(random_between(move.word[1], -augment->rotate, augment->rotate),
                         augment->width, augment->height, plan);
    plan->translate_x = draw_shift(move.word[2], augment->translate * (double)augment->width);
    plan->translate_y = draw_shift(move.word[3], augment->translate * (double)augment->height);
    int64_t pad = augment->crop_pad;
    plan->shift_x = (int16_t)random_integer(crop_erase.word[0], -pad, pad);
    plan->shift_y = (int16_t)random_integer(crop_erase.word[1], -pad, pad);
    if ((double)random_uniform(crop_erase.word[2]) < augment->erase)
        draw_erasing(augment, epoch, sample, plan);
    if (augment->noise <= 0 && augment->channel_dropout <= 0)
        return;
    plan->noise = (float)augment->noise;
    plan->channel_dropout = (float)augment->channel_dropout;
    plan->seed = augment->seed;
    plan->epoch = epoch;
    plan->sample = sample;
}
