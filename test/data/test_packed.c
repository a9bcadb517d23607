// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2 3 5
/* Packed data sets: packed records equal their sources; any number of ranks writes the same bytes;
 * every damage of a file and every failure while writing is an error with a message. */
#include <fcntl.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/options.h"
#include "core/hdf5_file.h"
#include "core/random.h"
#include "core/text_file.h"
#include "data/crop.h"
#include "data/packed.h"
#include "temporary.h"
#include "test.h"

enum { PIXELS = 3 * 32 * 32, FILES = 37, NAME = 900 };

static struct comm *world;
static struct comm *alone; /* a communicator of this rank alone */
static struct options options;
static struct packed_plan plan;
static struct error error;
static char root[NAME / 3], name[NAME];

static int set_up(void **state)
{
    (void)state;
    options_default(&options);
    error_clear(&error);
    snprintf(options.data.root, sizeof options.data.root, "%s/data/cifar-10-sample",
             getenv("TEST_BUILD"));
    plan = (struct packed_plan){.name = name, .as_source = true};
    comm_barrier(world);
    return 0;
}

static void path_of(char path[NAME], const char *file)
{
    assert_true(snprintf(path, NAME, "%s/%s", root, file) < NAME);
}

static void use_name(const char *file)
{
    path_of(name, file);
}

static int64_t pack_with(struct comm *comm)
{
    int64_t bytes;
    error_clear(&error);
    assert_ok(packed_write(&options, &plan, comm, &bytes, &error), &error);
    return bytes;
}

/* The same options for the packed file. */
static struct options packed_options(void)
{
    struct options packed = options;
    snprintf(packed.data.format, sizeof packed.data.format, "packed");
    snprintf(packed.data.root, sizeof packed.data.root, "%s", name);
    packed.debug.fraction = 1;
    return packed;
}

static void open_data(struct dataset *dataset, const struct options *from, enum data_split split)
{
    error_clear(&error);
    assert_ok(dataset_open(dataset, from, split, &error), &error);
}

static void same_pixels(struct dataset *one, struct dataset *other, int64_t index)
{
    static uint8_t pixels[2][PIXELS];
    int32_t label[2] = {-1, -2};
    assert_true(dataset_read(one, index, pixels[0], &label[0], &error));
    assert_true(dataset_read(other, index, pixels[1], &label[1], &error));
    assert_memory_equal(pixels[0], pixels[1], PIXELS);
    assert_int_equal(label[0], label[1]);
}

static void same_files(struct dataset *one, struct dataset *other, int64_t index)
{
    struct byte_buffer file[2] = {0};
    int32_t label[2] = {-1, -2};
    assert_true(dataset_load(one, index, &file[0], &label[0], &error));
    assert_true(dataset_load(other, index, &file[1], &label[1], &error));
    assert_int_equal(file[0].count, file[1].count);
    if (file[0].count > 0)
        assert_memory_equal(file[0].data, file[1].data, file[0].count);
    assert_int_equal(label[0], label[1]);
    assert_int_equal(other->format->size(other, dataset_record(other, index), &error),
                     file[0].count);
    free(file[0].data);
    free(file[1].data);
}

/* The packed split has the records of the source split in the same order with the same numbers. */
static void same_split(const struct options *source_options, enum data_split split)
{
    const struct options packed = packed_options();
    struct dataset one, other;
    open_data(&one, source_options, split);
    open_data(&other, &packed, split);
    assert_int_equal(one.count, other.count);
    assert_int_equal(one.encoded, other.encoded);
    assert_int_equal(one.channels, other.channels);
    assert_int_equal(one.height, other.height);
    assert_int_equal(one.classes, other.classes);
    for (int64_t i = 0; i < one.classes; i++)
        assert_string_equal(one.class_name[i], other.class_name[i]);
    for (int64_t i = 0; i < one.count; i++) {
        if (source_options->debug.fraction == 1)
            assert_int_equal(dataset_record(&one, i), dataset_record(&other, i));
        (one.encoded ? same_files : same_pixels)(&one, &other, i);
    }
    dataset_close(&one);
    dataset_close(&other);
}

static char *content(const char *path, size_t *bytes)
{
    char *data = text_file_read(path, bytes);
    assert_non_null(data);
    return data;
}

