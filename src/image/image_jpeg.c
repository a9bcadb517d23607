// SPDX-License-Identifier: BSD-3-Clause
/* JPEG with libjpeg-turbo. Only the rows down to the end of the area are decoded, and of these only
 * the blocks that overlap the area are transformed, at full size or at 1/2, 1/4 or 1/8. At full
 * size the area's pixels are bit for bit those of the whole image. libjpeg reports errors by
 * longjmp; struct jpeg_reader is in the caller's frame and stays valid. */
#include <stdio.h> /* jpeglib.h needs it */

#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "image/image_file.h"

enum {
    SCANS_MOST = 500, /* limit of scans of a progressive file, against denial of service */
    EDGE = 2,         /* pixels outside the area that chroma upsampling reads */
};

struct jpeg_reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    const struct image_header *header;
    const struct image_request *request;
    struct image_pixels *pixels;
    struct error *error;
    bool cut; /* the file is truncated */
};

static struct jpeg_reader *reader_of(j_common_ptr jpeg)
{
    return jpeg->client_data;
}

_Noreturn static void fail(j_common_ptr jpeg)
{
    char text[JMSG_LENGTH_MAX];
    struct jpeg_reader *reader = reader_of(jpeg);
    jpeg->err->format_message(jpeg, text);
    if (reader->error->kind == ERROR_NONE)
        error_set(reader->error, ERROR_DATA, "is a damaged JPEG: %s", text);
    longjmp(reader->failed, 1);
}

/* Warnings about damaged data are only counted, as in PIL. */
static void count_warning(j_common_ptr jpeg, int level)
{
    jpeg->err->num_warnings += level < 0;
}

static void limit_scans(j_common_ptr jpeg)
{
    struct jpeg_reader *reader = reader_of(jpeg);
    if (reader->jpeg.input_scan_number <= SCANS_MOST)
        return;
    error_set(reader->error, ERROR_DATA, "is a JPEG with more than %d scans", SCANS_MOST);
    longjmp(reader->failed, 1);
}

/* At the end of the data, supply an end-of-image marker. */
static boolean source_end(j_decompress_ptr jpeg)
{
    static const JOCTET end[2] = {0xff, JPEG_EOI};
    reader_of((j_common_ptr)jpeg)->cut = true;
    jpeg->src->next_input_byte = end;
    jpeg->src->bytes_in_buffer = sizeof end;
    return TRUE;
}

/* The area in scaled pixels, rounded outwards and extended by the pixels that upsampling reads. */
static struct image_area choose_area(const struct image_request *request, int64_t scale,
                                     int64_t width, int64_t height)
{
    const struct image_area *asked = &request->area;
    int64_t left = asked->x / scale - EDGE, top = asked->y / scale - EDGE;
    int64_t right = (asked->x + asked->width + scale - 1) / scale + EDGE;
    int64_t bottom = (asked->y + asked->height + scale - 1) / scale;
    left = left < 0 ? 0 : left;
    top = top < 0 ? 0 : top;
    right = right > width ? width : right;
    bottom = bottom > height ? height : bottom;
    return (struct image_area){left, top, right - left, bottom - top};
}

/* As in Pillow: inverted CMYK as Adobe writes it, and MULDIV255. */
static void cmyk_to_rgb(const uint8_t *cmyk, int64_t count, uint8_t *rgb)
{
    for (int64_t i = 0; i < count; i++)
        for (int c = 0; c < 3; c++) {
            const int white = cmyk[4 * i + 3], ink = 255 - cmyk[4 * i + c];
            const int product = ink * white + 128;
            rgb[3 * i + c] = (uint8_t)(white - ((product + (product >> 8)) >> 8));
        }
}

static void read_image(struct jpeg_reader *reader)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    const struct image_header *header = reader->header;
    const struct image_pixels *pixels = reader->pixels;
    const int64_t scale = reader->request->scale;
    JSAMPARRAY cmyk = NULL;
    jpeg_read_header(jpeg, TRUE);
    if (jpeg->image_width != header->width || jpeg->image_height != header->height) {
        error_set(reader->error, ERROR_DATA, "is a damaged JPEG: its sizes contradict each other");
        return;
    }
    const bool four = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = four ? JCS_CMYK : JCS_RGB;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)scale;
    jpeg_start_decompress(jpeg);
    struct image_area area =
        choose_area(reader->request, scale, jpeg->output_width, jpeg->output_height);
    JDIMENSION x = (JDIMENSION)area.x, width = (JDIMENSION)area.width;
    if (width < jpeg->output_width)
        jpeg_crop_scanline(jpeg, &x, &width);
    area.x = x;
    area.width = jpeg->output_width;
    if (!image_pixels_reserve(reader->pixels, area, scale, reader->error))
        return;
    if (four)
        cmyk = jpeg->mem->alloc_sarray((j_common_ptr)jpeg, JPOOL_IMAGE, 4 * jpeg->output_width, 1);
    if (area.y > 0)
        jpeg_skip_scanlines(jpeg, (JDIMENSION)area.y);
    for (int64_t y = area.y; y < area.y + area.height; y++) {
        JSAMPROW row = image_pixels_at(pixels, area.x, y);
        jpeg_read_scanlines(jpeg, cmyk != NULL ? cmyk : &row, 1);
        if (cmyk != NULL)
            cmyk_to_rgb(cmyk[0], area.width, row);
    }
}

/* The frame of setjmp; after a longjmp, no local variable is used. */
static void read_guarded(struct jpeg_reader *reader, const uint8_t *bytes, size_t count)
{
    if (setjmp(reader->failed) != 0)
        return;
    reader->jpeg.err = jpeg_std_error(&reader->errors);
    reader->errors.error_exit = fail;
    reader->errors.emit_message = count_warning;
    reader->jpeg.client_data = reader;
    jpeg_create_decompress(&reader->jpeg);
    jpeg_mem_src(&reader->jpeg, bytes, count);
    reader->jpeg.src->fill_input_buffer = source_end;
    reader->progress.progress_monitor = limit_scans;
    reader->jpeg.progress = &reader->progress;
    read_image(reader);
}

bool image_jpeg_decode(const uint8_t *bytes, size_t count, const struct image_header *header,
                       const struct image_request *request, struct image_pixels *pixels,
                       struct error *error)
{
    struct error own = {0};
    struct jpeg_reader reader = {
        .header = header, .request = request, .pixels = pixels, .error = &own};
    read_guarded(&reader, bytes, count);
    jpeg_destroy_decompress(&reader.jpeg);
    if (reader.cut)
        return image_file_is_cut(error);
    if (own.kind != ERROR_NONE)
        *error = own;
    return own.kind == ERROR_NONE;
}
