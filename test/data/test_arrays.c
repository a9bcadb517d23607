// SPDX-License-Identifier: BSD-3-Clause
/* data.format=arrays: the same records from all shapes of data.x, labels, splits, several files,
 * and the errors of files and options that do not fit. With the arguments --make FILE, write such a
 * file; with --odd FILE NAME, one whose first class has this name; with --values FILE COUNT, one of
 * numbers (values_make). */
#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>

#include "config/options.h"
#include "data/dataset.h"
#include "temporary.h"
#include "test.h"

enum { SAMPLES = 30, CHANNELS = 3, HEIGHT = 5, WIDTH = 4, CLASSES = 3 };
enum { PLANE = HEIGHT * WIDTH, VALUES = CHANNELS * PLANE };

static struct options options;
static struct dataset dataset;
static struct error error;

/* ---- files ---- */

static void text_write(hid_t object, const char *name, const char *const *texts, hsize_t count)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &count, NULL);
    H5Tset_size(type, H5T_VARIABLE);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, type, texts) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
}

static hid_t dataset_write(hid_t file, const char *name, int dimensions, const hsize_t *extent,
                           hid_t type, hid_t memory, const void *data)
{
    hid_t space = H5Screate_simple(dimensions, extent, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[4] = {4, 2, 3, 2};
    if (dimensions == 4) {
        H5Pset_chunk(creation, dimensions, chunk);
        H5Pset_deflate(creation, 1);
    }
    hid_t made = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(H5Dwrite(made, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Pclose(creation);
    H5Sclose(space);
    return made;
}

static float value_of(int64_t sample, int64_t channel, int64_t pixel)
{
    return (float)(sample * 1000 + channel * 100 + pixel) + 0.5F;
}

/* Write a data set whose type has a version that HDF5 cannot read: change the version, which is
 * eight bytes before the tag of an opaque type. */
static void unreadable_write(hid_t file)
{
    static const char tag[] = "unreadable-type";
    hsize_t extent = SAMPLES;
    hid_t type = H5Tcreate(H5T_OPAQUE, 1);
    uint8_t data[SAMPLES] = {0};
    H5Tset_tag(type, tag);
    H5Dclose(dataset_write(file, "unreadable", 1, &extent, type, type, data));
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
    const hsize_t extent[] = {SAMPLES, HEIGHT, WIDTH}, labels[] = {SAMPLES, CLASSES};
    for (int64_t n = 0; n < SAMPLES; n++) {
        for (int64_t p = 0; p < PLANE; p++)
            map[n][p] = (uint8_t)(p == 2 ? 255 : (first + n + p) % CLASSES);
        for (int64_t c = 0; c < CLASSES; c++)
            marks[n][c] = (first + n) >> c & 1;
    }
    H5Dclose(dataset_write(file, "map", 3, extent, H5T_STD_U8LE, H5T_NATIVE_UINT8, map));
    H5Dclose(dataset_write(file, "marks", 2, labels, H5T_STD_U8LE, H5T_NATIVE_UINT8, marks));
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
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(dataset_write(file, "chw", 4, planes, H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, chw));
    H5Dclose(dataset_write(file, "a b", 4, rows, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, chw));
    H5Dclose(dataset_write(file, "hwc", 4, pixels, H5T_IEEE_F64LE, H5T_NATIVE_FLOAT, hwc));
    for (int c = 0; c < CHANNELS; c++) {
        char channel[] = {'u', (char)('0' + c), '\0'};
        H5Dclose(dataset_write(file, channel, 3, pixels, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, u[c]));
    }
    H5Dclose(dataset_write(file, "label", 1, planes, H5T_STD_I32LE, H5T_NATIVE_INT64, label));
    H5Dclose(dataset_write(file, "number", 1, planes, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, number));
    H5Dclose(
        dataset_write(file, "\x1b[31mred", 1, planes, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, number));
    hid_t named = dataset_write(file, "named", 1, planes, H5T_STD_I32LE, H5T_NATIVE_INT64, label);
    text_write(named, "class_names", names, CLASSES);
    H5Dclose(named);
    label[7] = -1;
    H5Dclose(dataset_write(file, "negative", 1, planes, H5T_STD_I32LE, H5T_NATIVE_INT64, label));
    number[3] = (double)NAN;
    H5Dclose(dataset_write(file, "nan", 1, planes, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, number));
    targets_make(file, first);
    H5Dclose(dataset_write(file, "short", 3, pixels + 1, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, u));
    unreadable_write(file);
    H5Fclose(file);
    unreadable_change(path);
}

static int set_up(void **state)
{
    temporary_setup(state);
    temporary_directory("all");
    file_make(temporary_path("all/one.h5"), 0);
    return 0;
}

/* Set the options of one file. */
static void use(const char *root, const char *x, const char *y)
{
    options_default(&options);
    snprintf(options.data.format, sizeof options.data.format, "arrays");
    snprintf(options.data.root, sizeof options.data.root, "%s", temporary_path(root));
    snprintf(options.data.x, sizeof options.data.x, "%s", x);
    snprintf(options.data.y, sizeof options.data.y, "%s", y);
    options.data.val = VALIDATION_FRACTION;
    options.data.val_fraction = 0.2;
}

static void opens(enum data_split split)
{
    error_clear(&error);
    assert_ok(dataset_open(&dataset, &options, split, NULL, &error), &error);
}

static void refused(enum data_split split, const char *reason)
{
    error_clear(&error);
    assert_false(dataset_open(&dataset, &options, split, NULL, &error));
    if (strstr(error.text, reason) == NULL)
        fail_msg("%s", error.text);
}

/* Check all samples of the open split, whose records begin at `first` in value_of. */
static void records_check(int64_t first)
{
    float values[VALUES + 1];
    int32_t label;
    assert_int_equal(dataset.type, DATASET_FLOAT32);
    assert_int_equal(dataset.channels, CHANNELS);
    assert_int_equal(dataset.height, HEIGHT);
    assert_int_equal(dataset.width, WIDTH);
    for (int64_t i = 0; i < dataset.count; i++) {
        const int64_t sample = first + dataset_record(&dataset, i);
        assert_true(dataset_read(&dataset, i, values, &label, &error));
        for (int64_t v = 0; v < VALUES; v++)
            assert_true(values[v] == value_of(sample, v / PLANE, v % PLANE));
        assert_int_equal(label, dataset.target.count == 0 ? sample % CLASSES : 0);
        if (dataset.target.count == 1)
            assert_true(dataset_targets(&dataset, values)[0] == (float)sample / 8 - 1);
    }
}

/* ---- tests ---- */

TEST(all_shapes_have_the_same_records)
{
    static const char *const shapes[] = {"/chw", "hwc", "/u0,u1, u2"};
    uint32_t sum = 0;
    for (int s = 0; s < 3; s++) {
        use("all/one.h5", shapes[s], "/label");
        if (s == 1)
            options.data.order = DATA_ORDER_HWC;
        opens(SPLIT_TRAIN);
        assert_int_equal(dataset.count, 24);
        assert_int_equal(dataset.classes, CLASSES);
        assert_string_equal(dataset.class_name[2], "2");
        assert_true(s == 0 || dataset.sum == sum);
        sum = dataset.sum;
        records_check(0);
        dataset_close(&dataset);
    }
}

/* Write the images and labels as .npy files, or as the arrays of a Zarr store with a chunk of each
 * sample. */
static void folder_make(const char *folder, bool is_zarr)
{
    static float chw[SAMPLES][CHANNELS][PLANE];
    uint8_t label[SAMPLES];
    char name[64], header[256];
    for (int n = 0; n < SAMPLES; n++) {
        label[n] = (uint8_t)(n % CLASSES);
        for (int c = 0; c < CHANNELS; c++)
            for (int p = 0; p < PLANE; p++)
                chw[n][c][p] = value_of(n, c, p);
        snprintf(name, sizeof name, "%s/x/%d.0.0.0", folder, n);
        if (is_zarr) {
            temporary_write(name, "");
            temporary_file(name, chw[n], sizeof chw[n]);
        }
    }
    for (int i = 0; i < 2; i++) {
        const char *shape = i == 0 ? "30, 3, 5, 4" : "30", *type = i == 0 ? "<f4" : "|u1";
        const void *data = i == 0 ? (const void *)chw : label;
        const size_t bytes = i == 0 ? sizeof chw : sizeof label;
        const char array = "xy"[i];
        snprintf(header, sizeof header,
                 "{\"zarr_format\": 2, \"shape\": [%s], \"chunks\": [%s], \"dtype\": \"%s\", "
                 "\"fill_value\": 0, \"order\": \"C\", \"filters\": null, \"compressor\": null}",
                 shape, i == 0 ? "1, 3, 5, 4" : "30", type);
        snprintf(name, sizeof name, "%s/%c/.zarray", folder, array);
        if (is_zarr)
            temporary_write(name, header);
        snprintf(name, sizeof name, is_zarr ? "%s/%c/0" : "%s/%c.npy", folder, array);
        FILE *file = fopen(temporary_path(name), "w");
        assert_non_null(file);
        snprintf(header, sizeof header,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }\n", type, shape);
        if (!is_zarr)
            fprintf(file, "\x93NUMPY\1%c%c%c%s", 0, (int)strlen(header), 0, header);
        assert_true(fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
    }
}

TEST(containers_have_the_same_records)
{
    static const char *const roots[] = {"all/npy", "all/one.zarr", "store/train.zarr"};
    temporary_directory("all/npy");
    folder_make("all/npy", false);
    folder_make("all/one.zarr", true);
    temporary_write("all/one.zarr/.zgroup", "{\"zarr_format\": 2}");
    folder_make("store/train.zarr", true);
    temporary_write("store/train.zarr/.zgroup", "{\"zarr_format\": 2}");
    for (int r = 0; r < 3; r++) {
        use(r == 2 ? "store" : roots[r], "x", "y");
        opens(SPLIT_TRAIN);
        assert_int_equal(dataset.count, 24);
        assert_int_equal(dataset.classes, CLASSES);
        records_check(0);
        dataset_close(&dataset);
    }
}

TEST(order_is_found_from_sizes)
{
    use("all/one.h5", "hwc", "label");
    opens(SPLIT_TRAIN);
    records_check(0);
    dataset_close(&dataset);
    options.data.order = DATA_ORDER_CHW;
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.channels, HEIGHT);
    assert_int_equal(dataset.width, CHANNELS);
    dataset_close(&dataset);
}

TEST(classes_have_names)
{
    use("all/one.h5", "chw", "named");
    opens(SPLIT_VALIDATION);
    assert_int_equal(dataset.count, 6);
    assert_int_equal(dataset.classes, CLASSES);
    assert_string_equal(dataset.class_name[1], "storm");
    records_check(0);
    dataset_close(&dataset);
}

TEST(numbers_are_targets_of_a_regression)
{
    use("all/one.h5", "chw", "number");
    options.data.task = TASK_REGRESSION;
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.classes, 1);
    assert_int_equal(dataset.target.count, 1);
    assert_true(dataset.target_normalised);
    assert_string_equal(dataset.target_name[0], "number");
    records_check(0);
    dataset_close(&dataset);
    snprintf(options.data.y, sizeof options.data.y, "nan");
    float values[VALUES + 1];
    int32_t label;
    opens(SPLIT_TRAIN);
    assert_true(dataset_read(&dataset, 3, values, &label, &error));
    assert_true(isnan(*dataset_targets(&dataset, values)) != 0);
    dataset_close(&dataset);
}

TEST(several_files_are_one_sequence)
{
    temporary_directory("all/files");
    file_make(temporary_path("all/files/a.h5"), 0);
    file_make(temporary_path("all/files/b.nc"), SAMPLES);
    file_make(temporary_path("all/files/test.h5"), 2 * SAMPLES);
    use("all/files", "chw", "label");
    options.data.val = VALIDATION_TEST;
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.count, 2 * SAMPLES);
    records_check(0);
    char name[1024];
    dataset_name(&dataset, SAMPLES + 2, name, sizeof name);
    assert_non_null(strstr(name, "b.nc: sample 2"));
    dataset_close(&dataset);
    opens(SPLIT_TEST);
    assert_int_equal(dataset.count, SAMPLES);
    records_check(2 * SAMPLES);
    dataset_close(&dataset);
    use("all/files/[ab].*", "chw", "label");
    options.data.val = VALIDATION_TEST;
    refused(SPLIT_TEST,
            "none of the 2 files has test, val, valid or validation in its name: set data.val=0.1");
}

TEST(the_last_samples_are_held_out)
{
    use("all/one.h5", "chw", "label");
    options.data.val_from = VAL_FROM_END;
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.count, 24);
    assert_int_equal(dataset_record(&dataset, 23), 23);
    records_check(0);
    dataset_close(&dataset);
    opens(SPLIT_TEST);
    assert_int_equal(dataset.count, 6);
    assert_int_equal(dataset_record(&dataset, 0), 24);
    records_check(0);
    dataset_close(&dataset);
}

