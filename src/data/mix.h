// SPDX-License-Identifier: BSD-3-Clause
/* Draws of mixup and CutMix, a function of (seed, epoch, pair) only. Partners are samples 2k and 2k
 * + 1 of a global batch; the sampler keeps them on one rank and in one micro-batch (sampler.h,
 * group). images_mix of the device applies the plan. */
#ifndef VITTRAIN_DATA_MIX_H
#define VITTRAIN_DATA_MIX_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

struct options;

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

#endif
