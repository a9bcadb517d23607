/* What happens to a sample's pixels, drawn from (seed, epoch, sample) and nothing else, as
 * torchvision's transforms in the reference's order: resize, crop with padding, flip, rotation,
 * translation, to [0, 1], erasing, normalise. Here the random part is decided; the device's
 * image_transform does it. */
#ifndef VITTRAIN_DATA_AUGMENT_H
#define VITTRAIN_DATA_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "data/mix.h"
#include "device/device.h"

struct options;

struct policy;

struct augment {
    uint64_t seed;
    int64_t width, height; /* after the resize */
    double flip, rotate, translate, erase;
    double erase_scale[2], erase_ratio[2];
    int64_t crop_pad;
    bool active;                 /* false: evaluation, only resize and normalise */
    struct mix mix;              /* off in evaluation */
    const struct policy *policy; /* what is done to the bytes first (policy.h), or NULL */
};

void augment_open(struct augment *augment, const struct options *options, int64_t width,
                  int64_t height, bool training);

/* The plan of one sample; `sample` is its record number, so that it does not depend on its place.
 */
void augment_plan(const struct augment *augment, uint32_t epoch, uint32_t sample,
                  struct pixel_plan *plan);

/* Sets the rotation of a plan, counter-clockwise, zero outside: as Pillow's Image.rotate(degrees)
 * with Resampling.NEAREST. */
void augment_rotation(double degrees, int64_t width, int64_t height, struct pixel_plan *plan);

#endif
