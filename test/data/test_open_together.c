// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3 4
// sources: test/data/shards.c
/* A data set is opened by all ranks together: who lists, indexes and describes which files. Each
 * rank has its own copy of the files, as on nodes that copy data to local disks; the copies differ
 * where the rank must not look. */
#include <unistd.h>

#include "base/base.h"
#include "hdf5_fixture.h"
#include "options/options.h"
#include "rank_tests.h"
#include "shards.h"

enum {
    SHARDS = 9,
    FILES = 98,
    SAMPLES = 4,
    HEIGHT = 5,
    WIDTH = 4,
    VALUES = SAMPLES * HEIGHT * WIDTH
};

/* Collective. Fail on all ranks if this is false on one. */
static void all_true(bool condition)
{
    int64_t value = condition;
    comm_all_reduce(world, &value, 1, COMM_INT64, COMM_MIN);
    assert_int_equal(value, 1);
}

static void fails_together(const char *settings, const char *part)
{
    error_clear(&error);
    settings_apply(&options, settings);
    dataset_close(&dataset);
    all_true(!dataset_open(&dataset, &options, SPLIT_TRAIN, world, &error));
    assert_has(error.text, part);
}

TEST(bytes_are_joined)
{
    const int64_t lengths[] = {0, 3, 1 << 19};
    for (size_t n = 0; n < sizeof lengths / sizeof lengths[0]; n++) {
        const int64_t bytes = lengths[n] * (world->rank + 1);
        int64_t end = 0;
        struct joined_bytes all;
        comm_join(world, memset(allocate((size_t)bytes, 1), world->rank + 1, (size_t)bytes), bytes,
                  &all);
        bool good = all.is_mapped == (world->size > 1 && all.bytes >= 1 << 20);
        for (int rank = 0; rank < world->size; rank++) {
            const int64_t begin = end;
            end += lengths[n] * (rank + 1);
            good = good && end <= all.bytes;
            for (int64_t i = begin; good && i < end; i++)
                good = all.data[i] == rank + 1;
        }
        good = good && end == all.bytes;
        all_true(good);
        comm_joined_free(&all);
    }
}

TEST(rank_0_lists_folders)
{
    for (int i = 0; i < 20; i++) {
        OWNED char *path = allocate_text("train/%s/%d.jpg", i % 2 == 0 ? "cat" : "dog", i);
        root_write(path, image, image_bytes);
    }
    if (world->rank > 0) /* a class and a file that others do not have */
        root_write("train/ape/0.jpg", image, image_bytes);
    split_opens("data.format=imagefolder", SPLIT_TRAIN, 20);
    assert_int_equal(dataset.classes, 2);
    assert_string_equal(dataset.class_name[1], "dog");
    check_record(19, 1, "train/dog/9.jpg");
    split_opens("data.val=0.2", SPLIT_VALIDATION, 4);
    assert_true(dataset.held_out);
    /* Ranks cannot use images that rank 0 can use. */
    for (int i = 0; i < 20 && world->rank > 0; i += 2) {
        OWNED char *path = allocate_text("train/cat/%d.jpg", i);
        root_write(path, "x", 1);
    }
    if (world->size > 1)
        fails_together("data.skip_broken=on", "ranks find different data");
}

TEST(shards_are_indexed_by_one_rank)
{
    for (int i = 0; i < SHARDS; i++) {
        OWNED char *name = allocate_text("%d.tar", i);
        OWNED char *members =
            allocate_text("000000.cls=%d|000000.jpg|000001.cls=%d|000001.jpg", world->rank, i % 2);
        shard_make(name, "ustar", members);
    }
    if (world->rank == 0)
        root_write("classes.txt", "a\nb\nc\nd\n", 8);
    split_opens("data.val=none", SPLIT_TRAIN, 2 * SHARDS);
    assert_int_equal(dataset.classes, 4);
    assert_string_equal(dataset.class_name[3], "d");
    for (int i = 0; i < SHARDS; i++) {
        OWNED char *name = allocate_text("%d.tar: 000000.jpg", i);
        int64_t begin = 0, count = 0;
        int32_t rank = -1;
        while (i >= begin + count)
            cut_evenly(SHARDS, world->size, ++rank, &begin, &count);
        check_record(2 * i, rank, name); /* the label in its copy */
    }
}