/* Write 16-bit integers as NetCDF does: number n is n, except for the first, which was not written.
 */
static void netcdf_make(const char *path, bool is_unsigned)
{
    static const char *const yes[] = {"true"};
    const hsize_t extent[] = {SAMPLES, HEIGHT, WIDTH};
    const int16_t fill = -32767;
    static int16_t values[SAMPLES * PLANE];
    int64_t label[SAMPLES];
    for (int n = 0; n < SAMPLES * PLANE; n++)
        values[n] = (int16_t)(n == 0 ? fill : n - 100);
    for (int n = 0; n < SAMPLES; n++)
        label[n] = n % CLASSES;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(3, extent, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_fill_value(creation, H5T_NATIVE_INT16, &fill);
    hid_t made = H5Dcreate2(file, "u", H5T_STD_I16LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(H5Dwrite(made, H5T_NATIVE_INT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    if (is_unsigned)
        text_write(made, "_Unsigned", yes, 1);
    H5Dclose(made);
    H5Pclose(creation);
    H5Sclose(space);
    H5Dclose(dataset_write(file, "label", 1, extent, H5T_STD_I32LE, H5T_NATIVE_INT64, label));
    H5Fclose(file);
}

TEST(integers_of_netcdf_follow_its_conventions)
{
    float values[PLANE];
    int32_t label;
    for (int is_unsigned = 0; is_unsigned < 2; is_unsigned++) {
        temporary_directory("netcdf");
        netcdf_make(temporary_path("netcdf/one.nc"), is_unsigned);
        use("netcdf", "u", "label");
        options.data.val = VALIDATION_NONE;
        opens(SPLIT_TRAIN);
        assert_true(dataset_read(&dataset, 0, values, &label, &error));
        assert_int_equal(isnan(values[0]) != 0, !is_unsigned); /* 32769 is not the default fill */
        assert_true(values[1] == (is_unsigned ? 65536 - 99 : -99));
        dataset_close(&dataset);
    }
}

/* Write a file whose class 0 is `name`, and whose first value is infinite. */
static void odd_make(const char *path, const char *name)
{
    const char *const names[] = {name, "b", "c"};
    const hsize_t extent[] = {SAMPLES, HEIGHT, WIDTH};
    static float values[SAMPLES * PLANE] = {INFINITY};
    int64_t label[SAMPLES] = {0, 1, 2};
    double number[SAMPLES] = {1e-320};
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(dataset_write(file, "u", 3, extent, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values));
    hid_t named = dataset_write(file, "label", 1, extent, H5T_STD_I32LE, H5T_NATIVE_INT64, label);
    text_write(named, "class_names", names, 3);
    H5Dclose(named);
    H5Dclose(dataset_write(file, "number", 1, extent, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, number));
    number[0] = 7;
    H5Dclose(
        dataset_write(file, "number@+1", 1, extent, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, number));
    number[1] = 1e300;
    H5Dclose(dataset_write(file, "huge", 1, extent, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, number));
    H5Fclose(file);
}

/* Write `count` samples of random numbers: /near and /near_number, the same and 1e9 in /far and
 * /far_number, of doubles; /gaps and /gaps_number, without targets from sample 16 on, /none, and
 * /bad, whose last sample is infinite, of floats. */
static void values_make(const char *path, int64_t count)
{
    static double values[5][SAMPLES * PLANE], numbers[3][SAMPLES];
    static const char *const names[] = {"near", "far", "gaps", "none", "bad"};
    static const char *const number_names[] = {"near_number", "far_number", "gaps_number"};
    const hsize_t extent[] = {(hsize_t)count, HEIGHT, WIDTH};
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    for (int64_t i = 0; i < count * PLANE; i++) {
        const int64_t sample = i / PLANE;
        const double value = (double)((i * 7919 + i * i * 31) % 1009) / 512 - 1;
        const double all[] = {value, 1e9 + value, sample < 16 ? value : (double)NAN, (double)NAN,
                              i + 1 == count * PLANE ? (double)INFINITY : value};
        for (int v = 0; v < 5; v++)
            values[v][i] = all[v];
        for (int v = 0; v < 3; v++)
            numbers[v][sample] = all[v];
    }
    for (int v = 0; v < 5; v++)
        H5Dclose(dataset_write(file, names[v], 3, extent, v < 2 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE,
                               H5T_NATIVE_DOUBLE, values[v]));
    for (int v = 0; v < 3; v++)
        H5Dclose(dataset_write(file, number_names[v], 1, extent, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE,
                               numbers[v]));
    H5Fclose(file);
}

TEST(odd_values_and_names_are_errors)
{
    float values[PLANE + 2]; /* with two targets */
    int32_t label;
    temporary_directory("odd");
    odd_make(temporary_path("odd/one.h5"), "a");
    use("odd", "u", "label");
    options.data.val = VALIDATION_NONE;
    opens(SPLIT_TRAIN);
    assert_false(dataset_read(&dataset, 0, values, &label, &error));
    assert_non_null(strstr(error.text, "infinite"));
    dataset.is_finite = true; /* as after the statistics: not checked again */
    assert_true(dataset_read(&dataset, 0, values, &label, &error));
    dataset_close(&dataset);
    options.data.task = TASK_REGRESSION;
    snprintf(options.data.y, sizeof options.data.y, "number");
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.target.count, 1);
    dataset_close(&dataset);
    snprintf(options.data.y, sizeof options.data.y, "number@+1,number@+2");
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.count, SAMPLES - 2);
    assert_string_equal(dataset.target_name[0], "number@+1");
    dataset.is_finite = true;
    assert_true(dataset_read(&dataset, 0, values, &label, &error));
    assert_true(dataset_targets(&dataset, values)[0] == 7);
    assert_true(dataset_targets(&dataset, values)[1] == 0);
    dataset_close(&dataset);
    snprintf(options.data.y, sizeof options.data.y, "huge");
    refused(SPLIT_TRAIN, "sample 1: its value inf of data.y is infinite or too large");
    odd_make(temporary_path("odd/two.h5"), "z");
    use("odd", "u", "label");
    refused(SPLIT_TRAIN, "class 0 is 'z'");
    use("odd", ",", "label");
    refused(SPLIT_TRAIN, "names no data set");
}

TEST(targets_are_planes_at_other_times)
{
    static float values[(1 + 2 + CHANNELS) * PLANE];
    int32_t label;
    use("all/one.h5", "u0", "u0@+4,u1,chw@-3");
    options.data.task = TASK_REGRESSION;
    options.data.val_from = VAL_FROM_END;
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.count, 11); /* 30 - 4 - 3, without 5 held out and 7 that overlap */
    assert_int_equal(dataset.target.count, 2 + CHANNELS);
    assert_int_equal(dataset.target.width, WIDTH);
    assert_int_equal(dataset.classes, 2 + CHANNELS);
    assert_string_equal(dataset.target_name[0], "u0@+4");
    assert_string_equal(dataset.target_name[4], "chw@-3 2");
    assert_int_equal(dataset.persistence[0], 0);
    assert_int_equal(dataset.persistence[1], -1);
    for (int64_t i = 0; i < dataset.count; i++) {
        assert_true(dataset_read(&dataset, i, values, &label, &error));
        const float *target = dataset_targets(&dataset, values);
        for (int64_t p = 0; p < PLANE; p++) {
            assert_true(values[p] == value_of(i + 3, 0, p));
            assert_true(target[p] == value_of(i + 7, 0, p));
            assert_true(target[PLANE + p] == value_of(i + 3, 1, p));
            assert_true(target[4 * PLANE + p] == value_of(i, 2, p));
        }
    }
    char name[256];
    dataset_name(&dataset, 0, name, sizeof name);
    assert_non_null(strstr(name, "one.h5: sample 3"));
    dataset_close(&dataset);
}

TEST(targets_are_classes_of_pixels)
{
    static float values[2 * PLANE];
    int32_t label;
    use("all/one.h5", "u0", "map");
    options.model.classes = CLASSES;
    opens(SPLIT_TRAIN);
    assert_false(dataset_read(&dataset, 0, values, &label, &error));
    assert_non_null(strstr(error.text, "map has a pixel of class 255, and there are 3 classes"));
    dataset_close(&dataset);
    options.train.ignore_label = 255;
    opens(SPLIT_TRAIN);
    assert_true(dataset.target_is_class && !dataset.target_normalised);
    assert_int_equal(dataset.classes, CLASSES);
    for (int64_t i = 0; i < dataset.count; i++) {
        assert_true(dataset_read(&dataset, i, values, &label, &error));
        const float *target = dataset_targets(&dataset, values);
        const int64_t sample = dataset_record(&dataset, i);
        for (int64_t p = 0; p < PLANE; p++)
            assert_true(p == 2 ? isnan(target[p]) != 0
                               : target[p] == (float)((sample + p) % CLASSES));
    }
    dataset_close(&dataset);
}

TEST(a_sample_has_several_labels)
{
    static float values[PLANE + CLASSES];
    int32_t label;
    use("all/one.h5", "u0", "marks");
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.classes, CLASSES);
    assert_int_equal(dataset.target.count, CLASSES);
    assert_false(dataset.target_normalised);
    for (int64_t i = 0; i < dataset.count; i++) {
        assert_true(dataset_read(&dataset, i, values, &label, &error));
        for (int c = 0; c < CLASSES; c++)
            assert_true(dataset_targets(&dataset, values)[c] ==
                        (float)(dataset_record(&dataset, i) >> c & 1));
    }
    dataset_close(&dataset);
}

