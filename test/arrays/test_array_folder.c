// SPDX-License-Identifier: BSD-3-Clause
/* Arrays of .npy files and Zarr stores have the values that NumPy and zarr read
 * (test/vectors/make_array_folders.py). What cannot be read is refused with a reason; damaged files
 * are errors. With a number as argument, only the test of random damage runs, with that number of
 * mutations. */
#include <dirent.h>
#include <unistd.h>

#include "array_check.h"
#include "arrays/decode.h"
#include "arrays/path.h"
#include "base/file.h"
#include "base/random.h"
#include "temporary.h"
#include "test.h"

enum { PATH = 1024 };

static int mutations = 100;

static char top[PATH];

static const char *path_of(const char *store)
{
    static char path[4 * PATH];
    snprintf(path, sizeof path, "%s/%s", top, store);
    return path;
}

/* Unpack the vectors. */
static int setup(void **state)
{
    char command[3 * PATH];
    const char *source = getenv("srcdir");
    temporary_setup(state);
    snprintf(top, sizeof top, "%s", temporary_directory("vectors"));
    snprintf(command, sizeof command, "tar -xzf '%s/test/vectors/array_folders.tar.gz' -C '%s'",
             source != NULL ? source : ".", top);
    return system(command);
}

static struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays"};

static bool array_of(const char *store, const char *name, struct array *array, struct error *error)
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
    if (array_of(store, strcmp(name, "array") == 0 ? "" : name, &array, &error)) {
        snprintf(path, sizeof path, "%s/expected/%s/%s", top, store, name);
        char *expected = text_file_read(path, &bytes);
        assert_non_null(expected);
        assert_int_equal(bytes, array_elements(&array) * (int64_t)sizeof(double));
        array_check(&array, (const double *)expected);
        free(expected);
    } else if (strstr(error.text, "its filter needs the library") == NULL) {
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

static void refused(const char *store, const char *name, const char *reason)
{
    struct array array;
    struct error error = {0};
    assert_false(array_of(store, name, &array, &error));
    assert_error(&error, ERROR_DATA, reason);
    array_close(&array);
}

TEST(what_cannot_be_read_is_refused)
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
        refused(cases[n][0], cases[n][1], cases[n][2]);
}

TEST(scale_and_offset_are_numbers)
{
    static const char *const bad[] = {"\"0.25\"", "[0.25, 1]", "[]", "true", "{}", "NaN"};
    char text[64], before[64] = "\"scale_factor\": 0.25";
    for (size_t n = 0; n < sizeof bad / sizeof bad[0]; n++) {
        snprintf(text, sizeof text, "\"scale_factor\": %s", bad[n]);
        replace("v3/packed/zarr.json", before, text);
        refused("v3", "packed", "v3: cannot read 'packed': its attribute scale_factor");
        snprintf(before, sizeof before, "%s", text);
    }
    replace("v3/packed/zarr.json", before, "\"scale_factor\": [0.25]");
    array_expect("v3", "packed");
    replace("v2/packed/.zattrs", "273.0", "\"273.0\"");
    refused("v2", "packed", "its attribute add_offset");
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
        assert_ok(array_of("integers", "u", &array, &error), &error);
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
    static double got[ARRAY_CHECK_ELEMENTS];
    struct array array;
    struct error error = {0};
    char path[4 * PATH], text[80];
    assert_true(array_of(store, name, &array, &error));
    array_missing_write(&array, text, sizeof text);
    assert_string_equal(text, missing);
    const struct array_box box = array_whole(&array);
    assert_true(array_read_doubles(&array, &box, got, &error));
    array_close(&array);
    assert_true(array_of(store, name, &array, &error));
    snprintf(path, sizeof path, "%s", path_of(store));
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%s/%s", name, removed);
    assert_int_equal(unlink(path), 0);
    assert_false(array_read_doubles(&array, &box, got, &error));
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
    static double got[ARRAY_CHECK_ELEMENTS];
    struct array array;
    struct error error = {0};
    bool good = array_of(store, name, &array, &error);
    if (good && array_elements(&array) <= ARRAY_CHECK_ELEMENTS) {
        const struct array_box box = array_whole(&array);
        good = array_read_doubles(&array, &box, got, &error);
    }
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
    for (int n = 0; n < mutations; n++) {
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
    if (errors <= mutations / part)
        fail_msg("%s of %s: %d errors", file, store, errors);
}

TEST(damaged_files_are_errors)
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
        cmocka_set_test_filter("damaged_files_are_errors");
    }
    return TESTS_RUN(.setup = setup, .teardown = temporary_teardown);
}
