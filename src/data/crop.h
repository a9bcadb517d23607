/* How an image of any size becomes the model's: the geometry of torchvision's Resize, CenterCrop,
 * RandomCrop(padding) and RandomResizedCrop, and the resampling of what it takes, as PIL resizes
 * (bilinear, antialiased; device/image.h). It is done on the host, of image files always, of pixels
 * where the options ask for more than the device's resize to a square. Mirroring and all that comes
 * behind it are the device's (augment.h). */
#ifndef VITTRAIN_DATA_CROP_H
#define VITTRAIN_DATA_CROP_H

#include "data/image_file.h"

struct options;

/* The rules of one split, from the options. */
struct crop {
    bool active;   /* false: pixels are delivered as they are stored */
    int64_t image; /* height and width of what comes out */
    uint64_t seed;
    bool random_resized;
    double scale[2], ratio[2]; /* of random_resized */
    int64_t resize;            /* else: resized to this, */
    int resize_to;             /* as enum resize_choice says, */
    int take;                  /* and of that, as enum crop_choice says, */
    int64_t pad;               /* after padding with so many zeros on each side */
    bool scaled_decode;        /* a JPEG may be decoded at 1/2, 1/4, 1/8 where nothing is lost */
    bool accept_truncated;
    int64_t most_pixels;
    const struct image_kernels *kernels;
};

/* What becomes of one image: its box is resized to resized_width x resized_height, and of that the
 * rectangle that begins at (left, top) is taken; outside of it there are zeros. */
struct crop_plan {
    struct image_area box; /* in pixels of the image */
    int64_t resized_width, resized_height;
    int64_t left, top;
};

/* Pixels of an image in memory: `pixels` is the first channel's (x, y). */
struct crop_source {
    const uint8_t *pixels;
    int64_t x, y, width, height; /* what there is of the image */
    int64_t row_stride, pixel_stride, channel_stride;
    int64_t scale; /* the image is so much smaller than plans say (scaled decoding), else 1 */
};

/* A thread's memory, kept from image to image. Begin with zeros. */
struct crop_scratch {
    struct image_pixels decoded;
    uint8_t *between;
    int32_t *weights;
    size_t between_capacity, weights_capacity;
};

/* `encoded`: the data set's records are image files. image: height and width of the model's images;
 * crop->image may become another one in evaluation (eval.resize without eval.crop). */
MUST_CHECK bool crop_open(struct crop *crop, const struct options *options, bool encoded,
                          int64_t image, bool training, struct error *error);

/* Does the host cut and resize images of such records as these options say? */
bool crop_is_active(const struct options *options, bool encoded);

/* Draws for one sample (its record number) of an image of this size, from (seed, epoch, sample). */
void crop_plan_make(const struct crop *crop, uint32_t epoch, uint32_t sample, int64_t width,
                    int64_t height, struct crop_plan *plan);

/* The part of the image that the plan looks at, and the scaled decoding that it allows. */
void crop_request(const struct crop *crop, const struct crop_plan *plan,
                  struct image_request *request);

/* planes: [channels, crop->image, crop->image]. The source has at least what crop_request asks for.
 */
MUST_CHECK bool crop_from_pixels(const struct crop *crop, const struct crop_plan *plan,
                                 const struct crop_source *source, int64_t channels,
                                 struct crop_scratch *scratch, uint8_t *planes,
                                 struct error *error);

/* All of it for one sample: from a file in memory, or from stored pixels [channels, height, width].
 */
MUST_CHECK bool crop_file(const struct crop *crop, uint32_t epoch, uint32_t sample,
                          const uint8_t *bytes, size_t count, struct crop_scratch *scratch,
                          uint8_t *planes, struct error *error);
MUST_CHECK bool crop_stored(const struct crop *crop, uint32_t epoch, uint32_t sample,
                            const uint8_t *pixels, int64_t channels, int64_t height, int64_t width,
                            struct crop_scratch *scratch, uint8_t *planes, struct error *error);

void crop_scratch_free(struct crop_scratch *scratch);

#endif