TEST(a_changed_file_is_an_error)
{
    static float values[VALUES];
    static const char *const names[] = {"/chw", "u0,u1,u2"};
    const struct timespec past[] = {{.tv_sec = 1}, {.tv_sec = 1}};
    int32_t label;
    for (int n = 0; n < 2; n++) {
        file_make(temporary_path("all/changing.h5"), 0);
        assert_int_equal(utimensat(AT_FDCWD, temporary_path("all/changing.h5"), past, 0), 0);
        use("all/changing.h5", names[n], "label");
        opens(SPLIT_TRAIN);
        assert_true(dataset_read(&dataset, 0, values, &label, &error));
        FILE *file = fopen(temporary_path("all/changing.h5"), "r+");
        assert_true(file != NULL && fseek(file, -8, SEEK_END) == 0 && fputc(1, file) == 1);
        assert_int_equal(fclose(file), 0);
        assert_false(dataset_read(&dataset, dataset.count - 1, values, &label, &error));
        assert_non_null(strstr(error.text, "changing.h5 was changed after it was opened: start"));
        error_clear(&error);
        dataset_close(&dataset);
    }
}

TEST(what_does_not_fit_is_an_error)
{
    use("all/one.h5", "", "label");
    refused(SPLIT_TRAIN, "data.format=arrays needs data.x and data.y");
    use("all/one.h5", "chw", "nothing");
    refused(SPLIT_TRAIN, "one.h5 has no data set 'nothing': `vittrain data describe");
    use("all/one.h5", "chw", "unreadable");
    refused(SPLIT_TRAIN, "one.h5: cannot read 'unreadable': HDF5 reports \"bad version number for "
                         "datatype message\": if a newer HDF5 wrote the file");
    use("all/one.h5", "label", "label");
    refused(SPLIT_TRAIN, "data.x=label has 1 dimensions: it must be [samples, height, width]");
    use("all/one.h5", "chw", "chw");
    refused(SPLIT_TRAIN, "data.y=chw has 3 planes: with data.task=classes it must have one");
    use("all/one.h5", "chw", "chw@6");
    refused(SPLIT_TRAIN, "data.y=chw@6: after @ there must be a number of samples with a sign");
    use("all/one.h5", "chw@-20", "u0@+11");
    refused(SPLIT_TRAIN, "30 samples are too few for the offsets");
    use("all/one.h5", "chw", "label,map");
    refused(SPLIT_TRAIN, "data.y: label has images of 1x1, map of 5x4");
    use("all/one.h5", "chw", "map");
    refused(SPLIT_TRAIN, "data.y=map has no attribute class_names: set model.classes");
    use("all/one.h5", "chw", "named,label");
    refused(SPLIT_TRAIN, "is not 0 or 1, as several labels of a sample must be");
    use("all/one.h5", "chw,short", "label");
    refused(SPLIT_TRAIN, "data.x: chw has images of 5x4, short of 4x3");
    use("all/one.h5", "chw", "number");
    refused(SPLIT_TRAIN,
            "sample 0: its value -1 of data.y is no class (0, 1, ...): set data.task=regression");
    use("all/one.h5", "chw", "negative");
    refused(SPLIT_TRAIN, "sample 7: its value -1 of data.y is no class");
    temporary_directory("test");
    file_make(temporary_path("test/one.h5"), 0);
    use("test/one.h5", "chw", "label");
    refused(SPLIT_TRAIN, "all 1 files are for evaluation, because they or their folders have test");
    use("nowhere.h5", "chw", "label");
    refused(SPLIT_TRAIN, "nowhere.h5: No such file or directory");
    temporary_directory("empty");
    use("empty", "chw", "label");
    refused(SPLIT_TRAIN, "is empty; set data.root to a file, to a folder of files");
}

