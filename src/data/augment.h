// SPDX-License-Identifier: BSD-3-Clause
/* Random augmentation, a function of (seed, epoch, sample) only. First the host changes colours and
 * geometry of bytes (struct policy); then the device applies the plan of each sample (struct
 * augment) and mixes pairs (struct mix). The stages of a plan are those of struct pixel_plan
 * (device/operations.h). */
#ifndef VITTRAIN_DATA_AUGMENT_H
#define VITTRAIN_DATA_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "config/option_types.h"
#include "data/image_change.h"
#include "device/device.h"

struct options;

/* ---- RandAugment and colour changes of training images: torchvision's RandAugment, 3-Augment of
 * DeiT III (Touvron et al. 2022: greyscale, solarization or blur), torchvision's ColorJitter and
 * RandomGrayscale, in this order. The loader's threads apply them. */

enum { POLICY_MOST_OPERATIONS = 16, POLICY_BINS = 31, POLICY_MOST = POLICY_MOST_OPERATIONS + 6 };

struct policy {
    uint64_t seed;
    int64_t operations, magnitude;
    double brightness, contrast, saturation, hue; /* 0: off */
    double greyscale;                             /* probability */
    bool three_augment;
    struct image_host host; /* zero: no policy */
};

/* Set the policy of a split. False: the processor lacks the instructions that VITTRAIN_CPU names.
 */
MUST_CHECK bool policy_open(struct policy *policy, const struct options *options, bool training,
                            struct error *error);

/* True if these options enable colour changes or RandAugment. */
bool policy_is_asked_for(const struct options *options);
bool policy_is_on(const struct policy *policy);

/* Draw the changes of one sample (by record number), in order; return their number. */
int policy_draw(const struct policy *policy, uint32_t epoch, uint32_t sample, int64_t height,
                int64_t width, struct image_change changes[POLICY_MOST]);

/* Return RandAugment's operation at a magnitude of 0 to POLICY_BINS - 1 for images of this size. */
struct image_change policy_operation(enum image_change_kind kind, int64_t magnitude, bool negative,
                                     int64_t height, int64_t width);

/* Draw the changes of a sample and apply them. planes: [3, height, width]; scratch has the same
 * size. */
void policy_apply(const struct policy *policy, uint32_t epoch, uint32_t sample, int64_t height,
                  int64_t width, uint8_t *planes, uint8_t *scratch);

/* ---- Mixup and CutMix. Partners are samples 2k and 2k + 1 of a global batch; the sampler keeps
 * them on one rank and in one micro-batch (sampler.h, group). images_mix of the device applies the
 * plan. */

enum { MIX_GROUP = 2 };

struct mix {
    uint64_t seed;
    double mixup, cutmix;  /* alpha of the Beta(alpha, alpha) distributions; 0: off */
    int64_t width, height; /* of the images */
};

/* True if these options mix samples. */
bool mix_is_asked_for(const struct options *options);

void mix_open(struct mix *mix, const struct options *options, int64_t width, int64_t height,
              bool training);
bool mix_is_on(const struct mix *mix);

/* Draw the plan of the pair whose first sample has position `index` in the epoch's order. */
void mix_plan(const struct mix *mix, uint32_t epoch, uint32_t index, struct mix_plan *plan);

/* CutMix as in torchvision's transforms.v2: a rectangle of 1 - share of the image around a pixel,
 * clipped at the edges; the plan's share is the remaining area. */
void mix_cut(double share, int64_t center_x, int64_t center_y, int64_t width, int64_t height,
             struct mix_plan *plan);

/* Draw the Beta(alpha, alpha) number of a pair, in [0, 1]; alpha > 0. */
double mix_draw_share(const struct mix *mix, uint32_t epoch, uint32_t index, double alpha);

/* ---- Plans of samples. image_transform of the device applies them. */

struct augment {
    uint64_t seed;
    int64_t width, height; /* after the resize */
    double flip, vflip, rotate, translate, erase, noise, channel_dropout;
    bool rot90;
    enum roll_choice roll;
    double erase_scale[2], erase_ratio[2];
    int64_t crop_pad;
    bool active;                 /* false: evaluation, only resize and normalise */
    struct mix mix;              /* off in evaluation */
    const struct policy *policy; /* applied before; NULL: none */
};

void augment_open(struct augment *augment, const struct options *options, int64_t width,
                  int64_t height, bool training);

/* Draw the plan of one sample. `sample` is its record number, so the plan does not depend on the
 * sample's position in the epoch. */
void augment_plan(const struct augment *augment, uint32_t epoch, uint32_t sample,
                  struct pixel_plan *plan);

/* Add a turn after the flips of a plan, as numpy.rot90(image, turns); turns: 0 .. 3. */
void augment_turn(int64_t turns, struct pixel_plan *plan);

/* Set the rotation of a plan, counter-clockwise with zeros outside, like Pillow's
 * Image.rotate(degrees) with Resampling.NEAREST. */
void augment_rotation(double degrees, int64_t width, int64_t height, struct pixel_plan *plan);

#endif
