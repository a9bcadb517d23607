// SPDX-License-Identifier: BSD-3-Clause
/* Crops compared bit for bit to torchvision on Pillow's images (test/vectors/make_crop.py); the
 * distribution of RandomResizedCrop and RandomCrop; option values; identical results for files and
 * stored pixels. */
#include "data/crop.h"
#include "device_test.h"
#include "options/options.h"
#include "vector_file.h"

enum { BOX, MIDDLE, MOVED }; /* kind of a case in the vectors */

static struct crop_scratch scratch;
static struct options options;
static struct crop crop;

static void set_up(void)
{
    options_default(&options);
}

static void close_vectors(void)
{
    crop_scratch_free(&scratch);
    image_vectors_close();
}

/* The plan of a case: its numbers are size, kind, and the parameters of the kind. */
static void case_plan(const int32_t *numbers, bool bicubic, int64_t width, int64_t height,
                      struct crop_plan *plan)
{
    const int image = numbers[0], kind = numbers[1];
    OWNED char *settings = allocate_text(
        "augment.random_resized_crop=off augment.resize_to=%s augment.resize=%d augment.crop=%s "
        "augment.crop_pad=%d",
        numbers[2] == RESIZE_SQUARE ? "square" : "shorter", numbers[3],
        kind == MIDDLE ? "center" : "random", kind == MOVED ? numbers[6] : 0);
    settings_set(&options, kind == BOX ? "augment.random_resized_crop=on" : settings);
    settings_apply(&options, bicubic ? "augment.interpolation=bicubic" : "");
    assert_true(options_check(&options, &error));
    assert_true(crop_open(&crop, &options, true, (struct image_size){image, image}, true, &error));
    crop_plan_make(&crop, 0, 0, width, height, plan);
    if (kind == BOX)
        plan->box = (struct image_area){numbers[2], numbers[3], numbers[4], numbers[5]};
    if (kind == MOVED) {
        plan->left = numbers[4];
        plan->top = numbers[5];
    }
}

static void check_case(struct vector_file *file, int number, bool bicubic)
{
    char name[32];
    struct crop_plan plan;
    snprintf(name, sizeof name, "source%d", number);
    const int64_t height = vector_file_size(file, name, 0), width = vector_file_size(file, name, 1);
    struct crop_source source = {.pixels = vector_file_bytes(file, name, NULL),
                                 .present = {0, 0, width, height},
                                 .row_stride = 3 * width,
                                 .pixel_stride = 3,
                                 .channel_stride = 1,
                                 .scale = 1};
    snprintf(name, sizeof name, "numbers%d", number);
    case_plan(vector_file_integers(file, name, NULL), bicubic, width, height, &plan);
    snprintf(name, sizeof name, "%s%d", bicubic ? "bicubic" : "expected", number);
    int64_t count;
    const uint8_t *expected = vector_file_bytes(file, name, &count);
    uint8_t *planes = malloc((size_t)count);
    memset(planes, 77, (size_t)count);
    assert_int_equal(count, 3 * crop.image.height * crop.image.width);
    assert_true(crop_from_pixels(&crop, &plan, &source, 3, &scratch, planes, &error));
    for (int64_t i = 0; i < count; i++)
        if (planes[i] != expected[i])
            fail_msg("case %d: pixel %d is %d, not %d", number, (int)i, planes[i], expected[i]);
    /* the requested part of the image suffices, and gives the same result */
    struct image_request request;
    crop_request(&crop, &plan, &request);
    source.present = request.area;
    source.pixels = (const uint8_t *)source.pixels + 3 * (request.area.y * width + request.area.x);
    if (request.scale == 1) {
        assert_true(crop_from_pixels(&crop, &plan, &source, 3, &scratch, planes, &error));
        assert_memory_equal(planes, expected, (size_t)count);
    }
    free(planes);
}

TEST_KERNELS(crops_are_torchvisions_with_all_kernels)
{
    VECTOR_FILE(file, "crop.safetensors");
    char name[32];
    int cases = 0;
    for (;; cases++) {
        snprintf(name, sizeof name, "source%d", cases);
        if (!vector_file_has(file, name))
            break;
        check_case(file, cases, false);
        check_case(file, cases, true);
    }
    assert_int_equal(cases, 21);
}

static void open_square(int64_t image, bool training)
{
    assert_true(
        crop_open(&crop, &options, true, (struct image_size){image, image}, training, &error));
}

static void open_random_resized(const char *more, int64_t image)
{
    settings_apply(&options, "augment.random_resized_crop=on");
    settings_apply(&options, more);
    open_square(image, true);
}

/* Area fractions are uniform and ratios log-uniform if all of them fit into the image; positions
 * are uniform. */
