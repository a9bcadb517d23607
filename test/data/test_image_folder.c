// SPDX-License-Identifier: BSD-3-Clause
/* Folders of images: classes and files in torchvision's order, with any names; links, empty
 * classes, files that are not images; assignment of folders to splits.
 *   test_image_folder --make DIRECTORY COUNT   creates train and val with COUNT images for scripts
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/options.h"
#include "data/dataset.h"
#include "temporary.h"
#include "vector_file.h"

static struct vector_file *vectors;
static struct options options;
static struct dataset dataset;
static struct error error;
static int trees;
static char tree[32]; /* the test's folder below the temporary directory */

static int set_up(void **state)
{
    (void)state;
    options_default(&options);
    error_clear(&error);
    snprintf(tree, sizeof tree, "tree%d", ++trees);
    snprintf(options.data.format, sizeof options.data.format, "imagefolder");
    snprintf(options.data.root, sizeof options.data.root, "%s", temporary_path(tree));
    return 0;
}

static void put(const char *path, const void *bytes, size_t count)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%s", tree, path);
    *strrchr(name, '/') = '\0';
    temporary_directory(name);
    snprintf(name, sizeof name, "%s/%s", tree, path);
    temporary_file(name, bytes, count);
}

/* Copy a file of the vectors. */
static void put_image(const char *path, const char *kind)
{
    char name[64];
    int64_t count;
    snprintf(name, sizeof name, "file.%s", kind);
    const uint8_t *bytes = vector_file_bytes(vectors, name, &count);
    put(path, bytes, (size_t)count);
}

static void put_link(const char *path, const char *to)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%s", tree, path);
    assert_int_equal(symlink(to, temporary_path(name)), 0);
}

static void put_folder(const char *path)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%s", tree, path);
    temporary_directory(name);
}

static void opens(enum data_split split)
{
    if (!dataset_open(&dataset, &options, split, &error))
        fail_msg("%s", error.text);
}

static void fails(enum data_split split, const char *expected)
{
    error_clear(&error);
    if (dataset_open(&dataset, &options, split, &error))
        fail_msg("no error where \"%s\" is expected", expected);
    if (strstr(error.text, expected) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, expected);
    error_clear(&error);
}

/* Check each record: label and path below the tree. */
static void check_records(int64_t count, const char *const *paths, const int32_t *labels)
{
    char path[2048];
    struct byte_buffer bytes = {0};
    assert_int_equal(dataset.count, count);
    for (int64_t i = 0; i < count; i++) {
        int32_t label = -1;
        dataset_name(&dataset, i, path, sizeof path);
        assert_string_equal(path + strlen(options.data.root) + 1, paths[i]);
        assert_true(dataset_load(&dataset, i, &bytes, &label, &error));
        assert_int_equal(label, labels[i]);
        assert_true(bytes.count > 0);
    }
    free(bytes.data);
}

/* Names are compared by bytes, as Python's sorted() compares UTF-8. A folder precedes its content,
 * but follows "x-z" if that is smaller than "x/". */
static void order_is_torchvisions(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "train/A b\n/1.jpg", "train/A b\n/10.jpg",   "train/A b\n/2.JPEG",
        "train/a/0.PNG",     "train/a/B.jpg",        "train/a/a.jpg",
        "train/a/link.jpg",  "train/a/x/9.jpg",      "train/a/x-z/1.jpg",
        "train/a/x/y/.jpg",  "train/\xc3\xa9/1.jpg", "train/\xc3\xa9/\xe2\x82\xac.png"};
    static const int32_t labels[] = {0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 2};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (strstr(paths[i], "link") == NULL)
            put_image(paths[i], "jpeg_420");
    put_link("train/a/link.jpg", "../\xc3\xa9/1.jpg");
    put("train/a/notes.txt", "x", 1);
    put("train/README", "x", 1);
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.classes, 3);
    assert_string_equal(dataset.class_name[0], "A b\n");
    assert_string_equal(dataset.class_name[2], "\xc3\xa9");
    assert_true(dataset.encoded && dataset.channels == 3);
    /* sorted() of the paths of the walk: a, a/x, a/x-z, a/x/y */
    check_records(12, paths, labels);
    dataset_close(&dataset);
}

