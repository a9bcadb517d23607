/* Geometric changes of uint8 images in place, bit for bit those of torchvision's affine and rotate
 * of PIL images: nearest neighbour, zeros outside. */
#ifndef VITTRAIN_DATA_GEOMETRY_H
#define VITTRAIN_DATA_GEOMETRY_H

#include "data/colour.h"

/* Shear around the upper left corner; x and y are the tangents of the angles. */
void geometry_shear(const struct colour_image *image, double x, double y);
/* Move right and down by whole pixels. */
void geometry_translate(const struct colour_image *image, int64_t x, int64_t y);
/* Rotate around the centre, counter-clockwise. */
void geometry_rotate(const struct colour_image *image, double degrees);

#endif
