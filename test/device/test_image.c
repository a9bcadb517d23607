// SPDX-License-Identifier: BSD-3-Clause
// devices: cpu gpu
/* image_transform: the resize bit for bit as in Pillow (test/vectors/make_device.py), the other
 * stages pixel by pixel against the definition of struct pixel_plan. test_augment compares it to
 * torchvision. */
#include "base/random.h"
#include "device/image.h"
#include "device_test.h"
#include "vector_file.h"

/* With these values the images are the levels themselves. */
static const float zeros[3] = {0, 0, 0}, levels[3] = {1 / 255.0f, 1 / 255.0f, 1 / 255.0f};
static const float mean[3] = {0.4914f, 0.4822f, 0.4465f}, std[3] = {0.247f, 0.2435f, 0.2616f};

static void *run(struct device_test *test, struct image_transform args)
{
    int64_t count = args.batch * args.channels * args.height * args.width;
    size_t bytes = image_transform_scratch(&args);
    args.images = device_test_zeros(test, args.type, count);
    if (bytes > 0)
        args.scratch = device_test_scratch(test, bytes);
    test->device->backend->image_transform(test->stream, &args);
    device_test_wait(test);
    return args.images;
}

/* A transform that does not change the size. */
static struct image_transform transform_of(enum data_type type, int64_t batch, int64_t channels,
                                           int64_t height, int64_t width, const void *source)
{
    return DEVICE_ARGS(image_transform, .type = type, .batch = batch, .channels = channels,
                       .source_height = height, .source_width = width, .height = height,
                       .width = width, .source = source, .mean = mean, .std = std);
}

/* Return a copy of the samples that are `stride` bytes apart. */
static const void *spaced_copy(struct device_test *test, const void *samples, int64_t batch,
                               int64_t bytes, int64_t stride)
{
    char *copy = device_test_zeros(test, TYPE_FP32, (batch * stride + 3) / 4);
    for (int64_t b = 0; b < batch; b++)
        memcpy(copy + b * stride, (const char *)samples + b * bytes, (size_t)bytes);
    return copy;
}

TEST_KERNELS(resizes_are_pillows)
{
    VECTOR_FILE(file, "device_resize.safetensors");
    char source[32], expected[32];
    int cases = 0;
    for (;; cases++) {
        snprintf(source, sizeof source, "source%d", cases);
        snprintf(expected, sizeof expected, "expected%d", cases);
        if (!vector_file_has(file, source))
            break;
        int64_t count;
        DEVICE_TEST(test, 2);
        const uint8_t *bytes = vector_file_bytes(file, source, &count);
        const struct image_transform args = DEVICE_ARGS(
            image_transform, .batch = 1, .channels = 1,
            .source_height = vector_file_size(file, source, 0),
            .source_width = vector_file_size(file, source, 1),
            .height = vector_file_size(file, expected, 0),
            .width = vector_file_size(file, expected, 1),
            .source = spaced_copy(&test, bytes, 1, count, count), .mean = zeros, .std = levels);
        const float *images = run(&test, args);
        const uint8_t *truth = vector_file_bytes(file, expected, &count);
        for (int64_t i = 0; i < count; i++)
            if ((int)(images[i] + 0.5f) != truth[i])
                fail_msg("%s: pixel %d is %g, not %d", source, (int)i, (double)images[i],
                         (int)truth[i]);
    }
    assert_int_equal(cases, 9);
}

static uint8_t *random_source(struct device_test *test, int64_t count)
{
    uint8_t *source = device_test_zeros(test, TYPE_FP32, (count + 3) / 4);
    for (int64_t i = 0; i < count; i++)
        source[i] = (uint8_t)random_block_at(9, RANDOM_SYNTHETIC, 0, 0, 0, (uint32_t)i).word[0];
    return source;
}

static int16_t small_number(uint32_t word, int range)
{
    return (int16_t)((int)(word % (uint32_t)(2 * range + 1)) - range);
}

