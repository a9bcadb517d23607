// SPDX-License-Identifier: BSD-3-Clause
/* Arrays have the values that h5py, netCDF4, NumPy and zarr read (test/vectors/make_arrays.py and
 * make_array_folders.py), in boxes of any shape and order. What cannot be read is refused with a
 * reason; damaged files are errors. With a number as argument, only the tests of damage run, with
 * that number of mutations. */
#include <dirent.h>
#include <unistd.h>

#include "array_check.h"
#include "arrays/decode.h"
#include "arrays/path.h"
#include "base/allocate.h"
#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "temporary.h"
#include "test.h"

enum { MOST_ELEMENTS = ARRAY_CHECK_ELEMENTS, PATH = 1024 };

static int mutations = 40; /* of a file; twice as many of a file in a folder */

static const char *vector_path(const char *name)
{
    static char path[PATH];
    const char *directory = getenv("srcdir");
    snprintf(path, sizeof path, "%s/test/vectors/%s", directory != NULL ? directory : ".", name);
    return path;
}

/* A file, with the names of all its data sets. */
struct file {
    struct hdf5_reader reader;
    char path[PATH], *names;
    struct listing list;
    struct array_path place;
    struct error error;
};

/* Describe the file twice: first to find the names, then with the chunks. */
static bool file_open(struct file *file, const char *path)
{
    struct text_stream names;
    *file = (struct file){.reader = {.kind = ERROR_DATA, .purpose = "arrays"}};
    snprintf(file->path, sizeof file->path, "%s", path);
    if (!array_path_open(&file->place, file->path, &file->reader, &file->error) ||
        !array_path_list(&file->place, &file->list, &file->error))
        return false;
    text_stream_open(&names);
    for (size_t n = 0; n < file->list.count; n++)
        fprintf(names.stream, "%s,", file->list.names[n]);
    file->reader.datasets = file->names = text_stream_close(&names);
    array_path_close(&file->place);
    return array_path_open(&file->place, file->path, &file->reader, &file->error);
}

static void file_close(struct file *file)
{
    hdf5_reader_close(&file->reader);
    array_path_close(&file->place);
    listing_free(&file->list);
    free(file->names);
}

static bool array_of(struct file *file, const char *name, struct array *array)
{
    return array_path_array(&file->place, name, array, &file->error);
}

/* Compare all data sets that have an expected one; return their number. */
static int file_check(const char *name)
{
    static const char prefix[] = "expected/";
    static double expected[MOST_ELEMENTS];
    static struct file file;
    int checked = 0;
    assert_ok(file_open(&file, vector_path(name)), &file.error);
    for (size_t n = 0; n < file.list.count; n++) {
        const char *reference = file.list.names[n];
        struct array array, other;
        if (strncmp(reference, prefix, strlen(prefix)) != 0)
            continue;
        assert_ok(array_of(&file, reference + strlen(prefix), &array), &file.error);
        assert_ok(array_of(&file, reference, &other), &file.error);
        const struct array_box box = array_whole(&other);
        assert_int_equal(array_elements(&array), array_elements(&other));
        assert_ok(array_read_doubles(&other, &box, expected, &file.error), &file.error);
        array_check(&array, expected);
        array_close(&array);
        array_close(&other);
        checked++;
    }
    file_close(&file);
    return checked;
}

static void need_libraries(void)
{
    char name[FILTER_NAME];
    if (!filter_find(ARRAY_ZSTD, name) || !filter_find(ARRAY_LZ4, name) ||
        !filter_find(ARRAY_BLOSC, name))
        SKIP_BECAUSE("built without the library of a filter");
}

TEST(values_are_those_of_h5py_and_netcdf)
{
    hdf5_child_set_program(NULL);
    assert_int_equal(file_check("arrays.h5"), 49);
    assert_int_equal(file_check("arrays.nc"), 6);
    hdf5_child_set_program("./vittrain");
    assert_int_equal(file_check("arrays_latest.h5"), 9);
    hdf5_child_set_program(NULL);
    need_libraries();
    assert_int_equal(file_check("arrays_plugins.h5"), 9);
}