static void same_bytes(const char *one, const char *other)
{
    char path[2][NAME];
    size_t bytes[2];
    path_of(path[0], one);
    path_of(path[1], other);
    char *data[2] = {content(path[0], &bytes[0]), content(path[1], &bytes[1])};
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(data[0], data[1], bytes[0]);
    free(data[0]);
    free(data[1]);
}

static bool is_there(const char *file)
{
    char path[NAME];
    path_of(path, file);
    return access(path, F_OK) == 0;
}

TEST(test_pixels)
{
    use_name("pixels.h5");
    assert_int_equal(pack_with(world), 2500 * PIXELS);
    same_split(&options, SPLIT_TRAIN);
    same_split(&options, SPLIT_TEST);
    options.data.val = VALIDATION_REFERENCE;
    same_split(&options, SPLIT_TRAIN);
    same_split(&options, SPLIT_VALIDATION);
    if (world->rank == 0) {
        use_name("alone.h5");
        pack_with(alone);
        same_bytes("pixels.h5", "alone.h5");
    }
}

/* Files of odd sizes, one larger than a single write, one empty. */
static void make_folder(void)
{
    char path[NAME];
    snprintf(options.data.format, sizeof options.data.format, "imagefolder");
    snprintf(options.data.root, sizeof options.data.root, "%s/images", root);
    options.data.check = CHECK_NONE;
    options.data.val = VALIDATION_VAL;
    if (world->rank == 0 && !is_there("images")) {
        for (int i = 0; i < FILES; i++) {
            static const char *const split[] = {"train", "train", "val", "test"};
            const size_t bytes = i == 4   ? (9 << 20) + 5
                                 : i == 8 ? 0
                                          : (size_t)(1 + i * i * i * 7 % 9973);
            uint8_t *data = malloc(bytes + 4);
            for (size_t b = 0; b < bytes; b++)
                data[b] = (uint8_t)(b * 31 + (b >> 9) + (size_t)i);
            snprintf(path, sizeof path, "images/%s/class %d", split[i % 4], i / 4 % 3);
            temporary_directory(path);
            snprintf(path, sizeof path, "images/%s/class %d/%d.jpg", split[i % 4], i / 4 % 3, i);
            temporary_file(path, data, bytes);
            free(data);
        }
    }
    comm_barrier(world);
}

TEST(test_files)
{
    make_folder();
    use_name("files.h5");
    pack_with(world);
    same_split(&options, SPLIT_TRAIN);
    same_split(&options, SPLIT_VALIDATION);
    same_split(&options, SPLIT_TEST);
    options.data.val = VALIDATION_TEST;
    same_split(&options, SPLIT_VALIDATION);
    options.data.val = VALIDATION_REFERENCE;
    same_split(&options, SPLIT_TEST);
    options.data.val = VALIDATION_FRACTION;
    options.data.val_fraction = 0.5;
    same_split(&options, SPLIT_TRAIN);
    same_split(&options, SPLIT_VALIDATION);
    options.data.val = VALIDATION_VAL;
    if (world->rank == 0) {
        use_name("files-alone.h5");
        pack_with(alone);
        same_bytes("files.h5", "files-alone.h5");
    }
}

TEST(test_several)
{
    use_name("several.h5");
    plan.file_bytes = 500 * PIXELS;
    pack_with(world);
    assert_true(is_there("several-00000-of-00005.h5") && is_there("several-00004-of-00005.h5"));
    same_split(&options, SPLIT_TRAIN);
    same_split(&options, SPLIT_TEST);
    use_name("several-00003-of-00005.h5");
    same_split(&options, SPLIT_TEST);
    comm_barrier(world);
    char folder[NAME / 2], from[NAME], to[NAME];
    snprintf(folder, sizeof folder, "%s/own", root);
    if (world->rank == 0)
        temporary_directory("own");
    for (int i = 0; world->rank == 0 && i < 5; i++) {
        snprintf(from, sizeof from, "%s/several-0000%d-of-00005.h5", root, i);
        snprintf(to, sizeof to, "%s/several-0000%d-of-00005.h5", folder, i);
        assert_int_equal(link(from, to), 0);
    }
    comm_barrier(world);
    use_name("own");
    same_split(&options, SPLIT_TRAIN);
    use_name("files-several.h5");
    make_folder();
    plan.file_bytes = 30000;
    pack_with(world);
    same_split(&options, SPLIT_TRAIN);
    same_split(&options, SPLIT_VALIDATION);
    same_split(&options, SPLIT_TEST);
}