/* Any values of the struct, including ones that augmentation never draws. */
static struct pixel_plan random_plan(uint32_t number, int width, int height)
{
    const struct random_block a = random_block_at(1, RANDOM_SYNTHETIC, 1, 0, number, 0);
    const struct random_block b = random_block_at(1, RANDOM_SYNTHETIC, 1, 0, number, 1);
    struct pixel_plan plan = {.roll_x = (int16_t)((b.word[0] >> 16) % (uint32_t)width),
                              .roll_y = (int16_t)((b.word[1] >> 16) % (uint32_t)height),
                              .shift_x = small_number(a.word[0] >> 8, 5),
                              .shift_y = small_number(a.word[1] >> 8, 5),
                              .flip = a.word[2] & 1,
                              .vflip = a.word[2] & 4,
                              .transpose = a.word[2] & 8,
                              .rotate = a.word[2] & 2,
                              .translate_x = small_number(a.word[2] >> 8, width / 3),
                              .translate_y = small_number(a.word[3] >> 8, height / 3),
                              .erase_x = (int16_t)(b.word[0] % (uint32_t)width),
                              .erase_y = (int16_t)(b.word[1] % (uint32_t)height),
                              .erase_width = (int16_t)(b.word[2] % 6),
                              .erase_height = (int16_t)(b.word[3] % 6)};
    for (int i = 0; i < 6; i++)
        plan.matrix[i] =
            (int32_t)random_block_at(1, RANDOM_SYNTHETIC, 1, 0, number, 2 + (uint32_t)i).word[0] >>
            (i % 3 == 2 ? 11 : 15);
    if (number % 16 == 0) {
        plan.translate_x = INT16_MIN;
        plan.translate_y = INT16_MAX;
    }
    return plan;
}

/* Return the index of the pixel at (x, y) according to the definition, or -1 for none. */
static int64_t followed_index(const struct pixel_plan *plan, int64_t width, int64_t height,
                              int64_t x, int64_t y)
{
    if (x >= plan->erase_x && x < plan->erase_x + plan->erase_width && y >= plan->erase_y &&
        y < plan->erase_y + plan->erase_height)
        return -1;
    x -= plan->translate_x;
    y -= plan->translate_y;
    if (x < 0 || x >= width || y < 0 || y >= height)
        return -1;
    if (plan->rotate) {
        int64_t from_x = (plan->matrix[0] * x + plan->matrix[1] * y + plan->matrix[2]) >> 16;
        y = (plan->matrix[3] * x + plan->matrix[4] * y + plan->matrix[5]) >> 16;
        x = from_x;
        if (x < 0 || x >= width || y < 0 || y >= height)
            return -1;
    }
    const int64_t row = plan->transpose ? x : y, column = plan->transpose ? y : x;
    x = (plan->flip ? width - 1 - column : column) + plan->shift_x;
    y = (plan->vflip ? height - 1 - row : row) + plan->shift_y;
    if (x < 0 || x >= width || y < 0 || y >= height)
        return -1;
    return (y - plan->roll_y + height) % height * width + (x - plan->roll_x + width) % width;
}

/* Plans in device memory. */
static struct pixel_plan *random_plans(struct device_test *test, int64_t count, int64_t width,
                                       int64_t height)
{
    const size_t bytes = (size_t)count * sizeof(struct pixel_plan);
    struct pixel_plan *plans = device_test_zeros(test, TYPE_FP32, (int64_t)(bytes + 3) / 4);
    for (int64_t i = 0; i < count; i++)
        plans[i] = random_plan((uint32_t)i, (int)width, (int)height);
    return plans;
}

enum { MANY = 40 }; /* channels, more than a group */

/* Random values around those of a mean, one of eight missing. */
static float *random_values(struct device_test *test, int64_t count)
{
    float *values = device_test_random(test, TYPE_FP32, count, 100, 3);
    for (int64_t i = 0; i < count; i++)
        values[i] = i * 2654435761u >> 29 == 0 ? NAN : values[i] + 250;
    return values;
}

