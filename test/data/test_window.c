// SPDX-License-Identifier: BSD-3-Clause
/* augment.crop of arrays: windows of fields depend on seed, epoch and sample only. Pixels and
 * targets are cut at the same position, and only the chunks of the window are decoded. The tiles of
 * evaluations have each target once. */
#include "arrays/decode.h"
#include "data/crop.h"
#include "dataset_fixture.h"
#include "hdf5_fixture.h"
#include "options/options.h"
#include "temporary.h"
#include "test.h"

enum { SAMPLES = 6, CHANNELS = 2, HEIGHT = 21, WIDTH = 34, ROWS = 5, COLUMNS = 7 };
enum { HIGH = 8, WIDE = 9, PLANE = HIGH * WIDE, OUTPUTS = 1, EPOCHS = 40 };
enum { TILES = 3 * 4 };

static float value_of(int64_t sample, int64_t channel, int64_t row, int64_t column)
{
    return (float)(((sample * (CHANNELS + OUTPUTS) + channel) * HEIGHT + row) * WIDTH + column);
}

/* Write fields with channels first .. first + count - 1 in chunks of ROWS x COLUMNS pixels. */
static void fields_write(hid_t file, const char *name, int64_t first, int64_t count, bool hwc)
{
    static float values[SAMPLES * CHANNELS * HEIGHT * WIDTH];
    const hsize_t channels = (hsize_t)count;
    const hsize_t extent[] = {SAMPLES, hwc ? HEIGHT : channels, hwc ? WIDTH : HEIGHT,
                              hwc ? channels : WIDTH};
    const hsize_t chunk[] = {1, hwc ? ROWS : channels, hwc ? COLUMNS : ROWS,
                             hwc ? channels : COLUMNS};
    for (int64_t n = 0; n < SAMPLES; n++)
        for (int64_t c = 0; c < count; c++)
            for (int64_t p = 0; p < HEIGHT * WIDTH; p++)
                values[hwc ? (n * HEIGHT * WIDTH + p) * count + c
                           : (n * count + c) * HEIGHT * WIDTH + p] =
                    value_of(n, first + c, p / WIDTH, p % WIDTH);
    hdf5_write(file, name, 4, extent, chunk, H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, values);
}

static void set_up(void)
{
    temporary_setup();
    hid_t file = hdf5_create(temporary_path("train.h5"));
    fields_write(file, "chw", 0, CHANNELS, false);
    fields_write(file, "hwc", 0, CHANNELS, true);
    fields_write(file, "y", CHANNELS, OUTPUTS, false);
    H5Fclose(file);
}

/* Use windows of HIGH x WIDE pixels. */
static void use(const char *x)
{
    arrays_begin("train.h5", x, "y");
    settings_apply(&options, "data.task=regression model.head=dense model.image=8 "
                             "model.image_width=9 augment.crop=random run.seed=5");
}

/* Check pixels and targets of a window whose first pixel is (top, left). */
static void window_check(const float *values, int64_t sample, int64_t top, int64_t left)
{
    assert_in_range(top, 0, HEIGHT - HIGH);
    assert_in_range(left, 0, WIDTH - WIDE);
    for (int64_t c = 0; c < CHANNELS + OUTPUTS; c++)
        for (int64_t p = 0; p < PLANE; p++)
            assert_true(values[c * PLANE + p] ==
                        value_of(sample, c, top + p / WIDE, left + p % WIDE));
}

/* Return the number of chunks that the window intersects but does not contain. Only these are
 * decoded into the cache. */
static int64_t chunks_cut(int64_t top, int64_t left)
{
    int64_t count = 0;
    for (int64_t y = top / ROWS * ROWS; y < top + HIGH; y += ROWS)
        for (int64_t x = left / COLUMNS * COLUMNS; x < left + WIDE; x += COLUMNS)
            count += y < top || x < left || (y + ROWS > top + HIGH && y + ROWS <= HEIGHT) ||
                     (x + COLUMNS > left + WIDE && x + COLUMNS <= WIDTH) ||
                     (y + ROWS > HEIGHT && top + HIGH < HEIGHT) ||
                     (x + COLUMNS > WIDTH && left + WIDE < WIDTH);
    return count;
}

