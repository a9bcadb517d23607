// SPDX-License-Identifier: BSD-3-Clause
/* Decoders compared with Pillow (test/vectors/make_image_files.py): all kinds of files, whole and
 * in part, bit for bit; truncated, damaged, oversized and other files; the orientation in EXIF
 * metadata; mutated files (TEST_FUZZ=COUNT for more than a few thousand). */
#define _GNU_SOURCE /* memmem */
#include <isa-l/crc.h>
#include <sys/resource.h>

#include "base/random.h"
#include "data/crop.h"
#include "mutate.h"
#include "options/options.h"
#include "test.h"
#include "vector_file.h"

enum { PIXELS_MOST = 1 << 20 };

static const char kinds[] =
    "jpeg_444 jpeg_422 jpeg_420 jpeg_progressive jpeg_quality10 jpeg_restarts jpeg_rgb "
    "jpeg_large_profile jpeg_orientation jpeg_grey jpeg_cmyk jpeg_ycck jpeg_no_end "
    "jpeg_1x1 jpeg_1x19 jpeg_19x1 jpeg_16x16 jpeg_33x17 png_grey_1 png_grey_1_interlaced "
    "png_grey_2 png_grey_2_interlaced png_grey_4 png_grey_4_interlaced png_grey_8 "
    "png_grey_8_interlaced png_rgb_8 png_rgb_8_interlaced png_grey_alpha_8 "
    "png_grey_alpha_8_interlaced png_rgb_alpha_8 png_rgb_alpha_8_interlaced png_palette_1 "
    "png_palette_2 png_palette_4 png_palette_8 png_palette_alpha png_key png_gamma "
    "png_1x1 png_1x9 png_9x1 png_2x3 webp_lossy webp_quality10 webp_alpha webp_lossless "
    "webp_lossless_alpha webp_palette webp_profile webp_animated webp_inside webp_1x1 "
    "webp_1x19 webp_19x1 webp_16x16 webp_33x17";

static struct sample samples[64]; /* of kinds */
static uint32_t sample_count;
static struct image_pixels pixels;

static void open_vectors(void)
{
    char copy[sizeof kinds], *rest = copy;
    memcpy(copy, kinds, sizeof kinds);
    image_vectors_open();
    for (char *kind; (kind = strsep(&rest, " ")) != NULL;)
        samples[sample_count++] = sample_find(kind);
}

static void close_vectors(void)
{
    image_pixels_free(&pixels);
    image_vectors_close();
}

static bool header_read(const uint8_t *bytes, size_t count, struct image_header *header)
{
    bool incomplete = true;
    error_clear(&error);
    const bool good =
        image_file_header(bytes, count, true, PIXELS_MOST, header, &incomplete, &error);
    assert_true(good || !incomplete);
    return good;
}

/* Read the header, and decode the pixels of the area. */
static bool decode(const uint8_t *bytes, size_t count, const struct image_area *area)
{
    struct image_header header;
    struct image_request request = {.scale = 1};
    if (!header_read(bytes, count, &header))
        return false;
    request.area = area != NULL ? *area : (struct image_area){0, 0, header.width, header.height};
    return image_file_decode(bytes, count, &header, &request, &pixels, &error);
}

/* True if the pixels of the area equal the reference. */
static bool is_truth(const struct sample *sample, const struct image_area *area)
{
    const struct image_area *all = &pixels.area;
    assert_true(all->x >= 0 && all->x <= area->x && all->y >= 0 && all->y <= area->y);
    assert_true(area->x + area->width <= all->x + all->width &&
                area->y + area->height <= all->y + all->height);
    for (int64_t y = area->y; y < area->y + area->height; y++)
        if (memcmp(image_pixels_at(&pixels, area->x, y),
                   sample->truth + 3 * (y * sample->width + area->x), 3 * (size_t)area->width) != 0)
            return false;
    return true;
}

static void check_area(const struct sample *sample, struct image_area area)
{
    if (!decode(sample->bytes, sample->count, &area))
        fail_msg("%s: %s", sample->name, error.text);
    assert_int_equal(pixels.scale, 1);
    if (!is_truth(sample, &area))
        fail_msg("%s: (%d, %d) %d x %d differs from Pillow's", sample->name, (int)area.x,
                 (int)area.y, (int)area.width, (int)area.height);
}