struct value_case {
    enum data_type type;
    int64_t batch, channels, height, width;
    bool from_fp32, plans;
    float missing;
    int64_t gap; /* bytes between samples */
};

static const struct value_case value_cases[] = {
    {TYPE_FP32, 48, 3, 20, 24, false, true, 0, 0},
    {TYPE_BF16, 70, 3, 32, 32, false, true, 0, 0},
    {TYPE_FP16, 5, 1, 7, 300, false, true, 0, 0},
    {TYPE_FP32, 3, 2, 259, 257, false, true, 0, 0},
    {TYPE_FP32, 0, 3, 8, 8, false, true, 0, 0},
    {TYPE_FP32, 5, MANY, 19, 19, false, false, 0, 12},
    {TYPE_BF16, 5, MANY, 19, 19, false, true, 0, 12},
    {TYPE_FP32, 5, MANY, 19, 19, true, false, NAN, 12},
    {TYPE_BF16, 5, MANY, 19, 19, true, false, 0, 12},
    {TYPE_FP32, 5, MANY, 19, 19, true, true, 0, 12},
    {TYPE_FP32, 5, MANY, 19, 19, true, true, NAN, 12},
};

/* The normalised values of fp32 and of uint8 by the definition, as in torchvision: in fp32, rounded
 * once. */
static void check_values(const struct value_case *it)
{
    const int64_t plane = it->height * it->width, count = it->batch * it->channels * plane;
    const int64_t bytes_each = it->channels * plane * (it->from_fp32 ? 4 : 1);
    DEVICE_TEST(test, 2);
    float means[MANY], stds[MANY];
    const float *values = random_values(&test, count);
    const uint8_t *bytes = random_source(&test, count);
    const struct pixel_plan none = {.shift_x = 0};
    const struct pixel_plan *plans = random_plans(&test, it->batch, it->width, it->height);
    for (int c = 0; c < MANY; c++) {
        means[c] = it->from_fp32 ? 250 + (float)c : mean[c % 3];
        stds[c] = it->from_fp32 ? 1 + (float)c / 8 : std[c % 3];
    }
    const void *source = spaced_copy(&test, it->from_fp32 ? (const void *)values : bytes, it->batch,
                                     bytes_each, bytes_each + it->gap);
    struct image_transform args =
        transform_of(it->type, it->batch, it->channels, it->height, it->width, source);
    args.from_fp32 = it->from_fp32;
    args.source_stride = it->gap > 0 ? bytes_each + it->gap : 0;
    args.missing = it->missing;
    args.plans = it->plans ? plans : NULL;
    args.mean = means;
    args.std = stds;
    const void *images = run(&test, args);
    float *truth = device_test_zeros(&test, TYPE_FP32, count);
    void *rounded = device_test_zeros(&test, it->type, count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = i / plane % it->channels, begin = i / plane * plane;
        const int64_t at =
            followed_index(it->plans ? &plans[i / plane / it->channels] : &none, it->width,
                           it->height, i % it->width, i % plane / it->width);
        const float value = at < 0 ? NAN : values[begin + at];
        truth[i] = !it->from_fp32
                       ? ((float)(at < 0 ? 0 : bytes[begin + at]) / 255 - means[c]) / stds[c]
                   : isnan(value) ? it->missing
                                  : (value - means[c]) / stds[c];
    }
    test.device->backend->convert(test.stream, it->type, rounded, TYPE_FP32, truth, count);
    device_test_wait(&test);
    device_test_same("images", it->type, images, rounded, count);
}

TEST_KERNELS(plans_are_followed_and_values_normalised)
{
    for (size_t i = 0; i < sizeof value_cases / sizeof value_cases[0]; i++)
        check_values(&value_cases[i]);
}

