// SPDX-License-Identifier: BSD-3-Clause
/* Arrays have the values that h5py, netCDF4, NumPy and zarr read (test/vectors/make_arrays.py and
 * make_array_folders.py), in boxes of any shape and order. What cannot be read is refused with a
 * reason; damaged files are errors. With a number as argument, only the tests of damage run, with
 * that number of mutations. */
#include <dirent.h>
#include <unistd.h>

#include "arrays/decode.h"
#include "arrays/path.h"
#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "temporary.h"
#include "test.h"

enum { MOST_ELEMENTS = 4096 };

static int mutations = 80; /* of a file or stream */

/* The file or folder that is open. */
static struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays"};
static struct array_path source;
static struct listing list;

/* Copy and unpack the vectors: all tests read and change files in this folder. */
static void vectors_unpack(void)
{
    temporary_setup();
    const char *directory = getenv("srcdir");
    OWNED char *command =
        allocate_text("cd %s/test/vectors && cp arrays*.h5 arrays.nc '%s' && tar -xzf "
                      "array_folders.tar.gz -C '%s'",
                      directory != NULL ? directory : ".", temporary_path(""), temporary_path(""));
    assert_int_equal(system(command), 0);
}

static void close_all(void)
{
    array_path_close(&source);
    listing_free(&list);
    hdf5_reader_close(&reader);
    temporary_close();
}

static bool path_open(const char *path, const char *datasets)
{
    static char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s", temporary_path(path));
    array_path_close(&source);
    error_clear(&error);
    reader.datasets = datasets;
    return array_path_open(&source, whole, &reader, &error);
}

/* Open an array of a file or folder. */
static bool array_of(const char *path, const char *name, struct array *array)
{
    const bool good = path_open(path, name);
    array_begin(array, path, name, NULL, NULL);
    return good && array_path_array(&source, name, array, &error);
}

/* List the names of all arrays of a file or folder. */
static bool names_list(const char *path)
{
    listing_free(&list);
    return path_open(path, "") && array_path_list(&source, &list, &error);
}

static bool has_libraries(void)
{
    char name[FILTER_NAME];
    return filter_find(ARRAY_ZSTD, name) && filter_find(ARRAY_LZ4, name) &&
           filter_find(ARRAY_BLOSC, name);
}

static void need_libraries(void)
{
    if (!has_libraries())
        SKIP_BECAUSE("built without the library of a filter");
}

/* Return the box of all elements, in row-major order in memory. */
static struct array_box array_whole(const struct array *array)
{
    struct array_box box = {.begin = {0}};
    int64_t stride = 1;
    for (int d = array->dimensions; d-- > 0; stride *= array->extent[d]) {
        box.count[d] = array->extent[d];
        box.stride[d] = stride;
    }
    return box;
}

static void values_same(const char *name, double value, double expected)
{
    if (isnan(expected) ? !isnan(value) : value != expected)
        fail_msg("%s: %.17g instead of %.17g", name, value, expected);
}

/* Read a box with its dimensions in reverse order in memory, as floats, and compare. */
static void box_check(struct array *array, const double *expected, const struct array_box *box)
{
    static float got[MOST_ELEMENTS];
    struct array_box reversed = *box;
    int64_t stride = 1, at[ARRAY_DIMENSIONS] = {0};
    for (int d = 0; d < array->dimensions; stride *= box->count[d++])
        reversed.stride[d] = stride;
    for (int pass = 0; pass < 2; pass++) {
        const struct array_box *order = pass == 0 ? box : &reversed;
        assert_ok(array_read(array, order, got, &error), &error);
        for (int d = 0; d >= 0;) {
            int64_t from = 0, to = 0;
            for (d = 0; d < array->dimensions; d++) {
                from = from * array->extent[d] + box->begin[d] + at[d];
                to += at[d] * order->stride[d];
            }
            values_same(array->name, (double)got[to], (double)(float)expected[from]);
            for (d = array->dimensions - 1; d >= 0 && ++at[d] == box->count[d]; d--)
                at[d] = 0;
        }
    }
}

