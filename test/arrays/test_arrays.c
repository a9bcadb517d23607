// SPDX-License-Identifier: BSD-3-Clause
/* data.format=arrays: the same records from all shapes of data.x, labels, splits, several files,
 * and the errors of files and options that do not fit. With the arguments --make FILE, write such a
 * file; with --odd FILE NAME, one whose first class has this name; with --values FILE COUNT, one of
 * numbers (values_make). */
#include <fcntl.h>
#include <sys/stat.h>

#include "base/file.h"
#include "dataset_fixture.h"
#include "hdf5_fixture.h"
#include "options/options.h"
#include "temporary.h"
#include "test.h"

enum { SAMPLES = 30, CHANNELS = 3, HEIGHT = 5, WIDTH = 4, CLASSES = 3 };
enum { PLANE = HEIGHT * WIDTH, VALUES = CHANNELS * PLANE };

static const hsize_t extent[] = {SAMPLES, HEIGHT, WIDTH};

/* ---- files ---- */

/* Write numbers of any type; images with channels have chunks. */
static void array_write(hid_t file, const char *name, int dimensions, const hsize_t *shape,
                        hid_t type, hid_t memory, const void *data)
{
    static const hsize_t chunk[] = {4, 2, 3, 2};
    hdf5_write(file, name, dimensions, shape, dimensions == 4 ? chunk : NULL, type, memory, data);
}

static void images_write(hid_t file, const char *name, hid_t memory, const void *data)
{
    array_write(file, name, 3, extent, H5T_IEEE_F32LE, memory, data);
}

static void labels_write(hid_t file, const char *name, const int64_t *labels)
{
    array_write(file, name, 1, extent, H5T_STD_I32LE, H5T_NATIVE_INT64, labels);
}

static void numbers_write(hid_t file, const char *name, const double *numbers)
{
    array_write(file, name, 1, extent, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, numbers);
}

static float value_of(int64_t sample, int64_t channel, int64_t pixel)
{
    return (float)(sample * 1000 + channel * 100 + pixel) + 0.5F;
}

/* Write a data set whose type has a version that HDF5 cannot read: change the version, which is
 * eight bytes before the tag of an opaque type. */
static void unreadable_write(hid_t file)
{
    hid_t type = H5Tcreate(H5T_OPAQUE, 1);
    uint8_t data[SAMPLES] = {0};
    H5Tset_tag(type, "unreadable-type");
    array_write(file, "unreadable", 1, extent, type, type, data);
    H5Tclose(type);
}

static void unreadable_change(const char *path)
{
    static char data[1 << 20];
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    const size_t bytes = fread(data, 1, sizeof data, file);
    size_t tag = 8;
    while (tag + 15 < bytes && memcmp(data + tag, "unreadable-type", 15) != 0)
        tag++;
    assert_int_equal(data[tag - 8], 0x15);
    assert_true(fseek(file, (long)tag - 8, SEEK_SET) == 0 && fputc(0x95, file) == 0x95);
    assert_int_equal(fclose(file), 0);
}

/* Write /map, classes of pixels, where class 255 is none, and /marks, several labels. */
static void targets_make(hid_t file, int64_t first)
{
    static uint8_t map[SAMPLES][PLANE], marks[SAMPLES][CLASSES];
    const hsize_t labels[] = {SAMPLES, CLASSES};
    for (int64_t n = 0; n < SAMPLES; n++) {
        for (int64_t p = 0; p < PLANE; p++)
            map[n][p] = (uint8_t)(p == 2 ? 255 : (first + n + p) % CLASSES);
        for (int64_t c = 0; c < CLASSES; c++)
            marks[n][c] = (first + n) >> c & 1;
    }
    array_write(file, "map", 3, extent, H5T_STD_U8LE, H5T_NATIVE_UINT8, map);
    array_write(file, "marks", 2, labels, H5T_STD_U8LE, H5T_NATIVE_UINT8, marks);
}

