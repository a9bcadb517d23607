// SPDX-License-Identifier: BSD-3-Clause
/* Copies the restart intervals of a JPEG that an area needs to a smaller JPEG with the same pixels,
 * so that only these are decoded: most of the time of decoding a JPEG is Huffman decoding. */
#include <string.h>

#include "core/integer.h"
#include "data/image_file.h"

enum {
    MARKER_SOF0 = 0xc0, /* baseline */
    MARKER_SOF1 = 0xc1, /* extended sequential */
    MARKER_DHT = 0xc4,
    MARKER_JPG = 0xc8,
    MARKER_DAC = 0xcc,
    MARKER_RST0 = 0xd0,
    MARKER_EOI = 0xd9,
    MARKER_SOS = 0xda,
    MARKER_DRI = 0xdd,
    RESTARTS = 8,      /* restart markers are numbered modulo 8 */
    BLOCK = 8,         /* width and height of a DCT block */
    COMPONENTS = 4,    /* maximum */
    FRAME_HEADER = 10, /* bytes from the marker to the first component */
};

static int64_t number_at(const uint8_t *bytes)
{
    return bytes[0] << 8 | bytes[1];
}

static void number_put(uint8_t *bytes, int64_t number)
{
    bytes[0] = (uint8_t)(number >> 8);
    bytes[1] = (uint8_t)number;
}

/* Positions of segments, and the sizes stored in them. */
struct jpeg_layout {
    size_t frame, restart, scan; /* markers SOF and DRI, first byte of the entropy-coded data */
    int64_t components, mcu_width, mcu_height; /* in pixels */
    int64_t width, height;
    int64_t interval; /* MCUs */
};

static bool frame_read(const uint8_t *bytes, int64_t length, struct jpeg_layout *layout)
{
    int64_t across = 1, down = 1;
    layout->components = bytes[FRAME_HEADER - 1];
    if (layout->components < 1 || layout->components > COMPONENTS ||
        length != FRAME_HEADER - 2 + 3 * layout->components)
        return false;
    layout->height = number_at(bytes + 5);
    layout->width = number_at(bytes + 7);
    for (int64_t i = 0; i < layout->components; i++) {
        const uint8_t factors = bytes[FRAME_HEADER + 3 * i + 1];
        across = factors >> 4 > across ? factors >> 4 : across;
        down = (factors & 15) > down ? factors & 15 : down;
    }
    /* A scan of one component has one block per MCU. */
    layout->mcu_width = layout->components == 1 ? BLOCK : BLOCK * across;
    layout->mcu_height = layout->components == 1 ? BLOCK : BLOCK * down;
    return true;
}

/* Return false if the file is not a sequential JPEG of one scan with restart markers. */
static bool layout_read(const uint8_t *bytes, size_t count, struct jpeg_layout *layout)
{
    *layout = (struct jpeg_layout){0};
    for (size_t at = 2; count - at > FRAME_HEADER + 3 * COMPONENTS;) {
        const uint8_t marker = bytes[at + 1];
        const int64_t length = number_at(bytes + at + 2);
        if (bytes[at] != 0xff || length < 2 || (size_t)length + 2 >= count - at)
            return false;
        if (marker == MARKER_SOF0 || marker == MARKER_SOF1) {
            if (layout->frame != 0 || !frame_read(bytes + at, length, layout))
                return false;
            layout->frame = at;
        } else if (marker >= MARKER_SOF0 && marker <= 0xcf && marker != MARKER_DHT &&
                   marker != MARKER_JPG && marker != MARKER_DAC) {
            return false; /* progressive or arithmetic */
        } else if (marker == MARKER_DRI) {
            layout->restart = at;
            layout->interval = number_at(bytes + at + 4);
        } else if (marker == MARKER_SOS) {
            layout->scan = at + 2 + (size_t)length;
            return layout->frame != 0 && layout->interval > 0 && layout->width > 0 &&
                   bytes[at + 4] == layout->components;
        }
        at += 2 + (size_t)length;
    }
    return false;
}

/* The intervals that an area needs: columns left .. right, rows of MCUs top .. bottom, ends
 * exclusive. */
struct jpeg_intervals {
    int64_t left, right, top, bottom;
    int64_t columns, rows; /* of the whole image */
};

/* Copy the intervals and renumber their markers. Return the end of the copy, or NULL if the markers
 * are not as expected. */
static uint8_t *intervals_copy(const uint8_t *at, const uint8_t *end,
                               const struct jpeg_intervals *part, uint8_t *to)
{
    const int64_t last = (part->bottom - 1) * part->columns + part->right - 1;
    int copied = 0;
    for (int64_t i = 0; i <= last; i++) {
        const uint8_t *begin = at;
        while ((at = memchr(at, 0xff, (size_t)(end - at))) != NULL && end - at > 1 && at[1] == 0)
            at += 2; /* a stuffed byte */
        if (at == NULL || end - at < 2 ||
            at[1] !=
                (i == part->columns * part->rows - 1 ? MARKER_EOI : MARKER_RST0 + i % RESTARTS))
            return NULL;
        at += 2;
        const int64_t column = i % part->columns;
        if (i / part->columns < part->top || column < part->left || column >= part->right)
            continue;
        memcpy(to, begin, (size_t)(at - begin));
        to += at - begin;
        to[-1] = (uint8_t)(i == last ? MARKER_EOI : MARKER_RST0 + copied++ % RESTARTS);
    }
    return to;
}

bool image_jpeg_cut(const uint8_t *bytes, size_t count, const struct image_area *area,
                    struct byte_buffer *to, struct image_area *part, struct error *error)
{
    struct jpeg_layout layout;
    if (!layout_read(bytes, count, &layout))
        return false;
    const int64_t across = round_up_division(layout.width, layout.mcu_width);
    const int64_t interval = layout.interval * layout.mcu_width;
    if (across % layout.interval != 0)
        return false;
    const struct jpeg_intervals intervals = {
        .left = area->x / interval,
        .right = round_up_division(area->x + area->width, interval),
        .top = area->y / layout.mcu_height,
        .bottom = round_up_division(area->y + area->height, layout.mcu_height),
        .columns = across / layout.interval,
        .rows = round_up_division(layout.height, layout.mcu_height)};
    part->x = intervals.left * interval;
    part->y = intervals.top * layout.mcu_height;
    part->width = smaller(layout.width, intervals.right * interval) - part->x;
    part->height = smaller(layout.height, intervals.bottom * layout.mcu_height) - part->y;
    /* A single column can be narrower than its intervals: libjpeg skips the rest of each one. */
    if (intervals.right - intervals.left == 1) {
        layout.interval = round_up_division(area->x + area->width - part->x, layout.mcu_width);
        part->width = smaller(part->width, layout.interval * layout.mcu_width);
    }
    if (part->width == layout.width && part->y == 0)
        return false; /* the part is the whole file, except rows that libjpeg does not decode */
    if (!byte_buffer_reserve(to, count, error))
        return false;
    memcpy(to->data, bytes, layout.scan);
    number_put(to->data + layout.frame + 5, part->height);
    number_put(to->data + layout.frame + 7, part->width);
    number_put(to->data + layout.restart + 4, layout.interval);
    const uint8_t *end =
        intervals_copy(bytes + layout.scan, bytes + count, &intervals, to->data + layout.scan);
    to->count = end != NULL ? (size_t)(end - to->data) : 0;
    return end != NULL;
}