/* Pixels of another size, as the loader would make them. */
TEST(test_resized)
{
    uint8_t stored[PIXELS], pixels[PIXELS], expected[PIXELS];
    struct crop crop;
    struct crop_scratch scratch = {0};
    struct dataset one, other;
    int32_t label[2];
    use_name("resized.h5");
    options.debug.fraction = 0.02;
    plan.as_source = false;
    plan.decode = true;
    plan.size = 20;
    pack_with(world);
    const struct options packed = packed_options();
    options.eval.resize = 20;
    options.eval.resize_to = RESIZE_SQUARE;
    assert_true(crop_open(&crop, &options, true, (struct image_size){20, 20}, false, &error));
    open_data(&one, &options, SPLIT_TRAIN);
    open_data(&other, &packed, SPLIT_TRAIN);
    assert_int_equal(other.height, 20);
    assert_int_equal(one.count, 40);
    assert_int_equal(other.count, 40);
    for (int64_t i = 0; i < 40; i++) {
        assert_true(dataset_read(&one, i, stored, &label[0], &error));
        assert_true(crop_stored(&crop, 0, 0, stored, &one, &scratch, expected, &error));
        assert_true(dataset_read(&other, i, pixels, &label[1], &error));
        assert_memory_equal(pixels, expected, 3 * 20 * 20);
        assert_int_equal(label[0], label[1]);
    }
    crop_scratch_free(&scratch);
    dataset_close(&one);
    dataset_close(&other);
}

/* Training records in another order, each once; test records unchanged. */
TEST(test_shuffled)
{
    struct dataset one, other;
    uint8_t pixels[PIXELS], expected[PIXELS];
    int32_t label[2];
    use_name("shuffled.h5");
    options.debug.fraction = 0.04;
    plan.shuffle = true;
    pack_with(world);
    same_split(&options, SPLIT_TEST);
    const struct options packed = packed_options();
    open_data(&one, &options, SPLIT_TRAIN);
    open_data(&other, &packed, SPLIT_TRAIN);
    uint32_t order[80], moved = 0;
    assert_int_equal(one.count, 80);
    random_permutation((uint64_t)options.run.seed, RANDOM_PACK, 0, 80, order);
    for (int64_t i = 0; i < 80; i++) {
        assert_true(dataset_read(&one, order[i], expected, &label[0], &error));
        assert_true(dataset_read(&other, i, pixels, &label[1], &error));
        assert_memory_equal(pixels, expected, PIXELS);
        assert_int_equal(label[0], label[1]);
        moved += order[i] != i;
    }
    assert_true(moved > 60);
    dataset_close(&one);
    dataset_close(&other);
    if (world->rank == 0) {
        use_name("shuffled-alone.h5");
        pack_with(alone);
        same_bytes("shuffled.h5", "shuffled-alone.h5");
    }
}

/* ---- damage, on rank 0 ---- */

static char *good_file;
static size_t good_bytes;

/* 20 + 5 records, written by rank 0 alone. */
static void make_small(const char *file)
{
    use_name(file);
    options.debug.fraction = 0.01;
    pack_with(alone);
    good_file = content(name, &good_bytes);
}