/* Channels become the first dimension of large images, whose values are converted in parts. */
TEST(channels_last_are_transposed)
{
    static const int64_t extents[][4] = {{2, 70, 90, 3}, {2, 2, 3, 5000}, {2, 1, 5000, 1}};
    for (int n = 0; n < 6; n++) {
        const int64_t *extent = extents[n / 2];
        const int64_t plane = extent[1] * extent[2], values = plane * extent[3];
        struct array array;
        struct error error = {0};
        struct file_stamp stamp;
        float *got = malloc((size_t)values * sizeof *got);
        float *stored = malloc((size_t)(2 * values) * sizeof *stored);
        for (int64_t i = 0; i < 2 * values; i++)
            stored[i] = i % 7 == 0 ? -0.0F : (float)i;
        const char *path = temporary_file("x", stored, (size_t)(2 * values) * sizeof *stored);
        array_begin(&array, path, "x", open_file_new(path, &stamp), &stamp);
        array.owns_file = true;
        array.chunks = allocate(1, sizeof *array.chunks);
        array.chunk_count = 1;
        assert_true(array_type_set(&array, "<f4"));
        array.dimensions = 4;
        for (int d = 0; d < 4; d++)
            array.extent[d] = array.chunk[d] = extent[d];
        if (n % 2 == 1)
            array.rule = (struct array_rule){.active = true,
                                             .scale = 1,
                                             .least = -INFINITY,
                                             .most = (double)(values + values / 2),
                                             .missing = {(double)values + 1},
                                             .missing_count = 1};
        assert_true(array_open(&array, &error));
        const struct array_box box = {.begin = {1},
                                      .count = {1, extent[1], extent[2], extent[3]},
                                      .stride = {values, extent[2], 1, plane}};
        assert_true(array_read(&array, &box, got, &error));
        for (int64_t i = 0; i < values; i++) {
            const float value = got[i % extent[3] * plane + i / extent[3]];
            const int64_t place = values + i;
            if (n % 2 == 1 && place % 7 != 0 && (place == values + 1 || i > values / 2))
                assert_true(isnan(value));
            else
                assert_true(value == (place % 7 == 0 ? 0 : (float)place) &&
                            (value != 0 || (signbit(value) != 0) == (n % 2 == 0)));
        }
        array_close(&array);
        free(stored);
        free(got);
    }
}

TEST(what_cannot_be_read_is_refused)
{
    static const char *const refused[][2] = {{"refused/lzf", "its filter lzf is not supported"},
                                             {"refused/offset", "its filter scaleoffset"},
                                             {"refused/compound", "its type"},
                                             {"refused/complex", "its type"},
                                             {"refused/text", "its type"},
                                             {"refused/virtual", "virtual data set"},
                                             {"refused/external", "external files"},
                                             {"refused/empty", "it is empty"},
                                             {"refused/link", "a link"},
                                             {"refused", "it is a group"},
                                             {"refused/compact", "its layout is compact"},
                                             {"nothing", "arrays.h5 has no data set 'nothing'"}};
    static struct file file;
    assert_true(file_open(&file, vector_path("arrays.h5")));
    for (size_t n = 0; n < sizeof refused / sizeof refused[0]; n++) {
        struct array array;
        error_clear(&file.error);
        assert_false(array_of(&file, refused[n][0], &array));
        assert_error(&file.error, ERROR_DATA, refused[n][1]);
        array_close(&array);
    }
    file_close(&file);
    assert_false(file_open(&file, temporary_file("old.nc", "CDF\1\0\0\0\0more", 12)));
    assert_error(&file.error, ERROR_DATA, "old.nc is a NetCDF-3 file");
    file_close(&file);
    assert_false(file_open(&file, temporary_write("text.h5", "a text, not HDF5")));
    assert_error(&file.error, ERROR_DATA, "text.h5 is not an HDF5");
    file_close(&file);
}