/* Write the images in all shapes: /chw, /hwc, and /u0, /u1, /u2; labels in /label and /number. */
static void file_make(const char *path, int64_t first)
{
    static float chw[SAMPLES][CHANNELS][PLANE], hwc[SAMPLES][PLANE][CHANNELS];
    static float u[CHANNELS][SAMPLES][PLANE];
    static const char *const names[] = {"calm", "storm", "rain"};
    const hsize_t planes[] = {SAMPLES, CHANNELS, HEIGHT, WIDTH};
    const hsize_t rows[] = {SAMPLES, HEIGHT, CHANNELS, WIDTH};
    const hsize_t pixels[] = {SAMPLES, HEIGHT, WIDTH, CHANNELS};
    int64_t label[SAMPLES];
    double number[SAMPLES];
    for (int64_t n = 0; n < SAMPLES; n++) {
        label[n] = (first + n) % CLASSES;
        number[n] = (double)(first + n) / 8 - 1;
        for (int64_t c = 0; c < CHANNELS; c++)
            for (int64_t p = 0; p < PLANE; p++)
                chw[n][c][p] = hwc[n][p][c] = u[c][n][p] = value_of(first + n, c, p);
    }
    hid_t file = hdf5_create(path);
    array_write(file, "chw", 4, planes, H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, chw);
    array_write(file, "a b", 4, rows, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, chw);
    array_write(file, "hwc", 4, pixels, H5T_IEEE_F64LE, H5T_NATIVE_FLOAT, hwc);
    array_write(file, "short", 3, pixels + 1, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, u);
    for (int c = 0; c < CHANNELS; c++)
        images_write(file, (char[]){'u', (char)('0' + c), '\0'}, H5T_NATIVE_FLOAT, u[c]);
    labels_write(file, "label", label);
    labels_write(file, "named", label);
    hdf5_annotate_texts(file, "named", "class_names", CLASSES, names);
    label[7] = -1;
    labels_write(file, "negative", label);
    for (int64_t n = 0; n < SAMPLES; n++)
        label[n] = (first + n) % 5 % CLASSES;
    labels_write(file, "uneven", label);
    hdf5_annotate_texts(file, "uneven", "class_names", CLASSES, names);
    numbers_write(file, "number", number);
    numbers_write(file, "\x1b[31mred", number);
    number[3] = (double)NAN;
    numbers_write(file, "nan", number);
    targets_make(file, first);
    unreadable_write(file);
    H5Fclose(file);
    unreadable_change(path);
}

static void set_up(void)
{
    temporary_setup();
    temporary_directory("all");
    file_make(temporary_path("all/one.h5"), 0);
}

/* Set the options of one file. */
static void use(const char *root, const char *x, const char *y)
{
    arrays_begin(root, x, y);
    error_clear(&error);
    settings_apply(&options, "data.val=0.2");
}

/* Check all samples of the open split, whose records begin at `first` in value_of. */
static void records_check(int64_t first)
{
    float values[VALUES + 1];
    assert_int_equal(dataset.type, DATASET_FLOAT32);
    assert_int_equal(dataset.channels, CHANNELS);
    assert_int_equal(dataset.height, HEIGHT);
    assert_int_equal(dataset.width, WIDTH);
    for (int64_t i = 0; i < dataset.count; i++) {
        const int64_t sample = first + dataset_record(&dataset, i);
        assert_true(dataset_read(&dataset, i, values, &error));
        for (int64_t v = 0; v < VALUES; v++)
            assert_true(values[v] == value_of(sample, v / PLANE, v % PLANE));
        assert_int_equal(dataset_label(&dataset, i),
                         dataset.target.count == 0 ? sample % CLASSES : 0);
        if (dataset.target.count == 1)
            assert_true(dataset_targets(&dataset, values)[0] == (float)sample / 8 - 1);
    }
}

/* ---- tests ---- */

