// SPDX-License-Identifier: BSD-3-Clause
/* The orientation in the EXIF metadata of image files: reading it, also from damaged files, and
 * turning whole images, parts and scaled images by it. */
#define _GNU_SOURCE /* memmem */
#include "data/image_file.h"
#include "image_vectors.h"
#include "test.h"

enum { PIXELS_MOST = 1 << 20 };

static struct image_pixels pixels;
static struct error error;

static int close_vectors(void **state)
{
    image_pixels_free(&pixels);
    return image_vectors_close(state);
}

enum { EXIF_BYTES = 32, EXIF_ROOM = 64 };

/* Write a file with an EXIF block of this orientation to `to`, at the place where Pillow writes it.
 * Return its size. */
static size_t add_exif(const struct sample *sample, int orientation, bool little, uint8_t *to)
{
    static const char *const blocks[2] = {
        "Exif\0\0MM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0.\0\0\0\0\0\0",
        "Exif\0\0II*\0\10\0\0\0\1\0\22\1\3\0\1\0\0\0.\0\0\0\0\0\0\0"};
    static const char *const heads[3] = {"\xff\xe1\0\42", "\0\0\0\40eXIf", "EXIF\40\0\0\0"};
    const int format = sample->bytes[0] == 0xff ? 0 : sample->bytes[0] == 0x89 ? 1 : 2;
    const size_t at = format == 0 ? 2 : format == 1 ? 33 : sample->count;
    const size_t head = format == 0 ? 4 : 8, foot = format == 1 ? 4 : 0;
    uint8_t *block = to + at + head;
    memcpy(to, sample->bytes, at);
    memcpy(to + at, heads[format], head);
    memcpy(block, blocks[little], EXIF_BYTES);
    block[little ? 24 : 25] = (uint8_t)orientation;
    memset(block + EXIF_BYTES, 0, foot);
    memcpy(block + EXIF_BYTES + foot, sample->bytes + at, sample->count - at);
    if (format == 2)
        to[20] |= 8; /* the flag of VP8X */
    return sample->count + head + EXIF_BYTES + foot;
}

static int orientation_of(const uint8_t *bytes, size_t count)
{
    struct image_header header;
    bool incomplete;
    uint8_t *exact = malloc(count + 1); /* exact length for the sanitizer */
    memcpy(exact, bytes, count);
    error_clear(&error);
    const bool good =
        image_file_header(exact, count, true, PIXELS_MOST, &header, &incomplete, &error);
    free(exact);
    return good ? header.orientation : 0;
}

/* Also in files that end anywhere, and in blocks with any byte changed. */
TEST(orientations_are_read)
{
    static const char *const names[] = {"jpeg_420", "png_rgb_8", "webp_profile"};
    const struct sample stored = sample_find("jpeg_orientation");
    assert_int_equal(orientation_of(stored.bytes, stored.count), 6);
    for (size_t i = 0; i < 3; i++) {
        const struct sample sample = sample_find(names[i]);
        uint8_t *bytes = malloc(sample.count + EXIF_ROOM);
        assert_int_equal(orientation_of(sample.bytes, sample.count), 1);
        for (int o = 0; o < 10; o++)
            for (int little = 0; little < 2; little++) {
                const size_t count = add_exif(&sample, o, little, bytes);
                assert_int_equal(orientation_of(bytes, count), o >= 1 && o <= 8 ? o : 1);
            }
        const size_t count = add_exif(&sample, 6, true, bytes);
        for (size_t cut = 0; cut < count; cut++) {
            const int found = orientation_of(bytes, cut);
            assert_true(found == 0 || found == 1 || found == 6);
        }
        uint8_t *block = memmem(bytes, count, "Exif", 4);
        for (size_t at = 0; at < EXIF_BYTES; at++)
            for (int value = 0; value < 256; value++) {
                const uint8_t before = block[at];
                block[at] = (uint8_t)value;
                assert_in_range(orientation_of(bytes, count), 1, 8);
                block[at] = before;
            }
        free(bytes);
    }
}

/* Pixel (x, y) of the turned image, as Pillow's exif_transpose. */
static const uint8_t *turned_pixel(const uint8_t *rgb, int64_t width, int64_t height,
                                   int orientation, int64_t x, int64_t y)
{
    const int64_t right = width - 1, bottom = height - 1;
    const int64_t from[9][2] = {
        [2] = {right - x, y},  [3] = {right - x, bottom - y}, [4] = {x, bottom - y}, [5] = {y, x},
        [6] = {y, bottom - x}, [7] = {right - y, bottom - x}, [8] = {right - y, x}};
    return rgb + 3 * (from[orientation][1] * width + from[orientation][0]);
}

/* Decode an area of a turned image and compare it with `truth`, the whole image at this scale. */
static void expect_turned(const struct sample *sample, int orientation,
                          const struct image_area *area, int64_t scale, const uint8_t *truth)
{
    struct image_header header;
    bool incomplete;
    const struct image_request request = {.area = *area, .scale = scale};
    error_clear(&error);
    assert_true(image_file_header(sample->bytes, sample->count, true, PIXELS_MOST, &header,
                                  &incomplete, &error));
    header.orientation = orientation;
    image_header_turn(&header);
    assert_int_equal(header.width, orientation >= 5 ? sample->height : sample->width);
    assert_true(
        image_file_decode(sample->bytes, sample->count, &header, &request, &pixels, &error));
    assert_int_equal(pixels.scale, scale);
    for (int64_t y = area->y / scale; y < (area->y + area->height) / scale; y++)
        for (int64_t x = area->x / scale; x < (area->x + area->width) / scale; x++)
            assert_memory_equal(pixels.rows.data + (y - pixels.y) * pixels.stride +
                                    3 * (x - pixels.x),
                                turned_pixel(truth, sample->width / scale, sample->height / scale,
                                             orientation, x, y),
                                3);
}

TEST(turned_parts_are_those_of_the_whole)
{
    static const char *const names[] = {"jpeg_420",   "jpeg_restarts",
                                        "png_rgb_8",  "png_rgb_8_interlaced",
                                        "webp_lossy", "webp_animated"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int o = 2; o <= 8; o++) {
            const struct sample sample = sample_find(names[i]);
            const int64_t width = o >= 5 ? sample.height : sample.width;
            const int64_t height = o >= 5 ? sample.width : sample.height;
            const struct image_area areas[] = {
                {0, 0, width, height}, {1, 2, 5, 3}, {width - 4, 3, 4, 9}, {2, height - 3, 7, 3}};
            for (size_t a = 0; a < sizeof areas / sizeof areas[0]; a++)
                expect_turned(&sample, o, &areas[a], 1, sample.truth);
        }
}

/* With scaled decoding, pixels of the turned image are those of the scaled image. */
TEST(scaled_images_are_turned)
{
    const struct sample sample = sample_find("jpeg_16x16");
    const struct image_area whole = {0, 0, 16, 16};
    const struct image_header header = {.format = IMAGE_JPEG, .width = 16, .height = 16};
    const struct image_request request = {.area = whole, .scale = 4};
    assert_true(image_file_decode(sample.bytes, sample.count, &header, &request, &pixels, &error));
    uint8_t truth[3 * 4 * 4];
    for (int y = 0; y < 4; y++)
        memcpy(truth + 12 * y, pixels.rows.data + y * pixels.stride, 12);
    for (int o = 2; o <= 8; o++)
        expect_turned(&sample, o, &whole, 4, truth);
}

TEST_MAIN(.setup = image_vectors_open, .teardown = close_vectors)