/* Read an array that may be damaged, unless it is large. */
static bool whole_read(struct array *array, struct error *error)
{
    static double got[MOST_ELEMENTS];
    const struct array_box box = array_whole(array);
    return array_elements(array) > MOST_ELEMENTS || array_read_doubles(array, &box, got, error);
}

/* Read all arrays of a file that may be damaged; return the number of errors. */
static int all_read(const char *path)
{
    static struct file file;
    int errors = 0;
    if (!file_open(&file, path)) {
        assert_true(file.error.text[0] != '\0');
        file_close(&file);
        return 1;
    }
    for (size_t n = 0; n < file.list.count; n++) {
        struct array array;
        error_clear(&file.error);
        const bool good =
            array_of(&file, file.list.names[n], &array) && whole_read(&array, &file.error);
        assert_true(good == (file.error.text[0] == '\0'));
        errors += file.error.text[0] != '\0';
        array_close(&array);
    }
    file_close(&file);
    return errors;
}

/* A copy of a file of the vectors, whose bytes are changed. */
struct copy {
    struct file file;
    char *data;
    size_t bytes;
};

static void copy_open(struct copy *copy, const char *name)
{
    copy->data = text_file_read(vector_path(name), &copy->bytes);
    assert_non_null(copy->data);
    assert_true(file_open(&copy->file, temporary_file("copy.h5", copy->data, copy->bytes)));
}

static void copy_close(struct copy *copy)
{
    file_close(&copy->file);
    free(copy->data);
}

/* Change bits of a byte of the first chunk of a data set, and read the data set from the copy as if
 * it had been so when it was described. A negative place counts from the end of the chunk. */
static bool damaged_read(struct copy *copy, const char *dataset, int64_t place, int bits)
{
    struct file *file = &copy->file;
    struct array array;
    error_clear(&file->error);
    assert_ok(array_of(file, dataset, &array), &file->error);
    const int64_t size = array.chunks[0].bytes;
    char *byte = copy->data + array.chunks[0].offset + (place < 0 ? size + place : place % size);
    array_close(&array);
    *byte ^= (char)bits;
    temporary_file("copy.h5", copy->data, copy->bytes);
    *byte ^= (char)bits;
    open_file_close(file->place.file);
    file->place.file = open_file_new(file->path, &file->reader.stamp);
    assert_ok(array_of(file, dataset, &array), &file->error);
    const bool good = whole_read(&array, &file->error);
    array_close(&array);
    return good;
}

TEST(damaged_chunks_are_errors)
{
    static const struct {
        const char *dataset;
        int64_t place;
        const char *part;
    } cases[] = {{"fletcher", 3, "the chunk at [0, 0, 0, 0] of 'fletcher': its checksum"},
                 {"all0", 20, "its checksum is wrong"},
                 {"deflate0", 0, "of its deflate stream is wrong"},
                 {"deflate0", -1, "the checksum of its deflate stream is wrong"}};
    static struct copy copy;
    copy_open(&copy, "arrays.h5");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_false(damaged_read(&copy, cases[i].dataset, cases[i].place, 16));
        assert_has(copy.file.error.text, cases[i].part);
    }
    copy_close(&copy);
}

TEST(damaged_files_are_errors)
{
    size_t bytes;
    char *data = text_file_read(vector_path("arrays_latest.h5"), &bytes);
    int errors = 0;
    hdf5_child_set_program("./vittrain"); /* HDF5 may crash */
    for (int n = 0; n < mutations; n++) {
        const struct random_block random =
            random_block_at(2, RANDOM_SYNTHETIC, 0, (uint32_t)n, 0, 0);
        char *byte = data + random.word[0] % bytes;
        const char before = *byte;
        *byte = (char)random.word[1];
        errors += all_read(temporary_file("damaged.h5", data,
                                          n % 10 == 9 ? random.word[2] % bytes : bytes)) > 0;
        *byte = before;
    }
    hdf5_child_set_program(NULL);
    assert_true(errors > mutations / 10);
    free(data);
}

