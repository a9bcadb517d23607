// SPDX-License-Identifier: BSD-3-Clause
/* Detects the format and size of an image file from its first bytes and selects the decoder. */
#include "data/image_file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Formats by their first bytes: supported ones, and common unsupported ones for the message. */
static const struct {
    const char *name;
    size_t offset, count;
    const char *bytes;
} signatures[] = {
    {"GIF", 0, 4, "GIF8"},
    {"BMP", 0, 2, "BM"},
    {"TIFF", 0, 4, "II*\0"},
    {"TIFF", 0, 4, "MM\0*"},
    {"JPEG 2000", 0, 12, "\0\0\0\x0cjP  \r\n\x87\n"},
    {"JPEG XL", 0, 2, "\xff\x0a"},
    {"AVIF or HEIF", 4, 4, "ftyp"},
    {"PPM or PGM", 0, 2, "P6"},
    {"PPM or PGM", 0, 2, "P5"},
};

enum { SIGNATURE_MOST = 12, PNG_HEADER = 24 };

static const uint8_t jpeg_signature[3] = {0xff, 0xd8, 0xff};
static const uint8_t png_signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

/* The extensions of torchvision's ImageFolder. Files in formats that cannot be decoded are listed,
 * too, and then refused, so that no file is skipped silently. */
static const char *const endings[] = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                      ".pgm", ".tif",  ".tiff", ".webp"};

bool image_file_is_name(const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t ending = strlen(endings[i]);
        if (length >= ending && strcasecmp(name + length - ending, endings[i]) == 0)
            return true;
    }
    return false;
}

static uint32_t big_endian(const uint8_t *bytes, int count)
{
    uint32_t value = 0;
    for (int i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

static bool unknown_format(const uint8_t *bytes, size_t count, struct error *error)
{
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++)
        if (count >= signatures[i].offset + signatures[i].count &&
            memcmp(bytes + signatures[i].offset, signatures[i].bytes, signatures[i].count) == 0)
            return error_set(error, ERROR_DATA,
                             "is %s; only JPEG, PNG and WebP are supported: convert it",
                             signatures[i].name);
    return error_set(error, ERROR_DATA,
                     "is not an image: not JPEG, PNG or WebP by its first bytes");
}

/* Skip the segments before the frame header. */
static bool jpeg_header(const uint8_t *bytes, size_t count, struct image_header *header,
                        bool *incomplete, struct error *error)
{
    for (size_t at = 2; count - at >= 10;) {
        if (bytes[at] != 0xff) {
            at++;
            continue;
        }
        const uint8_t marker = bytes[at + 1];
        /* SOF0 to SOF15, without DHT, JPG and DAC in this range, begin a frame. */
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
            marker != 0xcc) {
            header->height = big_endian(bytes + at + 5, 2);
            header->width = big_endian(bytes + at + 7, 2);
            return true;
        }
        if (marker == 0xff || marker == 0x00 || marker == 0x01 ||
            (marker >= 0xd0 && marker <= 0xd8)) {
            at += marker == 0xff ? 1 : 2; /* markers without a segment */
            continue;
        }
        if (marker == 0xd9 || marker == 0xda)
            return error_set(error, ERROR_DATA, "is damaged: a JPEG without a frame");
        const size_t length = big_endian(bytes + at + 2, 2) + 2;
        if (length > count - at)
            break;
        if (marker == 0xe1 && header->orientation == 1 && length >= 4 + EXIF_PREFIX &&
            memcmp(bytes + at + 4, image_exif_prefix, EXIF_PREFIX) == 0)
            header->orientation = image_exif_orientation(bytes + at + 4, length - 4);
        at += length;
    }
    *incomplete = true;
    return false;
}

bool image_file_header(const uint8_t *bytes, size_t count, bool whole, int64_t most_pixels,
                       struct image_header *header, bool *incomplete, struct error *error)
{
    bool known = false;
    *header = (struct image_header){.orientation = 1};
    *incomplete = false;
    if (count == 0 && whole)
        return error_set(error, ERROR_DATA, "is empty");
    if (count < SIGNATURE_MOST) {
        *incomplete = !whole;
        return whole && unknown_format(bytes, count, error);
    }
    if (memcmp(bytes, jpeg_signature, sizeof jpeg_signature) == 0) {
        header->format = IMAGE_JPEG;
        known = jpeg_header(bytes, count, header, incomplete, error);
    } else if (memcmp(bytes, png_signature, sizeof png_signature) == 0) {
        header->format = IMAGE_PNG;
        *incomplete = count < PNG_HEADER;
        if (!*incomplete && memcmp(bytes + 12, "IHDR", 4) != 0)
            return error_set(error, ERROR_DATA, "is damaged: a PNG without IHDR at its beginning");
        known = !*incomplete;
        if (known) {
            header->width = big_endian(bytes + 16, 4);
            header->height = big_endian(bytes + 20, 4);
            *incomplete = !image_png_orientation(bytes, count, whole, &header->orientation);
        }
    } else if (memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0) {
        known = image_webp_header(bytes, count, header, incomplete, error);
        if (known)
            *incomplete = !image_webp_orientation(bytes, count, whole, &header->orientation);
    } else {
        return unknown_format(bytes, count, error);
    }
    if (*incomplete && whole) {
        *incomplete = false;
        return error_set(error, ERROR_DATA, "is truncated before the image begins");
    }
    if (!known || *incomplete)
        return false;
    if (header->width < 1 || header->height < 1)
        return error_set(error, ERROR_DATA, "is damaged: an image of %lld x %lld pixels",
                         (long long)header->width, (long long)header->height);
    if (header->width > most_pixels / header->height)
        return error_set(
            error, ERROR_DATA, "has %lld x %lld pixels, more than data.max_pixels=%lld",
            (long long)header->width, (long long)header->height, (long long)most_pixels);
    return true;
}

static bool decode_stored(const uint8_t *bytes, size_t count, const struct image_header *header,
                          const struct image_request *request, struct image_pixels *pixels,
                          struct error *error)
{
    if (header->format == IMAGE_JPEG)
        return image_jpeg_decode(bytes, count, header, request, pixels, error);
    if (header->format == IMAGE_WEBP)
        return image_webp_decode(bytes, count, header, request, pixels, error);
    return image_png_decode(bytes, count, header, request, pixels, error);
}

bool image_file_decode(const uint8_t *bytes, size_t count, const struct image_header *header,
                       const struct image_request *request, struct image_pixels *pixels,
                       struct error *error)
{
    const struct image_area *area = &request->area;
    ENSURE(area->x >= 0 && area->y >= 0 && area->width > 0 && area->height > 0 &&
               area->x + area->width <= header->width && area->y + area->height <= header->height,
           "an area outside of the image");
    if (header->turn <= 1)
        return decode_stored(bytes, count, header, request, pixels, error);
    const struct image_header stored = image_header_stored(header);
    const struct image_request moved = image_request_stored(request, &stored);
    return decode_stored(bytes, count, &stored, &moved, pixels, error) &&
           image_pixels_turn(pixels, &stored, error);
}

bool image_file_is_cut(struct error *error)
{
    return error_set(error, ERROR_DATA,
                     "is truncated inside the image; data.truncated=accept uses the rest, "
                     "data.skip_broken=on with data.check=full removes the file");
}

void image_pixels_free(struct image_pixels *pixels)
{
    free(pixels->rows.data);
    free(pixels->part.data);
    *pixels = (struct image_pixels){0};
}
