// SPDX-License-Identifier: BSD-3-Clause
/* Data sets: the CIFAR-10 reader on the sample, on valid and damaged files (with a fuzzer), the
 * splits, and synthetic data. */
#include <fcntl.h>
#include <unistd.h>

#include "core/random.h"
#include "dataset_fixture.h"
#include "temporary.h"
#include "test.h"
#include "vector_file.h"

enum { RECORD = 3073, PIXELS = 3072 };

static struct error error;

static int set_up(void **state)
{
    (void)state;
    dataset_begin("cifar10");
    error_clear(&error);
    options.data.val = VALIDATION_TEST;
    return 0;
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
    unsigned char *content = calloc(1, (size_t)(bytes > 0 ? bytes : 1));
    for (int64_t i = 0; i < bytes && i < records * RECORD; i++)
        content[i] = content_byte(first + i / RECORD, i % RECORD);
    temporary_file(name, content, (size_t)bytes);
    free(content);
}

/* Files of 5, 7 and 12 records; 6 for the test split. */
static void make_set(const char *directory)
{
    static const int64_t first[] = {0, 5, 12, 100}, records[] = {5, 7, 12, 6};
    temporary_directory(directory);
    for (int i = 0; i < 4; i++) {
        char name[256];
        snprintf(name, sizeof name, i < 3 ? "%s/data_batch_%d.bin" : "%s/test_batch.bin", directory,
                 i + 1);
        make_file(name, first[i], records[i], records[i] * RECORD);
    }
}

/* The split must fail to open with this kind of error and this text in the message. */
static void expect_error(enum data_split split, enum error_kind kind, const char *words,
                         const char *more)
{
    error_clear(&error);
    dataset_close(&dataset);
    assert_false(dataset_open(&dataset, &options, split, NULL, &error));
    assert_int_equal(error.kind, kind);
    if (strstr(error.text, words) == NULL || strstr(error.text, more) == NULL)
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", error.text, words, more);
}

TEST(test_sample)
{
    use_sample();
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++) {
        split_opens((enum data_split)split, -1);
        int64_t seen[10] = {0};
        assert_int_equal(dataset.count, split == SPLIT_TRAIN ? 2000 : 500);
        assert_int_equal(dataset.channels * dataset.height * dataset.width, PIXELS);
        for (int64_t i = 0; i < dataset.count; i++) {
            uint8_t pixels[PIXELS];
            int32_t label;
            assert_true(dataset_read(&dataset, i, pixels, &label, &error));
            seen[label]++;
        }
        for (int label = 0; label < 10; label++)
            assert_int_equal(seen[label], dataset.count / 10);
        assert_string_equal(dataset.class_name[9], "truck");
    }
    options.data.root[0] = '\0';
    split_opens(SPLIT_TRAIN, 2000);
}

static void check_record(int64_t index, int64_t number)
{
    uint8_t pixels[PIXELS];
    int32_t label;
    assert_true(dataset_read(&dataset, index, pixels, &label, &error));
    assert_int_equal(label, number % 10);
    for (int i = 0; i < PIXELS; i++)
        assert_int_equal(pixels[i], content_byte(number, i + 1));
}

TEST(test_records)
{
    make_set("set/cifar-10-batches-bin");
    for (int parent = 0; parent < 2; parent++) {
        use_root(parent ? "set" : "set/cifar-10-batches-bin");
        split_opens(SPLIT_TRAIN, 24);
        for (int64_t i = 0; i < 24; i++)
            check_record(i, i);
        split_opens(SPLIT_VALIDATION, 6);
        for (int64_t i = 0; i < 6; i++)
            check_record(i, 100 + i);
    }
}

TEST(test_missing)
{
    use_root("nowhere");
    expect_error(SPLIT_TRAIN, ERROR_DATA, "nowhere", "tools/fetch.sh cifar10");
    temporary_directory("empty");
    use_root("empty");
    expect_error(SPLIT_TRAIN, ERROR_DATA, "empty", "tools/fetch.sh cifar10");
    make_set("gap");
    use_root("gap");
    assert_int_equal(remove(temporary_path("gap/data_batch_2.bin")), 0);
    expect_error(SPLIT_TRAIN, ERROR_DATA, "data_batch_2.bin", "No such file");
    assert_int_equal(remove(temporary_path("gap/test_batch.bin")), 0);
    expect_error(SPLIT_TEST, ERROR_DATA, "test_batch.bin", "No such file");
    make_set("tests");
    use_root("tests");
    for (int i = 1; i <= 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "tests/data_batch_%d.bin", i);
        assert_int_equal(remove(temporary_path(name)), 0);
    }
    expect_error(SPLIT_TRAIN, ERROR_DATA, "data_batch_1.bin", "No such file");
    temporary_directory("tests/data_batch_1.bin");
    expect_error(SPLIT_TRAIN, ERROR_DATA, "data_batch_1.bin", "not a regular file");
}