TEST(images_and_parts_are_pillows)
{
    for (uint32_t i = 0; i < sample_count; i++) {
        const struct sample sample = samples[i];
        check_area(&sample, (struct image_area){0, 0, sample.width, sample.height});
        for (uint32_t part = 0; part < 20; part++) {
            const struct random_block draw = random_block_at(1, RANDOM_AUGMENT, 0, 0, i, part);
            struct image_area area = {.width = 1 + draw.word[0] % sample.width,
                                      .height = 1 + draw.word[1] % sample.height};
            area.x = draw.word[2] % (sample.width - area.width + 1);
            area.y = draw.word[3] % (sample.height - area.height + 1);
            check_area(&sample, area);
        }
    }
}

static void fails_with(const void *bytes, size_t count, const char *expected)
{
    if (decode(bytes, count, NULL))
        fail_msg("no error where \"%s\" is expected", expected);
    assert_error(&error, ERROR_DATA, expected);
}

/* Truncate each file at each length: the result is an error, or the whole image. No byte behind the
 * end is read. */
TEST(cut_files_are_errors)
{
    for (uint32_t i = 0; i < sample_count; i++) {
        const struct sample sample = samples[i];
        const struct image_area whole = {0, 0, sample.width, sample.height};
        int cut = 0;
        for (size_t count = 0; count < sample.count; count += 1 + sample.count / 50) {
            OWNED uint8_t *bytes = malloc(count + 1); /* exact length for the sanitizer */
            memcpy(bytes, sample.bytes, count);
            if (!decode(bytes, count, NULL)) {
                assert_int_equal(error.kind, ERROR_DATA);
                cut += strstr(error.text, "is truncated") != NULL;
            } else if (!is_truth(&sample, &whole)) {
                fail_msg("%s: %d of %d bytes are taken for all", sample.name, (int)count,
                         (int)sample.count);
            }
        }
        assert_in_range(cut, 10, 100);
    }
}

/* A header with a huge size must not cause an allocation. The size in an animation's header is
 * that of VP8X, not that of the image data. */
TEST(other_and_oversized_files_are_refused)
{
#define PNG_HEADER "\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    static const struct {
        char bytes[64];
        size_t count;
        const char *part;
    } cases[] = {
        {"", 0, "is empty"},
        {"GIF89a..........", 16, "is not an image"},
        {"RIFF\x10\0\0\0WAVEfmt ", 16, "is not an image"},
        {"<html>no such file</html>", 25, "is not an image"},
        {"\xff\xd8\xff\xd9............", 16, "a JPEG without a frame"},
        {"\xff\xd8\xff", 3, "is not an image"},
        {"\x89PNG\r\n\x1a\n\0\0\0\rIDAT..........", 26, "without IHDR"},
        {PNG_HEADER "\0\0\xff\xff\0\0\xff\xff\x8\x2", 64,
         "65535 x 65535 pixels, more than data.max_pixels=1048576"},
        {PNG_HEADER "\xff\xff\xff\xff\xff\xff\xff\xff\x8\x2", 64, "4294967295 x 4294967295 pixels"},
        {PNG_HEADER "\0\0\0\0\0\0\0\1\x8\x2", 64, "an image of 1 x 0 pixels"},
        {"RIFF\x1a\0\0\0WEBPVP8X\xa\0\0\0\2\0\0\0\xfe\xff\0\xff\xff\0", 64,
         "65536 x 65535 pixels, more than"},
        {"\xff\xd8\xff\xc0\0\x11\x8\xff\xff\xff\xff\x3", 64, "65535 x 65535 pixels, more than"}};
    static const char *const deep[] = {"png_grey_16", "png_rgb_16_interlaced", "png_grey_alpha_16",
                                       "png_rgb_alpha_16"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        fails_with(cases[i].bytes, cases[i].count, cases[i].part);
    for (int i = 0; i < 4; i++) {
        const struct sample sample = sample_find(deep[i]);
        fails_with(sample.bytes, sample.count, "has 16 bits per value");
    }
    struct image_header header;
    bool incomplete;
    const struct sample sample = sample_find("png_rgb_8");
    const int64_t size = sample.width * sample.height;
    error_clear(&error);
    assert_true(
        image_file_header(sample.bytes, sample.count, true, size, &header, &incomplete, &error));
    assert_false(image_file_header(sample.bytes, sample.count, true, size - 1, &header, &incomplete,
                                   &error));
}

