// SPDX-License-Identifier: BSD-3-Clause
/* Random augmentation of a sample's pixels, a function of (seed, epoch, sample) only. The stages
 * are those of struct pixel_plan (device/operations.h). This module draws the parameters;
 * image_transform of the device applies them. */
#ifndef VITTRAIN_DATA_AUGMENT_H
#define VITTRAIN_DATA_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "config/option_types.h"
#include "data/mix.h"
#include "device/device.h"

struct options;

struct policy;

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
    const struct policy *policy; /* applied before on the host (policy.h); NULL: none */
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