TEST(windows_are_read_alone)
{
    static const char *const names[] = {"chw", "hwc"};
    static float values[(CHANNELS + OUTPUTS) * PLANE], again[(CHANNELS + OUTPUTS) * PLANE];
    struct crop_scratch scratch = {.between = {.data = NULL}};
    struct crop crop;
    for (int n = 0; n < 2; n++) {
        bool seen[HEIGHT][WIDTH] = {{false}};
        int64_t positions = 0;
        use(names[n]);
        split_opens("", SPLIT_TRAIN, SAMPLES);
        assert_true(
            crop_open(&crop, &options, false, (struct image_size){HIGH, WIDE}, true, &error));
        assert_true(crop.active && dataset.kept_bytes == 0);
        assert_int_equal(dataset_record_bytes(&dataset), sizeof values);
        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++)
            for (int64_t sample = 0; sample < SAMPLES; sample++) {
                const int64_t before = array_cache_counts(dataset.chunks).decoded;
                assert_true(crop_sample(&crop, &dataset, epoch, sample, &scratch, values, &error));
                const int64_t place = (int64_t)values[0] % (HEIGHT * WIDTH);
                const int64_t top = place / WIDTH, left = place % WIDTH;
                window_check(values, sample, top, left);
                assert_int_equal(crop_first_row(&crop, &dataset, epoch, sample), top);
                assert_int_equal(array_cache_counts(dataset.chunks).decoded - before,
                                 2 * chunks_cut(top, left));
                positions += !seen[top][left];
                seen[top][left] = true;
                assert_true(crop_sample(&crop, &dataset, epoch, sample, &scratch, again, &error));
                assert_memory_equal(values, again, sizeof values);
            }
        assert_in_range(positions, 150, (HEIGHT - HIGH + 1) * (WIDTH - WIDE + 1));
    }
    crop_scratch_free(&scratch);
}

/* Each target is in one tile, and each chunk is decoded once. */
TEST(tiles_have_each_target_once)
{
    static float values[(CHANNELS + OUTPUTS) * PLANE];
    static int seen[SAMPLES][HEIGHT][WIDTH];
    use("chw");
    split_opens("", SPLIT_ALL, SAMPLES * TILES);
    assert_int_equal(window_records(&dataset), SAMPLES);
    for (int64_t n = 0; n < dataset.count; n++) {
        const struct window_tile tile = window_tile_of(&dataset, n);
        assert_int_equal(dataset_record(&dataset, n), n / TILES);
        assert_true(dataset_read(&dataset, n, values, &error));
        const float *targets = values + CHANNELS * PLANE;
        for (int64_t p = 0; p < PLANE; p++) {
            const int64_t row = tile.top + p / WIDE, column = tile.left + p % WIDE;
            assert_true(values[p] == value_of(n / TILES, 0, row, column));
            if (isnan(targets[p]))
                continue;
            assert_true(targets[p] == value_of(n / TILES, CHANNELS, row, column));
            seen[n / TILES][row][column]++;
        }
    }
    for (int64_t i = 0; i < SAMPLES * HEIGHT * WIDTH; i++)
        assert_int_equal((&seen[0][0][0])[i], 1);
    assert_in_range(array_cache_counts(dataset.chunks).decoded, 1, SAMPLES * 2 * 5 * 5);
}

TEST(statistics_read_whole_fields)
{
    static float values[(CHANNELS + OUTPUTS) * HEIGHT * WIDTH];
    use("chw");
    split_opens("", SPLIT_TRAIN, SAMPLES);
    struct dataset fields = window_fields(&dataset);
    assert_int_equal(dataset_record_bytes(&fields), sizeof values);
    assert_true(dataset_read(&fields, 3, values, &error));
    for (int64_t i = 0; i < (int64_t)(sizeof values / sizeof *values); i++)
        assert_true(values[i] == value_of(3, 0, 0, 0) + (float)i);
}

TEST(wrong_windows_are_refused)
{
    static const char *const cases[][2] = {
        {"model.image=22", "images of 21x34 pixels are smaller than windows of 22x9"},
        {"model.image=auto", "set model.image"},
        {"augment.roll=x", "augment.roll"},
        {"augment.crop=none eval.crop=center", "eval.crop=center"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        use("chw");
        split_fails(cases[i][0], SPLIT_TRAIN, cases[i][1]);
    }
}

TEST_MAIN(.setup = set_up, .teardown = temporary_close)