/* Half of the changes are in the header of the stream. */
TEST(damaged_streams_are_errors)
{
    static const char *const datasets[] = {"zstd",       "lz4",        "lz4_blocks", "blosc_lz4",
                                           "blosc_zstd", "blosc_zlib", "blosc_bits", "blosc_plain"};
    static struct copy copy;
    need_libraries();
    copy_open(&copy, "arrays_plugins.h5");
    for (size_t d = 0; d < sizeof datasets / sizeof datasets[0]; d++) {
        int errors = 0;
        for (int n = 0; n < mutations; n++) {
            const struct random_block random =
                random_block_at(3, RANDOM_SYNTHETIC, 0, (uint32_t)n, 0, 0);
            const int64_t place = n % 2 == 0 ? random.word[0] % 20 : random.word[0];
            errors += !damaged_read(&copy, datasets[d], place, (int)(random.word[1] % 256));
        }
        if (errors < mutations / 10)
            fail_msg("%s", datasets[d]);
    }
    copy_close(&copy);
}

/* ---- folders ---- */

static char top[PATH];

static const char *path_of(const char *store)
{
    static char path[4 * PATH];
    snprintf(path, sizeof path, "%s/%s", top, store);
    return path;
}

/* Unpack the vectors. */
static int vectors_unpack(void **state)
{
    char command[3 * PATH];
    temporary_setup(state);
    snprintf(top, sizeof top, "%s", temporary_directory("vectors"));
    snprintf(command, sizeof command, "tar -xzf '%s' -C '%s'", vector_path("array_folders.tar.gz"),
             top);
    return system(command);
}

static struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays"};

static bool folder_array(const char *store, const char *name, struct array *array,
                         struct error *error)
{
    static char path[4 * PATH];
    struct array_path source;
    snprintf(path, sizeof path, "%s", path_of(store));
    const bool good = array_path_open(&source, path, &reader, error);
    array_begin(array, path, name, NULL, NULL);
    return good && array_path_array(&source, name, array, error);
}

/* Compare an array with its expected values. */
static void array_expect(const char *store, const char *name)
{
    char path[2 * PATH];
    struct array array;
    struct error error = {0};
    size_t bytes;
    if (folder_array(store, strcmp(name, "array") == 0 ? "" : name, &array, &error)) {
        snprintf(path, sizeof path, "%s/expected/%s/%s", top, store, name);
        char *expected = text_file_read(path, &bytes);
        assert_non_null(expected);
        assert_int_equal(bytes, array_elements(&array) * (int64_t)sizeof(double));
        array_check(&array, (const double *)expected);
        free(expected);
    } else if (strstr(error.text, "its filter") == NULL) {
        fail_msg("%s", error.text);
    }
    array_close(&array);
}

/* Compare all arrays that have expected values; return their number. */
static int store_check(const char *store)
{
    char folder[4 * PATH], path[2 * PATH];
    DIR *entries = NULL;
    int checked = 0;
    snprintf(path, sizeof path, "expected/%s", store);
    snprintf(folder, sizeof folder, "%s", path_of(path));
    for (const char *name; (name = folder_next(&entries, folder)) != NULL; checked++)
        if (strcmp(name, "group") == 0)
            array_expect(store, "group/inner");
        else
            array_expect(store, name);
    return checked;
}

TEST(values_are_those_of_numpy_and_zarr)
{
    assert_int_equal(store_check("npy"), 25);
    assert_int_equal(store_check("v2"), 51);
    assert_int_equal(store_check("v2_array"), 1);
    assert_int_equal(store_check("v3"), 53);
    assert_int_equal(store_check("v3_array"), 1);
}

/* Replace a text in a file of an array. */
static void replace(const char *file, const char *from, const char *to)
{
    char path[2 * PATH], *text, *found;
    snprintf(path, sizeof path, "vectors/%s", file);
    text = temporary_text(path);
    found = strstr(text, from);
    assert_non_null(found);
    char *replaced = calloc(strlen(text) + strlen(to) + 1, 1);
    sprintf(replaced, "%.*s%s%s", (int)(found - text), text, to, found + strlen(from));
    temporary_write(path, replaced);
    free(replaced);
    free(text);
}