/* With a resize the plan applies to the resized image: the result equals that of two calls. */
TEST(plans_come_after_the_resize)
{
    enum { BATCH = 70, PLANE = 18 * 26 };
    for (int threads = 1; threads <= 3; threads += 2) {
        DEVICE_TEST(test, threads);
        struct image_transform args = DEVICE_ARGS(
            image_transform, .batch = BATCH, .channels = 3, .source_height = 31, .source_width = 17,
            .height = 18, .width = 26, .source = random_source(&test, BATCH * 3 * 31 * 17),
            .mean = zeros, .std = levels);
        const float *resized = run(&test, args);
        uint8_t *bytes = device_test_zeros(&test, TYPE_FP32, BATCH * 3 * PLANE / 4 + 1);
        for (int i = 0; i < BATCH * 3 * PLANE; i++)
            bytes[i] = (uint8_t)(resized[i] + 0.5f);
        args.plans = random_plans(&test, BATCH, 26, 18);
        args.mean = mean;
        args.std = std;
        const float *images = run(&test, args);
        args.source = bytes;
        args.source_height = 18;
        args.source_width = 26;
        assert_int_equal(image_transform_scratch(&args), 0);
        device_test_same("images", TYPE_FP32, images, run(&test, args), BATCH * 3 * PLANE);
    }
}

/* ---- Noise and channel dropout */

enum { RECORDS = 30, DEPTH = 6, FIELD = 21 * 23, VALUES = RECORDS * DEPTH * FIELD };

/* Transform `count` records of zeros from record `first` on, of an image of 21 x 23 values. */
static const void *noise_run(struct device_test *test, enum data_type type, uint32_t first,
                             int64_t count, const struct pixel_plan *changes, bool is_target)
{
    const float means[DEPTH] = {0}, stds[DEPTH] = {1, 1, 1, 1, 1, 1};
    const size_t bytes = (size_t)count * sizeof *changes;
    struct pixel_plan *plans = device_test_zeros(test, TYPE_FP32, (int64_t)(bytes + 3) / 4);
    for (int64_t i = 0; i < count; i++) {
        plans[i] = *changes;
        plans[i].sample = first + (uint32_t)i;
    }
    struct image_transform args = transform_of(
        type, count, DEPTH, 21, 23, device_test_zeros(test, TYPE_FP32, count * DEPTH * FIELD));
    args.from_fp32 = true;
    args.plans = plans;
    args.mean = means;
    args.std = stds;
    args.is_target = is_target;
    return run(test, args);
}

static const struct pixel_plan noise = {.noise = 0.5f, .seed = 1ull << 40 | 7, .epoch = 3};

static float noise_of(uint32_t sample, int64_t channel, int64_t pixel)
{
    const struct random_block drawn = random_block_at(noise.seed, RANDOM_NOISE, (uint32_t)channel,
                                                      noise.epoch, sample, (uint32_t)(pixel / 4));
    float normal[2];
    random_normal_pair(drawn.word[pixel % 4 / 2 * 2], drawn.word[pixel % 4 / 2 * 2 + 1], normal);
    return noise.noise * normal[pixel % 2];
}

/* Noise is a function of seed, epoch, record, channel and pixel only. */
TEST(noise_does_not_depend_on_the_batch)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        DEVICE_TEST(test, threads);
        const float *all = noise_run(&test, TYPE_FP32, 0, RECORDS, &noise, false);
        for (int64_t i = 0; i < VALUES; i++)
            assert_float_equal(
                all[i], noise_of((uint32_t)(i / FIELD / DEPTH), i / FIELD % DEPTH, i % FIELD),
                1e-6);
        const float *some = noise_run(&test, TYPE_FP32, 11, 3, &noise, false);
        device_test_same("part", TYPE_FP32, some, all + 11 * DEPTH * FIELD, 3 * DEPTH * FIELD);
        const void *halves = noise_run(&test, TYPE_BF16, 0, RECORDS, &noise, false);
        void *rounded = device_test_zeros(&test, TYPE_BF16, VALUES);
        test.device->backend->convert(test.stream, TYPE_BF16, rounded, TYPE_FP32, all, VALUES);
        device_test_wait(&test);
        device_test_same("bf16", TYPE_BF16, halves, rounded, VALUES);
    }
}