static void links_are_followed(void **state)
{
    (void)state;
    static const char *const paths[] = {"train/cat/1.jpg", "train/cat/more/2.jpg",
                                        "train/dog/1.jpg"};
    static const int32_t labels[] = {0, 0, 1};
    put_image("elsewhere/1.jpg", "jpeg_444");
    put_image("more/2.jpg", "jpeg_444");
    put_image("train/cat/1.jpg", "jpeg_444");
    put_link("train/dog", "../elsewhere");
    put_link("train/cat/more", "../../more");
    opens(SPLIT_TRAIN);
    check_records(3, paths, labels);
    dataset_close(&dataset);
    put_link("train/cat/circle", "..");
    fails(SPLIT_TRAIN, "the folder is inside itself: a circular link");
}

static void splits_are_found(void **state)
{
    (void)state;
    put_image("train/a/1.jpg", "jpeg_444");
    put_image("train/b/2.jpg", "jpeg_444");
    options.data.allow_empty = true;
    fails(SPLIT_TEST, "no folder test, val, valid or validation");
    put_image("valid/a/1.jpg", "jpeg_444");
    for (int split = SPLIT_VALIDATION; split <= SPLIT_TEST; split++) {
        char path[1024];
        opens((enum data_split)split);
        dataset_name(&dataset, 0, path, sizeof path);
        assert_non_null(strstr(path, "/valid/a/1.jpg"));
        dataset_close(&dataset);
    }
    put_image("test/a/1.jpg", "jpeg_444");
    put_image("test/a/2.jpg", "jpeg_444");
    put_image("test/a/3.jpg", "jpeg_444");
    opens(SPLIT_VALIDATION);
    assert_int_equal(dataset.count, 3);
    dataset_close(&dataset);
    options.data.val = VALIDATION_VAL;
    opens(SPLIT_VALIDATION);
    assert_int_equal(dataset.count, 1);
    dataset_close(&dataset);
    opens(SPLIT_TEST);
    assert_int_equal(dataset.count, 3);
    dataset_close(&dataset);
    options.data.val = VALIDATION_REFERENCE; /* of all five: 3, 0, 2 */
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.count, 3);
    dataset_close(&dataset);
}

/* ROOT/CLASS/FILE without splits. */
static void flat_folders_are_divided(void **state)
{
    (void)state;
    static const int images[] = {1, 2, 9, 40};
    char path[64], name[1024];
    for (int label = 0; label < 4; label++)
        for (int i = 0; i < images[label]; i++) {
            snprintf(path, sizeof path, "%c/%02d.jpg", 'a' + label, i);
            put_image(path, "png_1x1");
        }
    fails(SPLIT_TRAIN, "class folders (a, b, c, d), but no train, val or test: set data.val=0.1");
    options.data.val = VALIDATION_VAL;
    fails(SPLIT_VALIDATION, "set data.val=0.1");
    options.data.val = VALIDATION_NONE;
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.count, 52);
    dataset_close(&dataset);
    fails(SPLIT_TEST, "set data.val=0.1");
    options.data.val = VALIDATION_REFERENCE;
    opens(SPLIT_TEST);
    assert_int_equal(dataset.count, 52 - 39 - 4);
    dataset_close(&dataset);
    options.data.val = VALIDATION_FRACTION;
    static const struct {
        double fraction;
        int held_out[4];
    } expected[] = {
        {0.001, {0, 1, 1, 1}}, {0.1, {0, 1, 1, 4}}, {0.5, {0, 1, 4, 20}}, {0.99, {0, 1, 8, 39}}};
    for (int row = 0; row < 4; row++) {
        int seen[52] = {0}, held_out[4] = {0};
        options.data.val_fraction = expected[row].fraction;
        for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++) {
            opens((enum data_split)split);
            assert_int_equal(dataset.classes, 4);
            for (int64_t i = 0; i < dataset.count; i++) {
                seen[dataset_record(&dataset, i)] += 1 << (4 * split);
                dataset_name(&dataset, i, name, sizeof name);
                held_out[name[strlen(options.data.root) + 1] - 'a'] += split == SPLIT_VALIDATION;
            }
            dataset_close(&dataset);
        }
        assert_memory_equal(held_out, expected[row].held_out, sizeof held_out);
        for (int i = 0; i < 52; i++) /* each image is for training, or for both others */
            assert_true(seen[i] == 0x001 || seen[i] == 0x110);
    }
}

