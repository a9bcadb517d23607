// SPDX-License-Identifier: BSD-3-Clause
/* PNG with libpng: rows down to the end of the area, or all rows of an interlaced file. libpng
 * converts grey levels and palettes to RGB as Pillow does, and drops alpha. It reports errors by
 * longjmp; struct png_reader is in the caller's frame and stays valid. */
#include <openssl/evp.h>
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "image/image_file.h"

struct png_reader {
    png_structp png;
    png_infop info;
    const uint8_t *bytes;
    size_t count, taken;
    const struct image_header *header;
    const struct image_request *request;
    struct image_pixels *pixels;
    struct error *error;
    uint8_t *rows; /* output of libpng: one row, or all rows of an interlaced image */
    bool cut;
};

static void png_fail(png_structp png, png_const_charp text)
{
    struct png_reader *reader = png_get_error_ptr(png);
    if (reader->error->kind == ERROR_NONE)
        error_set(reader->error, ERROR_DATA, "is a damaged PNG: %s", text);
    png_longjmp(png, 1);
}

static void keep_quiet(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void source_read(png_structp png, png_bytep to, size_t count)
{
    struct png_reader *reader = png_get_io_ptr(png);
    if (count > reader->count - reader->taken) {
        reader->cut = true;
        png_error(png, "it ends early");
    }
    memcpy(to, reader->bytes + reader->taken, count);
    reader->taken += count;
}

/* Read the area of the image, or all passes of an interlaced one. */
static void read_rows(struct png_reader *reader)
{
    png_structp png = reader->png;
    const struct image_area *area = &reader->request->area;
    struct image_pixels *pixels = reader->pixels;
    const int64_t height = reader->header->height, end = area->y + area->height;
    png_set_read_fn(png, reader, source_read);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    /* Skip text, profiles and other optional chunks: libpng allocates the size that one states. */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(png, reader->info);
    png_set_palette_to_rgb(png);
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, reader->info);
    const size_t row_bytes = png_get_rowbytes(png, reader->info);
    const size_t rows = passes > 1 ? (size_t)height : 1;
    if (!image_pixels_reserve(pixels, *area, 1, reader->error))
        return;
    reader->rows = calloc(rows, row_bytes);
    if (reader->rows == NULL) {
        error_set(reader->error, ERROR_MEMORY, "out of memory for %zu bytes", rows * row_bytes);
        return;
    }
    /* Each pass but the last fills some pixels of all rows; the last one, those between them. */
    for (int pass = 1; pass < passes; pass++)
        for (int64_t y = 0; y < height; y++)
            png_read_row(png, reader->rows + (size_t)y * row_bytes, NULL);
    for (int64_t y = 0; y < end; y++) {
        uint8_t *row = reader->rows + (passes > 1 ? (size_t)y * row_bytes : 0);
        png_read_row(png, row, NULL);
        if (y >= area->y)
            memcpy(image_pixels_at(pixels, area->x, y), row + 3 * area->x, 3 * (size_t)area->width);
    }
}

/* The frame of setjmp; no local variable changes after it. */
static void read_guarded(struct png_reader *reader)
{
    if (setjmp(png_jmpbuf(reader->png)) == 0)
        read_rows(reader);
}

bool image_png_decode(const uint8_t *bytes, size_t count, const struct image_header *header,
                      const struct image_request *request, struct image_pixels *pixels,
                      struct error *error)
{
    struct error own = {0};
    struct png_reader reader = {.bytes = bytes,
                                .count = count,
                                .header = header,
                                .request = request,
                                .pixels = pixels,
                                .error = &own};
    reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, png_fail, keep_quiet);
    if (reader.png != NULL)
        reader.info = png_create_info_struct(reader.png);
    if (reader.info != NULL)
        read_guarded(&reader);
    else
        error_set(&own, ERROR_MEMORY, "no memory for a PNG");
    png_destroy_read_struct(&reader.png, &reader.info, NULL);
    free(reader.rows);
    if (reader.cut)
        return image_file_is_cut(error);
    if (own.kind != ERROR_NONE)
        *error = own;
    return own.kind == ERROR_NONE;
}

char *image_png_text(const uint8_t *pixels, int64_t height, int64_t width, int64_t channels)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
    png_alloc_size_t count = PNG_IMAGE_PNG_SIZE_MAX(image);
    uint8_t *bytes = allocate(count, 1);
    ENSURE_MEMORY(png_image_write_to_memory(&image, bytes, &count, 0, pixels, 0, NULL),
                  "no memory for a PNG of %lld x %lld", (long long)height, (long long)width);
    char *text = allocate((count + 2) / 3 * 4 + 1, 1);
    EVP_EncodeBlock((uint8_t *)text, bytes, (int)count);
    free(bytes);
    return text;
}
