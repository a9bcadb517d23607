/* Image files, JPEG and PNG, from memory to RGB pixels as PIL's Image.open(file).convert("RGB") has
 * them: grey, palettes, CMYK (Adobe's inverted), 16 bits, interlaced; alpha is dropped, and EXIF's
 * orientation is not looked at (nor does torchvision's ImageFolder). Only the part that is asked
 * for is decoded, as far as the format allows it. Thread-safe; nothing is kept between calls but
 * the caller's buffer. Errors say what is wrong with the file, not which file it is. */
#ifndef VITTRAIN_DATA_IMAGE_FILE_H
#define VITTRAIN_DATA_IMAGE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum image_format { IMAGE_JPEG, IMAGE_PNG };

struct image_header {
    enum image_format format;
    int64_t width, height;
};

/* A rectangle of an image, in pixels. */
struct image_area {
    int64_t x, y, width, height;
};

/* What is taken of a file, and on which terms. */
struct image_request {
    struct image_area area;
    int64_t scale;         /* 2, 4, 8: a JPEG is made so much smaller while it is decoded; else 1 */
    bool accept_truncated; /* what a file that ends early lacks is grey (JPEG) or black (PNG) */
};

/* Rows of RGB, interleaved: pixel (x, y) to (x + width, y + height) of the image, which is `scale`
 * times smaller than in the file along each axis. At least what was asked for, often somewhat more.
 * Begin with zeros; the memory is kept from image to image and freed by image_pixels_free. */
struct image_pixels {
    uint8_t *data;
    size_t capacity;
    int64_t x, y, width, height;
    int64_t stride; /* bytes from row to row */
    int64_t scale;  /* 1, 2, 4 or 8 */
};

void image_pixels_free(struct image_pixels *pixels);

/* Format and size from the first bytes of a file, without decoding. `whole`: these bytes are all of
 * it. An image of more than most_pixels is refused. *incomplete: more of the file is needed, then
 * there is no error. */
MUST_CHECK bool image_file_header(const uint8_t *bytes, size_t count, bool whole,
                                  int64_t most_pixels, struct image_header *header,
                                  bool *incomplete, struct error *error);

/* Decodes the area of the request; header: image_file_header's of these bytes. Memory that is taken
 * is bounded by the header's size. */
MUST_CHECK bool image_file_decode(const uint8_t *bytes, size_t count,
                                  const struct image_header *header,
                                  const struct image_request *request, struct image_pixels *pixels,
                                  struct error *error);

/* ---- Behind image_file_decode: a decoder each, and what they share. */
MUST_CHECK bool image_jpeg_decode(const uint8_t *bytes, size_t count,
                                  const struct image_header *header,
                                  const struct image_request *request, struct image_pixels *pixels,
                                  struct error *error);
MUST_CHECK bool image_png_decode(const uint8_t *bytes, size_t count,
                                 const struct image_header *header,
                                 const struct image_request *request, struct image_pixels *pixels,
                                 struct error *error);

MUST_CHECK bool image_file_is_cut(struct error *error);

/* Makes room for pixels->height rows. */
MUST_CHECK bool image_pixels_reserve(struct image_pixels *pixels, struct error *error);

#endif