/* Four files of exactly the official size; the fifth is missing. The files are sparse. */
TEST(test_official_incomplete)
{
    temporary_directory("official");
    use_root("official");
    for (int i = 1; i <= 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "official/data_batch_%d.bin", i);
        temporary_file(name, "", 0);
        assert_int_equal(truncate(temporary_path(name), 10000L * RECORD), 0);
        if (i == 4)
            expect_error(SPLIT_TRAIN, ERROR_DATA, "data_batch_5.bin is missing", "fetch");
    }
    split_opens(SPLIT_TRAIN, 50000);
}

TEST(test_wrong_sizes)
{
    make_set("sizes");
    use_root("sizes");
    static const int64_t bad[] = {0, 1, RECORD - 1, 2 * RECORD + 1, 3 * RECORD - 1};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        make_file("sizes/data_batch_2.bin", 0, 3, bad[i]);
        expect_error(SPLIT_TRAIN, ERROR_DATA, "data_batch_2.bin", "truncated");
    }
    make_file("sizes/data_batch_2.bin", 0, 3, 2 * RECORD + 1);
    expect_error(SPLIT_TRAIN, ERROR_DATA, "6147 bytes", "record 2 ");
}

static void set_byte(const char *name, int64_t place, unsigned char value)
{
    int file = open(temporary_path(name), O_WRONLY);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, &value, 1, place), 1);
    close(file);
}

TEST(test_wrong_labels)
{
    make_set("labels");
    use_root("labels");
    set_byte("labels/data_batch_3.bin", 11 * RECORD, 10);
    expect_error(SPLIT_TRAIN, ERROR_DATA, "labels/data_batch_3.bin", "record 11 has label 10");
    set_byte("labels/data_batch_3.bin", 11 * RECORD, 255);
    expect_error(SPLIT_TRAIN, ERROR_DATA, "labels/data_batch_3.bin", "record 11 has label 255");
    set_byte("labels/data_batch_3.bin", 11 * RECORD, 9);
    split_opens(SPLIT_TRAIN, -1);
}

static void expect_read_error(int64_t index, const char *words)
{
    uint8_t pixels[PIXELS];
    int32_t label;
    error_clear(&error);
    assert_false(dataset_read(&dataset, index, pixels, &label, &error));
    assert_error(&error, ERROR_DATA, words);
}

TEST(test_file_changed)
{
    make_set("changed");
    use_root("changed");
    split_opens(SPLIT_TRAIN, -1);
    set_byte("changed/data_batch_1.bin", 2 * RECORD, 77);
    expect_read_error(2, "record 2 has label 77");
    assert_int_equal(truncate(temporary_path("changed/data_batch_1.bin"), 3 * RECORD + 100), 0);
    expect_read_error(3, "cannot read record 3");
    expect_read_error(4, "the file was truncated");
    check_record(5, 5);
}

/* Damage a set of files in one of several ways, from a fixed stream of random numbers. Return true
 * if it is still valid. */
static bool damage(uint32_t round)
{
    struct random_block draw = random_block_at(1, RANDOM_SYNTHETIC, 9, 0, round, 0);
    char name[64];
    snprintf(name, sizeof name, "fuzz/data_batch_%u.bin", 1 + draw.word[0] % 3);
    int64_t records = draw.word[1] % 9, bytes = records * RECORD;
    if (draw.word[2] % 3 == 0)
        bytes += draw.word[3] % RECORD;
    make_file(name, 0, records + 1, bytes);
    bool good = bytes > 0 && bytes % RECORD == 0;
    if (draw.word[2] % 3 == 1 && records > 0) {
        unsigned char label = (unsigned char)(draw.word[3] & 0xff);
        set_byte(name, (draw.word[3] >> 8) % records * RECORD, label);
        good = label < 10;
    }
    return good;
}

TEST(test_fuzz)
{
    use_root("fuzz");
    int good_rounds = 0;
    for (uint32_t round = 0; round < 400; round++) {
        make_set("fuzz");
        bool good = damage(round);
        good_rounds += good;
        if (!good) {
            expect_error(SPLIT_TRAIN, ERROR_DATA, "fuzz/data_batch_", "fetch");
            continue;
        }
        split_opens(SPLIT_TRAIN, -1);
        for (int64_t i = 0; i < dataset.count; i++) {
            uint8_t pixels[PIXELS];
            int32_t label;
            assert_true(dataset_read(&dataset, i, pixels, &label, &error));
            assert_in_range(label, 0, 9);
        }
    }
    assert_in_range(good_rounds, 50, 350);
}

