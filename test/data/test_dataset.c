// SPDX-License-Identifier: BSD-3-Clause
/* Data sets: the CIFAR-10 reader on the sample, on valid and damaged files, the
 * splits, and synthetic data. */
#include <fcntl.h>
#include <unistd.h>

#include "dataset_fixture.h"
#include "temporary.h"
#include "test.h"
#include "vector_file.h"

enum { RECORD = 3073, PIXELS = 3072 };

static void set_up(void)
{
    dataset_begin("");
}

static void use_root(const char *name)
{
    snprintf(options.data.root, sizeof options.data.root, "%s", temporary_path(name));
}

static void use_sample(void)
{
    snprintf(options.data.root, sizeof options.data.root, "%s/data/cifar-10-sample",
             getenv("TEST_BUILD"));
}

/* Byte `place` of record `record` of a generated file. The label is record % 10. */
static unsigned char content_byte(int64_t record, int64_t place)
{
    if (place == 0)
        return (unsigned char)(record % 10);
    return (unsigned char)(record * 31 + place * 7);
}

static void make_file(const char *name, int64_t first, int64_t records, int64_t bytes)
{
    unsigned char *content = calloc(1, (size_t)bytes + 1);
    for (int64_t i = 0; i < bytes && i < records * RECORD; i++)
        content[i] = content_byte(first + i / RECORD, i % RECORD);
    temporary_file(name, content, (size_t)bytes);
    free(content);
}

/* Use files of 5, 7 and 12 records; 6 for the test split. */
static void make_set(const char *directory)
{
    static const int64_t first[] = {0, 5, 12, 100}, records[] = {5, 7, 12, 6};
    static const char *const names[] = {"data_batch_1", "data_batch_2", "data_batch_3",
                                        "test_batch"};
    use_root(directory);
    temporary_directory(directory);
    for (int i = 0; i < 4; i++) {
        OWNED char *name = allocate_text("%s/%s.bin", directory, names[i]);
        make_file(name, first[i], records[i], records[i] * RECORD);
    }
}

TEST(test_sample)
{
    use_sample();
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++) {
        int64_t seen[10] = {0};
        split_opens("", (enum data_split)split, split == SPLIT_TRAIN ? 2000 : 500);
        assert_int_equal(dataset.channels * dataset.height * dataset.width, PIXELS);
        for (int64_t i = 0; i < dataset.count; i++) {
            uint8_t pixels[PIXELS];
            assert_true(dataset_read(&dataset, i, pixels, &error));
            seen[dataset_label(&dataset, i)]++;
        }
        for (int label = 0; label < 10; label++)
            assert_int_equal(seen[label], dataset.count / 10);
        assert_string_equal(dataset.class_name[9], "truck");
    }
    split_opens("data.root=", SPLIT_TRAIN, 2000);
}

static void check_record(int64_t index, int64_t number)
{
    uint8_t pixels[PIXELS];
    assert_true(dataset_read(&dataset, index, pixels, &error));
    assert_int_equal(dataset_label(&dataset, index), number % 10);
    for (int i = 0; i < PIXELS; i++)
        assert_int_equal(pixels[i], content_byte(number, i + 1));
}

TEST(test_records)
{
    make_set("set/cifar-10-batches-bin");
    for (int parent = 0; parent < 2; parent++) {
        use_root(parent ? "set" : "set/cifar-10-batches-bin");
        split_opens("", SPLIT_TRAIN, 24);
        for (int64_t i = 0; i < 24; i++)
            check_record(i, i);
        split_opens("", SPLIT_VALIDATION, 6);
        for (int64_t i = 0; i < 6; i++)
            check_record(i, 100 + i);
    }
}