TEST(all_shapes_have_the_same_records)
{
    static const struct {
        const char *x, *y, *settings;
        enum data_split split;
        int64_t count, first; /* record, of the last samples that are held out; -1: others */
    } cases[] = {{"/chw", "/label", "", SPLIT_TRAIN, 24, -1},
                 {"hwc", "/label", "", SPLIT_TRAIN, 24, -1},
                 {"/u0,/u1, u2", "/label", "", SPLIT_TRAIN, 24, -1},
                 {"chw", "named", "", SPLIT_VALIDATION, 6, -1},
                 {"chw", "label", "data.val_from=end", SPLIT_TRAIN, 24, 0},
                 {"chw", "label", "data.val_from=end", SPLIT_TEST, 6, 24}};
    uint32_t sum = 0;
    for (int i = 0; i < 6; i++) {
        use("all/one.h5", cases[i].x, cases[i].y);
        split_opens(cases[i].settings, cases[i].split, cases[i].count);
        assert_int_equal(dataset.classes, CLASSES);
        assert_string_equal(dataset.class_name[2], i == 3 ? "rain" : "2");
        assert_true(cases[i].first < 0 || dataset_record(&dataset, 0) == cases[i].first);
        assert_true(i == 0 || i > 2 || dataset.sum == sum);
        sum = dataset.sum;
        records_check(0);
    }
}

/* Five samples of 3x5x4 that other programs wrote, as pixels and as targets. */
TEST(stores_and_folders_have_the_values_of_their_arrays)
{
    static const char *const stores[] = {"npy", "v2", "v3"};
    float values[2 * VALUES];
    const char *directory = getenv("srcdir");
    OWNED char *command =
        allocate_text("tar -xzf '%s/test/vectors/array_folders.tar.gz' -C '%s' npy/type_u1.npy "
                      "v2/.zgroup v2/type_u1 v3/zarr.json v3/type_u1 expected",
                      directory != NULL ? directory : ".", temporary_path("all"));
    assert_int_equal(system(command), 0);
    for (int i = 0; i < 3; i++) {
        OWNED char *path = allocate_text("all/expected/%s/type_u1", stores[i]);
        OWNED char *root = allocate_text("all/%s", stores[i]);
        size_t bytes;
        OWNED char *numbers = text_file_read(temporary_path(path), &bytes);
        assert_int_equal(bytes, 5 * VALUES * sizeof(double));
        const double *expected = (const double *)(void *)numbers;
        arrays_begin(root, "type_u1", "type_u1");
        split_opens("data.val=none data.task=regression model.head=dense", SPLIT_TRAIN, 5);
        for (int64_t n = 0; n < 5; n++) {
            assert_true(dataset_read(&dataset, n, values, &error));
            for (int64_t v = 0; v < VALUES; v++)
                assert_true((double)values[v] == expected[n * VALUES + v] &&
                            values[VALUES + v] == values[v]);
        }
    }
}

/* Sizes decide the order of dimensions, unless the option does. */
TEST(order_is_that_of_the_option)
{
    use("all/one.h5", "hwc", "label");
    split_opens("data.order=chw", SPLIT_TRAIN, -1);
    assert_int_equal(dataset.channels, HEIGHT);
    assert_int_equal(dataset.width, CHANNELS);
}

TEST(numbers_are_targets_of_a_regression)
{
    float values[VALUES + 1];
    use("all/one.h5", "chw", "number");
    split_opens("data.task=regression", SPLIT_TRAIN, -1);
    assert_int_equal(dataset.classes, 1);
    assert_int_equal(dataset.target.count, 1);
    assert_true(dataset.target_normalised);
    assert_string_equal(dataset.target_name[0], "number");
    records_check(0);
    split_opens("data.y=nan", SPLIT_TRAIN, -1);
    assert_true(dataset_read(&dataset, 3, values, &error));
    assert_true(isnan(*dataset_targets(&dataset, values)) != 0);
}