TEST(random_boxes_are_distributed)
{
    enum { DRAWS = 20000 };
    static double share[DRAWS], ratio[DRAWS], left[DRAWS], top[DRAWS];
    const int64_t width = 4000, height = 4100;
    open_random_resized("augment.crop_scale=0.05,0.4", 224);
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct crop_plan plan;
        crop_plan_make(&crop, 3, i, width, height, &plan);
        const struct image_area *box = &plan.box;
        assert_true(box->x >= 0 && box->y >= 0 && box->x + box->width <= width &&
                    box->y + box->height <= height);
        assert_true(plan.resized_width == 224 && plan.resized_height == 224 && plan.left == 0);
        share[i] = (double)(box->width * box->height) / (double)(width * height);
        ratio[i] = log((double)box->width / (double)box->height);
        left[i] = ((double)box->x + 0.5) / (double)(width - box->width + 1);
        top[i] = ((double)box->y + 0.5) / (double)(height - box->height + 1);
    }
    assert_uniform(share, DRAWS, 0.05, 0.4);
    assert_uniform(ratio, DRAWS, log(3.0 / 4), log(4.0 / 3));
    assert_uniform(left, DRAWS, 0, 1);
    assert_uniform(top, DRAWS, 0, 1);
}

/* No box fits into a strip: the centre is used, as long as the ratio allows. */
TEST(strips_give_their_middle)
{
    static const struct {
        int64_t width, height;
        struct image_area box;
    } cases[] = {{1000, 10, {493, 0, 13, 10}}, /* 13: round(10 * 4 / 3) */
                 {7, 900, {0, 445, 7, 9}},     /* 9: round(7 / 0.75) */
                 {1, 1, {0, 0, 1, 1}}};
    struct crop_plan plan;
    open_random_resized("augment.crop_scale=0.9,1", 32);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        crop_plan_make(&crop, 0, 0, cases[i].width, cases[i].height, &plan);
        assert_memory_equal(&plan.box, &cases[i].box, sizeof plan.box);
    }
    open_random_resized("augment.crop_scale=1,1 augment.crop_ratio=0.1,0.2", 32);
    crop_plan_make(&crop, 0, 0, 12, 100, &plan); /* ratio within the limits: the whole image */
    assert_true(plan.box.width <= 12 && plan.box.height <= 100);
}

/* RandomCrop with padding reaches all positions with equal frequency. */
TEST(random_places_are_all_reached)
{
    int seen[8][8] = {{0}};
    settings_apply(
        &options,
        "augment.resize=30 augment.crop=random augment.crop_pad=2 augment.resize_to=square");
    open_square(27, true);
    for (uint32_t i = 0; i < 6400; i++) {
        struct crop_plan plan;
        crop_plan_make(&crop, 0, i, 100, 80, &plan);
        assert_in_range(plan.left + 2, 0, 7);
        assert_in_range(plan.top + 2, 0, 7);
        seen[plan.left + 2][plan.top + 2]++;
    }
    for (int i = 0; i < 64; i++)
        assert_share(6400, seen[i / 8][i % 8], 1.0 / 64);
}

/* Evaluation uses its own options, or else those of training without randomness. Images that are
 * not square are resized as by timm's ResizeKeepRatio((292, 146)) and CenterCrop((256, 128)): the
 * resized image covers the size in both directions. */
