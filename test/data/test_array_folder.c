// SPDX-License-Identifier: BSD-3-Clause
/* Arrays of .npy files have the values that NumPy reads (test/vectors/make_array_folders.py). What
 * cannot be read is refused with a reason; damaged files are errors. With a number as argument,
 * only the test of random damage runs, with that number of mutations. */
#include <dirent.h>
#include <sys/stat.h>

#include "array_check.h"
#include "core/random.h"
#include "core/text_file.h"
#include "data/array_npy.h"
#include "temporary.h"
#include "test.h"

enum { PATH = 1024 };

static int mutations = 300;

static char top[PATH];

static const char *path_of(const char *store)
{
    static char path[2 * PATH];
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

static bool array_of(const char *store, const char *name, struct array *array, struct error *error)
{
    static char path[2 * PATH];
    snprintf(path, sizeof path, "%s/%s/%s.npy", top, store, name);
    return array_npy_open(path, name, array, error);
}

/* Compare all arrays that have expected values; return their number. */
static int store_check(const char *store)
{
    char folder[PATH], path[2 * PATH];
    int checked = 0;
    snprintf(folder, sizeof folder, "expected/%s", store);
    snprintf(folder, sizeof folder, "%s", path_of(folder));
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        struct array array;
        struct error error = {0};
        size_t bytes;
        if (entry->d_name[0] == '.')
            continue;
        if (!array_of(store, entry->d_name, &array, &error))
            fail_msg("%s: %s", entry->d_name, error.text);
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        char *expected = text_file_read(path, &bytes);
        assert_non_null(expected);
        assert_int_equal(bytes, array_elements(&array) * (int64_t)sizeof(double));
        array_check(&array, (const double *)expected);
        free(expected);
        array_close(&array);
        checked++;
    }
    closedir(entries);
    return checked;
}

TEST(npy_files_have_the_values_of_numpy)
{
    assert_int_equal(store_check("npy"), 25);
}

static void refused(const char *store, const char *name, const char *reason)
{
    struct array array;
    struct error error = {0};
    assert_false(array_of(store, name, &array, &error));
    assert_error(&error, ERROR_DATA, reason);
    array_close(&array);
}

TEST(npy_files_that_cannot_be_read_are_refused)
{
    refused("npy_refused", "fortran",
            "cannot read 'fortran': it is in Fortran order: write it with numpy.save(");
    refused("npy_refused", "complex",
            "its type '<c8' is not an integer or a floating-point number");
    refused("npy_refused", "records", "its type [('a' is not");
    refused("npy_refused", "text", "its type '<U2' is not");
    refused("npy_refused", "empty", "it is empty");
    refused("npy_refused", "none", "No such file");
    char archive[PATH], name[PATH];
    snprintf(archive, sizeof archive, "%s", path_of("npy_refused/archive.npz"));
    snprintf(name, sizeof name, "%s", path_of("npy_refused/archive.npy"));
    assert_int_equal(rename(archive, name), 0);
    refused("npy_refused", "archive", "is an archive of arrays (.npz): write each array to a file");
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

/* Change a byte of a file or truncate it, and read the array; return the number of errors. */
static int damage(const char *store, const char *name, const char *file)
{
    char path[PATH];
    size_t bytes;
    int errors = 0;
    snprintf(path, sizeof path, "%s", path_of(store));
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%s", file);
    char *data = text_file_read(path, &bytes);
    assert_non_null(data);
    for (int n = 0; n < mutations; n++) {
        const struct random_block random =
            random_block_at(2, RANDOM_SYNTHETIC, 0, (uint32_t)n, 0, 0);
        const size_t place = random.word[0] % bytes;
        const size_t length = n % 10 == 9 ? random.word[2] % bytes : bytes;
        const char before = data[place];
        FILE *stream = fopen(path, "w");
        data[place] = (char)random.word[1];
        assert_true(stream != NULL && fwrite(data, 1, length, stream) == length &&
                    fclose(stream) == 0);
        data[place] = before;
        errors += read_fails(store, name);
    }
    FILE *stream = fopen(path, "w");
    assert_true(stream != NULL && fwrite(data, 1, bytes, stream) == bytes && fclose(stream) == 0);
    free(data);
    return errors;
}

TEST(damaged_files_are_errors)
{
    assert_true(damage("npy", "version2", "version2.npy") > mutations / 20);
    assert_true(damage("npy", "line", "line.npy") > mutations / 20);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        mutations = atoi(argv[1]);
        cmocka_set_test_filter("damaged_files_are_errors");
    }
    return TESTS_RUN(.setup = setup, .teardown = temporary_teardown);
}