TEST(several_files_are_one_sequence)
{
    temporary_directory("all/files");
    file_make(temporary_path("all/files/a.h5"), 0);
    file_make(temporary_path("all/files/b.nc"), SAMPLES);
    file_make(temporary_path("all/files/test.h5"), 2 * SAMPLES);
    use("all/files", "chw", "label");
    split_opens("data.val=test", SPLIT_TRAIN, 2 * SAMPLES);
    records_check(0);
    record_is_named(SAMPLES + 2, "b.nc: sample 2");
    split_opens("", SPLIT_TEST, SAMPLES);
    records_check(2 * SAMPLES);
    use("all/files/[ab].*", "chw", "label");
    split_fails("data.val=test", SPLIT_TEST,
                "none of the 2 files has test, val, valid or validation in its name: set "
                "data.val=0.1");
}

/* Write a file whose class 0 is `name`, and whose first value is infinite. */
static void odd_make(const char *path, const char *name)
{
    static const float values[SAMPLES * PLANE] = {INFINITY};
    static const int64_t label[SAMPLES] = {0, 1, 2};
    const char *const names[] = {name, "b", "c"};
    double number[SAMPLES] = {1e-320};
    hid_t file = hdf5_create(path);
    images_write(file, "u", H5T_NATIVE_FLOAT, values);
    labels_write(file, "label", label);
    hdf5_annotate_texts(file, "label", "class_names", 3, names);
    numbers_write(file, "number", number);
    number[0] = 7;
    numbers_write(file, "number@+1", number);
    number[1] = 1e300;
    numbers_write(file, "huge", number);
    H5Fclose(file);
}

/* Write `count` samples of random numbers: /near and /near_number, the same and 1e9 in /far and
 * /far_number, of doubles; /gaps and /gaps_number, without targets from sample 16 on, and /bad,
 * whose last sample is infinite, of floats. */
static void values_make(const char *path, int64_t count)
{
    static double values[4][SAMPLES * PLANE], numbers[3][SAMPLES];
    static const char *const names[] = {"near", "far", "gaps", "bad"};
    static const char *const number_names[] = {"near_number", "far_number", "gaps_number"};
    const hsize_t shape[] = {(hsize_t)count, HEIGHT, WIDTH};
    hid_t file = hdf5_create(path);
    for (int64_t i = 0; i < count * PLANE; i++) {
        const int64_t sample = i / PLANE;
        const double value = (double)((i * 7919 + i * i * 31) % 1009) / 512 - 1;
        const double all[] = {value, 1e9 + value, sample < 16 ? value : (double)NAN,
                              i + 1 == count * PLANE ? (double)INFINITY : value};
        for (int v = 0; v < 4; v++)
            values[v][i] = all[v];
        for (int v = 0; v < 3; v++)
            numbers[v][sample] = all[v];
    }
    for (int v = 0; v < 4; v++)
        array_write(file, names[v], 3, shape, v < 2 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE,
                    H5T_NATIVE_DOUBLE, values[v]);
    for (int v = 0; v < 3; v++)
        array_write(file, number_names[v], 1, shape, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, numbers[v]);
    H5Fclose(file);
}

TEST(odd_values_and_names_are_errors)
{
    float values[PLANE + 2]; /* with two targets */
    temporary_directory("odd");
    odd_make(temporary_path("odd/one.h5"), "a");
    use("odd", "u", "label");
    split_opens("data.val=none", SPLIT_TRAIN, -1);
    assert_false(dataset_read(&dataset, 0, values, &error));
    assert_has(error.text, "infinite");
    dataset.is_finite = true; /* as after the statistics: not checked again */
    assert_true(dataset_read(&dataset, 0, values, &error));
    split_opens("data.task=regression data.y=number", SPLIT_TRAIN, -1);
    assert_int_equal(dataset.target.count, 1);
    split_opens("data.y=number@+1,number@+2", SPLIT_TRAIN, SAMPLES - 2);
    assert_string_equal(dataset.target_name[0], "number@+1");
    dataset.is_finite = true;
    assert_true(dataset_read(&dataset, 0, values, &error));
    assert_true(dataset_targets(&dataset, values)[0] == 7);
    assert_true(dataset_targets(&dataset, values)[1] == 0);
    split_fails("data.y=huge", SPLIT_TRAIN,
                "sample 1: its value inf of data.y is infinite or too large");
    odd_make(temporary_path("odd/two.h5"), "z");
    use("odd", "u", "label");
    split_fails("", SPLIT_TRAIN, "class 0 is 'z'");
    use("odd", ",", "label");
    split_fails("", SPLIT_TRAIN, "names no data set");
}