TEST(images_are_resized_and_cropped)
{
    static const struct {
        const char *settings;
        bool training;
        int64_t rows, columns, width, height, resized_width, resized_height, left, top;
    } cases[] = {
        {"augment.random_resized_crop=on", false, 224, 224, 500, 375, 224, 224, 0, 0},
        {"augment.random_resized_crop=on eval.resize=256 eval.resize_to=shorter eval.crop=center",
         false, 224, 224, 500, 375, 341, 256, 58, 16},
        {"augment.resize=256 augment.crop=random augment.crop_pad=4", false, 224, 224, 500, 375,
         256, 256, 16, 16},
        {"augment.resize=256 eval.resize=216 eval.crop=random eval.crop_pad=4", false, 224, 224,
         500, 375, 216, 216, -4, -4},
        {"eval.resize=292 eval.resize_to=shorter eval.crop=center", false, 256, 128, 500, 375, 389,
         292, 130, 18},
        {"eval.resize=292 eval.resize_to=shorter eval.crop=center", false, 256, 128, 100, 301, 146,
         439, 9, 92},
        {"augment.random_resized_crop=on", true, 256, 128, 500, 375, 128, 256, 0, 0},
        {"", true, 256, 128, 500, 375, 128, 256, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct image_size size = {cases[i].rows, cases[i].columns};
        struct crop_plan plan;
        settings_set(&options, cases[i].settings);
        assert_int_equal(crop_is_active(&options, false), cases[i].settings[0] != '\0');
        assert_true(crop_open(&crop, &options, true, size, cases[i].training, &error));
        crop_plan_make(&crop, 0, 0, cases[i].width, cases[i].height, &plan);
        assert_int_equal(plan.resized_width, cases[i].resized_width);
        assert_int_equal(plan.resized_height, cases[i].resized_height);
        assert_int_equal(plan.left, cases[i].left);
        assert_int_equal(plan.top, cases[i].top);
    }
}

TEST(impossible_options_are_refused)
{
    static const char *const cases[][2] = {
        {"augment.crop=center", "augment.crop needs augment.resize"},
        {"augment.crop=random data.format=arrays data.x=x data.y=y eval.resize=256",
         "augment.crop needs augment.resize"},
        {"augment.resize_to=shorter augment.resize=256", "needs augment.crop"},
        {"augment.crop=center augment.resize=9 augment.random_resized_crop=on", "only one of them"},
        {"augment.crop_scale=0.5,0.2", "augment.crop_scale: the first"},
        {"augment.crop_ratio=2,1", "augment.crop_ratio: the first"},
        {"augment.resize=256", "augment.crop=none"},
        {"eval.resize=256", "eval.crop=none"},
        {"eval.resize_to=shorter", "eval.crop=none"},
        {"augment.resize=200 augment.crop=random augment.crop_pad=11", "the model's 224"},
        {"augment.resize=200 augment.crop=random augment.crop_pad=112", "padding only"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bool training = strncmp(cases[i][0], "eval", 4) != 0;
        error_clear(&error);
        settings_set(&options, cases[i][0]);
        if (options_check(&options, &error) &&
            crop_open(&crop, &options, true, (struct image_size){224, 112}, training, &error))
            fail_msg("%s is accepted", cases[i][0]);
        assert_error(&error, ERROR_USAGE, cases[i][1]);
    }
}

/* A file and its decoded pixels give identical results, with any thread's scratch, new or used. */
TEST(files_are_as_their_pixels)
{
    static const char *const kinds[] = {"jpeg_420", "png_rgb_8", "png_palette_4", "jpeg_1x19"};
    uint8_t from_file[3 * 24 * 24], from_pixels[3 * 24 * 24];
    open_random_resized("data.scaled_decode=off", 24);
    for (uint32_t i = 0; i < 80; i++) {
        const struct sample sample = sample_find(kinds[i % 4]);
        const int64_t pixels = sample.width * sample.height;
        assert_true(
            crop_file(&crop, 1, i, sample.bytes, sample.count, &scratch, from_file, &error));
        uint8_t *planes = malloc((size_t)(3 * pixels));
        for (int64_t p = 0; p < 3 * pixels; p++)
            planes[p % 3 * pixels + p / 3] = sample.truth[p];
        struct crop_scratch fresh = {0};
        const struct dataset stored = {
            .channels = 3, .height = sample.height, .width = sample.width};
        assert_true(crop_stored(&crop, 1, i, planes, &stored, &fresh, from_pixels, &error));
        assert_memory_equal(from_file, from_pixels, sizeof from_file);
        crop_scratch_free(&fresh);
        free(planes);
    }
}

/* Scaled decoding is requested if the box stays as large as the output; the result is close to that
 * of full decoding. */
TEST(scaled_decoding_is_near)
{
    struct crop_plan plan = {
        .box = {100, 50, 447, 896}, .resized_width = 224, .resized_height = 224};
    struct image_request request;
    open_random_resized("", 224);
    crop_request(&crop, &plan, &request);
    assert_int_equal(request.scale, 1);
    plan.box.width = 448;
    crop_request(&crop, &plan, &request);
    assert_int_equal(request.scale, 2);
    plan.box.width = plan.box.height = 224 * 30;
    crop_request(&crop, &plan, &request);
    assert_int_equal(request.scale, 8);
    static const char *const kinds[] = {"jpeg_444",  "jpeg_422",         "jpeg_420",
                                        "jpeg_grey", "jpeg_progressive", "jpeg_cmyk"};
    uint8_t scaled[3 * 8 * 8], exact[3 * 8 * 8];
    open_random_resized("augment.crop_scale=0.3,1", 8);
    for (uint32_t i = 0; i < 60; i++) {
        const struct sample sample = sample_find(kinds[i % 6]);
        double gap = 0;
        crop.scaled_decode = true;
        assert_true(crop_file(&crop, 0, i, sample.bytes, sample.count, &scratch, scaled, &error));
        assert_true(scratch.decoded.scale >= 2);
        crop.scaled_decode = false;
        assert_true(crop_file(&crop, 0, i, sample.bytes, sample.count, &scratch, exact, &error));
        for (size_t p = 0; p < sizeof exact; p++)
            gap += abs(scaled[p] - exact[p]);
        if (gap / (double)sizeof exact > 3)
            fail_msg("%s, sample %u: %g levels apart", sample.name, i, gap / (double)sizeof exact);
    }
}

/* One output with more inputs than a block of the kernel holds. */
TEST(long_lines_are_resized)
{
    enum { WIDTH = 5000, HEIGHT = 3 };
    uint8_t *pixels = malloc(WIDTH * HEIGHT), planes[4];
    for (int64_t i = 0; i < WIDTH * HEIGHT; i++)
        pixels[i] = i % WIDTH < WIDTH / 2 ? 40 : 200;
    open_square(2, true);
    const struct dataset stored = {.channels = 1, .height = HEIGHT, .width = WIDTH};
    assert_true(crop_stored(&crop, 0, 0, pixels, &stored, &scratch, planes, &error));
    for (int i = 0; i < 4; i++) /* a seventh of the triangle is past the middle */
        assert_in_range(planes[i], i % 2 == 0 ? 61 : 175, i % 2 == 0 ? 65 : 179);
    free(pixels);
}

TEST_MAIN(.setup = image_vectors_open, .teardown = close_vectors, .before = set_up)