/* Write x and y, planes, and one number per sample; x is compressed. */
static void arrays_put(int number)
{
    float x[VALUES];
    double time[SAMPLES];
    const hsize_t extent[] = {SAMPLES, HEIGHT, WIDTH}, chunk[] = {2, 3, WIDTH};
    for (int i = 0; i < VALUES; i++)
        x[i] = (float)(number * 1000 + i);
    for (int i = 0; i < SAMPLES; i++)
        time[i] = number * SAMPLES + i;
    hid_t file = hdf5_create(root_path("%02d.h5", number));
    hdf5_write(file, "x", 3, extent, chunk, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, x);
    hdf5_write(file, "y", 3, extent, NULL, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, x);
    hdf5_write(file, "number", 1, extent, NULL, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, time);
    H5Fclose(file);
}

static void arrays_use(const char *settings)
{
    settings_apply(&options, "data.format=arrays data.x=x data.val=none data.task=regression");
    settings_apply(&options, settings);
    for (int i = 0; i < FILES; i++)
        arrays_put(i);
}

/* Compare all records with those of the data set that one rank opens. */
static void records_are_equal(void)
{
    struct dataset alone;
    error_clear(&error);
    bool good = dataset_open(&alone, &options, SPLIT_TRAIN, NULL, &error);
    good = good && alone.count == dataset.count && alone.sum == dataset.sum;
    for (int64_t i = 0; good && i < dataset.count; i++) {
        float one[2 * HEIGHT * WIDTH] = {0}, other[2 * HEIGHT * WIDTH] = {0};
        good = dataset_label(&alone, i) == dataset_label(&dataset, i) &&
               dataset_read(&alone, i, one, &error) && dataset_read(&dataset, i, other, &error) &&
               memcmp(one, other, dataset_record_bytes(&dataset)) == 0;
    }
    dataset_close(&alone);
    all_true(good);
}

TEST(array_files_are_described_by_one_rank)
{
    arrays_use("data.y=y");
    split_opens("", SPLIT_TRAIN, SAMPLES * FILES);
    records_are_equal();
    /* Number i is described by rank (i - 1) modulo their number, and there is one for 64 files. */
    for (int i = 1; i < FILES; i++)
        if (world->rank != 0 && (i - 1) % smaller(world->size, 2) != world->rank) /* 0 lists them */
            unlink(root_path("%02d.h5", i));
    split_opens("", SPLIT_TRAIN, SAMPLES * FILES);
}

TEST(files_of_two_splits_are_described)
{
    arrays_use("data.y=y");
    for (int i = 70; i < FILES; i++) {
        OWNED char *old = allocate_copy(root_path("%02d.h5", i));
        assert_int_equal(rename(old, root_path("test-%02d.h5", i)), 0);
    }
    split_opens("data.val=reference", SPLIT_TRAIN, SAMPLES * FILES * 3 / 4);
    records_are_equal();
}

TEST(targets_are_read_by_one_rank)
{
    arrays_use("data.y=number");
    split_opens("", SPLIT_TRAIN, SAMPLES * FILES);
    records_are_equal();
}

TEST(an_error_of_one_rank_is_that_of_all)
{
    arrays_use("data.y=y");
    const int64_t last = smaller(world->size, 2) - 1; /* the last rank that describes files */
    for (int i = 1; i < FILES && world->rank == last; i++) {
        OWNED char *name = allocate_text("%02d.h5", i);
        root_write(name, "damaged", 7);
    }
    fails_together("", ".h5");
}

static void folder_open(void)
{
    shards_open();
    assert_int_equal(chdir(temporary_path("")), 0);
}

static void folder_close(void)
{
    dataset_close(&dataset);
    shards_close();
}

/* Each test has an empty folder below the working directory of the rank. */
static void begin(void)
{
    shards_begin();
    dataset_comm = world;
    const char *name = strrchr(options.data.root, '/') + 1;
    memmove(options.data.root, name, strlen(name) + 1);
}

TEST_MAIN_WORLD(.setup = folder_open, .teardown = folder_close, .before = begin)