/* Write a data set of images with an attribute of this type and number of values. */
static void scaled_write(hid_t file, const char *name, hid_t type, hsize_t count)
{
    static const float images[SAMPLES][PLANE];
    static const double values[4] = {2};
    const hsize_t extent[] = {SAMPLES, HEIGHT, WIDTH};
    hid_t space = count > 0 ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_NULL);
    hid_t made = dataset_write(file, name, 3, extent, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, images);
    hid_t attribute = H5Acreate2(made, "scale_factor", type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, type, values) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Dclose(made);
}

TEST(scale_factor_is_one_number)
{
    static const char *const bad[] = {"list", "empty", "bool", "complex", "text"};
    const int8_t is_true = 1;
    hid_t file =
        H5Fcreate(temporary_path("all/scaled.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t complex = H5Tcreate(H5T_COMPOUND, 16), boolean = H5Tenum_create(H5T_NATIVE_INT8);
    hid_t text = H5Tcopy(H5T_C_S1);
    assert_true(H5Tinsert(complex, "r", 0, H5T_NATIVE_DOUBLE) >= 0 &&
                H5Tinsert(complex, "i", 8, H5T_NATIVE_DOUBLE) >= 0 &&
                H5Tenum_insert(boolean, "TRUE", &is_true) >= 0 && H5Tset_size(text, 8) >= 0);
    scaled_write(file, "one", H5T_NATIVE_DOUBLE, 1);
    scaled_write(file, "list", H5T_NATIVE_DOUBLE, 2);
    scaled_write(file, "empty", H5T_NATIVE_DOUBLE, 0);
    scaled_write(file, "bool", boolean, 1);
    scaled_write(file, "complex", complex, 1);
    scaled_write(file, "text", text, 1);
    H5Tclose(text);
    H5Tclose(boolean);
    H5Tclose(complex);
    H5Fclose(file);
    for (size_t n = 0; n < sizeof bad / sizeof bad[0]; n++) {
        char expected[128];
        use("all/scaled.h5", bad[n], "one");
        snprintf(expected, sizeof expected,
                 "scaled.h5: cannot read '%s': its attribute scale_factor is not one finite number",
                 bad[n]);
        refused(SPLIT_TRAIN, expected);
        dataset_close(&dataset);
    }
    use("all/scaled.h5", "one", "one");
    options.data.task = TASK_REGRESSION;
    opens(SPLIT_TRAIN);
    dataset_close(&dataset);
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
    return TESTS_RUN(.setup = set_up, .teardown = temporary_teardown);
}