TEST(fill_value_may_be_a_bare_constant)
{
    replace("v3/missing_nan/zarr.json", "\"fill_value\": \"NaN\"", "\"fill_value\": NaN");
    array_expect("v3", "missing_nan");
    replace("v2/missing_infinity/.zarray", "\"-Infinity\"", "-Infinity");
    array_expect("v2", "missing_infinity");
}

static void folder_refused(const char *store, const char *name, const char *reason)
{
    struct array array;
    struct error error = {0};
    assert_false(folder_array(store, name, &array, &error));
    assert_error(&error, ERROR_DATA, reason);
    array_close(&array);
}

TEST(folders_that_cannot_be_read_are_refused)
{
    static const char *const cases[][3] = {
        {"npy_refused", "fortran", "'fortran': it is in Fortran order"},
        {"npy_refused", "complex", "'<c8'"},
        {"npy_refused", "records", "its type [('a'"},
        {"npy_refused", "text", "'<U2'"},
        {"npy_refused", "empty", "it is empty"},
        {"npy_refused", "none", "npy_refused has no array 'none'"},
        {"npy_refused/archive.npz", "a", "is an archive"},
        {"v2_refused", "fortran", "'fortran': its chunks are in Fortran order"},
        {"v2_refused", "delta", "its codec 'delta'"},
        {"v2_refused", "bzip2", "its codec 'bz2'"},
        {"v2_refused", "complex", "'<c8'"},
        {"v2_refused", "empty", "it is empty"},
        {"v3_refused", "transposed", "its codec 'transpose'"},
        {"v3_refused", "nested", "its codec 'sharding_indexed' is not supported before"},
        {"v3_refused", "complex", "'complex64'"},
        {"v2", "", "it is a group"},
        {"v3", "", "it is a group"},
        {"v3", "none", "has no array 'none'"}};
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        folder_refused(cases[n][0], cases[n][1], cases[n][2]);
}

TEST(scale_and_offset_are_numbers)
{
    static const char *const bad[] = {"\"0.25\"", "[0.25, 1]", "[]", "true", "{}", "NaN"};
    char text[64], before[64] = "\"scale_factor\": 0.25";
    for (size_t n = 0; n < sizeof bad / sizeof bad[0]; n++) {
        snprintf(text, sizeof text, "\"scale_factor\": %s", bad[n]);
        replace("v3/packed/zarr.json", before, text);
        folder_refused("v3", "packed", "v3: cannot read 'packed': its attribute scale_factor");
        snprintf(before, sizeof before, "%s", text);
    }
    replace("v3/packed/zarr.json", before, "\"scale_factor\": [0.25]");
    array_expect("v3", "packed");
    replace("v2/packed/.zattrs", "273.0", "\"273.0\"");
    folder_refused("v2", "packed", "its attribute add_offset");
    replace("v2/packed/.zattrs", "\"273.0\"", "273.0");
}

/* NetCDF's default fill value is missing, unless the numbers are unsigned. */
TEST(integers_follow_the_conventions_of_netcdf)
{
    static const int16_t stored[] = {-32767, -99, -98};
    static const struct array_box all = {.count = {3}, .stride = {1}};
    temporary_write("vectors/integers/u/.zarray",
                    "{\"zarr_format\": 2, \"shape\": [3], \"chunks\": [3], \"dtype\": \"<i2\", "
                    "\"fill_value\": -32767, \"order\": \"C\", \"filters\": null, "
                    "\"compressor\": null}");
    temporary_file("vectors/integers/u/0", stored, sizeof stored);
    for (int is_unsigned = 0; is_unsigned < 2; is_unsigned++) {
        struct array array;
        struct error error = {0};
        double values[3];
        temporary_write("vectors/integers/u/.zattrs",
                        is_unsigned ? "{\"_Unsigned\": \"true\"}" : "{}");
        assert_ok(folder_array("integers", "u", &array, &error), &error);
        assert_ok(array_read_doubles(&array, &all, values, &error), &error);
        assert_int_equal(isnan(values[0]) != 0, !is_unsigned);
        assert_true(values[1] == (is_unsigned ? 65536 - 99 : -99));
        array_close(&array);
    }
}