TEST(targets_are_planes_at_other_times)
{
    static float values[(1 + 2 + CHANNELS) * PLANE];
    use("all/one.h5", "u0", "u0@+4,u1,chw@-3");
    /* 30 - 4 - 3, without 5 held out and 7 that overlap */
    split_opens("data.task=regression data.val_from=end", SPLIT_TRAIN, 11);
    assert_int_equal(dataset.target.count, 2 + CHANNELS);
    assert_int_equal(dataset.target.width, WIDTH);
    assert_int_equal(dataset.classes, 2 + CHANNELS);
    assert_string_equal(dataset.target_name[0], "u0@+4");
    assert_string_equal(dataset.target_name[4], "chw@-3 2");
    assert_int_equal(dataset.variable_bytes[4], strlen("chw"));
    assert_int_equal(dataset.persistence[0], 0);
    assert_int_equal(dataset.persistence[1], -1);
    for (int64_t i = 0; i < dataset.count; i++) {
        assert_true(dataset_read(&dataset, i, values, &error));
        const float *target = dataset_targets(&dataset, values);
        for (int64_t p = 0; p < PLANE; p++) {
            assert_true(values[p] == value_of(i + 3, 0, p));
            assert_true(target[p] == value_of(i + 7, 0, p));
            assert_true(target[PLANE + p] == value_of(i + 3, 1, p));
            assert_true(target[4 * PLANE + p] == value_of(i, 2, p));
        }
    }
    record_is_named(0, "one.h5: sample 3");
}

TEST(targets_are_differences_from_the_last_input)
{
    static float values[(2 + 3 * CHANNELS) * PLANE];
    use("all/one.h5", "u0@-1,chw@-2,u0", "u0@+4,chw@-1");
    split_opens("data.task=regression data.residual=on", SPLIT_TRAIN, -1);
    for (int t = 0; t < 1 + CHANNELS; t++) {
        assert_int_equal(dataset.persistence[t], t == 0 ? 1 + CHANNELS : t);
        assert_true(dataset_read(&dataset, 2, values, &error));
        for (int64_t p = 0; p < PLANE; p++)
            assert_true(dataset_targets(&dataset, values)[t * PLANE + p] == (t == 0 ? 4000 : 1000));
    }
    split_fails("data.y=u0@+4,u1@+1", SPLIT_TRAIN, "data.y=u1@+1 is not in data.x at the time of");
    split_fails("data.y=chw@-2", SPLIT_TRAIN, "data.y=chw@-2 is also the last input");
    split_fails("data.y=number", SPLIT_TRAIN, "data.y=number has numbers instead of planes");
    use("all/one.h5", "u0@+1", "u0@+2");
    split_fails("data.task=regression data.residual=on", SPLIT_TRAIN,
                "data.y=u0@+2 is not in data.x");
}

TEST(targets_are_classes_of_pixels)
{
    static float values[2 * PLANE];
    use("all/one.h5", "u0", "map");
    split_opens("model.classes=3", SPLIT_TRAIN, -1);
    assert_false(dataset_read(&dataset, 0, values, &error));
    assert_has(error.text, "map has a pixel of class 255, and there are 3 classes");
    split_opens("train.ignore_label=255", SPLIT_TRAIN, -1);
    assert_true(dataset.target_is_class && !dataset.target_normalised);
    assert_int_equal(dataset.classes, CLASSES);
    for (int64_t i = 0; i < dataset.count; i++) {
        assert_true(dataset_read(&dataset, i, values, &error));
        const float *target = dataset_targets(&dataset, values);
        const int64_t sample = dataset_record(&dataset, i);
        for (int64_t p = 0; p < PLANE; p++)
            assert_true(p == 2 ? isnan(target[p]) != 0
                               : target[p] == (float)((sample + p) % CLASSES));
    }
}

