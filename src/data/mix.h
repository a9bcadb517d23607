/* How pairs of samples are mixed: mixup and CutMix, drawn from (seed, epoch, pair) and nothing
 * else. Partners are samples 2k and 2k + 1 of a global batch, which the sampler keeps on one rank
 * and in one micro-batch (sampler.h, group). The device's images_mix does it. */
#ifndef VITTRAIN_DATA_MIX_H
#define VITTRAIN_DATA_MIX_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

struct options;

enum { MIX_GROUP = 2 };

struct mix {
    uint64_t seed;
    double mixup, cutmix;  /* alpha of each one's Beta(alpha, alpha); 0: off */
    double cut_share;      /* how often it is CutMix where both are on */
    int64_t width, height; /* of the images */
};

/* Do these options mix at all? */
bool mix_is_asked_for(const struct options *options);

void mix_open(struct mix *mix, const struct options *options, int64_t width, int64_t height,
              bool training);
bool mix_is_on(const struct mix *mix);

/* The plan of the pair whose first sample is number `index` in the epoch's order. */
void mix_plan(const struct mix *mix, uint32_t epoch, uint32_t index, struct mix_plan *plan);

/* CutMix as torchvision's transforms.v2: a rectangle of 1 - share of the image around a pixel, cut
 * off at the image's edges; the plan's share is then what is left. */
void mix_cut(double share, int64_t center_x, int64_t center_y, int64_t width, int64_t height,
             struct mix_plan *plan);

/* Beta(alpha, alpha) of a pair, in [0, 1]; alpha > 0. */
double mix_draw_share(const struct mix *mix, uint32_t epoch, uint32_t index, double alpha);

#endif
