// SPDX-License-Identifier: BSD-3-Clause
/* The orientation in the EXIF metadata of an image file, and turning decoded pixels by it. Values 1
 * to 8 have the meaning of the EXIF standard and of Pillow's ImageOps.exif_transpose. */
#include <string.h>

#include "core/base.h"
#include "data/image_file.h"

enum {
    TAG_ORIENTATION = 0x0112,
    TYPE_SHORT = 3,
    TIFF_HEADER = 8,
    TIFF_ENTRY = 12,
    PNG_SIGNATURE = 8,
    PNG_CHUNK = 12, /* length, type and checksum */
    RIFF_HEADER = 12,
    RIFF_CHUNK = 8,       /* type and length */
    WEBP_FLAGS = 20,      /* position of the flags of VP8X, the first chunk */
    WEBP_HAS_EXIF = 0x08, /* one of the flags */
    TILE = 32             /* rows that are turned at a time */
};

const char image_exif_prefix[EXIF_PREFIX] = "Exif\0";

static size_t number_at(const uint8_t *bytes, int count, bool little_endian)
{
    size_t value = 0;
    for (int i = 0; i < count; i++)
        value = value << 8 | bytes[little_endian ? count - 1 - i : i];
    return value;
}

int image_exif_orientation(const uint8_t *bytes, size_t count)
{
    if (count >= EXIF_PREFIX && memcmp(bytes, image_exif_prefix, EXIF_PREFIX) == 0) {
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

bool image_png_orientation(const uint8_t *bytes, size_t count, bool whole, int *orientation)
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
            *orientation = image_exif_orientation(type + 4, length);
            return true;
        }
        at += PNG_CHUNK + length;
    }
    return whole;
}

bool image_webp_orientation(const uint8_t *bytes, size_t count, bool whole, int *orientation)
{
    if (count <= WEBP_FLAGS || memcmp(bytes + RIFF_HEADER, "VP8X", 4) != 0 ||
        (bytes[WEBP_FLAGS] & WEBP_HAS_EXIF) == 0)
        return true;
    for (size_t at = RIFF_HEADER; count - at >= RIFF_CHUNK;) {
        const size_t length = number_at(bytes + at + 4, 4, true);
        const size_t padded = length + length % 2, rest = count - at - RIFF_CHUNK;
        if (length <= rest && memcmp(bytes + at, "EXIF", 4) == 0) {
            *orientation = image_exif_orientation(bytes + at + RIFF_CHUNK, length);
            return true;
        }
        if (padded > rest)
            break;
        at += RIFF_CHUNK + padded;
    }
    return whole;
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

struct image_header image_header_stored(const struct image_header *header)
{
    struct image_header stored = *header;
    if (is_transposed(header->turn)) {
        stored.width = header->height;
        stored.height = header->width;
    }
    return stored;
}

struct image_request image_request_stored(const struct image_request *request,
                                          const struct image_header *stored)
{
    struct image_request moved = *request;
    if (is_transposed(stored->turn))
        moved.area = area_transpose(moved.area);
    moved.area = area_mirror(moved.area, stored->turn, stored->width, stored->height);
    /* With a scale, a mirrored image has the same pixels only if its size is a multiple of the
     * scale. */
    while (stored->width % moved.scale != 0 || stored->height % moved.scale != 0)
        moved.scale /= 2;
    return moved;
}

/* Copy rows [begin, end) of the turned image. */
static void rows_turn(const struct image_pixels *pixels, int orientation,
                      const struct image_area *turned, int64_t begin, int64_t end, uint8_t *to)
{
    const struct image_area *from = &pixels->area;
    const bool is_swapped = is_transposed(orientation);
    const bool columns = has_mirrored_columns(orientation), rows = has_mirrored_rows(orientation);
    for (int64_t x = 0; x < turned->width; x++)
        for (int64_t y = begin; y < end; y++) {
            const int64_t column = is_swapped ? y : x, row = is_swapped ? x : y;
            const int64_t from_x = columns ? from->width - 1 - column : column;
            const int64_t from_y = rows ? from->height - 1 - row : row;
            memcpy(to + 3 * (y * turned->width + x),
                   pixels->rows.data + 3 * (from_y * from->width + from_x), 3);
        }
}

bool image_pixels_turn(struct image_pixels *pixels, const struct image_header *stored,
                       struct error *error)
{
    const int64_t scale = pixels->scale;
    struct image_area area =
        area_mirror(pixels->area, stored->turn, stored->width / scale, stored->height / scale);
    if (is_transposed(stored->turn))
        area = area_transpose(area);
    struct byte_buffer *to = &pixels->part;
    if (!byte_buffer_reserve(to, (size_t)(3 * area.width * area.height), error))
        return false;
    for (int64_t y = 0; y < area.height; y += TILE)
        rows_turn(pixels, stored->turn, &area, y, smaller(y + TILE, area.height), to->data);
    const struct byte_buffer rows = pixels->rows;
    pixels->rows = pixels->part;
    pixels->part = rows;
    pixels->area = area;
    return true;
}