static void boxes_check(struct array *array, const double *expected)
{
    for (uint32_t draw = 0; draw < 40; draw++) {
        struct array_box box = {.begin = {0}};
        int64_t stride = 1;
        for (int d = array->dimensions; d-- > 0; stride *= box.count[d]) {
            const struct random_block random =
                random_block_at(1, RANDOM_SYNTHETIC, 0, draw, (uint32_t)d, 0);
            const int64_t extent = array->extent[d];
            box.begin[d] = draw < 20 && d > 0 ? 0 : random.word[0] % extent;
            box.count[d] =
                draw < 20 ? d == 0 ? 1 : extent : 1 + random.word[1] % (extent - box.begin[d]);
            box.stride[d] = stride;
        }
        box_check(array, expected, &box);
    }
}

/* Read the array at once as doubles, and, with a cache, in random boxes as floats, also with the
 * dimensions in reverse order in memory. */
static void array_check(struct array *array, const double *expected)
{
    static double got[MOST_ELEMENTS];
    const struct array_box box = array_whole(array);
    const int64_t elements = array_elements(array);
    assert_true(elements <= MOST_ELEMENTS);
    assert_ok(array_read_doubles(array, &box, got, &error), &error);
    for (int64_t i = 0; i < elements; i++)
        values_same(array->name, got[i], expected[i]);
    struct array_cache *cache = array_cache_new((int64_t)1 << 28);
    array_use_cache(array, cache, array);
    boxes_check(array, expected);
    array_use_cache(array, NULL, NULL);
    array_cache_free(cache);
}

/* Compare an array with its expected values, unless it has a filter whose library is missing. */
static void array_expect(const char *path, const char *name, const double *expected, int64_t count)
{
    struct array array;
    if (array_of(path, name, &array)) {
        assert_int_equal(array_elements(&array), count);
        array_check(&array, expected);
    } else if (has_libraries() || strstr(error.text, "its filter") == NULL) {
        fail_msg("%s", error.text);
    }
    array_close(&array);
}

/* Compare all data sets of a file that have an expected one; return their number. */
static int file_check(const char *path)
{
    static const char prefix[] = "expected/";
    static double expected[MOST_ELEMENTS];
    int checked = 0;
    assert_ok(names_list(path), &error);
    for (size_t n = 0; n < list.count; n++) {
        struct array array;
        if (strncmp(list.names[n], prefix, strlen(prefix)) != 0)
            continue;
        assert_ok(array_of(path, list.names[n], &array), &error);
        const struct array_box box = array_whole(&array);
        const int64_t count = array_elements(&array);
        assert_ok(array_read_doubles(&array, &box, expected, &error), &error);
        array_close(&array);
        array_expect(path, list.names[n] + strlen(prefix), expected, count);
        checked++;
    }
    return checked;
}

TEST(values_are_those_of_h5py_and_netcdf)
{
    assert_int_equal(file_check("arrays.h5"), 49);
    assert_int_equal(file_check("arrays.nc"), 6);
    assert_int_equal(file_check("arrays_latest.h5"), 9);
    need_libraries();
    assert_int_equal(file_check("arrays_plugins.h5"), 9);
}

/* Compare an array of a folder with the numbers of its file. */
static void folder_expect(const char *store, const char *name)
{
    OWNED char *path = allocate_text("expected/%s/%s", store, name);
    size_t bytes;
    OWNED char *expected = text_file_read(temporary_path(path), &bytes);
    assert_non_null(expected);
    array_expect(store, strcmp(name, "array") == 0 ? "" : name, (const double *)(void *)expected,
                 (int64_t)(bytes / sizeof(double)));
}

