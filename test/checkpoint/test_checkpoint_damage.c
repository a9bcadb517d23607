// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 4
/* Unusable checkpoints: each is reported by one line that names the file, and the model is
 * unchanged. Unwritable folders: older files are unchanged. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include <hdf5.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint_read.h"
#include "checkpoint/checkpoint_writer.h"
#include "config/run_options.h"
#include "core/hdf5_file.h"
#include "core/log.h"
#include "model_fixture.h"
#include "test.h"

enum { OLD = 1, NEW = 2 };

static char file[128];
static const struct fixture_shape usual;
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

static bool read_checkpoint(struct fixture *fixture, const char *path, struct error *error)
{
    struct checkpoint_target target = {.directory = folder, .writers = WRITERS_ALL};
    struct training_state state = {.step = -1};
    bool good = checkpoint_read(path, &target, &fixture->flat, &state, false, error);
    assert_int_equal(good, error->kind == ERROR_NONE);
    if (good)
        assert_true(state.step == some_state.step && state.seed == some_state.seed);
    else
        assert_int_equal(state.step, -1);
    return good;
}

/* Assert that the error is one line that contains the file and the reason. */
static void error_is(const struct error *error, enum error_kind kind, const char *where,
                     const char *what)
{
    assert_int_equal(error->kind, kind);
    assert_null(strchr(error->text, '\n'));
    if (strstr(error->text, where) == NULL || strstr(error->text, what) == NULL)
        fail_msg("'%s' does not say '%s' and '%s'", error->text, where, what);
}

/* Open a model of this shape and write it to `file`. */
static void write_first(struct fixture *fixture, const struct fixture_shape *shape)
{
    struct error error = {.kind = ERROR_NONE};
    fixture_open(fixture, 1, shape, 1, false);
    fixture_fill(fixture, OLD);
    assert_true(write_checkpoint(fixture, folder, "step-00000001.h5", &error));
}

/* ---- damaged files ---- */

static unsigned char *load(long *size)
{
    FILE *stream = fopen(file, "rb");
    assert_non_null(stream);
    fseek(stream, 0, SEEK_END);
    *size = ftell(stream);
    rewind(stream);
    unsigned char *bytes = malloc((size_t)*size);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)*size, stream), *size);
    fclose(stream);
    return bytes;
}

static void store(const unsigned char *bytes, long size)
{
    if (world->rank == 0) {
        FILE *stream = fopen(file, "wb");
        assert_non_null(stream);
        assert_int_equal(fwrite(bytes, 1, (size_t)size, stream), size);
        fclose(stream);
    }
    comm_barrier(world);
}

/* A flipped bit is detected, or it is in bytes that are not used. */
TEST(test_flipped_bits)
{
    struct fixture fixture;
    long size;
    int found = 0, tried = 0;
    write_first(&fixture, &tiny);
    unsigned char *bytes = load(&size);
    comm_barrier(world);
    for (long place = 0; place < size; place += world->size == 1 ? 7 : 301) {
        struct error error = {.kind = ERROR_NONE};
        bytes[place] ^= (unsigned char)(1 << place % 8);
        store(bytes, size);
        bytes[place] ^= (unsigned char)(1 << place % 8);
        fixture_fill(&fixture, NEW);
        bool good = read_checkpoint(&fixture, file, &error);
        assert_int_equal(fixture_all_wrong(&fixture, good ? OLD : NEW), 0);
        if (!good)
            error_is(&error, ERROR_CHECKPOINT, file, "");
        found += !good;
        tried++;
    }
    print_message("# %d of %d flipped bits were in use\n", found, tried);
    assert_true(found > tried / 10);
    free(bytes);
    fixture_close(&fixture);
}

/* A flipped bit in the vectors is always detected. */
TEST(test_flipped_bits_in_data)
{
    struct fixture fixture;
    long size;
    write_first(&fixture, &usual);
    unsigned char *bytes = load(&size);
    comm_barrier(world);
    const float *first = fixture_tensor(&fixture, "blocks.0.mlp.fc1.weight", NULL);
    unsigned char *begin = memmem(bytes, (size_t)size, first, 64);
    assert_non_null(begin);
    for (int n = 0; n < 20; n++) {
        struct error error = {.kind = ERROR_NONE};
        unsigned char *place = begin + n * 4801;
        *place ^= 1;
        store(bytes, size);
        *place ^= 1;
        fixture_fill(&fixture, NEW);
        assert_false(read_checkpoint(&fixture, file, &error));
        error_is(&error, ERROR_CHECKPOINT, file, "is damaged: the checksum of bytes");
        assert_int_equal(fixture_all_wrong(&fixture, NEW), 0);
    }
    free(bytes);
    fixture_close(&fixture);
}

