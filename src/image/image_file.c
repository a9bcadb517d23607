// SPDX-License-Identifier: BSD-3-Clause
/* Reads format, size and EXIF orientation from the first bytes of an image file, selects the
 * decoder, and turns decoded pixels by the orientation. Its values 1 to 8 have the meaning of the
 * EXIF standard and of Pillow's ImageOps.exif_transpose. */
#include "image/image_file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"

enum {
    SIGNATURE_MOST = 12,
    EXIF_PREFIX = 6, /* precedes the TIFF header of an EXIF block in JPEG files */
    TAG_ORIENTATION = 0x0112,
    TYPE_SHORT = 3,
    TIFF_HEADER = 8,
    TIFF_ENTRY = 12,
    PNG_SIGNATURE = 8,
    PNG_HEADER = 26,
    PNG_CHUNK = 12, /* length, type and checksum */
    RIFF_HEADER = 12,
    RIFF_CHUNK = 8,       /* type and length */
    WEBP_FLAGS = 20,      /* position of the flags of VP8X, the first chunk */
    WEBP_HAS_EXIF = 0x08, /* one of the flags */
    TILE = 32             /* rows that are turned at a time */
};

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

static size_t number_at(const uint8_t *bytes, int count, bool little_endian)
{
    size_t value = 0;
    for (int i = 0; i < count; i++)
        value = value << 8 | bytes[little_endian ? count - 1 - i : i];
    return value;
}

/* ---- Orientation. */

static const char exif_prefix[EXIF_PREFIX] = "Exif\0";

/* Return the orientation of an EXIF block; 1 if it has none or is damaged. */
static int exif_orientation(const uint8_t *bytes, size_t count)
{
    if (count >= EXIF_PREFIX && memcmp(bytes, exif_prefix, EXIF_PREFIX) == 0) {
        bytes += EXIF_PREFIX;
        count -= EXIF_PREFIX;
    }
    if (count < TIFF_HEADER + 2)
        return 1;
    const bool little = memcmp(bytes, "II*\0", 4) == 0;
    size_t at = number_at(bytes + 4, 4, little);
    if ((!little && memcmp(bytes, "MM\0*", 4) != 0) || at > count - 2)
        return 1;
    size_t entries = number_at(bytes + at, 2, little);
    for (at += 2; entries > 0 && count - at >= TIFF_ENTRY; entries--, at += TIFF_ENTRY) {
        const uint8_t *entry = bytes + at;
        if (number_at(entry, 2, little) != TAG_ORIENTATION)
            continue;
        const size_t value = number_at(entry + 8, 2, little);
        return number_at(entry + 2, 2, little) == TYPE_SHORT && value >= 1 && value <= 8
                   ? (int)value
                   : 1;
    }
    return 1;
}

/* Set *orientation if the file has one. Return false if more bytes are needed. */
static bool png_orientation(const uint8_t *bytes, size_t count, bool whole, int *orientation)
{
    for (size_t at = PNG_SIGNATURE; count - at >= 8;) {
        const size_t length = number_at(bytes + at, 4, false);
        const uint8_t *type = bytes + at + 4;
        const bool fits = count - at >= PNG_CHUNK && length <= count - at - PNG_CHUNK;
        if (memcmp(type, "IEND", 4) == 0 || (!whole && memcmp(type, "IDAT", 4) == 0))
            return true;
        if (!fits)
            break;
        if (memcmp(type, "eXIf", 4) == 0) {
            *orientation = exif_orientation(type + 4, length);
            return true;
        }
        at += PNG_CHUNK + length;
    }
    return whole;
}

static bool webp_orientation(const uint8_t *bytes, size_t count, bool whole, int *orientation)
{
    if (count <= WEBP_FLAGS || memcmp(bytes + RIFF_HEADER, "VP8X", 4) != 0 ||
        (bytes[WEBP_FLAGS] & WEBP_HAS_EXIF) == 0)
        return true;
    for (size_t at = RIFF_HEADER; count - at >= RIFF_CHUNK;) {
        const size_t length = number_at(bytes + at + 4, 4, true);
        const size_t padded = length + length % 2, rest = count - at - RIFF_CHUNK;
        if (length <= rest && memcmp(bytes + at, "EXIF", 4) == 0) {
            *orientation = exif_orientation(bytes + at + RIFF_CHUNK, length);
            return true;
        }
        if (padded > rest)
            break;
        at += RIFF_CHUNK + padded;
    }
    return whole;
}

