// SPDX-License-Identifier: BSD-3-Clause
/* Changes of colours and geometry of uint8 images in place, bit for bit those of torchvision's
 * functional transforms of PIL images. */
#ifndef VITTRAIN_DATA_IMAGE_CHANGE_H
#define VITTRAIN_DATA_IMAGE_CHANGE_H

#include <math.h>
#include <stdint.h>

#include "device/image.h"

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
    struct image_host host;
};

/* Apply a change. Geometric changes take the nearest pixel, and zeros outside. */
void image_change(const struct changed_image *image, const struct image_change *change);

/* Convert to 16.16 fixed point, with Pillow's rounding (struct pixel_plan). */
static inline int32_t fixed_point(double value)
{
    return (int32_t)floor(value * 65536.0 + 0.5);
}

#endif