/* Compare all arrays that have expected values; return their number. */
static int store_check(const char *store)
{
    OWNED char *path = allocate_text("expected/%s", store);
    OWNED char *folder = allocate_copy(temporary_path(path));
    DIR *entries = NULL;
    int checked = 0;
    for (const char *name; (name = folder_next(&entries, folder)) != NULL; checked++)
        folder_expect(store, strcmp(name, "group") == 0 ? "group/inner" : name);
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

/* Channels become the first dimension of large images, whose values are converted in parts. */
TEST(channels_last_are_transposed)
{
    static const int64_t extents[][4] = {{2, 70, 90, 3}, {2, 2, 3, 5000}, {2, 1, 5000, 1}};
    for (int n = 0; n < 6; n++) {
        const int64_t *extent = extents[n / 2];
        const int64_t plane = extent[1] * extent[2], values = plane * extent[3];
        struct array array;
        struct file_stamp stamp;
        OWNED float *got = allocate((size_t)values, sizeof *got);
        OWNED float *stored = allocate((size_t)(2 * values), sizeof *stored);
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
    }
}

static void refuses(const char *path, const char *name, const char *reason)
{
    struct array array;
    assert_false(array_of(path, name, &array));
    assert_error(&error, ERROR_DATA, reason);
    array_close(&array);
}

TEST(what_cannot_be_read_is_refused)
{
    static const char *const cases[][3] = {
        {"arrays.h5", "refused/lzf", "its filter lzf is not supported"},
        {"arrays.h5", "refused/offset", "its filter scaleoffset"},
        {"arrays.h5", "refused/compound", "its type"},
        {"arrays.h5", "refused/complex", "its type"},
        {"arrays.h5", "refused/text", "its type"},
        {"arrays.h5", "refused/virtual", "virtual data set"},
        {"arrays.h5", "refused/external", "external files"},
        {"arrays.h5", "refused/empty", "it is empty"},
        {"arrays.h5", "refused/link", "a link"},
        {"arrays.h5", "refused", "it is a group"},
        {"arrays.h5", "refused/compact", "its layout is compact"},
        {"arrays.h5", "nothing", "arrays.h5 has no data set 'nothing'"},
        {"old.nc", "", "old.nc is a NetCDF-3 file"},
        {"text.h5", "", "text.h5 is not an HDF5"},
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
    temporary_file("old.nc", "CDF\1\0\0\0\0more", 12);
    temporary_write("text.h5", "a text, not HDF5");
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        refuses(cases[n][0], cases[n][1], cases[n][2]);
}

/* ---- damage ---- */

/* Read an array that may be damaged, unless it is large. */
static bool whole_read(struct array *array)
{
    static double got[MOST_ELEMENTS];
    const struct array_box box = array_whole(array);
    return array_elements(array) > MOST_ELEMENTS || array_read_doubles(array, &box, got, &error);
}

/* Read an array of files that may be damaged. */
static bool array_is_good(const char *path, const char *name)
{
    struct array array;
    const bool good = array_of(path, name, &array) && whole_read(&array);
    assert_true(good == (error.text[0] == '\0'));
    array_close(&array);
    return good;
}

/* Read all arrays of a file that may be damaged. */
static bool all_are_good(const char *path)
{
    bool good = names_list(path);
    assert_true(good == (error.text[0] == '\0'));
    for (size_t n = 0; n < list.count; n++)
        good = array_is_good(path, list.names[n]) && good;
    return good;
}

/* A file whose bytes are changed. */
struct victim {
    const char *path;
    char *data;
    size_t bytes;
};

static struct victim victim_of(const char *path)
{
    struct victim victim = {.path = path};
    victim.data = text_file_read(temporary_path(path), &victim.bytes);
    assert_non_null(victim.data);
    return victim;
}

/* Write the file anew: some file systems flush a file that is replaced. */
static void victim_write(const struct victim *victim, size_t bytes)
{
    assert_int_equal(unlink(temporary_path(victim->path)), 0);
    temporary_file(victim->path, victim->data, bytes);
}

static void victim_restore(struct victim *victim)
{
    victim_write(victim, victim->bytes);
    free(victim->data);
}

/* Return the first chunk of a data set. */
static struct array_chunk chunk_of(const struct victim *victim, const char *dataset)
{
    struct array array;
    victim_write(victim, victim->bytes);
    assert_ok(array_of(victim->path, dataset, &array), &error);
    const struct array_chunk chunk = array.chunks[0];
    array_close(&array);
    return chunk;
}

/* Change bits of a byte of a chunk, and read the data set. A negative place counts from the end of
 * the chunk. */
static bool damaged_read(const struct victim *victim, const char *dataset,
                         const struct array_chunk *chunk, int64_t place, int bits)
{
    const int64_t size = chunk->bytes;
    char *byte = victim->data + chunk->offset + (place < 0 ? size + place : place % size);
    *byte ^= (char)bits;
    victim_write(victim, victim->bytes);
    *byte ^= (char)bits;
    return array_is_good(victim->path, dataset);
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
    struct victim victim = victim_of("arrays.h5");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct array_chunk chunk = chunk_of(&victim, cases[i].dataset);
        assert_false(damaged_read(&victim, cases[i].dataset, &chunk, cases[i].place, 16));
        assert_has(error.text, cases[i].part);
    }
    victim_restore(&victim);
}

/* Half of the changes are in the header of the stream. */
TEST(damaged_streams_are_errors)
{
    static const char *const datasets[] = {"zstd",       "lz4",        "lz4_blocks", "blosc_lz4",
                                           "blosc_zstd", "blosc_zlib", "blosc_bits", "blosc_plain"};
    need_libraries();
    struct victim victim = victim_of("arrays_plugins.h5");
    for (size_t d = 0; d < sizeof datasets / sizeof datasets[0]; d++) {
        const struct array_chunk chunk = chunk_of(&victim, datasets[d]);
        int errors = 0;
        for (int n = 0; n < mutations; n++) {
            const struct random_block random =
                random_block_at(3, RANDOM_SYNTHETIC, 0, (uint32_t)n, 0, 0);
            const int64_t place = n % 2 == 0 ? random.word[0] % 20 : random.word[0];
            errors +=
                !damaged_read(&victim, datasets[d], &chunk, place, (int)(random.word[1] % 256));
        }
        if (errors < mutations / 10)
            fail_msg("%s", datasets[d]);
    }
    victim_restore(&victim);
}

/* Change a byte of a file, or truncate it, and read the array; a part of the changes are errors.
 * HDF5 may crash and runs in a child. */
TEST(damaged_files_are_errors)
{
    static const struct {
        const char *path, *name, *file; /* name NULL: all arrays */
        int part;
    } cases[] = {{"arrays_latest.h5", NULL, "arrays_latest.h5", 10},
                 {"npy", "version2", "npy/version2.npy", 20},
                 {"npy", "line", "npy/line.npy", 20},
                 {"v2", "shuffle", "v2/shuffle/.zarray", 20},
                 {"v2", "packed", "v2/packed/.zattrs", 20},
                 {"v2", "zstd", "v2/zstd/0.0.0.0", 10},
                 {"v2", "lz4", "v2/lz4/1.0.0.0", 10},
                 {"v2", "blosc_lz4", "v2/blosc_lz4/1.0.0.0", 10},
                 {"v3", "shards_gzip_crc32c_end", "v3/shards_gzip_crc32c_end/zarr.json", 20},
                 {"v3", "shards_gzip_crc32c_end", "v3/shards_gzip_crc32c_end/c/0/0/0/0", 2},
                 {"v3", "shards_unchecked", "v3/shards_unchecked/c/0/0/0/0", 20}};
    hdf5_child_set_program("./vittrain");
    hdf5_reader_close(&reader);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct victim victim = victim_of(cases[i].file);
        int errors = 0;
        for (int n = 0; n < mutations; n++) {
            const struct random_block random =
                random_block_at(2, RANDOM_SYNTHETIC, 0, (uint32_t)n, 0, 0);
            char *byte = victim.data + random.word[0] % victim.bytes;
            const char before = *byte;
            *byte = (char)random.word[1];
            victim_write(&victim, n % 10 == 9 ? random.word[2] % victim.bytes : victim.bytes);
            *byte = before;
            errors += cases[i].name == NULL ? !all_are_good(cases[i].path)
                                            : !array_is_good(cases[i].path, cases[i].name);
        }
        victim_restore(&victim);
        if (errors <= mutations / cases[i].part)
            fail_msg("%s: %d errors", cases[i].file, errors);
    }
    hdf5_child_set_program(NULL);
    hdf5_reader_close(&reader);
}

