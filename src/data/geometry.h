/* Images of bytes moved as torchvision's affine and rotate move PIL images, bit for bit: nearest
 * neighbours, 0 outside. In place. */
#ifndef VITTRAIN_DATA_GEOMETRY_H
#define VITTRAIN_DATA_GEOMETRY_H

#include "data/colour.h"

/* Shears around the upper left corner by these tangents. */
void geometry_shear(const struct colour_image *image, double x, double y);
/* To the right and down, by whole pixels. */
void geometry_translate(const struct colour_image *image, int64_t x, int64_t y);
/* Around the middle, counter-clockwise. */
void geometry_rotate(const struct colour_image *image, double degrees);

#endif