/* The header is found in exactly the bytes that contain it. */
TEST(headers_need_few_bytes)
{
    for (uint32_t i = 0; i < sample_count; i++) {
        const struct sample sample = samples[i];
        struct image_header header = {0};
        bool incomplete = true;
        size_t count = 0;
        for (; incomplete && count < sample.count; count++) {
            error_clear(&error);
            const bool good = image_file_header(sample.bytes, count, false, PIXELS_MOST, &header,
                                                &incomplete, &error);
            assert_int_equal(error.kind, ERROR_NONE);
            assert_true(good != incomplete);
        }
        assert_int_equal(header.width, sample.width);
        assert_int_equal(header.height, sample.height);
        assert_true(count < sample.count);
    }
}

/* The last scan of a progressive file, repeated hundreds of times: endless work for few bytes. */
TEST(many_scans_are_refused)
{
    const struct sample sample = sample_find("jpeg_progressive");
    size_t last = 0, end = sample.count - 2;
    for (size_t at = 0; at + 1 < sample.count; at++)
        if (sample.bytes[at] == 0xff && sample.bytes[at + 1] == 0xda)
            last = at;
    const size_t scan = end - last, count = sample.count + 600 * scan;
    OWNED uint8_t *bytes = malloc(count);
    memcpy(bytes, sample.bytes, end);
    for (int i = 0; i < 600; i++)
        memcpy(bytes + end + (size_t)i * scan, sample.bytes + last, scan);
    memcpy(bytes + count - 2, sample.bytes + end, 2);
    fails_with(bytes, count, "more than 500 scans");
}

TEST(damaged_files_are_errors)
{
    static const struct {
        const char *kind, *chunk;
        size_t at, count; /* of the bytes from the chunk's name on that are replaced; 0: the rest */
        int value;
        const char *part;
    } cases[] = {{"png_rgb_8", "IDAT", 100, 1, 0x55, "is a damaged PNG"},
                 {"jpeg_420", "\xff\xc0", 4, 1, 12, "is a damaged JPEG"}, /* 12 bits */
                 /* WebP frames of 16384 x 16384 pixels in a few bytes, at a place outside of the
                  * image, and with invalid data. */
                 {"webp_inside", "VP8L", 9, 3, 0xff, "is a damaged WebP"},
                 {"webp_inside", "ANMF", 8, 1, 100, "is a damaged WebP"},
                 {"webp_inside", "VP8L", 20, 0, 0, "is a damaged WebP"},
                 /* Arithmetic coding is declared for Huffman data: any result except a crash. */
                 {"jpeg_420", "\xff\xc0", 1, 1, 0xc9, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct sample sample = sample_find(cases[i].kind);
        OWNED uint8_t *bytes = malloc(sample.count);
        memcpy(bytes, sample.bytes, sample.count);
        uint8_t *chunk = memmem(bytes, sample.count, cases[i].chunk, strlen(cases[i].chunk));
        assert_non_null(chunk);
        const size_t left = sample.count - cases[i].at - (size_t)(chunk - bytes);
        memset(chunk + cases[i].at, cases[i].value, cases[i].count > 0 ? cases[i].count : left);
        if (cases[i].part != NULL)
            fails_with(bytes, sample.count, cases[i].part);
        else
            decode(bytes, sample.count, NULL);
    }
}

/* A chunk that states 1 GB uses no memory: optional chunks are skipped, others are short. */
TEST(stated_sizes_use_no_memory)
{
    static const char *const chunks[] = {"sPLT", "iTXt", "tEXt", "zTXt", "iCCP", "eXIf", "pCAL",
                                         "sCAL", "hIST", "tRNS", "PLTE", "IDAT", "tIME", "xxxx"};
    static const uint8_t header[] =
        "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0"
        "\x90\x77\x53\xde\x3f\xff\xff\x73????\4\xb8k:\0\0\0\0IEND\xae\x42\x60\x82";
    uint8_t bytes[sizeof header - 1];
    struct rusage before, after;
    memcpy(bytes, header, sizeof bytes);
    getrusage(RUSAGE_SELF, &before);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        memcpy(bytes + 37, chunks[i], 4);
        assert_false(decode(bytes, sizeof bytes, NULL));
        assert_int_equal(error.kind, ERROR_DATA);
    }
    getrusage(RUSAGE_SELF, &after);
    assert_in_range(after.ru_maxrss - before.ru_maxrss, 0, 100000); /* KB */
}

