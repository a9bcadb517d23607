// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// joined
/* Unusable checkpoints: each is reported by one line that names the file. Unwritable folders: older
 * files are unchanged. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/option_types.h"
#include "core/file.h"
#include "model_fixture.h"
#include "test.h"

enum { OLD = 1, NEW = 2 };

static char file[128];
static const struct fixture_shape tiny = {.width = 8, .side = 2, .classes = 2, .hidden = 3};
static const struct training_state some_state = {.step = 5, .seed = 6};

static bool write_checkpoint(struct fixture *fixture, const char *directory, const char *name,
                             struct error *error)
{
    struct checkpoint_target target = {.directory = directory, .writers = WRITERS_ALL};
    return checkpoint_write(&target, &fixture->flat,
                            &(const struct checkpoint_order){.name = name,
                                                             .model_name = "fake",
                                                             .state = &some_state,
                                                             .deck_text = "[run]\n",
                                                             .metadata = "{\"program\":\"here\"}"},
                            error);
}

/* Open a model and write it to `file`. */
static void write_first(struct fixture *fixture)
{
    struct error error = {.kind = ERROR_NONE};
    fixture_open(fixture, 1, &tiny, 1, false);
    fixture_fill(fixture, OLD);
    assert_true(write_checkpoint(fixture, folder, "step-00000001.h5", &error));
}

/* Declare and open a model that `file` contains. */
#define WRITTEN(name)                                                                              \
    __attribute__((cleanup(fixture_close))) struct fixture name;                                   \
    write_first(&name)

/* Fill the model and read the file. Return false if it is refused with one line that names it. */
static bool reads(struct fixture *fixture, const char *path, const char *what)
{
    struct checkpoint_target target = {.directory = folder, .writers = WRITERS_ALL};
    struct training_state state = {.step = -1};
    struct error error = {.kind = ERROR_NONE};
    fixture_fill(fixture, NEW);
    const bool good = checkpoint_read(path, &target, &fixture->flat, &state, false, &error);
    assert_int_equal(state.step, good ? some_state.step : -1);
    if (good) {
        assert_int_equal(state.seed, some_state.seed);
        assert_int_equal(fixture_all_wrong(fixture, OLD), 0);
    } else {
        assert_error(&error, ERROR_CHECKPOINT, path);
        assert_has(error.text, what);
    }
    return good;
}

/* ---- damaged files ---- */

static char *load(long *size)
{
    size_t length;
    char *bytes = text_file_read(file, &length);
    assert_non_null(bytes);
    *size = (long)length;
    comm_barrier(world);
    return bytes;
}

static void store(const void *bytes, long size)
{
    folder_write("step-00000001.h5", bytes, (size_t)size);
}

static bool reads_with_flipped_bit(struct fixture *fixture, char *bytes, long size, long place)
{
    bytes[place] ^= (char)(1 << place % 8);
    store(bytes, size);
    bytes[place] ^= (char)(1 << place % 8);
    return reads(fixture, file, "");
}

/* A flipped bit in the vectors is always detected; another one is, or it is in unused bytes. */
TEST(test_flipped_bits)
{
    long size;
    int found = 0, tried = 0;
    WRITTEN(fixture);
    char *bytes = load(&size);
    for (long place = 0; place < size; place += world->size == 1 ? 53 : 1301, tried++)
        found += !reads_with_flipped_bit(&fixture, bytes, size, place);
    assert_true(found > tried / 10);
    const struct unit_tensor *tensor;
    const float *first = fixture_tensor(&fixture, "blocks.0.mlp.fc1.weight", &tensor);
    fixture_fill(&fixture, OLD);
    const size_t length = (size_t)tensor->count * sizeof *first;
    const char *begin = memmem(bytes, (size_t)size, first, length);
    assert_non_null(begin);
    for (long place = 0; place < (long)length; place += 31)
        assert_false(reads_with_flipped_bit(&fixture, bytes, size, begin - bytes + place));
    free(bytes);
}