/* With a training folder, a fraction of it is held out; a test folder stays the test split. */
static void training_folders_are_divided(void **state)
{
    (void)state;
    char path[1024];
    for (int i = 0; i < 20; i++) {
        snprintf(path, sizeof path, "train/%c/%02d.jpg", i % 2 == 0 ? 'a' : 'b', i);
        put_image(path, "png_1x1");
    }
    options.data.val = VALIDATION_FRACTION;
    options.data.val_fraction = 0.2;
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++) {
        opens((enum data_split)split);
        assert_int_equal(dataset.count, split == SPLIT_TRAIN ? 16 : 4);
        dataset_close(&dataset);
    }
    put_image("val/a/1.jpg", "png_1x1");
    put_image("val/b/1.jpg", "png_1x1");
    opens(SPLIT_TEST);
    assert_int_equal(dataset.count, 2);
    dataset_name(&dataset, 0, path, sizeof path);
    assert_non_null(strstr(path, "/val/a/1.jpg"));
    dataset_close(&dataset);
}

static void validation_needs_a_folder(void **state)
{
    (void)state;
    put_image("train/a/1.jpg", "jpeg_444");
    put_image("test/a/1.jpg", "jpeg_444");
    options.data.val = VALIDATION_VAL;
    fails(SPLIT_VALIDATION, "no folder val, valid or validation");
    snprintf(options.data.format, sizeof options.data.format, "synthetic");
    fails(SPLIT_VALIDATION, "synthetic has no validation split of its own");
}

static void roots_are_checked(void **state)
{
    (void)state;
    fails(SPLIT_TRAIN, "no such file or folder");
    put("train/x", "", 0);
    fails(SPLIT_TRAIN, "no class folders: it needs one folder per class");
    options.data.root[0] = '\0';
    fails(SPLIT_TRAIN, "needs data.root");
}

static void classes_are_compared(void **state)
{
    (void)state;
    put_image("train/a/1.jpg", "jpeg_444");
    put_image("train/b/1.jpg", "jpeg_444");
    put_image("val/b/1.jpg", "jpeg_444");
    fails(SPLIT_TEST, "val/a: no images");
    options.data.allow_empty = true;
    opens(SPLIT_TEST);
    int32_t label = -1;
    struct byte_buffer bytes = {0};
    assert_int_equal(dataset.count, 1);
    assert_true(dataset_load(&dataset, 0, &bytes, &label, &error));
    assert_int_equal(label, 1);
    free(bytes.data);
    dataset_close(&dataset);
    put_image("val/c/1.jpg", "jpeg_444");
    fails(SPLIT_TEST, "val/c: class missing in the training folder");
}

static void empty_classes_are_errors_or_allowed(void **state)
{
    (void)state;
    put_image("train/a/1.jpg", "jpeg_444");
    put_folder("train/b/deep");
    put_folder("train/c");
    put("train/c/1.txt", "x", 1);
    fails(SPLIT_TRAIN, "train/b: no images (.jpg, .jpeg, .png, .webp) in this class's folder");
    options.data.allow_empty = true;
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.classes, 3);
    assert_int_equal(dataset.count, 1);
    dataset_close(&dataset);
}