/* ---- Orientation ---- */

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
    OWNED uint8_t *exact = malloc(count + 1); /* exact length for the sanitizer */
    memcpy(exact, bytes, count);
    return header_read(exact, count, &header) ? header.orientation : 0;
}

/* Also in files that end anywhere, and in blocks with any byte changed. */
TEST(orientations_are_read)
{
    static const char *const names[] = {"jpeg_420", "png_rgb_8", "webp_profile"};
    const struct sample stored = sample_find("jpeg_orientation");
    assert_int_equal(orientation_of(stored.bytes, stored.count), 6);
    for (size_t i = 0; i < 3; i++) {
        const struct sample sample = sample_find(names[i]);
        OWNED uint8_t *bytes = malloc(sample.count + EXIF_ROOM);
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
    const struct image_request request = {.area = *area, .scale = scale};
    assert_true(header_read(sample->bytes, sample->count, &header));
    header.orientation = orientation;
    image_header_turn(&header);
    assert_int_equal(header.width, orientation >= 5 ? sample->height : sample->width);
    assert_true(
        image_file_decode(sample->bytes, sample->count, &header, &request, &pixels, &error));
    assert_int_equal(pixels.scale, scale);
    for (int64_t y = area->y / scale; y < (area->y + area->height) / scale; y++)
        for (int64_t x = area->x / scale; x < (area->x + area->width) / scale; x++)
            assert_memory_equal(image_pixels_at(&pixels, x, y),
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
        memcpy(truth + 12 * y, image_pixels_at(&pixels, 0, y), 12);
    for (int o = 2; o <= 8; o++)
        expect_turned(&sample, o, &whole, 4, truth);
}

/* ---- Mutated files ---- */

enum { FUZZED_MOST = 1 << 16 };

/* With wrong checksums a PNG is rejected at the first check. */
static void png_sums_set(uint8_t *bytes, size_t count)
{
    if (count < 8 || bytes[0] != 0x89)
        return;
    for (size_t at = 8; at + 12 <= count;) {
        uint8_t *chunk = bytes + at;
        const size_t length =
            (size_t)chunk[0] << 24 | (size_t)chunk[1] << 16 | (size_t)chunk[2] << 8 | chunk[3];
        if (length > count - at - 12)
            return;
        const uint32_t sum = crc32_gzip_refl(0, chunk + 4, length + 4);
        for (int i = 0; i < 4; i++)
            chunk[8 + length + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
        at += length + 12;
    }
}

TEST(mutated_files_do_no_harm)
{
    const char *more = getenv("TEST_FUZZ");
    const uint32_t count = more != NULL ? (uint32_t)atol(more) : 3000;
    struct options options;
    struct crop crop;
    struct crop_scratch scratch = {0};
    uint8_t planes[3 * 16 * 16];
    uint32_t good = 0;
    settings_set(&options, "augment.random_resized_crop=on data.max_pixels=16384");
    assert_true(crop_open(&crop, &options, true, (struct image_size){16, 16}, true, &error));
    for (uint32_t number = 0; number < count; number++) {
        const struct sample sample = samples[number % sample_count];
        OWNED uint8_t *bytes = malloc(FUZZED_MOST);
        memcpy(bytes, sample.bytes, sample.count);
        const size_t size = mutate(bytes, sample.count, FUZZED_MOST, number);
        if (draw_below(number, 100, 4) > 0)
            png_sums_set(bytes, size);
        bytes = realloc(bytes, size + 1); /* exact length for the sanitizer */
        error_clear(&error);
        crop.scaled_decode = draw_below(number, 102, 2);
        crop.turn = number % 2 == 0;
        if (crop_file(&crop, 0, number, bytes, size, &scratch, planes, &error))
            good++;
        else
            assert_true(error.kind == ERROR_DATA || error.kind == ERROR_MEMORY);
    }
    print_message("# %u of %u mutated files are still images\n", good, count);
    assert_in_range(good, count / 20, count - count / 20);
    crop_scratch_free(&scratch);
}

TEST_MAIN(.setup = open_vectors, .teardown = close_vectors)