TEST(test_cut_files)
{
    long size;
    WRITTEN(fixture);
    char *bytes = load(&size);
    for (long length = 0; length < size; length += length < size - 200 ? size / 23 : 41) {
        store(bytes, length);
        assert_false(reads(&fixture, file, ""));
    }
    free(bytes);
}

/* ---- other files ---- */

/* Rank 0 changes the file while the others wait. */
static void change(void (*action)(hid_t opened, const void *argument), const void *argument)
{
    comm_barrier(world);
    if (world->rank == 0) {
        hid_t opened = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
        assert_true(opened >= 0);
        action(opened, argument);
        H5Fclose(opened);
    }
    comm_barrier(world);
}

struct number {
    const char *name;
    int64_t value;
};

static void number_set(hid_t opened, const void *argument)
{
    const struct number *number = argument;
    hid_t attribute = H5Aopen(opened, number->name, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, H5T_NATIVE_INT64, &number->value) >= 0);
    H5Aclose(attribute);
}

static void set_number(const char *name, int64_t value)
{
    change(number_set, &(struct number){name, value});
}

static void remove_attribute(hid_t opened, const void *name)
{
    assert_true(H5Adelete(opened, name) >= 0);
}

static void take_out(hid_t opened, const void *path)
{
    assert_true(H5Ldelete(opened, path, H5P_DEFAULT) >= 0);
}

TEST(test_files_of_another_kind)
{
    char *deck;
    struct training_state state;
    struct error error = {.kind = ERROR_NONE};
    WRITTEN(fixture);
    set_number("shard", 0);
    assert_false(reads(&fixture, file, "shard=0"));
    set_number("format", CHECKPOINT_FORMAT + 1);
    assert_false(reads(&fixture, file, "its format is 4"));
    if (world->rank == 0)
        H5Fclose(H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    comm_barrier(world);
    assert_false(reads(&fixture, file, "not a checkpoint"));
    store("[run]\n", 6);
    assert_false(reads(&fixture, file, ""));
    store("", 0);
    assert_false(reads(&fixture, file, "empty"));
    assert_false(checkpoint_read_deck(file, world, &state, &deck, &error));
    assert_error(&error, ERROR_CHECKPOINT, file);
    assert_null(deck);
    assert_false(reads(&fixture, "not-there.h5", ""));
    assert_false(reads(&fixture, folder, ""));
}

/* Format 1 has no loss scale; later formats must have one. */
TEST(test_an_older_format)
{
    static const char *const later[] = {"loss_scale", "loss_scale_good_steps", "skipped_steps"};
    struct checkpoint_target target = {.directory = folder, .writers = WRITERS_ALL};
    struct training_state read = {.loss_scale = 5, .skipped_steps = 5};
    struct error error = {.kind = ERROR_NONE};
    WRITTEN(fixture);
    for (int i = 0; i < 3; i++)
        change(remove_attribute, later[i]);
    assert_false(reads(&fixture, file, "loss_scale"));
    set_number("format", 1);
    assert_true(checkpoint_read(file, &target, &fixture.flat, &read, false, &error));
    assert_int_equal(read.step, some_state.step);
    assert_true(read.loss_scale == 0 && read.loss_scale_good_steps == 0 && read.skipped_steps == 0);
    set_number("format", 0);
    assert_false(reads(&fixture, file, "its format is 0"));
}

TEST(test_other_models)
{
    static const struct {
        struct fixture_shape shape;
        const char *tensor;
    } others[] = {
        {{.width = 16, .side = 2, .classes = 2, .hidden = 3}, "cls_token"},
        {{.width = 8, .side = 3, .classes = 2, .hidden = 3}, "pos_embed"},
        {{.width = 8, .side = 2, .classes = 3, .hidden = 3}, "head.weight"},
        {{.width = 8, .side = 2, .classes = 2, .hidden = 3, .no_class_token = true}, "cls_token"},
    };
    WRITTEN(fixture);
    for (size_t n = 0; n < sizeof others / sizeof *others; n++) {
        FIXTURE(other, 1, &others[n].shape, 1, false);
        assert_false(reads(&other, file, others[n].tensor));
    }
    struct checkpoint_target target = {.writers = WRITERS_ALL, .model = "vit_cifar"};
    struct training_state read;
    struct error error = {.kind = ERROR_NONE};
    assert_false(checkpoint_read(file, &target, &fixture.flat, &read, false, &error));
    assert_error(&error, ERROR_CHECKPOINT, "vit_cifar");
}

/* Replace a unit's table of pieces by its first row. */
static void leave_first_piece(hid_t opened, const void *path)
{
    static const struct {
        int64_t begin, count;
        uint32_t crc[4];
    } row = {.begin = 0, .count = 16};
    static const char *const sums[] = {"crc32c_master", "crc32c_moment1", "crc32c_moment2",
                                       "crc32c_average"};
    hsize_t rows = 1;
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof row), space = H5Screate_simple(1, &rows, NULL);
    take_out(opened, path);
    H5Tinsert(type, "begin", 0, H5T_NATIVE_INT64);
    H5Tinsert(type, "count", 8, H5T_NATIVE_INT64);
    for (size_t n = 0; n < 4; n++)
        H5Tinsert(type, sums[n], 16 + 4 * n, H5T_NATIVE_UINT32);
    hid_t table = H5Dcreate2(opened, path, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(table, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &row) >= 0);
    H5Dclose(table);
    H5Sclose(space);
    H5Tclose(type);
}