TEST(a_sample_has_several_labels)
{
    static float values[PLANE + CLASSES];
    use("all/one.h5", "u0", "marks");
    split_opens("", SPLIT_TRAIN, -1);
    assert_int_equal(dataset.classes, CLASSES);
    assert_int_equal(dataset.target.count, CLASSES);
    assert_false(dataset.target_normalised);
    for (int64_t i = 0; i < dataset.count; i++) {
        assert_true(dataset_read(&dataset, i, values, &error));
        for (int c = 0; c < CLASSES; c++)
            assert_true(dataset_targets(&dataset, values)[c] ==
                        (float)(dataset_record(&dataset, i) >> c & 1));
    }
}

TEST(a_changed_file_is_an_error)
{
    static float values[VALUES];
    static const char *const names[] = {"/chw", "u0,u1,u2"};
    const struct timespec past[] = {{.tv_sec = 1}, {.tv_sec = 1}};
    for (int n = 0; n < 2; n++) {
        file_make(temporary_path("all/changing.h5"), 0);
        assert_int_equal(utimensat(AT_FDCWD, temporary_path("all/changing.h5"), past, 0), 0);
        use("all/changing.h5", names[n], "label");
        split_opens("", SPLIT_TRAIN, -1);
        assert_true(dataset_read(&dataset, 0, values, &error));
        FILE *file = fopen(temporary_path("all/changing.h5"), "r+");
        assert_true(file != NULL && fseek(file, -8, SEEK_END) == 0 && fputc(1, file) == 1);
        assert_int_equal(fclose(file), 0);
        assert_false(dataset_read(&dataset, dataset.count - 1, values, &error));
        assert_has(error.text, "changing.h5 was changed after it was opened: start");
        error_clear(&error);
    }
}

TEST(what_does_not_fit_is_an_error)
{
    static const struct {
        const char *root, *x, *y, *part;
    } cases[] = {
        {"all/one.h5", "", "label", "needs data.x and data.y"},
        {"all/one.h5", "chw", "nothing", "one.h5 has no data set 'nothing'"},
        {"all/one.h5", "chw", "unreadable", "\"bad version number for datatype message\""},
        {"all/one.h5", "label", "label", "data.x=label has 1 dimensions"},
        {"all/one.h5", "chw", "chw", "data.y=chw has 3 planes"},
        {"all/one.h5", "chw", "chw@6", "data.y=chw@6"},
        {"all/one.h5", "chw@-1month", "u0", "data.x=chw@-1month: the offset after @"},
        {"all/one.h5", "chw", "u0@+6h", "cannot be used: the samples have no times"},
        {"all/one.h5", "chw@-20", "u0@+11", "30 samples are too few"},
        {"all/one.h5", "chw", "label,map", "label has images of 1x1, map of 5x4"},
        {"all/one.h5", "chw", "map", "data.y=map has no attribute class_names"},
        {"all/one.h5", "chw", "named,label", "is not 0 or 1"},
        {"all/one.h5", "chw,short", "label", "chw has images of 5x4, short of 4x3"},
        {"all/one.h5", "chw", "number", "sample 0: its value -1 of data.y is no class"},
        {"all/one.h5", "chw", "negative", "sample 7: its value -1 of data.y is no class"},
        {"test/one.h5", "chw", "label", "all 1 files are for evaluation"},
        {"nowhere.h5", "chw", "label", "nowhere.h5: No such file"},
        {"empty", "chw", "label", "is empty; set data.root"},
    };
    temporary_directory("test");
    file_make(temporary_path("test/one.h5"), 0);
    temporary_directory("empty");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        use(cases[i].root, cases[i].x, cases[i].y);
        split_fails("", SPLIT_TRAIN, cases[i].part);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--make") == 0) {
        file_make(argv[2], 0);
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "--odd") == 0) {
        odd_make(argv[2], argv[3]);
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "--values") == 0) {
        values_make(argv[2], strtol(argv[3], NULL, 10));
        return 0;
    }
    return TESTS_RUN(.setup = set_up, .teardown = temporary_close);
}
