/* What happens to a training image's colours, and RandAugment, drawn from (seed, epoch, sample) and
 * nothing else: torchvision's RandAugment, ColorJitter and RandomGrayscale, in this order, on the
 * bytes that the loader's threads made. All that follows is the device's (augment.h). */
#ifndef VITTRAIN_DATA_POLICY_H
#define VITTRAIN_DATA_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "data/colour.h"

struct options;

/* The first POLICY_OPERATIONS are RandAugment's, in torchvision's order. */
enum image_change_kind {
    CHANGE_IDENTITY,
    CHANGE_SHEAR_X, /* amount: tangent of the angle */
    CHANGE_SHEAR_Y,
    CHANGE_TRANSLATE_X, /* pixels */
    CHANGE_TRANSLATE_Y,
    CHANGE_ROTATE,     /* degrees, counter-clockwise */
    CHANGE_BRIGHTNESS, /* the factor, here and below */
    CHANGE_SATURATION,
    CHANGE_CONTRAST,
    CHANGE_SHARPNESS,
    CHANGE_POSTERIZE, /* bits that stay */
    CHANGE_SOLARIZE,  /* the threshold */
    CHANGE_AUTOCONTRAST,
    CHANGE_EQUALIZE,
    POLICY_OPERATIONS,
    CHANGE_HUE = POLICY_OPERATIONS, /* part of the wheel */
    CHANGE_GREYSCALE
};

struct image_change {
    enum image_change_kind kind;
    double amount;
};

enum { POLICY_MOST_OPERATIONS = 16, POLICY_BINS = 31, POLICY_MOST = POLICY_MOST_OPERATIONS + 5 };

struct policy {
    uint64_t seed;
    int64_t operations, magnitude;
    double brightness, contrast, saturation, hue; /* 0: off */
    double greyscale;                             /* probability */
    const struct cpu_kernels *kernels;
};

/* False: this processor has not the instructions that VITTRAIN_CPU names. */
MUST_CHECK bool policy_open(struct policy *policy, const struct options *options, bool training,
                            struct error *error);

/* Do these options change colours, or apply RandAugment, at all? */
bool policy_is_asked_for(const struct options *options);
bool policy_is_on(const struct policy *policy);

/* The changes of one sample (its record number), in order; returns how many. */
int policy_draw(const struct policy *policy, uint32_t epoch, uint32_t sample, int64_t height,
                int64_t width, struct image_change changes[POLICY_MOST]);

/* RandAugment's operation at a magnitude, 0 to POLICY_BINS - 1, for images of this size. */
struct image_change policy_operation(enum image_change_kind kind, int64_t magnitude, bool negative,
                                     int64_t height, int64_t width);

/* As torchvision's functional transforms on PIL images: nearest neighbours, 0 outside. */
void image_change(const struct colour_image *image, const struct image_change *change);

/* Draws and changes. planes: [3, height, width]; scratch: as many bytes. */
void policy_apply(const struct policy *policy, uint32_t epoch, uint32_t sample, int64_t height,
                  int64_t width, uint8_t *planes, uint8_t *scratch);

#endif