/* Missing shards are an error on any mesh, which names the unit. */
TEST(test_missing_shards)
{
    static const char *const missing[] = {
        "units/blocks.0",        "units/head",         "units/blocks.0/pieces",
        "units/blocks.0/master", "units/head/moment1", "units/stem/tensors",
    };
    FIXTURE(other, world->size, &tiny, 1, false);
    for (size_t n = 0; n < sizeof missing / sizeof *missing; n++) {
        WRITTEN(fixture);
        change(take_out, missing[n]);
        assert_false(reads(&other, file, missing[n] + strlen("units/")));
    }
    WRITTEN(fixture);
    change(leave_first_piece, "units/blocks.0/pieces");
    assert_false(reads(&other, file, "pieces of unit blocks.0"));
}

TEST(test_tensors_that_overlap)
{
    struct error error = {.kind = ERROR_NONE};
    FIXTURE(fixture, 1, &tiny, 0, false);
    fixture.tensors[1][1].offset = 0;
    assert_true(write_checkpoint(&fixture, folder, "step-00000001.h5", &error));
    assert_false(reads(&fixture, file, "tensors of unit blocks.0"));
}

/* ---- folders that cannot be written ---- */

/* Write another checkpoint, which must fail; no file of it is left. */
static void assert_not_written(struct fixture *fixture, const char *directory, const char *what)
{
    struct error error = {.kind = ERROR_NONE};
    fixture_fill(fixture, OLD);
    assert_false(write_checkpoint(fixture, directory, "step-00000002.h5", &error));
    assert_error(&error, ERROR_FILE, directory);
    assert_has(error.text, what);
    assert_false(folder_has("step-00000002.h5.part") || folder_has("step-00000002.h5"));
}

TEST(test_unwritable_folders)
{
    struct rlimit limit, before;
    char under[256], longer[4200];
    WRITTEN(fixture);
    assert_not_written(&fixture, "not-there", "");
    snprintf(under, sizeof under, "%s/below", file);
    assert_not_written(&fixture, under, "");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    struct error error = {.kind = ERROR_NONE};
    assert_false(write_checkpoint(&fixture, longer, "a.h5", &error));
    assert_error(&error, ERROR_FILE, "xxx");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_not_written(&fixture, folder, "ulimit -f");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(reads(&fixture, file, ""));
}

static int make_folder(void **state)
{
    fixture_folder_make(state);
    snprintf(file, sizeof file, "%s/step-00000001.h5", folder);
    return 0;
}

TEST_MAIN_WORLD(.before = make_folder, .after = fixture_folder_remove)