TEST(test_cut_files)
{
    struct fixture fixture;
    long size;
    write_first(&fixture, &tiny);
    unsigned char *bytes = load(&size);
    comm_barrier(world);
    for (long length = 0; length < size; length += length < size - 200 ? 97 : 7) {
        struct error error = {.kind = ERROR_NONE};
        store(bytes, length);
        assert_false(read_checkpoint(&fixture, file, &error));
        error_is(&error, ERROR_CHECKPOINT, file,
                 length == 0    ? "is empty"
                 : length < 100 ? "cannot be used"
                                : "it is truncated: ");
    }
    free(bytes);
    fixture_close(&fixture);
}

/* ---- other files ---- */

static void set_number(const char *name, int64_t number)
{
    if (world->rank == 0) {
        hid_t opened = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
        hid_t attribute = H5Aopen(opened, name, H5P_DEFAULT);
        assert_true(H5Awrite(attribute, H5T_NATIVE_INT64, &number) >= 0);
        H5Aclose(attribute);
        H5Fclose(opened);
    }
    comm_barrier(world);
}

static void make_foreign(void)
{
    if (world->rank == 0)
        H5Fclose(H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    comm_barrier(world);
}

static void assert_not_read(struct fixture *fixture, const char *path, const char *what)
{
    struct error error = {.kind = ERROR_NONE};
    assert_false(read_checkpoint(fixture, path, &error));
    error_is(&error, ERROR_CHECKPOINT, path, what);
}

TEST(test_files_of_another_kind)
{
    struct fixture fixture;
    write_first(&fixture, &tiny);
    set_number("shard", 0);
    assert_not_read(&fixture, file, "its attribute shard=0 is not in the range of 1 to 1048576");
    set_number("format", CHECKPOINT_FORMAT + 1);
    assert_not_read(&fixture, file, "its format is 4, this program reads 1 to 3");
    make_foreign();
    assert_not_read(&fixture, file, "not a checkpoint of vittrain");
    store((const unsigned char *)"[run]\n", 6);
    assert_not_read(&fixture, file, "cannot be used as a checkpoint");
    store((const unsigned char *)"", 0);
    assert_not_read(&fixture, file, "is empty");
    assert_not_read(&fixture, "not-there.h5", "No such file");
    assert_not_read(&fixture, folder, "not a regular file");
    char *deck = NULL;
    struct error error = {.kind = ERROR_NONE};
    assert_false(checkpoint_read_deck(file, world, &deck, &error));
    error_is(&error, ERROR_CHECKPOINT, file, "is empty");
    assert_null(deck);
    fixture_close(&fixture);
}

/* Format 1 has no loss scale; later formats must have one. */
TEST(test_an_older_format)
{
    static const char *const later[] = {"loss_scale", "loss_scale_good_steps", "skipped_steps"};
    struct fixture fixture;
    struct checkpoint_target target = {.directory = folder, .writers = WRITERS_ALL};
    struct training_state read = {.loss_scale = 5, .skipped_steps = 5};
    struct error error = {.kind = ERROR_NONE};
    write_first(&fixture, &tiny);
    if (world->rank == 0) {
        hid_t opened = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
        for (int i = 0; i < 3; i++)
            assert_true(H5Adelete(opened, later[i]) >= 0);
        H5Fclose(opened);
    }
    comm_barrier(world);
    assert_not_read(&fixture, file, "attribute");
    set_number("format", 1);
    assert_true(checkpoint_read(file, &target, &fixture.flat, &read, false, &error));
    assert_int_equal(read.step, some_state.step);
    assert_true(read.loss_scale == 0 && read.loss_scale_good_steps == 0 && read.skipped_steps == 0);
    set_number("format", 0);
    assert_not_read(&fixture, file, "its format is 0, this program reads 1 to 3");
    fixture_close(&fixture);
}

TEST(test_other_models)
{
    static const struct {
        struct fixture_shape shape;
        const char *what;
    } others[] = {
        {{.width = 16, .side = 2, .classes = 2, .hidden = 3}, "cls_token [1, 1, 8]"},
        {{.width = 8, .side = 3, .classes = 2, .hidden = 3}, "pos_embed [1, 5, 8]"},
        {{.width = 8, .side = 2, .classes = 3, .hidden = 3}, "head.weight [2, 8]"},
        {{.width = 8, .side = 2, .classes = 2, .hidden = 4}, "blocks.0.mlp.fc1.weight [3, 8]"},
        {{.width = 8, .side = 2, .classes = 2, .hidden = 3, .no_class_token = true}, "cls_token"},
    };
    struct fixture fixture, other;
    write_first(&fixture, &tiny);
    for (size_t n = 0; n < sizeof others / sizeof *others; n++) {
        fixture_open(&other, 1, &others[n].shape, 1, false);
        fixture_fill(&other, NEW);
        assert_not_read(&other, file, others[n].what);
        assert_int_equal(fixture_all_wrong(&other, NEW), 0);
        fixture_close(&other);
    }
    struct checkpoint_target target = {.writers = WRITERS_ALL, .model = "vit_cifar"};
    struct training_state read;
    struct error error = {.kind = ERROR_NONE};
    assert_false(checkpoint_read(file, &target, &fixture.flat, &read, false, &error));
    error_is(&error, ERROR_CHECKPOINT, file, "is of model fake, this run's is vit_cifar");
    fixture_close(&fixture);
}

/* Remove the object at this path from the file. */
static void take_out(const char *path)
{
    if (world->rank == 0) {
        hid_t opened = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
        assert_true(H5Ldelete(opened, path, H5P_DEFAULT) >= 0);
        H5Fclose(opened);
    }
    comm_barrier(world);
}

/* Replace a unit's table of pieces by its first row. */
static void leave_first_piece(const char *path)
{
    take_out(path);
    if (world->rank == 0) {
        static const struct {
            int64_t begin, count;
            uint32_t crc[4];
        } row = {.begin = 0, .count = 16};
        static const char *const sums[] = {"crc32c_master", "crc32c_moment1", "crc32c_moment2",
                                           "crc32c_average"};
        hsize_t rows = 1;
        hid_t opened = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
        hid_t type = H5Tcreate(H5T_COMPOUND, sizeof row), space = H5Screate_simple(1, &rows, NULL);
        H5Tinsert(type, "begin", 0, H5T_NATIVE_INT64);
        H5Tinsert(type, "count", 8, H5T_NATIVE_INT64);
        for (size_t n = 0; n < 4; n++)
            H5Tinsert(type, sums[n], 16 + 4 * n, H5T_NATIVE_UINT32);
        hid_t table = H5Dcreate2(opened, path, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        assert_true(H5Dwrite(table, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &row) >= 0);
        H5Dclose(table);
        H5Sclose(space);
        H5Tclose(type);
        H5Fclose(opened);
    }
    comm_barrier(world);
}

/* Missing shards are an error on any mesh, which names the unit. */
TEST(test_missing_shards)
{
    static const struct {
        const char *path, *what;
    } missing[] = {
        {"/units/blocks.0", "it holds unit head where this model has blocks.0"},
        {"/units/head", "it has 2 units, this model has 3, and it lacks head"},
        {"/units/blocks.0/pieces", "its data set 'blocks.0/pieces' is missing"},
        {"/units/blocks.0/master", "its data set 'blocks.0/master' is missing"},
        {"/units/head/moment1", "its data set 'head/moment1' is missing"},
        {"/units/stem/tensors", "its data set 'stem/tensors' is missing"},
    };
    struct fixture fixture, other;
    fixture_open(&other, world->size, &tiny, 1, false);
    for (size_t n = 0; n < sizeof missing / sizeof *missing; n++) {
        write_first(&fixture, &tiny);
        take_out(missing[n].path);
        fixture_fill(&other, NEW);
        assert_not_read(&other, file, missing[n].what);
        assert_int_equal(fixture_all_wrong(&other, NEW), 0);
        fixture_close(&fixture);
    }
    write_first(&fixture, &tiny);
    leave_first_piece("/units/blocks.0/pieces");
    assert_not_read(&other, file, "the table of pieces of unit blocks.0 is invalid");
    fixture_close(&fixture);
    fixture_close(&other);
}

TEST(test_tensors_that_overlap)
{
    struct error error = {.kind = ERROR_NONE};
    FIXTURE(fixture, 1, &tiny, 0, false);
    fixture.tensors[1][1].offset = 0;
    assert_true(write_checkpoint(&fixture, folder, "step-00000001.h5", &error));
    assert_not_read(&fixture, file, "the table of tensors of unit blocks.0 is invalid");
}

/* ---- folders that cannot be written ---- */

/* Write another checkpoint, which must fail; the first one is still valid. */
static void assert_not_written(struct fixture *fixture, const char *directory, const char *what)
{
    struct error error = {.kind = ERROR_NONE};
    char part[256];
    struct stat status;
    assert_false(write_checkpoint(fixture, directory, "step-00000002.h5", &error));
    error_is(&error, ERROR_FILE, directory, what);
    snprintf(part, sizeof part, "%s/step-00000002.h5.part", directory);
    comm_barrier(world);
    assert_int_not_equal(stat(part, &status), 0);
    part[strlen(part) - 5] = '\0';
    assert_int_not_equal(stat(part, &status), 0);
}

static void assert_first_is_good(struct fixture *fixture, const char *path)
{
    struct error error = {.kind = ERROR_NONE};
    fixture_fill(fixture, NEW);
    read_checkpoint(fixture, path, &error);
    assert_string_equal(error.text, "");
    assert_int_equal(fixture_all_wrong(fixture, OLD), 0);
}

TEST(test_unwritable_folders)
{
    struct fixture fixture;
    char under[256], longer[4200];
    write_first(&fixture, &tiny);
    assert_not_written(&fixture, "not-there", "create the folder");
    snprintf(under, sizeof under, "%s/below", file);
    assert_not_written(&fixture, under, "Not a directory");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    struct error error = {.kind = ERROR_NONE};
    assert_false(write_checkpoint(&fixture, longer, "a.h5", &error));
    error_is(&error, ERROR_FILE, "xxx", "");
    assert_first_is_good(&fixture, file);
    fixture_close(&fixture);
}

TEST(test_folder_without_permission)
{
    struct fixture fixture;
    write_first(&fixture, &tiny);
    uid_t user = geteuid();
    comm_barrier(world);
    assert_true(world->rank != 0 || chmod(folder, 0555) == 0);
    comm_barrier(world);
    if (user == 0)
        assert_int_equal(seteuid(65534), 0);
    assert_not_written(&fixture, folder, "Permission denied; make it writable");
    assert_first_is_good(&fixture, file);
    if (user == 0)
        assert_int_equal(seteuid(0), 0);
    assert_true(world->rank != 0 || chmod(folder, 0777) == 0);
    fixture_close(&fixture);
}

/* Needs root and a system that allows mounts. */
TEST(test_full_disk)
{
    struct error error = {.kind = ERROR_NONE};
    char disk[128], first[192];
    snprintf(disk, sizeof disk, "%s/disk", folder);
    int64_t mounted = world->rank == 0 && mkdir(disk, 0777) == 0 &&
                      mount("tmpfs", disk, "tmpfs", 0, "size=400k") == 0;
    comm_broadcast(world, &mounted, 1, COMM_INT64, 0);
    if (!mounted)
        SKIP_BECAUSE("a file system of limited size cannot be mounted");
    FIXTURE(fixture, 1, &usual, 1, false);
    fixture_fill(&fixture, OLD);
    assert_true(write_checkpoint(&fixture, disk, "step-00000001.h5", &error));
    assert_not_written(&fixture, disk, "No space left on device; free some space");
    snprintf(first, sizeof first, "%s/step-00000001.h5", disk);
    assert_first_is_good(&fixture, first);
}

TEST(test_limit_on_file_size)
{
    struct fixture fixture;
    struct rlimit limit, before;
    write_first(&fixture, &usual);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    for (limit.rlim_cur = 1000; limit.rlim_cur < 100000; limit.rlim_cur *= 5) {
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_not_written(&fixture, folder, "raise the limit on the size of files");
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_first_is_good(&fixture, file);
    fixture_close(&fixture);
}

static int make_folder(void **state)
{
    (void)state;
    fixture_directory(folder, sizeof folder);
    snprintf(file, sizeof file, "%s/step-00000001.h5", folder);
    return 0;
}

static int drop_folder(void **state)
{
    char disk[128];
    (void)state;
    snprintf(disk, sizeof disk, "%s/disk", folder);
    comm_barrier(world);
    if (world->rank == 0) {
        umount2(disk, MNT_DETACH); /* left by test_full_disk if it failed */
        rmdir(disk);
    }
    fixture_remove(folder);
    return 0;
}

int main(int argc, char **argv)
{
    hdf5_library_open();
    fixture_world_open(&argc, &argv);
    int failed = TESTS_RUN(.before = make_folder, .after = drop_folder);
    comm_world_close(world);
    return failed;
}