/* Check the files that an array lacks, and that removing one of the others is an error. */
static void missing_check(const char *store, const char *name, const char *missing,
                          const char *removed)
{
    struct array array;
    struct error error = {0};
    char path[4 * PATH], text[80];
    assert_true(folder_array(store, name, &array, &error));
    array_missing_write(&array, text, sizeof text);
    assert_string_equal(text, missing);
    assert_true(whole_read(&array, &error));
    array_close(&array);
    assert_true(folder_array(store, name, &array, &error));
    snprintf(path, sizeof path, "%s", path_of(store));
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%s/%s", name, removed);
    assert_int_equal(unlink(path), 0);
    assert_false(whole_read(&array, &error));
    assert_error(&error, ERROR_DATA, "its file existed at the start and is gone");
    array_close(&array);
}

TEST(missing_files_of_chunks_are_counted)
{
    missing_check("v2", "missing", "8 of 24 chunks do not exist", "0.0.0.0");
    missing_check("v2", "folders", "", "0/0/0/0");
    missing_check("v3", "missing", "8 of 24 chunks do not exist", "c/0/0/0/0");
    missing_check("v3", "points", "", "c.0.0.0.0");
    missing_check("v3", "scalar", "", "c");
    missing_check("v3", "shards_missing", "3 of 4 shards do not exist", "c/0/0/0/0");
}

/* Read an array of files that may be damaged; true if that is an error. */
static bool read_fails(const char *store, const char *name)
{
    struct array array;
    struct error error = {0};
    const bool good = folder_array(store, name, &array, &error) && whole_read(&array, &error);
    assert_true(good == (error.text[0] == '\0'));
    array_close(&array);
    return !good;
}

/* Change a byte of a file or truncate it, and read the array. A part of the changes are errors. */
static void damage(const char *store, const char *name, const char *file, int part)
{
    char path[PATH];
    size_t bytes;
    int errors = 0;
    snprintf(path, sizeof path, "vectors/%s/%s", store, file);
    char *data = text_file_read(temporary_path(path), &bytes);
    assert_non_null(data);
    for (int n = 0; n < 2 * mutations; n++) {
        const struct random_block random =
            random_block_at(2, RANDOM_SYNTHETIC, 0, (uint32_t)n, 0, 0);
        const size_t place = random.word[0] % bytes;
        const char before = data[place];
        data[place] = (char)random.word[1];
        temporary_file(path, data, n % 10 == 9 ? random.word[2] % bytes : bytes);
        data[place] = before;
        errors += read_fails(store, name);
    }
    temporary_file(path, data, bytes);
    free(data);
    if (errors <= 2 * mutations / part)
        fail_msg("%s of %s: %d errors", file, store, errors);
}

TEST(damaged_folders_are_errors)
{
    damage("npy", "version2", "version2.npy", 20);
    damage("npy", "line", "line.npy", 20);
    damage("v2", "shuffle", "shuffle/.zarray", 20);
    damage("v2", "packed", "packed/.zattrs", 20);
    damage("v2", "zstd", "zstd/0.0.0.0", 10);
    damage("v2", "lz4", "lz4/1.0.0.0", 10);
    damage("v2", "blosc_lz4", "blosc_lz4/1.0.0.0", 10);
    damage("v3", "shards_gzip_crc32c_end", "shards_gzip_crc32c_end/zarr.json", 20);
    damage("v3", "shards_gzip_crc32c_end", "shards_gzip_crc32c_end/c/0/0/0/0", 2);
    damage("v3", "shards_unchecked", "shards_unchecked/c/0/0/0/0", 20);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        mutations = atoi(argv[1]);
        cmocka_set_test_filter("damaged_*_are_errors");
    }
    return TESTS_RUN(.setup = vectors_unpack, .teardown = temporary_teardown);
}
