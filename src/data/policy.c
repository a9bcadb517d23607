// SPDX-License-Identifier: BSD-3-Clause
/* Draws of RandAugment and of the colour jitter, each from its own random streams, and their
 * application to an image. */
#include "data/augment.h"

#include <math.h>
#include <string.h>

#include "config/options.h"
#include "core/random.h"

/* Streams; augment.c has stream 0. */
enum { STREAM_JITTER = 1, STREAM_OPERATIONS = 2, STREAM_THREE_AUGMENT = 3 };

/* Blocks of the jitter's stream. */
enum { BLOCK_FACTORS = 0, BLOCK_ORDER = 1 };

bool policy_is_asked_for(const struct options *options)
{
    return options->augment.rand_augment > 0 || options->augment.brightness > 0 ||
           options->augment.contrast > 0 || options->augment.saturation > 0 ||
           options->augment.hue > 0 || options->augment.greyscale > 0 ||
           options->augment.three_augment;
}

bool policy_open(struct policy *policy, const struct options *options, bool training,
                 struct error *error)
{
    *policy = (struct policy){.seed = (uint64_t)options->run.seed};
    if (!training || !policy_is_asked_for(options))
        return true;
    policy->operations = options->augment.rand_augment;
    policy->magnitude = options->augment.rand_magnitude;
    policy->brightness = options->augment.brightness;
    policy->contrast = options->augment.contrast;
    policy->saturation = options->augment.saturation;
    policy->hue = options->augment.hue;
    policy->greyscale = options->augment.greyscale;
    policy->three_augment = options->augment.three_augment;
    return image_host_choose(&policy->host, error);
}

bool policy_is_on(const struct policy *policy)
{
    return policy->host.image != NULL;
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
static struct image_change three_augment_draw(const struct policy *policy, uint32_t epoch,
                                              uint32_t sample)
{
    const struct random_block draw =
        random_block_at(policy->seed, RANDOM_AUGMENT, STREAM_THREE_AUGMENT, epoch, sample, 0);
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

static int jitter_draw(const struct policy *policy, uint32_t epoch, uint32_t sample,
                       struct image_change *changes)
{
    struct random_block factors =
        random_block_at(policy->seed, RANDOM_AUGMENT, STREAM_JITTER, epoch, sample, BLOCK_FACTORS);
    struct random_block others =
        random_block_at(policy->seed, RANDOM_AUGMENT, STREAM_JITTER, epoch, sample, BLOCK_ORDER);
    const struct image_change all[4] = {
        {CHANGE_BRIGHTNESS, factor_draw(factors.word[0], policy->brightness)},
        {CHANGE_CONTRAST, factor_draw(factors.word[1], policy->contrast)},
        {CHANGE_SATURATION, factor_draw(factors.word[2], policy->saturation)},
        {CHANGE_HUE, factor_between(factors.word[3], -policy->hue, policy->hue)}};
    const bool on[4] = {policy->brightness > 0, policy->contrast > 0, policy->saturation > 0,
                        policy->hue > 0};
    int order[4], count = 0;
    permute_four((int64_t)(((uint64_t)others.word[0] * 24) >> 32), order);
    for (int i = 0; i < 4; i++)
        if (on[order[i]])
            changes[count++] = all[order[i]];
    if ((double)random_uniform(others.word[1]) < policy->greyscale)
        changes[count++] = (struct image_change){CHANGE_GREYSCALE, 0};
    return count;
}

int policy_draw(const struct policy *policy, uint32_t epoch, uint32_t sample, int64_t height,
                int64_t width, struct image_change changes[POLICY_MOST])
{
    int count = (int)policy->operations;
    for (int i = 0; i < count; i++) {
        const struct random_block draw = random_block_at(
            policy->seed, RANDOM_AUGMENT, STREAM_OPERATIONS, epoch, sample, (uint32_t)i);
        const enum image_change_kind kind =
            (enum image_change_kind)(((uint64_t)draw.word[0] * POLICY_OPERATIONS) >> 32);
        changes[i] = policy_operation(kind, policy->magnitude, draw.word[1] >> 31, height, width);
    }
    if (policy->three_augment)
        changes[count++] = three_augment_draw(policy, epoch, sample);
    return count + jitter_draw(policy, epoch, sample, changes + count);
}

/* ---- Application. */
void policy_apply(const struct policy *policy, uint32_t epoch, uint32_t sample, int64_t height,
                  int64_t width, uint8_t *planes, uint8_t *scratch)
{
    const struct changed_image image = {planes, scratch, height, width, policy->host};
    struct image_change changes[POLICY_MOST];
    int count = policy_draw(policy, epoch, sample, height, width, changes);
    for (int i = 0; i < count; i++)
        image_change(&image, &changes[i]);
}
