// SPDX-License-Identifier: BSD-3-Clause
/* Arrays of HDF5 and NetCDF-4 files have the values that h5py and netCDF4 read
 * (test/vectors/make_arrays.py), in boxes of any shape and order; what cannot be read is refused
 * with a reason; damaged files are errors. With a number as argument, only the tests of
 * damage run, with that number of mutations. */
#include "array_check.h"
#include "arrays/decode.h"
#include "arrays/path.h"
#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "temporary.h"
#include "test.h"

enum { MOST_ELEMENTS = ARRAY_CHECK_ELEMENTS, PATH = 1024 };

static int mutations = 40;

static char source[PATH];

static const char *vector_path(const char *name)
{
    const char *directory = getenv("srcdir");
    snprintf(source, sizeof source, "%s/test/vectors/%s", directory != NULL ? directory : ".",
             name);
    return source;
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
    if (filter_library_missing(ARRAY_ZSTD) != NULL || filter_library_missing(ARRAY_LZ4) != NULL ||
        filter_library_missing(ARRAY_BLOSC) != NULL)
        SKIP_BECAUSE("built without the library of a filter");
}

TEST(values_are_those_of_h5py_and_netcdf)
{
    hdf5_child_set_program(NULL);
    assert_int_equal(file_check("arrays.h5"), 50);
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
        float *got = malloc((size_t)values * sizeof *got);
        array_begin(&array, "memory", "x", NULL, NULL);
        array.data = malloc((size_t)(2 * values) * sizeof(float));
        assert_true(array_type_set(&array, "<f4"));
        array.dimensions = 4;
        for (int d = 0; d < 4; d++)
            array.extent[d] = array.chunk[d] = extent[d];
        for (int64_t i = 0; i < 2 * values; i++) {
            const float value = i % 7 == 0 ? -0.0F : (float)i;
            memcpy(array.data + i * (int64_t)sizeof value, &value, sizeof value);
        }
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
                                             {"refused/link", "it is a link"},
                                             {"refused", "it is a group"},
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

/* Read all arrays of a file that may be damaged; return the number of errors. */
static int all_read(const char *path)
{
    static double got[MOST_ELEMENTS];
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
        bool good =
            array_of(&file, file.list.names[n], &array) && array_elements(&array) <= MOST_ELEMENTS;
        const struct array_box box = array_whole(&array);
        good = good && array_read_doubles(&array, &box, got, &file.error);
        assert_true(good || file.error.text[0] != '\0' || array_elements(&array) > MOST_ELEMENTS);
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
    static double got[MOST_ELEMENTS];
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
    const struct array_box box = array_whole(&array);
    const bool good = array_read_doubles(&array, &box, got, &file->error);
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

int main(int argc, char **argv)
{
    if (argc == 2) {
        mutations = atoi(argv[1]);
        cmocka_set_test_filter("damaged_*_are_errors");
    }
    return TESTS_RUN(.setup = temporary_setup, .teardown = temporary_teardown);
}