/* Five of seven files are not images. */
static void put_broken(void)
{
    put_image("train/a/1.jpg", "jpeg_444");
    put("train/a/2.jpg", "", 0);
    put("train/a/3.webp", "RIFF\x10\0\0\0WEBPVP8 ", 16); /* truncated */
    put_link("train/a/4.jpg", "nowhere");
    put("train/b/1.png", "not found, said the server", 26);
    put_image("train/b/2.PNG", "jpeg_420"); /* the content decides, not the name */
    char name[512];
    snprintf(name, sizeof name, "%s/train/b/3.jpg", tree);
    assert_int_equal(mkfifo(temporary_path(name), 0600), 0);
}

static void broken_files_are_counted(void **state)
{
    (void)state;
    put_broken();
    fails(SPLIT_TRAIN, "5 of 7 files cannot be used, the first: ");
    fails(SPLIT_TRAIN, "train/a/2.jpg: is empty; data.skip_broken=on skips them");
    options.data.skip_broken = true;
    static const char *const paths[] = {"train/a/1.jpg", "train/b/2.PNG"};
    static const int32_t labels[] = {0, 1};
    opens(SPLIT_TRAIN);
    check_records(2, paths, labels);
    const uint32_t sum = dataset.sum;
    dataset_close(&dataset);
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.sum, sum);
    dataset_close(&dataset);
    put_image("train/a/2.jpg", "jpeg_444");
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.count, 3);
    assert_true(dataset.sum != sum);
    dataset_close(&dataset);
}

static void no_files_are_left(void **state)
{
    (void)state;
    put("train/a/1.jpg", "", 0);
    put("train/b/1.jpg", "", 0);
    options.data.skip_broken = true;
    fails(SPLIT_TRAIN, "the training split of data.format=imagefolder is empty");
}

/* Without a check at the start, invalid files are found when they are loaded. */
static void nothing_is_checked_by_option(void **state)
{
    (void)state;
    static const char *const expected[] = {"train/a/2.jpg",
                                           NULL,
                                           "train/a/4.jpg: No such file",
                                           NULL,
                                           NULL,
                                           "train/b/3.jpg: is not a regular file"};
    struct byte_buffer bytes = {0};
    int32_t label;
    put_broken();
    options.data.check = CHECK_NONE;
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.count, 7);
    for (int i = 1; i < 7; i++) {
        error_clear(&error);
        if (i == 1 || i == 2 || i == 4 || i == 5) {
            assert_true(dataset_load(&dataset, i, &bytes, &label, &error));
            assert_true(bytes.count > 0 || i == 1);
        } else {
            assert_false(dataset_load(&dataset, i, &bytes, &label, &error));
            assert_non_null(strstr(error.text, expected[i - 1]));
        }
    }
    free(bytes.data);
    dataset_close(&dataset);
}

/* The header of a truncated file is valid; decoding finds the error. */
static void all_is_checked_by_option(void **state)
{
    (void)state;
    int64_t count;
    const uint8_t *bytes = vector_file_bytes(vectors, "file.jpeg_420", &count);
    put_image("train/a/1.jpg", "jpeg_444");
    put("train/b/2.jpg", bytes, (size_t)count / 2 + 200);
    opens(SPLIT_TRAIN);
    dataset_close(&dataset);
    options.data.check = CHECK_FULL;
    fails(SPLIT_TRAIN, "train/b/2.jpg: is truncated inside the image");
    options.data.truncated = TRUNCATED_ACCEPT;
    opens(SPLIT_TRAIN);
    assert_int_equal(dataset.count, 2);
    dataset_close(&dataset);
    options.data.max_pixels = 45 * 35 - 1;
    fails(SPLIT_TRAIN, "2 of 2 files cannot be used");
}