/* ---- folders ---- */

/* Replace a text in a file of an array. */
static void replace(const char *file, const char *from, const char *to)
{
    OWNED char *text = temporary_text(file);
    const char *found = strstr(text, from);
    assert_non_null(found);
    OWNED char *replaced =
        allocate_text("%.*s%s%s", (int)(found - text), text, to, found + strlen(from));
    temporary_write(file, replaced);
}

TEST(fill_value_may_be_a_bare_constant)
{
    replace("v3/missing_nan/zarr.json", "\"fill_value\": \"NaN\"", "\"fill_value\": NaN");
    folder_expect("v3", "missing_nan");
    replace("v2/missing_infinity/.zarray", "\"-Infinity\"", "-Infinity");
    folder_expect("v2", "missing_infinity");
}

TEST(scale_and_offset_are_numbers)
{
    static const char *const bad[] = {"\"0.25\"", "[0.25, 1]", "[]", "true", "{}", "null", "NaN"};
    for (size_t n = 0; n < sizeof bad / sizeof bad[0]; n++) {
        OWNED char *text = allocate_text("\"scale_factor\": %s", bad[n]);
        replace("v3/packed/zarr.json", "\"scale_factor\": 0.25", text);
        refuses("v3", "packed", "v3: cannot read 'packed': its attribute scale_factor");
        replace("v3/packed/zarr.json", text, "\"scale_factor\": 0.25");
    }
    replace("v3/packed/zarr.json", "\"scale_factor\": 0.25", "\"scale_factor\": [0.25]");
    folder_expect("v3", "packed");
    replace("v2/packed/.zattrs", "273.0", "\"273.0\"");
    refuses("v2", "packed", "its attribute add_offset");
}

