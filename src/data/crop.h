// SPDX-License-Identifier: BSD-3-Clause
/* Crop and resize images on the host: the geometry of torchvision's Resize, CenterCrop,
 * RandomCrop(padding) and RandomResizedCrop, and PIL's bilinear or bicubic antialiased resampling
 * (device/image.h). Image files are always processed here; stored pixels only if the options ask
 * for more than a resize to a square. Flipping and all later stages run on the device (augment.h).
 */
#ifndef VITTRAIN_DATA_CROP_H
#define VITTRAIN_DATA_CROP_H

#include "cpu/kernels.h"
#include "data/dataset.h"
#include "image/image_file.h"

struct options;

/* Settings of one split. */
struct crop {
    bool active;             /* false: pixels are passed on as stored */
    struct image_size image; /* size of the output */
    uint64_t seed;
    bool random_resized;
    double scale[2], ratio[2]; /* limits of random_resized */
    struct image_size resize;  /* otherwise: target size of the resize */
    enum resize_choice resize_to;
    bool window;           /* or no resize: only the pixels of the crop are read (dataset.h) */
    enum crop_choice take; /* crop after the resize */
    int64_t pad;           /* zeros added to each side before cropping */
    enum resize_filter filter;
    bool scaled_decode; /* a JPEG may be decoded at 1/2, 1/4 or 1/8 if the result is not smaller
                           than needed */
    bool turn;          /* image files are turned by their EXIF orientation */
    int64_t most_pixels;
    const struct cpu_kernels *host;
};

/* Crop of one image: the box is resized to resized_width x resized_height; of this the output's
 * size at (left, top) is taken, with zeros outside. */
struct crop_plan {
    struct image_area box; /* in pixels of the image */
    int64_t resized_width, resized_height;
    int64_t left, top;
};

/* Part of an image in memory. `pixels` points to the first one of the first channel. Strides are in
 * values. */
struct crop_source {
    enum dataset_type type;
    const void *pixels;
    struct image_area present; /* of the image */
    int64_t row_stride, pixel_stride, channel_stride;
    int64_t scale; /* denominator of scaled decoding; else 1 */
};

/* Buffers of one thread, reused for all images. Initialize with zeros. */
struct crop_scratch {
    struct image_pixels decoded;
    struct byte_buffer record, between, weights; /* weights: int32_t */
};

/* Set the rules of a split. `encoded`: records are image files. `image`: size of the model's
 * images. */
MUST_CHECK bool crop_open(struct crop *crop, const struct options *options, bool encoded,
                          struct image_size image, bool training, struct error *error);

/* True if these options make the host crop and resize such records. */
bool crop_is_active(const struct options *options, bool encoded);

/* Draw the crop of one sample (by record number) of an image of this size, as a function of (seed,
 * epoch, sample). */
void crop_plan_make(const struct crop *crop, uint32_t epoch, uint32_t sample, int64_t width,
                    int64_t height, struct crop_plan *plan);

/* Return the part of the image that a crop reads, and the scale at which it may be decoded. */
void crop_request(const struct crop *crop, const struct crop_plan *plan,
                  struct image_request *request);

/* Resample to planes: [channels, height, width] of crop->image and the source's type; outside the
 * image are zeros, or missing values of float32. The source covers at least the area of
 * crop_request. */
MUST_CHECK bool crop_from_pixels(const struct crop *crop, const struct crop_plan *plan,
                                 const struct crop_source *source, int64_t channels,
                                 struct crop_scratch *scratch, void *planes, struct error *error);

/* Draw the crop of one sample and resample it, from an image file in memory or from stored values
 * [channels, height, width] of a data set's type and size. */
MUST_CHECK bool crop_file(const struct crop *crop, uint32_t epoch, uint32_t sample,
                          const uint8_t *bytes, size_t count, struct crop_scratch *scratch,
                          uint8_t *planes, struct error *error);
MUST_CHECK bool crop_stored(const struct crop *crop, uint32_t epoch, uint32_t sample,
                            const void *values, const struct dataset *dataset,
                            struct crop_scratch *scratch, void *planes, struct error *error);

/* Return the row of the field that is the first row of a sample (dataset.h). */
int64_t crop_first_row(const struct crop *crop, const struct dataset *dataset, uint32_t epoch,
                       int64_t sample);

/* Read one sample of a data set, and draw and resample its crop. */
MUST_CHECK bool crop_sample(const struct crop *crop, const struct dataset *dataset, uint32_t epoch,
                            int64_t sample, struct crop_scratch *scratch, void *planes,
                            struct error *error);

void crop_scratch_free(struct crop_scratch *scratch);

#endif
