/* Colours of uint8 images, as torchvision's functional transforms change PIL images: bit for bit.
 * A change is made in place. */
#ifndef VITTRAIN_DATA_COLOUR_H
#define VITTRAIN_DATA_COLOUR_H

#include <stdint.h>

#include "device/kernels.h"

/* An image being changed. */
struct colour_image {
    uint8_t *planes;  /* [3, height, width]: red, green, blue */
    uint8_t *scratch; /* as many bytes */
    int64_t height, width;
    const struct cpu_kernels *kernels;
};

/* Factors >= 0: 0 is black, the image's mean grey, its greys, the smoothed image; 1 changes
 * nothing.
 */
void colour_brightness(const struct colour_image *image, double factor);
void colour_contrast(const struct colour_image *image, double factor);
void colour_saturation(const struct colour_image *image, double factor);
void colour_sharpness(const struct colour_image *image, double factor);

/* Turns all hues by this part of the wheel, -0.5 to 0.5. */
void colour_hue(const struct colour_image *image, double part);

void colour_greyscale(const struct colour_image *image);

/* The upper `bits` bits of each level, 0 to 8. */
void colour_posterize(const struct colour_image *image, int bits);

/* Levels from `threshold` on are inverted. */
void colour_solarize(const struct colour_image *image, double threshold);

/* The levels of each plane are spread from 0 to 255: linearly, or so that each is as frequent. */
void colour_autocontrast(const struct colour_image *image);
void colour_equalize(const struct colour_image *image);

#endif