static void write_file(const char *data, size_t bytes)
{
    FILE *file = fopen(name, "w");
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* The file must fail to open with this text in the error. */
static void refused(const char *words)
{
    const struct options packed = packed_options();
    struct dataset dataset;
    error_clear(&error);
    assert_false(dataset_open(&dataset, &packed, SPLIT_TRAIN, &error));
    assert_error(&error, ERROR_DATA, words);
}

TEST(test_cut)
{
    if (world->rank > 0)
        return;
    make_small("cut.h5");
    for (size_t bytes = good_bytes - 1; bytes > 0; bytes = bytes > 501 ? bytes - 499 : bytes / 2) {
        write_file(good_file, bytes);
        refused(name);
    }
    write_file(good_file, good_bytes - 1);
    refused("it is truncated: ");
    write_file(good_file, 0);
    refused("cut.h5 is empty");
    free(good_file);
}

/* Read all of the small file. Return 0 if it is unchanged, 1 for an error, 2 otherwise. */
static int examine(struct dataset *source)
{
    const struct options packed = packed_options();
    struct dataset dataset;
    uint8_t pixels[PIXELS], expected[PIXELS];
    int32_t label[2];
    error_clear(&error);
    if (!dataset_open(&dataset, &packed, SPLIT_TRAIN, &error))
        return 1;
    int found = dataset.count == source->count && dataset.classes == 10 && dataset.width == 32 &&
                        strcmp(dataset.class_name[9], "truck") == 0
                    ? 0
                    : 2;
    for (int64_t i = 0; found == 0 && i < dataset.count; i++) {
        assert_true(dataset_read(source, i, expected, &label[0], &error));
        if (!dataset_read(&dataset, i, pixels, &label[1], &error))
            found = 1;
        else if (memcmp(pixels, expected, PIXELS) != 0 || label[0] != label[1])
            found = 2;
    }
    dataset_close(&dataset);
    return found;
}

TEST(test_flipped)
{
    if (world->rank > 0)
        return;
    make_small("flipped.h5");
    struct dataset source;
    open_data(&source, &options, SPLIT_TRAIN);
    assert_int_equal(examine(&source), 0);
    int errors = 0;
    for (uint32_t i = 0; i < 700; i++) {
        /* half in the frame, half in the records */
        const size_t most = i % 2 == 0 ? 8192 : good_bytes;
        const size_t place = random_block_at(1, RANDOM_SYNTHETIC, 0, 0, i, 0).word[0] % most;
        good_file[place] ^= (char)(1 << i % 8);
        write_file(good_file, good_bytes);
        const int found = examine(&source);
        good_file[place] ^= (char)(1 << i % 8);
        if (found == 2)
            fail_msg("a flipped bit of byte %zu was not found", place);
        errors += found;
        assert_true(found == 0 || strstr(error.text, "flipped.h5") != NULL);
    }
    assert_true(errors > 250);
    good_file[8192 + 5 * PIXELS] ^= 1;
    write_file(good_file, good_bytes);
    good_file[8192 + 5 * PIXELS] ^= 1;
    assert_int_equal(examine(&source), 1);
    assert_has(error.text, "flipped.h5: wrong checksum of record ");
    dataset_close(&source);
    free(good_file);
}

/* A checksum that was verified once is not verified again unless requested. */
TEST(test_flipped_later)
{
    if (world->rank > 0)
        return;
    make_small("later.h5");
    const size_t place = good_bytes / 2;
    for (int always = 0; always <= 1; always++) {
        struct options packed = packed_options();
        struct dataset dataset;
        uint8_t pixels[PIXELS];
        int32_t label;
        packed.data.check = always ? CHECK_FULL : CHECK_HEADER;
        int failed = 0;
        open_data(&dataset, &packed, SPLIT_TRAIN);
        for (int i = 0; i < 40; i++) {
            if (i == 20) {
                good_file[place] ^= 1;
                write_file(good_file, good_bytes);
                good_file[place] ^= 1;
            }
            failed += !dataset_read(&dataset, i % 20, pixels, &label, &error);
        }
        assert_int_equal(failed, always);
        dataset_close(&dataset);
        write_file(good_file, good_bytes);
    }
    free(good_file);
}

static void set_number(const char *attribute, int64_t value)
{
    hid_t file = H5Fopen(name, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t found = H5Aopen(file, attribute, H5P_DEFAULT);
    assert_true(H5Awrite(found, H5T_NATIVE_INT64, &value) >= 0);
    H5Aclose(found);
    assert_true(H5Fclose(file) >= 0);
}

static void set_kind(const char *kind)
{
    hid_t file = H5Fopen(name, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t found = H5Aopen(file, "kind", H5P_DEFAULT);
    hid_t type = H5Aget_type(found);
    assert_true(H5Awrite(found, type, kind) >= 0);
    H5Tclose(type);
    H5Aclose(found);
    assert_true(H5Fclose(file) >= 0);
}

/* A table that is valid for HDF5. */
static void set_row(const char *table, hid_t type, hsize_t row, const void *value)
{
    const hsize_t one = 1;
    hid_t file = H5Fopen(name, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, table, H5P_DEFAULT);
    hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(1, &one, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &row, NULL, &one, NULL);
    assert_true(H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, value) >= 0);
    H5Sclose(memory);
    H5Sclose(space);
    H5Dclose(dataset);
    assert_true(H5Fclose(file) >= 0);
}

TEST(test_other_files)
{
    if (world->rank > 0)
        return;
    make_small("other.h5");
    set_number("packed", 2);
    refused("other.h5 cannot be used as packed data: its format is 2, this program supports 1");
    set_number("packed", 1);
    set_number("height", 0);
    refused("its decoded images have the invalid shape [3, 0, 32]");
    set_number("height", 16);
    refused("its data set 'bytes' has the wrong size");
    set_number("height", 32);
    set_number("files", 2);
    refused("its header states 2 files, its name 1");
    set_number("files", 1);
    set_kind("rotated");
    refused("its kind is 'rotated'");
    set_kind("encoded");
    refused("its encoded images have the invalid shape [3, 32, 32]");
    set_kind("decoded");
    const int32_t label = 10;
    set_row("train/label", H5T_NATIVE_INT32, 3, &label);
    refused("invalid label of record 3");
    free(good_file);
    memset(name, 0, sizeof name);
    use_name("text.h5");
    write_file("[run]\nname = deck\n", 18);
    refused("text.h5 cannot be used as packed data: ");
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    refused("it is an HDF5 file, but not a packed data set of vittrain");
    use_name("missing.h5");
    refused("missing.h5: no such file or folder: ");
    refused("; make packed data with `vittrain convert data`");
    use_name("nowhere");
    assert_int_equal(mkdir(name, 0777), 0);
    refused("nowhere: is empty; make packed data");
    snprintf(name, sizeof name, "%s", root);
    refused("several packed data sets (*.h5) in this folder");
}

TEST(test_other_offsets)
{
    make_folder();
    use_name("offsets.h5");
    pack_with(world);
    comm_barrier(world);
    if (world->rank > 0)
        return;
    const int64_t wrong[] = {-1, 1 << 30};
    for (int i = 0; i < 2; i++) {
        set_row("train/offset", H5T_NATIVE_INT64, 2, &wrong[i]);
        refused("invalid offset of record ");
    }
}

TEST(test_other_sets)
{
    char from[NAME], to[NAME];
    if (world->rank > 0)
        return;
    options.debug.fraction = 0.02;
    plan.file_bytes = 30 * PIXELS;
    use_name("set.h5");
    pack_with(alone);
    snprintf(from, sizeof from, "%s/set-00001-of-00002.h5", root);
    snprintf(to, sizeof to, "%s/kept.h5", root);
    assert_int_equal(rename(from, to), 0);
    refused("set-00001-of-00002.h5: No such file");
    options.debug.fraction = 0.022;
    use_name("second.h5");
    pack_with(alone);
    snprintf(to, sizeof to, "%s/second-00001-of-00002.h5", root);
    assert_int_equal(rename(to, from), 0);
    use_name("set.h5");
    refused("belongs to another data set");
    snprintf(to, sizeof to, "%s/set-00000-of-00002.h5", root);
    unlink(from);
    assert_int_equal(link(to, from), 0);
    refused("its header states file 0 of its set, its name file 1");
}

/* data.val=FRACTION: the held-out samples become the packed validation split; a set that has only
 * training samples is divided when it is read. */
TEST(test_held_out)
{
    struct dataset source, packed;
    use_name("held-out.h5");
    options.data.val = VALIDATION_FRACTION;
    options.data.val_fraction = 0.25;
    pack_with(world);
    struct options reader = packed_options();
    reader.data.val = VALIDATION_VAL;
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++) {
        open_data(&source, &options, (enum data_split)split);
        open_data(&packed, &reader, (enum data_split)split);
        assert_int_equal(packed.count, split == SPLIT_TRAIN ? 1500 : 500);
        assert_int_equal(packed.count, source.count);
        for (int64_t i = 0; i < packed.count; i += 9)
            same_pixels(&source, &packed, i);
        dataset_close(&source);
        dataset_close(&packed);
    }
    use_name("all.h5");
    options.data.val = VALIDATION_NONE;
    pack_with(world);
    options.data.val = VALIDATION_FRACTION;
    same_split(&options, SPLIT_TRAIN);
    same_split(&options, SPLIT_VALIDATION);
    reader = packed_options();
    open_data(&packed, &reader, SPLIT_TEST); /* the held-out samples */
    assert_int_equal(packed.count, 500);
    dataset_close(&packed);
}

TEST(test_no_split)
{
    use_name("train-only.h5");
    options.debug.fraction = 0.02;
    options.data.val = VALIDATION_NONE;
    pack_with(world);
    same_split(&options, SPLIT_TRAIN);
    struct options packed = packed_options();
    struct dataset dataset;
    packed.data.val = VALIDATION_TEST;
    assert_false(dataset_open(&dataset, &packed, SPLIT_TEST, &error));
    assert_has(error.text, "train-only.h5 has no test split");
}

/* ---- failures while writing ---- */

/* All ranks get the same error, and no file is left. */
static void fails(enum error_kind kind, const char *words, const char *left)
{
    int64_t bytes;
    char path[NAME];
    error_clear(&error);
    assert_false(packed_write(&options, &plan, world, &bytes, &error));
    assert_error(&error, kind, words);
    assert_true(comm_same(world, error.text, strlen(error.text)));
    snprintf(path, sizeof path, "%s.part", left);
    assert_false(is_there(left));
    assert_false(is_there(path));
}

TEST(test_cannot_write)
{
    struct rlimit limit, small;
    use_name("no/folder.h5");
    fails(ERROR_FILE, "create the folder", "no/folder.h5");
    use_name("limited.h5");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_FSIZE, &small);
    fails(ERROR_FILE, "raise the limit on the size of files", "limited.h5");
    setrlimit(RLIMIT_FSIZE, &limit);
    /* on the last rank only, so that a write fails */
    small.rlim_cur = 2500 * PIXELS / 2;
    if (world->rank == world->size - 1 && world->size > 1)
        setrlimit(RLIMIT_FSIZE, &small);
    if (world->size > 1)
        fails(ERROR_FILE, "raise the limit on the size of files", "limited.h5");
    setrlimit(RLIMIT_FSIZE, &limit);
    pack_with(world);
    int64_t bytes;
    assert_false(packed_write(&options, &plan, world, &bytes, &error));
    assert_has(error.text, "limited.h5 already exists: remove it");
    error_clear(&error);
    same_split(&options, SPLIT_TEST); /* the existing file is unchanged */
}

