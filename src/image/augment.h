// SPDX-License-Identifier: BSD-3-Clause
/* Random augmentation, a function of (seed, epoch, sample) only. First the host changes colours and
 * geometry of bytes (policy_apply); then the device applies the plan of each sample (augment_plan)
 * and mixes pairs (mix_plan). The stages of a plan are those of struct pixel_plan
 * (device/operations.h). */
#ifndef VITTRAIN_IMAGE_AUGMENT_H
#define VITTRAIN_IMAGE_AUGMENT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/kernels.h"
#include "options/options.h"

/* Settings of one split. */
struct augment {
    struct augment_options options;
    uint64_t seed;
    int64_t width, height;          /* after the resize */
    bool active;                    /* false: evaluation, only resize and normalise */
    const struct cpu_kernels *host; /* NULL: no changes of policy_apply */
};

/* False: the processor lacks the instructions that VITTRAIN_CPU names. */
MUST_CHECK bool augment_open(struct augment *augment, const struct options *options, int64_t width,
                             int64_t height, bool training, struct error *error);

/* ---- Plans of samples. image_transform of the device applies them. */

/* Draw the plan of one sample. `sample` is its record number, so the plan does not depend on the
 * sample's position in the epoch. */
void augment_plan(const struct augment *augment, uint32_t epoch, uint32_t sample,
                  struct pixel_plan *plan);

/* Add a turn after the flips of a plan, as numpy.rot90(image, turns); turns: 0 .. 3. */
void augment_turn(int64_t turns, struct pixel_plan *plan);

/* Set the rotation of a plan, counter-clockwise with zeros outside, like Pillow's
 * Image.rotate(degrees) with Resampling.NEAREST. */
void augment_rotation(double degrees, int64_t width, int64_t height, struct pixel_plan *plan);

/* Convert to 16.16 fixed point, with Pillow's rounding (struct pixel_plan). */
static inline int32_t fixed_point(double value)
{
    return (int32_t)floor(value * 65536.0 + 0.5);
}

/* ---- Mixup and CutMix. Partners are samples 2k and 2k + 1 of a global batch; the sampler keeps
 * them on one rank and in one micro-batch (sampler.h, group). images_mix of the device applies the
 * plan. */

enum { MIX_GROUP = 2 };

/* True if these options mix samples. */
bool mix_is_asked_for(const struct options *options);
bool mix_is_on(const struct augment *augment);

/* Draw the plan of the pair whose first sample has position `index` in the epoch's order. */
void mix_plan(const struct augment *augment, uint32_t epoch, uint32_t index, struct mix_plan *plan);

/* CutMix as in torchvision's transforms.v2: a rectangle of 1 - share of the image around a pixel,
 * clipped at the edges; the plan's share is the remaining area. */
void mix_cut(double share, int64_t center_x, int64_t center_y, int64_t width, int64_t height,
             struct mix_plan *plan);

/* Draw the Beta(alpha, alpha) number of a pair, in [0, 1]; alpha > 0. */
double mix_draw_share(const struct augment *augment, uint32_t epoch, uint32_t index, double alpha);

/* ---- RandAugment and colour changes of training images: torchvision's RandAugment, 3-Augment of
 * DeiT III (Touvron et al. 2022: greyscale, solarization or blur), torchvision's ColorJitter and
 * RandomGrayscale, in this order. The loader's threads apply them. */

/* The first POLICY_OPERATIONS are those of RandAugment, in torchvision's order. */
enum image_change_kind {
    CHANGE_IDENTITY,
    CHANGE_SHEAR_X, /* amount: tangent of the angle */
    CHANGE_SHEAR_Y,
    CHANGE_TRANSLATE_X, /* pixels */
    CHANGE_TRANSLATE_Y,
    CHANGE_ROTATE,     /* degrees, counter-clockwise */
    CHANGE_BRIGHTNESS, /* factor, also for the next ones */
    CHANGE_SATURATION,
    CHANGE_CONTRAST,
    CHANGE_SHARPNESS,
    CHANGE_POSTERIZE, /* number of bits */
    CHANGE_SOLARIZE,  /* the threshold */
    CHANGE_AUTOCONTRAST,
    CHANGE_EQUALIZE,
    POLICY_OPERATIONS,
    CHANGE_HUE = POLICY_OPERATIONS, /* fraction of the colour wheel */
    CHANGE_GREYSCALE,
    CHANGE_BLUR /* standard deviation in pixels */
};

struct image_change {
    enum image_change_kind kind;
    double amount;
};

struct changed_image {
    uint8_t *planes;  /* [3, height, width]: red, green, blue */
    uint8_t *scratch; /* same size as planes */
    int64_t height, width;
    const struct cpu_kernels *host;
};

/* Apply a change in place, bit for bit as torchvision's functional transforms of PIL images.
 * Geometric changes take the nearest pixel, and zeros outside. */
void image_change(const struct changed_image *image, const struct image_change *change);

enum { POLICY_MOST_OPERATIONS = 16, POLICY_BINS = 31, POLICY_MOST = POLICY_MOST_OPERATIONS + 6 };

/* True if these options enable colour changes or RandAugment. */
bool policy_is_asked_for(const struct options *options);
bool policy_is_on(const struct augment *augment);

/* Draw the changes of one sample (by record number), in order; return their number. */
int policy_draw(const struct augment *augment, uint32_t epoch, uint32_t sample, int64_t height,
                int64_t width, struct image_change changes[POLICY_MOST]);

/* Return RandAugment's operation at a magnitude of 0 to POLICY_BINS - 1 for images of this size. */
struct image_change policy_operation(enum image_change_kind kind, int64_t magnitude, bool negative,
                                     int64_t height, int64_t width);

/* Draw the changes of a sample and apply them. planes: [3, height, width]; scratch has the same
 * size. */
void policy_apply(const struct augment *augment, uint32_t epoch, uint32_t sample, int64_t height,
                  int64_t width, uint8_t *planes, uint8_t *scratch);

#endif
