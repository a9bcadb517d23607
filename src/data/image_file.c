// SPDX-License-Identifier: BSD-3-Clause
/* Detects the format and size of an image file from its first bytes and selects the decoder. */
#include "data/image_file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SIGNATURE_MOST = 12, PNG_HEADER = 26 };

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

static bool png_header(const uint8_t *bytes, size_t count, struct image_header *header,
                       bool *incomplete, struct error *error)
{
    *incomplete = count < PNG_HEADER;
    if (*incomplete)
        return false;
    header->width = big_endian(bytes + 16, 4);
    header->height = big_endian(bytes + 20, 4);
    header->has_alpha = (bytes[25] & 4) != 0; /* of the colour type */
    if (memcmp(bytes + 12, "IHDR", 4) != 0)
        return error_set(error, ERROR_DATA, "is damaged: a PNG without IHDR at its beginning");
    return bytes[24] <= 8 ||
           error_set(error, ERROR_DATA,
                     "has %d bits per value, and only 8 are read: convert it, or use "
                     "data.format=arrays",
                     bytes[24]);
}

/* Formats and the bytes at `offset` that identify them. The first ones are in the order of enum
 * image_format; the others are not supported and are named in the error. */
static const struct format {
    const char *name;
    size_t offset, count;
    const char *bytes;
    bool (*header)(const uint8_t *bytes, size_t count, struct image_header *header,
                   bool *incomplete, struct error *error);
    /* Set the EXIF orientation; false: more bytes are needed. NULL: `header` sets it. */
    bool (*orientation)(const uint8_t *bytes, size_t count, bool whole, int *orientation);
    bool (*decode)(const uint8_t *bytes, size_t count, const struct image_header *header,
                   const struct image_request *request, struct image_pixels *pixels,
                   struct error *error);
} formats[] = {
    {"JPEG", 0, 3, "\xff\xd8\xff", jpeg_header, NULL, image_jpeg_decode},
    {"PNG", 0, 8, "\x89PNG\r\n\x1a\n", png_header, image_png_orientation, image_png_decode},
    {"WebP", 8, 4, "WEBP", image_webp_header, image_webp_orientation, image_webp_decode},
    {.name = "GIF", .count = 4, .bytes = "GIF8"},
    {.name = "BMP", .count = 2, .bytes = "BM"},
    {.name = "TIFF", .count = 4, .bytes = "II*\0"},
    {.name = "TIFF", .count = 4, .bytes = "MM\0*"},
    {.name = "JPEG 2000", .count = 12, .bytes = "\0\0\0\x0cjP  \r\n\x87\n"},
    {.name = "JPEG XL", .count = 2, .bytes = "\xff\x0a"},
    {.name = "AVIF or HEIF", .offset = 4, .count = 4, .bytes = "ftyp"},
    {.name = "PPM or PGM", .count = 2, .bytes = "P6"},
    {.name = "PPM or PGM", .count = 2, .bytes = "P5"},
    {.name = "HDF5, which data.format=arrays reads", .count = 8, .bytes = "\x89HDF\r\n\x1a\n"},
};

enum { FORMATS = sizeof formats / sizeof formats[0] };

static const struct format *format_find(const uint8_t *bytes, size_t count)
{
    for (int i = 0; i < FORMATS; i++)
        if (count >= formats[i].offset + formats[i].count &&
            memcmp(bytes + formats[i].offset, formats[i].bytes, formats[i].count) == 0)
            return &formats[i];
    return NULL;
}

bool image_file_header(const uint8_t *bytes, size_t count, bool whole, int64_t most_pixels,
                       struct image_header *header, bool *incomplete, struct error *error)
{
    *header = (struct image_header){.orientation = 1};
    *incomplete = count < SIGNATURE_MOST && !whole;
    if (*incomplete)
        return false;
    if (count == 0)
        return error_set(error, ERROR_DATA, "is empty");
    const struct format *format = format_find(bytes, count);
    if (format != NULL && format->decode == NULL)
        return error_set(error, ERROR_DATA,
                         "is %s; only JPEG, PNG and WebP are supported: convert it", format->name);
    if (format == NULL || count < SIGNATURE_MOST)
        return error_set(error, ERROR_DATA,
                         "is not an image: not JPEG, PNG or WebP by its first bytes");
    header->format = (enum image_format)(format - formats);
    const bool known = format->header(bytes, count, header, incomplete, error);
    if (known && format->orientation != NULL)
        *incomplete = !format->orientation(bytes, count, whole, &header->orientation);
    if (*incomplete && whole) {
        *incomplete = false;
        return error_set(error, ERROR_DATA, "is truncated before the image begins");
    }
    if (!known || *incomplete)
        return false;
    if (header->width < 1 || header->height < 1)
        return error_set(error, ERROR_DATA, "is damaged: an image of %lld x %lld pixels",
                         (long long)header->height, (long long)header->width);
    if (header->width > most_pixels / header->height)
        return error_set(
            error, ERROR_DATA, "has %lld x %lld pixels, more than data.max_pixels=%lld",
            (long long)header->height, (long long)header->width, (long long)most_pixels);
    return true;
}

bool image_file_decode(const uint8_t *bytes, size_t count, const struct image_header *header,
                       const struct image_request *request, struct image_pixels *pixels,
                       struct error *error)
{
    const struct image_area *area = &request->area;
    ENSURE(area->x >= 0 && area->y >= 0 && area->width > 0 && area->height > 0 &&
               area->x + area->width <= header->width && area->y + area->height <= header->height,
           "an area outside of the image");
    const struct format *format = &formats[header->format];
    if (header->turn <= 1)
        return format->decode(bytes, count, header, request, pixels, error);
    const struct image_header stored = image_header_stored(header);
    const struct image_request moved = image_request_stored(request, &stored);
    return format->decode(bytes, count, &stored, &moved, pixels, error) &&
           image_pixels_turn(pixels, &stored, error);
}

bool image_file_is_cut(struct error *error)
{
    return error_set(error, ERROR_DATA,
                     "is truncated inside the image; data.truncated=accept uses the rest, "
                     "data.skip_broken=on removes the file");
}

bool image_pixels_reserve(struct image_pixels *pixels, struct image_area area, int64_t scale,
                          struct error *error)
{
    pixels->area = area;
    pixels->scale = scale;
    return byte_buffer_reserve(&pixels->rows, (size_t)(3 * area.height * area.width), error);
}

void image_pixels_free(struct image_pixels *pixels)
{
    free(pixels->rows.data);
    free(pixels->part.data);
    *pixels = (struct image_pixels){0};
}
