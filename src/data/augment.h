// SPDX-License-Identifier: BSD-3-Clause
/* Random augmentation of a sample's pixels, a function of (seed, epoch, sample) only. The stages
 * are those of torchvision in this order: resize, crop with padding, flip, rotation, translation,
 * scaling to [0, 1], erasing, normalization. This module draws the parameters; image_transform of
 * the device applies them. */
#ifndef VITTRAIN_DATA_AUGMENT_H
#define VITTRAIN_DATA_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "data/mix.h"
#include "device/device.h"

struct options;

struct policy;

struct augment {
    uint64_t seed;
    int64_t width, height; /* after the resize */
    double flip, rotate, translate, erase;
    double erase_scale[2], erase_ratio[2];
    int64_t crop_pad;
    bool active;                 /* false: evaluation, only resize and normalise */
    struct mix mix;              /* off in evaluation */
    const struct policy *policy; /* applied before on the host (policy.h); NULL: none */
};

void augment_open(struct augment *augment, const struct options *options, int64_t width,
                  int64_t height, bool training);

/* Draw the plan of one sample. `sample` is its record number, so the plan does not depend on the
 * sample's position in the epoch. */
void augment_plan(const struct augment *augment, uint32_t epoch, uint32_t sample,
                  struct pixel_plan *plan);

/* Set the rotation of a plan, counter-clockwise with zeros outside, like Pillow's
 * Image.rotate(degrees) with Resampling.NEAREST. */
void augment_rotation(double degrees, int64_t width, int64_t height, struct pixel_plan *plan);

#endif