/* NetCDF's default fill value is missing, unless the numbers are unsigned. */
TEST(integers_follow_the_conventions_of_netcdf)
{
    static const int16_t stored[] = {-32767, -99, -98};
    static const struct array_box all = {.count = {3}, .stride = {1}};
    temporary_write("integers/u/.zarray",
                    "{\"zarr_format\": 2, \"shape\": [3], \"chunks\": [3], \"dtype\": \"<i2\", "
                    "\"fill_value\": -32767, \"order\": \"C\", \"filters\": null, "
                    "\"compressor\": null}");
    temporary_file("integers/u/0", stored, sizeof stored);
    for (int is_unsigned = 0; is_unsigned < 2; is_unsigned++) {
        struct array array;
        double values[3];
        temporary_write("integers/u/.zattrs", is_unsigned ? "{\"_Unsigned\": \"true\"}" : "{}");
        assert_ok(array_of("integers", "u", &array), &error);
        assert_ok(array_read_doubles(&array, &all, values, &error), &error);
        assert_int_equal(isnan(values[0]) != 0, !is_unsigned);
        assert_true(values[1] == (is_unsigned ? 65536 - 99 : -99));
        array_close(&array);
    }
}

/* Arrays lack files, which are counted; removing one of the others is an error. */
TEST(missing_files_of_chunks_are_counted)
{
    static const struct {
        const char *store, *name, *missing, *removed;
    } cases[] = {
        {"v2", "missing", "8 of 24 chunks do not exist", "v2/missing/0.0.0.0"},
        {"v2", "folders", "", "v2/folders/0/0/0/0"},
        {"v3", "missing", "8 of 24 chunks do not exist", "v3/missing/c/0/0/0/0"},
        {"v3", "points", "", "v3/points/c.0.0.0.0"},
        {"v3", "scalar", "", "v3/scalar/c"},
        {"v3", "shards_missing", "3 of 4 shards do not exist", "v3/shards_missing/c/0/0/0/0"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct array array;
        char text[80];
        assert_ok(array_of(cases[i].store, cases[i].name, &array), &error);
        array_missing_write(&array, text, sizeof text);
        assert_string_equal(text, cases[i].missing);
        assert_true(whole_read(&array));
        assert_int_equal(unlink(temporary_path(cases[i].removed)), 0);
        assert_false(whole_read(&array));
        assert_error(&error, ERROR_DATA, "its file existed at the start and is gone");
        array_close(&array);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        mutations = atoi(argv[1]);
        cmocka_set_test_filter("damaged_*_are_errors");
    }
    return TESTS_RUN(.setup = vectors_unpack, .teardown = close_all);
}