/* ---- Headers. */

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
            header->height = (int64_t)number_at(bytes + at + 5, 2, false);
            header->width = (int64_t)number_at(bytes + at + 7, 2, false);
            return true;
        }
        if (marker == 0xff || marker == 0x00 || marker == 0x01 ||
            (marker >= 0xd0 && marker <= 0xd8)) {
            at += marker == 0xff ? 1 : 2; /* markers without a segment */
            continue;
        }
        if (marker == 0xd9 || marker == 0xda)
            return error_set(error, ERROR_DATA, "is damaged: a JPEG without a frame");
        const size_t length = number_at(bytes + at + 2, 2, false) + 2;
        if (length > count - at)
            break;
        if (marker == 0xe1 && header->orientation == 1 && length >= 4 + EXIF_PREFIX &&
            memcmp(bytes + at + 4, exif_prefix, EXIF_PREFIX) == 0)
            header->orientation = exif_orientation(bytes + at + 4, length - 4);
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
    header->width = (int64_t)number_at(bytes + 16, 4, false);
    header->height = (int64_t)number_at(bytes + 20, 4, false);
    header->has_alpha = (bytes[25] & 4) != 0; /* of the colour type */
    if (memcmp(bytes + 12, "IHDR", 4) != 0)
        return error_set(error, ERROR_DATA, "is damaged: a PNG without IHDR at its beginning");
    return bytes[24] <= 8 ||
           error_set(error, ERROR_DATA,
                     "has %d bits per value, and only 8 are read: convert it, or use "
                     "data.format=arrays",
                     bytes[24]);
}

/* Formats, in the order of enum image_format, and the bytes at `offset` that identify them. */
static const struct format {
    size_t offset, count;
    const char *bytes;
    bool (*header)(const uint8_t *bytes, size_t count, struct image_header *header,
                   bool *incomplete, struct error *error);
    /* Set the EXIF orientation; false: more bytes are needed. NULL: `header` sets it. */
    bool (*orientation)(const uint8_t *bytes, size_t count, bool whole, int *orientation);
    image_decoder *decode;
} formats[] = {
    {0, 3, "\xff\xd8\xff", jpeg_header, NULL, image_jpeg_decode},
    {0, 8, "\x89PNG\r\n\x1a\n", png_header, png_orientation, image_png_decode},
    {8, 4, "WEBP", image_webp_header, webp_orientation, image_webp_decode},
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
    if (format == NULL || count < SIGNATURE_MOST)
        return error_set(error, ERROR_DATA,
                         "is not an image: not JPEG, PNG or WebP by its first bytes; arrays need "
                         "data.format=arrays");
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

/* ---- Turning. */

/* True if turning exchanges width and height. */
static bool is_transposed(int orientation)
{
    return orientation >= 5;
}

/* True if the columns of the file are mirrored. */
static bool has_mirrored_columns(int orientation)
{
    return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

/* True if the rows of the file are mirrored. */
static bool has_mirrored_rows(int orientation)
{
    return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

static struct image_area area_transpose(struct image_area area)
{
    return (struct image_area){area.y, area.x, area.height, area.width};
}

static struct image_area area_mirror(struct image_area area, int orientation, int64_t width,
                                     int64_t height)
{
    if (has_mirrored_columns(orientation))
        area.x = width - area.x - area.width;
    if (has_mirrored_rows(orientation))
        area.y = height - area.y - area.height;
    return area;
}

void image_header_turn(struct image_header *header)
{
    header->turn = header->orientation;
    if (is_transposed(header->turn)) {
        const int64_t width = header->width;
        header->width = header->height;
        header->height = width;
    }
}

/* Turn decoded pixels, a tile of rows at a time. */
static bool pixels_turn(struct image_pixels *pixels, const struct image_header *stored,
                        struct error *error)
{
    const int turn = stored->turn;
    const bool is_swapped = is_transposed(turn);
    const bool columns = has_mirrored_columns(turn), rows = has_mirrored_rows(turn);
    const int64_t scale = pixels->scale;
    const struct image_area from = pixels->area;
    struct image_area area = area_mirror(from, turn, stored->width / scale, stored->height / scale);
    if (is_swapped)
        area = area_transpose(area);
    if (!byte_buffer_reserve(&pixels->part, (size_t)(3 * area.width * area.height), error))
        return false;
    for (int64_t begin = 0; begin < area.height; begin += TILE)
        for (int64_t x = 0; x < area.width; x++)
            for (int64_t y = begin; y < smaller(begin + TILE, area.height); y++) {
                const int64_t column = is_swapped ? y : x, row = is_swapped ? x : y;
                const int64_t from_x = columns ? from.width - 1 - column : column;
                const int64_t from_y = rows ? from.height - 1 - row : row;
                memcpy(pixels->part.data + 3 * (y * area.width + x),
                       pixels->rows.data + 3 * (from_y * from.width + from_x), 3);
            }
    const struct byte_buffer before = pixels->rows;
    pixels->rows = pixels->part;
    pixels->part = before;
    pixels->area = area;
    return true;
}

/* ---- Decoding. */

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
    struct image_header stored = *header;
    if (is_transposed(header->turn)) {
        stored.width = header->height;
        stored.height = header->width;
    }
    /* Request the part of the image as stored that covers the part of the turned image. */
    struct image_request moved = *request;
    if (is_transposed(stored.turn))
        moved.area = area_transpose(moved.area);
    moved.area = area_mirror(moved.area, stored.turn, stored.width, stored.height);
    /* With a scale, a mirrored image has the same pixels only if its size is a multiple of the
     * scale. */
    while (stored.width % moved.scale != 0 || stored.height % moved.scale != 0)
        moved.scale /= 2;
    return format->decode(bytes, count, &stored, &moved, pixels, error) &&
           pixels_turn(pixels, &stored, error);
}

bool image_file_is_cut(struct error *error)
{
    return error_set(error, ERROR_DATA,
                     "is truncated inside the image; data.skip_broken=on leaves it out");
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
