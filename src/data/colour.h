// SPDX-License-Identifier: BSD-3-Clause
/* Colour changes of uint8 images in place, bit for bit those of torchvision's functional transforms
 * of PIL images. */
#ifndef VITTRAIN_DATA_COLOUR_H
#define VITTRAIN_DATA_COLOUR_H

#include <stdint.h>

#include "device/image.h"

struct colour_image {
    uint8_t *planes;  /* [3, height, width]: red, green, blue */
    uint8_t *scratch; /* same size as planes */
    int64_t height, width;
    struct image_host host;
};

/* Blend the image with black, its mean grey, its greyscale version, or its smoothed version. factor
 * >= 0; 0 gives that image, 1 changes nothing. */
void colour_brightness(const struct colour_image *image, double factor);
void colour_contrast(const struct colour_image *image, double factor);
void colour_saturation(const struct colour_image *image, double factor);
void colour_sharpness(const struct colour_image *image, double factor);

/* Rotate all hues by a fraction of the colour wheel, -0.5 to 0.5. */
void colour_hue(const struct colour_image *image, double part);

void colour_greyscale(const struct colour_image *image);

/* Keep the upper `bits` bits of each level, 0 to 8. */
void colour_posterize(const struct colour_image *image, int bits);

/* Invert levels that are not below `threshold`. */
void colour_solarize(const struct colour_image *image, double threshold);

/* Stretch the levels of each plane to 0 to 255, linearly or by histogram equalization. */
void colour_autocontrast(const struct colour_image *image);
void colour_equalize(const struct colour_image *image);

/* Pillow's GaussianBlur: three box blurs in each direction (Gwosdek et al. 2011). radius: standard
 * deviation in pixels. */
void colour_blur(const struct colour_image *image, double radius);

#endif