static void count_records(int *seen)
{
    for (int64_t i = 0; i < dataset.count; i++) {
        seen[dataset_record(&dataset, i)]++;
        assert_true(i == 0 || dataset_record(&dataset, i) > dataset_record(&dataset, i - 1));
    }
}

/* The validation split of 60,000 samples is that of PyTorch's random_split with seed 42. */
TEST(test_torch_split)
{
    snprintf(options.data.format, sizeof options.data.format, "synthetic");
    options.data.samples = 48000;
    options.data.image = 1;
    options.data.val = VALIDATION_REFERENCE;
    static int expected[60000];
    struct vector_file *file = vector_file_open("torch_permutation.safetensors");
    const int32_t *validation = vector_file_integers(file, "validation", NULL);
    for (int i = 0; i < 5000; i++)
        expected[validation[i]] = 1;
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++) {
        static const int64_t counts[] = {45000, 5000, 10000};
        split_opens((enum data_split)split, counts[split]);
        for (int64_t i = 0; i < dataset.count; i++)
            assert_int_equal(expected[dataset_record(&dataset, i)], split == SPLIT_VALIDATION);
    }
    vector_file_close(file);
}

TEST(test_reference_split)
{
    use_sample();
    options.data.val = VALIDATION_REFERENCE;
    static const int64_t expected[] = {1875, 208, 417}; /* of 2,500 */
    int seen[2500] = {0};
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++) {
        split_opens((enum data_split)split, expected[split]);
        count_records(seen);
    }
    for (int i = 0; i < 2500; i++)
        assert_int_equal(seen[i], 1);

    int again[2500] = {0}, other[2500] = {0};
    split_opens(SPLIT_VALIDATION, -1);
    count_records(again);
    split_opens(SPLIT_VALIDATION, -1);
    int first = (int)dataset_record(&dataset, 0);
    assert_int_equal(again[first], 1);
    options.run.seed++;
    split_opens(SPLIT_VALIDATION, -1);
    count_records(other);
    assert_memory_not_equal(again, other, sizeof again);
}

/* data.val=0.1: 200 of the 2,000 training samples, a tenth of each class; the test split is
 * unchanged. */
TEST(test_held_out)
{
    use_sample();
    options.data.val = VALIDATION_FRACTION;
    int seen[2000] = {0}, larger[2000] = {0};
    static const double fractions[] = {0.1, 0.25};
    for (int f = 0; f < 2; f++) {
        int of_class[2][10] = {{0}};
        options.data.val_fraction = fractions[f];
        options.run.seed++; /* without effect */
        for (int split = SPLIT_TRAIN; split <= SPLIT_VALIDATION; split++) {
            split_opens((enum data_split)split, -1);
            count_records(f == 0 ? seen : larger);
            for (int64_t i = 0; i < dataset.count; i++) {
                uint8_t pixels[PIXELS];
                int32_t label;
                assert_true(dataset_read(&dataset, i, pixels, &label, &error));
                of_class[split][label]++;
                if (split == SPLIT_VALIDATION)
                    (f == 0 ? seen : larger)[dataset_record(&dataset, i)]++;
            }
        }
        for (int c = 0; c < 10; c++) {
            const double all = of_class[0][c] + of_class[1][c];
            assert_int_equal(of_class[1][c], (int)(all * fractions[f] + 0.5));
        }
    }
    for (int i = 0; i < 2000; i++) /* 1: training, 2: held out */
        assert_true(seen[i] >= 1 && seen[i] <= larger[i] && larger[i] <= 2);
    split_opens(SPLIT_TEST, 500);
}

TEST(test_fraction)
{
    use_sample();
    options.debug.fraction = 0.1;
    int seen[2000] = {0};
    split_opens(SPLIT_TRAIN, 200);
    count_records(seen);
    assert_true(dataset_record(&dataset, 199) > 1500);
    options.debug.fraction = 1e-9;
    split_opens(SPLIT_TEST, 1);
}

TEST(test_usage)
{
    use_sample();
    options.data.val = VALIDATION_NONE;
    expect_error(SPLIT_VALIDATION, ERROR_USAGE, "data.val=none", "data.val=test");
    split_opens(SPLIT_TRAIN, 2000);
    snprintf(options.data.format, sizeof options.data.format, "cifar");
    expect_error(SPLIT_TRAIN, ERROR_USAGE, "data.format=cifar", "cifar10");
    snprintf(options.data.format, sizeof options.data.format, "something-else");
    expect_error(SPLIT_TRAIN, ERROR_USAGE, "something-else", "synthetic");
    snprintf(options.data.format, sizeof options.data.format, "synthetic");
    options.data.val = VALIDATION_REFERENCE;
    options.data.samples = 2;
    expect_error(SPLIT_VALIDATION, ERROR_DATA, "validation split", "empty");
}