TEST(test_cannot_read)
{
    make_folder();
    use_name("unread.h5");
    plan.as_source = false;
    plan.decode = true;
    fails(ERROR_USAGE, "set convert.size", "unread.h5");
    plan.size = 8;
    fails(ERROR_DATA, "images/train/class 0/", "unread.h5");
    set_up(NULL);
    use_name("unread.h5");
    plan.as_source = false;
    fails(ERROR_USAGE, "records of data.format=cifar10 are pixels", "unread.h5");
    plan.as_source = true;
    snprintf(options.data.root, sizeof options.data.root, "%s/nothing", root);
    fails(ERROR_DATA, "nothing: no such file", "unread.h5");
}

/* The last rank is in another folder, as on the disk of another node. */
TEST(test_private_disk)
{
    char here[NAME];
    if (world->size == 1)
        SKIP_BECAUSE("needs more than one rank");
    if (world->rank == 0)
        temporary_directory("disk");
    comm_barrier(world);
    assert_non_null(getcwd(here, sizeof here));
    snprintf(name, sizeof name, "%s/disk", root);
    assert_int_equal(chdir(world->rank == world->size - 1 ? name : root), 0);
    snprintf(name, sizeof name, "private.h5");
    fails(ERROR_FILE, "nodes do not share this folder", "private.h5");
    assert_int_equal(chdir(here), 0);
}

/* Disks of nodes with different data under one name. */
TEST(test_different_sources)
{
    if (world->size == 1)
        SKIP_BECAUSE("needs more than one rank");
    use_name("different.h5");
    if (world->rank == 0)
        options.debug.fraction = 0.2;
    fails(ERROR_DATA, "the data differ between ranks", "different.h5");
}

int main(int argc, char **argv)
{
    hdf5_library_open();
    if (!comm_world_open(&argc, &argv, &world, &error))
        return 1;
    alone = world->backend->split(world, world->rank, 0);
    if (world->rank == 0)
        snprintf(root, sizeof root, "%s", temporary_open());
    comm_broadcast(world, root, sizeof root, COMM_BYTE, 0);
    int failed = TESTS_RUN(.before = set_up);
    alone->backend->close(alone);
    comm_barrier(world);
    if (world->rank == 0)
        temporary_close();
    comm_world_close(world);
    return failed;
}
