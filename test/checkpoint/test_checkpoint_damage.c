// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// joined
/* Unusable checkpoints, damaged or malicious: each is reported by one line that names the file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "model_fixture.h"

enum { OLD = 1, NEW = 2 };

static char file[128], pipe_path[128];
static const struct fixture_shape tiny = {.width = 8, .side = 2, .classes = 2, .hidden = 3};

/* Open a model and write it to `file`. */
static void write_first(struct fixture *fixture)
{
    error_clear(&error);
    fixture_open(fixture, 1, &tiny, 1, false);
    assert_ok(fixture_write(fixture, WRITERS_ALL, OLD, &error), &error);
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
    error_clear(&error);
    fixture_fill(fixture, NEW);
    const bool good = checkpoint_read(path, &target, &fixture->flat, &state, false, &error);
    assert_int_equal(state.step, good ? OLD : -1);
    if (good) {
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

/* ---- other contents: the frame is changed with HDF5 ---- */

static void attribute_set(hid_t opened, const char *name, const char *value)
{
    const int64_t integer = strtoll(value, NULL, 0);
    const double real = strtod(value, NULL);
    hid_t attribute = H5Aopen(opened, name, H5P_DEFAULT), type = H5Aget_type(attribute);
    assert_true(H5Tget_class(type) == H5T_FLOAT
                    ? H5Awrite(attribute, H5T_NATIVE_DOUBLE, &real) >= 0
                    : H5Awrite(attribute, H5T_NATIVE_INT64, &integer) >= 0);
    H5Tclose(type);
    H5Aclose(attribute);
}

static void attribute_remove(hid_t opened, const char *name, const char *value)
{
    (void)value;
    assert_true(H5Adelete(opened, name) >= 0);
}

/* Replace an attribute by an array of 1000 numbers. */
static void attribute_lengthen(hid_t opened, const char *name, const char *value)
{
    static const int64_t numbers[1000];
    const hsize_t count = 1000;
    hid_t scalar = H5Screate(H5S_SCALAR), type = H5Tarray_create2(H5T_NATIVE_INT64, 1, &count);
    attribute_remove(opened, name, value);
    hid_t attribute = H5Acreate2(opened, name, type, scalar, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, type, numbers) >= 0);
    H5Aclose(attribute);
    H5Tclose(type);
    H5Sclose(scalar);
}

static void link_remove(hid_t opened, const char *name, const char *value)
{
    (void)value;
    assert_true(H5Ldelete(opened, name, H5P_DEFAULT) >= 0);
}

/* Replace an object by a link to another object. */
static void link_hard(hid_t opened, const char *name, const char *to)
{
    link_remove(opened, name, to);
    assert_true(H5Lcreate_hard(opened, to, opened, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
}

static void link_soft(hid_t opened, const char *name, const char *to)
{
    link_remove(opened, name, to);
    assert_true(H5Lcreate_soft(to, opened, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
}

/* Replace a data set by one with a storage or type that no file of the program has: in another
 * file, of another file, in chunks, texts of variable length, or larger than the file. */
static void data_replace(hid_t opened, const char *name, const char *how)
{
    const uint32_t crc = 0;
    const hsize_t chunk = 1 << 10, elements = how[0] == 'h' ? (hsize_t)1 << 58 : 1 << 20;
    hid_t space = H5Screate_simple(1, &elements, NULL), scalar = H5Screate(H5S_SCALAR);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, how[0] == 't' ? H5T_VARIABLE : 8);
    if (how[0] == 'e')
        assert_true(H5Pset_external(creation, pipe_path, 0, H5F_UNLIMITED) >= 0);
    if (how[0] == 'v')
        assert_true(H5Pset_virtual(creation, space, pipe_path, "/deck", space) >= 0);
    if (how[0] == 'c')
        H5Pset_chunk(creation, 1, &chunk);
    link_remove(opened, name, NULL);
    hid_t dataset = H5Dcreate2(opened, name, how[0] == 'h' ? H5T_NATIVE_FLOAT : type, space,
                               H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(dataset >= 0);
    hid_t attribute =
        H5Acreate2(dataset, "crc32c", H5T_NATIVE_UINT32, scalar, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, H5T_NATIVE_UINT32, &crc) >= 0);
    H5Aclose(attribute);
    H5Dclose(dataset);
    H5Sclose(scalar);
    H5Sclose(space);
    H5Tclose(type);
    H5Pclose(creation);
}

/* Set the number of elements of a unit's first piece to 16. */
static void piece_shorten(hid_t opened, const char *path, const char *value)
{
    int64_t rows[256];
    hid_t table = H5Dopen2(opened, path, H5P_DEFAULT), type = H5Dget_type(table);
    (void)value;
    assert_true(H5Dget_storage_size(table) <= sizeof rows);
    assert_true(H5Dread(table, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) >= 0);
    rows[1] = 16;
    assert_true(H5Dwrite(table, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) >= 0);
    H5Tclose(type);
    H5Dclose(table);
}

/* Rank 0 changes the file while the others wait. */
static void change(void (*action)(hid_t opened, const char *name, const char *value),
                   const char *name, const char *value)
{
    comm_barrier(world);
    if (world->rank == 0) {
        hid_t opened = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
        assert_true(opened >= 0);
        action(opened, name, value);
        assert_true(H5Fclose(opened) >= 0);
    }
    comm_barrier(world);
}

/* Each is an error on any mesh. A pipe that is opened for reading would block. */
TEST(test_changed_frames)
{
    static const struct {
        void (*action)(hid_t opened, const char *name, const char *value);
        const char *name, *value, *words;
    } rows[] = {
        {attribute_set, "shard", "0", "shard=0"},
        {attribute_set, "format", "4", "its format is 4"},
        {attribute_set, "format", "1", "its format is 1"},
        {attribute_set, "epoch_step", "-1", "epoch_step"},
        {attribute_set, "step", "9223372036854775807", "step"},
        {attribute_set, "train_seconds", "nan", "train_seconds"},
        {attribute_set, "epoch", "1000000", "epoch"},
        {attribute_remove, "loss_scale", NULL, "loss_scale"},
        {attribute_lengthen, "step", NULL, "step"},
        {link_remove, "units/blocks.0", NULL, "blocks.0"},
        {link_remove, "units/head", NULL, "head"},
        {link_remove, "units/blocks.0/pieces", NULL, "blocks.0/pieces"},
        {link_remove, "units/blocks.0/master", NULL, "blocks.0/master"},
        {link_remove, "units/head/moment1", NULL, "head/moment1"},
        {link_remove, "units/stem/tensors", NULL, "stem/tensors"},
        {piece_shorten, "units/blocks.0/pieces", NULL, "pieces of unit blocks.0"},
        {link_soft, "units", "/units", "link"},
        {link_hard, "units/head", "units", "head/master"},
        {data_replace, "deck", "external", "deck"},
        {data_replace, "deck", "virtual", "deck"},
        {data_replace, "deck", "chunks", "deck"},
        {data_replace, "deck", "texts", "deck"},
        {data_replace, "units/stem/master", "huge", "outside the file"},
    };
    FIXTURE(other, world->size, &tiny, 1, false);
    assert_true(world->rank != 0 || mkfifo(pipe_path, 0600) == 0);
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        WRITTEN(fixture);
        change(rows[n].action, rows[n].name, rows[n].value);
        assert_false(reads(&other, file, rows[n].words));
    }
    WRITTEN(older);
    change(attribute_set, "format", "2"); /* that of version 0.2 */
    assert_true(reads(&older, file, ""));
}

TEST(test_files_of_another_kind)
{
    WRITTEN(fixture);
    if (world->rank == 0)
        H5Fclose(H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    comm_barrier(world);
    assert_false(reads(&fixture, file, "not a checkpoint"));
    store("[run]\n", 6);
    assert_false(reads(&fixture, file, ""));
    store("", 0);
    assert_false(reads(&fixture, file, "empty"));
    assert_false(reads(&fixture, "not-there.h5", ""));
    assert_false(reads(&fixture, folder, ""));
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
    struct options options = fixture.options;
    struct checkpoint_target target = {.writers = WRITERS_ALL, .options = &options};
    struct training_state read;
    snprintf(options.model.name, sizeof options.model.name, "vit_cifar");
    error_clear(&error);
    assert_false(checkpoint_read(file, &target, &fixture.flat, &read, false, &error));
    assert_error(&error, ERROR_CHECKPOINT, "vit_cifar");
}

TEST(test_tensors_that_overlap)
{
    FIXTURE(fixture, 1, &tiny, 0, false);
    fixture.tensors[1][1].offset = 0;
    assert_true(fixture_write(&fixture, WRITERS_ALL, OLD, &error));
    assert_false(reads(&fixture, file, "tensors of unit blocks.0"));
}

static void make_folder(void)
{
    fixture_folder_make();
    snprintf(file, sizeof file, "%s/step-00000001.h5", folder);
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
}

TEST_MAIN_WORLD(.before = make_folder, .after = fixture_folder_remove)