TEST(test_missing)
{
    static const struct {
        const char *root, *removed, *made;
        enum data_split split;
        const char *part;
    } cases[] = {
        {"nowhere", NULL, NULL, SPLIT_TRAIN, "nowhere: No such file"},
        {"nowhere", NULL, NULL, SPLIT_TRAIN, "tools/fetch.sh cifar10"},
        {"empty", NULL, "empty", SPLIT_TRAIN, "tools/fetch.sh cifar10"},
        {"file", NULL, NULL, SPLIT_TRAIN, "is a file, not a folder"},
        {"file/x", NULL, NULL, SPLIT_TRAIN, "data.root="},
        {"other", NULL, "other/cifar-10-batches-py", SPLIT_TRAIN, "only cifar-10-batches-py"},
        {"set", "set/data_batch_2.bin", NULL, SPLIT_TRAIN, "data_batch_2.bin: No such file"},
        {"set", "set/test_batch.bin", NULL, SPLIT_TEST, "test_batch.bin: No such file"},
        {"set", "set/data_batch_1.bin", NULL, SPLIT_TRAIN, "data_batch_1.bin: No such file"},
        {"set", NULL, "set/data_batch_1.bin", SPLIT_TRAIN, "data_batch_1.bin: not a regular file"},
    };
    temporary_write("file", "x");
    make_set("set");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        use_root(cases[i].root);
        if (cases[i].removed != NULL)
            assert_int_equal(remove(temporary_path(cases[i].removed)), 0);
        if (cases[i].made != NULL)
            temporary_directory(cases[i].made);
        split_fails("", cases[i].split, cases[i].part);
    }
}

/* Four files of exactly the official size; the fifth is missing. The files are sparse. */
TEST(test_official_incomplete)
{
    temporary_directory("official");
    use_root("official");
    for (int i = 1; i <= 5; i++) {
        OWNED char *name = allocate_text("official/data_batch_%d.bin", i);
        assert_int_equal(truncate(temporary_file(name, "", 0), 10000L * RECORD), 0);
        if (i == 4)
            split_fails("", SPLIT_TRAIN, "data_batch_5.bin is missing");
    }
    split_opens("", SPLIT_TRAIN, 50000);
    make_file("official/data_batch_6.bin", 50000, 2, 2 * RECORD); /* more files are read, too */
    split_opens("", SPLIT_TRAIN, 50002);
    check_record(50001, 50001);
    make_file("official/data_batch_8.bin", 0, 2, 2 * RECORD);
    split_fails("", SPLIT_TRAIN, "data_batch_7.bin: No such file");
}

static void set_byte(const char *name, int64_t place, unsigned char value)
{
    int file = open(temporary_path(name), O_WRONLY);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, &value, 1, place), 1);
    close(file);
}

TEST(test_damaged)
{
    static const int64_t bad[] = {0, 1, RECORD - 1, 2 * RECORD + 1, 3 * RECORD - 1};
    make_set("damaged");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        make_file("damaged/data_batch_2.bin", 0, 3, bad[i]);
        split_fails("", SPLIT_TRAIN, bad[i] == 2 * RECORD + 1 ? "record 2 " : "data_batch_2.bin");
    }
    make_file("damaged/data_batch_2.bin", 0, 3, 3 * RECORD);
    set_byte("damaged/data_batch_3.bin", 11 * RECORD, 10);
    split_fails("", SPLIT_TRAIN, "record 11 has label 10");
    set_byte("damaged/data_batch_3.bin", 11 * RECORD, 9);
    split_opens("", SPLIT_TRAIN, -1);
}

static void expect_read_error(int64_t index, const char *words)
{
    uint8_t pixels[PIXELS];
    error_clear(&error);
    assert_false(dataset_read(&dataset, index, pixels, &error));
    assert_error(&error, ERROR_DATA, words);
}

TEST(test_file_changed)
{
    make_set("changed");
    split_opens("", SPLIT_TRAIN, -1);
    set_byte("changed/data_batch_1.bin", 2 * RECORD, 77);
    expect_read_error(2, "the label of record 2 was changed");
    assert_int_equal(truncate(temporary_path("changed/data_batch_1.bin"), 3 * RECORD + 100), 0);
    expect_read_error(3, "cannot read record 3");
    expect_read_error(4, "the file was truncated");
    check_record(5, 5);
}

/* The validation split of 60,000 samples is that of PyTorch's random_split with seed 42. Another
 * seed has another one. */