/* Targets have neither noise nor dropout. */
TEST(channels_are_dropped)
{
    struct pixel_plan changes = noise;
    changes.channel_dropout = 0.25f;
    DEVICE_TEST(test, 2);
    const float *values = noise_run(&test, TYPE_FP32, 0, RECORDS, &changes, false);
    int64_t dropped = 0;
    for (int64_t plane = 0; plane < RECORDS * DEPTH; plane++) {
        const float *plane_values = values + plane * FIELD;
        const bool is_dropped = plane_values[0] == 0;
        dropped += is_dropped;
        for (int64_t i = 0; i < FIELD; i++)
            assert_true((plane_values[i] == 0) == is_dropped);
    }
    assert_float_equal((double)dropped / (RECORDS * DEPTH), 0.25, 0.15);
    const float *targets = noise_run(&test, TYPE_FP32, 0, RECORDS, &changes, true);
    for (int64_t i = 0; i < VALUES; i++)
        assert_true(targets[i] == 0);
}

/* ---- Resize of fp32 */

/* One axis of a resize in double: missing values are left out. */
static void resize_axis_truth(const double *from, int64_t lines, int64_t line, int64_t step,
                              int64_t source, int64_t size, int64_t to_line, int64_t to_step,
                              double *to)
{
    const struct resize_span span = {.extent = (double)source, .source = source, .size = size};
    for (int64_t l = 0; l < lines; l++)
        for (int64_t i = 0; i < size; i++) {
            const struct resize_window window = resize_window_of(&span, i);
            double sum = 0, weights = 0;
            for (int64_t j = window.first; j < window.end; j++) {
                const double value = from[l * line + j * step];
                sum += isnan(value) ? 0 : resize_weight(&window, j) * value;
                weights += isnan(value) ? 0 : resize_weight(&window, j);
            }
            to[l * to_line + i * to_step] = weights >= 0.5 ? sum / weights : (double)NAN;
        }
}

static void check_resize(int64_t height, int64_t width, float missing)
{
    enum { BATCH = 3, CHANNELS = 2, FROM = 21 * 17, BYTES = CHANNELS * FROM * 4 };
    const float means[CHANNELS] = {250, 240}, stds[CHANNELS] = {3, 5};
    static double plane[FROM], between[FROM * 4], resized[FROM * 16];
    DEVICE_TEST(test, 2);
    const float *values = random_values(&test, BATCH * CHANNELS * FROM);
    const void *source = spaced_copy(&test, values, BATCH, BYTES, BYTES + 8);
    const float *images = run(
        &test, DEVICE_ARGS(image_transform, .from_fp32 = true, .batch = BATCH, .channels = CHANNELS,
                           .source_height = 21, .source_width = 17, .height = height,
                           .width = width, .source = source, .source_stride = BYTES + 8,
                           .missing = missing, .mean = means, .std = stds));
    for (int64_t p = 0; p < BATCH * CHANNELS; p++) {
        for (int64_t i = 0; i < FROM; i++)
            plane[i] = (double)values[p * FROM + i];
        resize_axis_truth(plane, 21, 17, 1, 17, width, width, 1, between);
        resize_axis_truth(between, width, 1, width, 21, height, 1, width, resized);
        for (int64_t i = 0; i < height * width; i++) {
            const double mean_of = (double)means[p % CHANNELS], std_of = (double)stds[p % CHANNELS];
            const double value = isnan(resized[i]) ? 0 : (resized[i] - mean_of) / std_of;
            const float image = images[p * height * width + i];
            if (isnan(resized[i]) && isnan(missing))
                assert_true(isnan(image));
            else
                assert_float_equal(image, value, 1e-4);
        }
    }
}

TEST_KERNELS(values_are_resized_without_missing_ones)
{
    check_resize(9, 11, 0);
    check_resize(30, 34, NAN);
    check_resize(21, 40, 0);
    check_resize(7, 17, NAN);
}

TEST_ENDS(images_too_large_end, "are too large")
{
    DEVICE_RUN(test, image_transform, .batch = 1, .channels = 1, .height = 1, .width = 8193,
               .mean = zeros);
}

TEST_MAIN()
