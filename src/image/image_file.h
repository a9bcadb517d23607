// SPDX-License-Identifier: BSD-3-Clause
/* Decodes JPEG, PNG and WebP files in memory to RGB like PIL's Image.open(file).convert("RGB"):
 * grey, palettes, CMYK (Adobe's inverted), interlaced, an animation's first frame. Alpha is
 * dropped. PNG files of 16 bits are refused. EXIF's orientation is ignored, as in torchvision's
 * ImageFolder, unless image_header_turn is called. Only the requested part is decoded as far as the
 * format allows. Thread-safe. Errors describe the problem but do not name the file. */
#ifndef VITTRAIN_IMAGE_IMAGE_FILE_H
#define VITTRAIN_IMAGE_IMAGE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum image_format { IMAGE_JPEG, IMAGE_PNG, IMAGE_WEBP };

struct image_header {
    enum image_format format;
    int64_t width, height;
    bool has_alpha;  /* not of palettes */
    int orientation; /* of EXIF, 1 to 8; 1: none, or as stored */
    int turn;        /* the orientation that is applied; 0: the image is decoded as stored */
};

/* A rectangle of an image, in pixels. */
struct image_area {
    int64_t x, y, width, height;
};

/* Part and scale to decode. */
struct image_request {
    struct image_area area;
    int64_t scale; /* 2, 4 or 8: denominator of JPEG's scaled decoding; else 1 */
};

/* Decoded RGB pixels, interleaved. Initialize with zeros; the memory is reused and freed by
 * image_pixels_free. */
struct image_pixels {
    struct byte_buffer rows; /* [area.height, area.width, 3] */
    struct image_area area;  /* of the scaled image; covers the request and may be larger */
    int64_t scale;           /* 1, 2, 4 or 8 */
    struct byte_buffer part; /* scratch: turned rows */
};

void image_pixels_free(struct image_pixels *pixels);

/* Return pixel (x, y) of the scaled image, which must be in the area. */
static inline uint8_t *image_pixels_at(const struct image_pixels *pixels, int64_t x, int64_t y)
{
    const struct image_area *area = &pixels->area;
    return pixels->rows.data + 3 * ((y - area->y) * area->width + x - area->x);
}

/* True if the name has the extension of an image file: one of torchvision's, in upper or lower
 * case. */
bool image_file_is_name(const char *name);

/* Read format, size and orientation from the first bytes of a file. `whole`: these are all bytes of
 * the file. Only then is the orientation of a PNG file found if it follows the image data. Images
 * with more than most_pixels are refused. *incomplete: more bytes are needed; then no error is set.
 */
MUST_CHECK bool image_file_header(const uint8_t *bytes, size_t count, bool whole,
                                  int64_t most_pixels, struct image_header *header,
                                  bool *incomplete, struct error *error);

/* Make image_file_decode turn the image by its orientation. Width and height, and the areas of
 * requests, are then those of the turned image. */
void image_header_turn(struct image_header *header);

/* Decode the area of the request. header: result of image_file_header for these bytes. The header's
 * size bounds the memory used. */
typedef bool image_decoder(const uint8_t *bytes, size_t count, const struct image_header *header,
                           const struct image_request *request, struct image_pixels *pixels,
                           struct error *error);
MUST_CHECK image_decoder image_file_decode;

/* Return the PNG file of pixels [height, width, channels] with 1 or 3 channels as base64 text,
 * which the caller frees. */
char *image_png_text(const uint8_t *pixels, int64_t height, int64_t width, int64_t channels);

/* ---- private to image_*.c */
MUST_CHECK image_decoder image_jpeg_decode, image_png_decode, image_webp_decode;

MUST_CHECK bool image_webp_header(const uint8_t *bytes, size_t count, struct image_header *header,
                                  bool *incomplete, struct error *error);

MUST_CHECK bool image_file_is_cut(struct error *error);

/* Allocate the pixels of this area. */
MUST_CHECK bool image_pixels_reserve(struct image_pixels *pixels, struct image_area area,
                                     int64_t scale, struct error *error);

#endif