TEST(test_torch_split)
{
    static const int64_t counts[] = {45000, 5000, 10000};
    static int expected[60000];
    int64_t same = 0;
    dataset_begin("data.format=synthetic data.samples=48000 data.image=1 data.val=reference");
    VECTOR_FILE(file, "torch_permutation.safetensors");
    const int32_t *validation = vector_file_integers(file, "validation", NULL);
    for (int i = 0; i < 5000; i++)
        expected[validation[i]] = 1;
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++) {
        split_opens("", (enum data_split)split, counts[split]);
        for (int64_t i = 0; i < dataset.count; i++)
            assert_int_equal(expected[dataset_record(&dataset, i)], split == SPLIT_VALIDATION);
    }
    split_opens("run.seed=43", SPLIT_VALIDATION, 5000);
    for (int64_t i = 0; i < dataset.count; i++)
        same += expected[dataset_record(&dataset, i)];
    assert_in_range(same, 300, 550);
}

/* debug.fraction takes samples of the whole split. */
TEST(test_fraction)
{
    use_sample();
    split_opens("debug.fraction=0.1", SPLIT_TRAIN, 200);
    for (int64_t i = 1; i < dataset.count; i++)
        assert_true(dataset_record(&dataset, i) > dataset_record(&dataset, i - 1));
    assert_true(dataset_record(&dataset, 199) > 1500);
    split_opens("debug.fraction=1e-9", SPLIT_TEST, 1);
}

TEST(test_usage)
{
    use_sample();
    split_fails("data.val=none", SPLIT_VALIDATION, "data.val=none");
    split_opens("", SPLIT_TRAIN, 2000);
    split_fails("data.format=cifar", SPLIT_TRAIN, "data.format=cifar");
    split_fails("data.format=synthetic data.val=val", SPLIT_VALIDATION,
                "synthetic has no validation split");
    split_fails("data.val=reference data.samples=2", SPLIT_VALIDATION, "validation split");
}

/* data.distinct=4: both splits repeat the first four records that they have without it. The splits
 * differ. */
TEST(test_synthetic_distinct)
{
    uint8_t pixels[2][5][25], again[25];
    int32_t label[5];
    dataset_begin("data.format=synthetic data.samples=41 data.image=5 data.classes=3 "
                  "model.channels=1");
    for (int s = 0; s < 2; s++) {
        const enum data_split split = s == 0 ? SPLIT_TRAIN : SPLIT_TEST;
        const int64_t count = s == 0 ? 41 : 11;
        split_opens("data.distinct=0", split, count);
        assert_string_equal(dataset.class_name[2], "class 2");
        for (int64_t i = 0; i < 5; i++) {
            assert_true(dataset_read(&dataset, i, pixels[s][i], &error));
            label[i] = dataset_label(&dataset, i);
        }
        split_opens("data.distinct=4", split, count);
        assert_memory_not_equal(pixels[s][4], pixels[s][0], 25);
        for (int64_t i = 0; i < dataset.count; i++) {
            assert_true(dataset_read(&dataset, i, again, &error));
            assert_memory_equal(again, pixels[s][i % 4], 25);
            assert_int_equal(dataset_label(&dataset, i), label[i % 4]);
        }
    }
    assert_memory_not_equal(pixels[0][0], pixels[1][0], 25);
}

/* The data can be learnt: the mean images of two classes are far apart, in both splits. */
TEST(test_synthetic_is_learnable)
{
    enum { CLASSES = 4, SIZE = 3 * 16 * 16 };
    uint8_t pixels[SIZE];
    dataset_begin("data.format=synthetic data.samples=400 data.image=16 data.classes=4");
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++) {
        double mean[CLASSES][SIZE] = {{0}}, samples[CLASSES] = {0};
        split_opens("", (enum data_split)split, -1);
        for (int64_t i = 0; i < dataset.count; i++) {
            const int32_t label = dataset_label(&dataset, i);
            assert_true(dataset_read(&dataset, i, pixels, &error));
            samples[label]++;
            for (int p = 0; p < SIZE; p++)
                mean[label][p] += pixels[p];
        }
        for (int c = 0; c < CLASSES; c++) {
            double gap = 0;
            for (int p = 0; p < SIZE; p++)
                gap += fabs(mean[c][p] / samples[c] - mean[0][p] / samples[0]) / SIZE;
            assert_true(samples[c] > 0.17 * (double)dataset.count && (c == 0 || gap > 25));
        }
    }
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_close, .before = set_up)