static void use_synthetic(int64_t samples, int64_t image, int64_t classes, int64_t channels)
{
    snprintf(options.data.format, sizeof options.data.format, "synthetic");
    options.data.samples = samples;
    options.data.image = image;
    options.data.classes = classes;
    options.model.channels = channels;
}

TEST(test_synthetic_shapes)
{
    use_synthetic(11, 5, 3, 1);
    split_opens(SPLIT_TRAIN, 11);
    uint8_t pixels[2][25];
    int32_t label[2];
    for (int i = 0; i < 2; i++)
        assert_true(dataset_read(&dataset, 10, pixels[i], &label[i], &error));
    assert_memory_equal(pixels[0], pixels[1], sizeof pixels[0]);
    assert_int_equal(label[0], label[1]);
    assert_string_equal(dataset.class_name[2], "class 2");

    split_opens(SPLIT_TEST, 3);
    assert_true(dataset_read(&dataset, 0, pixels[1], &label[1], &error));
    assert_memory_not_equal(pixels[0], pixels[1], sizeof pixels[0]);
}

static void read_record(int64_t record, uint8_t pixels[25], int32_t *label)
{
    int32_t alone;
    assert_true(dataset_read(&dataset, record, pixels, label, &error));
    assert_true(dataset_label(&dataset, record, &alone, &error));
    assert_int_equal(alone, *label);
}

/* data.distinct=4: both splits repeat the first four records that they have without it. */
TEST(test_synthetic_distinct)
{
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split += SPLIT_TEST - SPLIT_TRAIN) {
        uint8_t pixels[5][25], again[25];
        int32_t label[5], label_again;
        use_synthetic(44, 5, 3, 1);
        split_opens((enum data_split)split, -1);
        for (int64_t i = 0; i < 5; i++)
            read_record(i, pixels[i], &label[i]);
        options.data.distinct = 4;
        split_opens((enum data_split)split, -1);
        assert_memory_not_equal(pixels[4], pixels[0], 25);
        for (int64_t i = 0; i < dataset.count; i++) {
            read_record(i, again, &label_again);
            assert_memory_equal(again, pixels[i % 4], 25);
            assert_int_equal(label_again, label[i % 4]);
        }
        options.data.distinct = 0;
    }
    use_synthetic(4000000000, 8192, 3, 1);
    options.data.distinct = 4000000000;
    dataset_close(&dataset);
    assert_false(dataset_open(&dataset, &options, SPLIT_TRAIN, NULL, &error));
    assert_int_equal(error.kind, ERROR_MEMORY);
    assert_non_null(strstr(error.text, "MiB are available to a rank): lower data.distinct"));
}

/* Sums of the pixels of each class over the training samples. */
static void class_means(int64_t classes, int64_t size, double *mean, int *samples)
{
    uint8_t *pixels = malloc((size_t)size);
    for (int64_t i = 0; i < dataset.count; i++) {
        int32_t label;
        assert_true(dataset_read(&dataset, i, pixels, &label, &error));
        assert_in_range(label, 0, classes - 1);
        samples[label]++;
        for (int64_t p = 0; p < size; p++)
            mean[label * size + p] += pixels[p];
    }
    for (int64_t i = 0; i < classes * size; i++)
        mean[i] /= samples[i / size];
    free(pixels);
}

/* The nearest class mean predicts the class better than chance, so the data can be learnt. */
TEST(test_synthetic_is_learnable)
{
    enum { CLASSES = 4, SIZE = 3 * 16 * 16 };
    use_synthetic(400, 16, CLASSES, 3);
    static double mean[CLASSES * SIZE];
    int samples[CLASSES] = {0}, right = 0;
    split_opens(SPLIT_TRAIN, -1);
    class_means(CLASSES, SIZE, mean, samples);
    for (int i = 0; i < CLASSES; i++)
        assert_in_range(samples[i], 70, 130);
    split_opens(SPLIT_TEST, -1);
    for (int64_t i = 0; i < dataset.count; i++) {
        uint8_t pixels[SIZE];
        int32_t label;
        assert_true(dataset_read(&dataset, i, pixels, &label, &error));
        double distance[CLASSES] = {0};
        int best = 0;
        for (int c = 0; c < CLASSES; c++) {
            for (int p = 0; p < SIZE; p++)
                distance[c] += (pixels[p] - mean[c * SIZE + p]) * (pixels[p] - mean[c * SIZE + p]);
            best = distance[c] < distance[best] ? c : best;
        }
        right += best == label;
    }
    assert_true(right > 76);
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_teardown, .before = set_up)
