// SPDX-License-Identifier: BSD-3-Clause
/* RandAugment and colour changes of training images, a function of (seed, epoch, sample) only:
 * torchvision's RandAugment, 3-Augment of DeiT III (Touvron et al. 2022: greyscale, solarization or
 * blur), torchvision's ColorJitter and RandomGrayscale, in this order. They are applied to
 * bytes on the host by the loader's threads; later stages run on the device (augment.h). */
#ifndef VITTRAIN_DATA_POLICY_H
#define VITTRAIN_DATA_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "data/colour.h"

struct options;

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

/* Apply a change like torchvision's functional transforms of PIL images: nearest neighbour, zeros
 * outside. */
void image_change(const struct colour_image *image, const struct image_change *change);

/* Draw the changes of a sample and apply them. planes: [3, height, width]; scratch has the same
 * size. */
void policy_apply(const struct policy *policy, uint32_t epoch, uint32_t sample, int64_t height,
                  int64_t width, uint8_t *planes, uint8_t *scratch);

#endif