/* More files than a thread claims at once: each one is checked. */
static void many_files_are_checked(void **state)
{
    (void)state;
    char path[64];
    for (int i = 0; i < 700; i++) {
        snprintf(path, sizeof path, "train/%c/%04d.jpg", i < 350 ? 'a' : 'b', i);
        if (i % 7 == 3)
            put(path, "", 0);
        else
            put_image(path, i % 100 == 0 ? "jpeg_large_profile" : "png_1x1");
    }
    fails(SPLIT_TRAIN, "100 of 700 files cannot be used, the first: ");
    fails(SPLIT_TRAIN, "0003.jpg");
}

static void cinic_has_its_statistics(void **state)
{
    (void)state;
    put_image("train/cat/1.png", "png_rgb_8");
    put_image("train/dog/1.png", "png_rgb_8");
    put_image("valid/cat/1.png", "png_rgb_8");
    put_image("test/cat/1.png", "png_rgb_8");
    opens(SPLIT_TRAIN);
    assert_false(dataset.normalised);
    dataset_close(&dataset);
    snprintf(options.data.format, sizeof options.data.format, "cinic10");
    opens(SPLIT_TRAIN);
    assert_true(dataset.normalised && dataset.mean[0] > 0.47 && dataset.std[2] > 0.25);
    dataset_close(&dataset);
    struct dataset described;
    assert_true(dataset_describe(&described, &options, &error));
    assert_true(described.encoded && described.classes == 2 && described.normalised);
}

/* ---- For scripts ---- */

static void make_images(const char *directory, const char *split, int count)
{
    static const char *const kinds[] = {"jpeg_420",      "png_rgb_8",  "jpeg_grey",
                                        "png_palette_8", "jpeg_444",   "jpeg_cmyk",
                                        "jpeg_33x17",    "webp_lossy", "webp_lossless_alpha"};
    static const char *const classes[] = {"bird", "cat", "dog"};
    char path[1024], name[64];
    for (int i = 0; i < count; i++) {
        int64_t bytes;
        snprintf(path, sizeof path, "%s/%s/%s/%03d.jpg", directory, split, classes[i % 3], i);
        snprintf(name, sizeof name, "file.%s", kinds[i % 9]);
        const uint8_t *content = vector_file_bytes(vectors, name, &bytes);
        FILE *file = fopen(path, "we");
        if (file == NULL || fwrite(content, 1, (size_t)bytes, file) != (size_t)bytes ||
            fclose(file) != 0) {
            fprintf(stderr, "%s: %s\n", path, strerror(errno));
            exit(1);
        }
    }
}

static int open_tree(void **state)
{
    (void)state;
    vectors = vector_file_open("image_files.safetensors");
    temporary_open();
    return 0;
}

static int close_tree(void **state)
{
    (void)state;
    temporary_close();
    vector_file_close(vectors);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--make") == 0) {
        vectors = vector_file_open("image_files.safetensors");
        make_images(argv[2], "train", atoi(argv[3]));
        make_images(argv[2], "val", atoi(argv[3]) / 3);
        vector_file_close(vectors);
        return 0;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(order_is_torchvisions, set_up),
        cmocka_unit_test_setup(links_are_followed, set_up),
        cmocka_unit_test_setup(splits_are_found, set_up),
        cmocka_unit_test_setup(flat_folders_are_divided, set_up),
        cmocka_unit_test_setup(training_folders_are_divided, set_up),
        cmocka_unit_test_setup(validation_needs_a_folder, set_up),
        cmocka_unit_test_setup(roots_are_checked, set_up),
        cmocka_unit_test_setup(classes_are_compared, set_up),
        cmocka_unit_test_setup(empty_classes_are_errors_or_allowed, set_up),
        cmocka_unit_test_setup(broken_files_are_counted, set_up),
        cmocka_unit_test_setup(no_files_are_left, set_up),
        cmocka_unit_test_setup(nothing_is_checked_by_option, set_up),
        cmocka_unit_test_setup(all_is_checked_by_option, set_up),
        cmocka_unit_test_setup(many_files_are_checked, set_up),
        cmocka_unit_test_setup(cinic_has_its_statistics, set_up),
    };
    return cmocka_run_group_tests_name("image_folder", tests, open_tree, close_tree);
}
