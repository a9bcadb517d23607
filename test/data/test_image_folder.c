// SPDX-License-Identifier: BSD-3-Clause
/* Folders of images: classes and files in torchvision's order, with any names; links, empty
 * classes, files that are not images; assignment of folders to splits.
 *   test_image_folder --make DIRECTORY COUNT   creates train and val with COUNT images, for scripts
 */
#include <sys/stat.h>
#include <unistd.h>

#include "dataset_fixture.h"
#include "temporary.h"
#include "test.h"
#include "vector_file.h"

static void set_up(void)
{
    dataset_begin_folder("data.format=imagefolder");
}

/* Copy a file of the vectors. */
static void put_image(const char *path, const char *kind)
{
    const struct sample sample = sample_find(kind);
    root_write(path, sample.bytes, sample.count);
}

/* Write an image to each of the paths, which have spaces between them. */
static void put_images(const char *paths)
{
    char copy[512], *rest = copy;
    snprintf(copy, sizeof copy, "%s", paths);
    for (const char *path; (path = strsep(&rest, " ")) != NULL;)
        put_image(path, "jpeg_444");
}

static void put_link(const char *path, const char *to)
{
    assert_int_equal(symlink(to, root_path("%s", path)), 0);
}

/* Open a split and check each record: label and path in the folder. */
static void check_records(const char *settings, enum data_split split, int64_t count,
                          const char *const *paths, const int32_t *labels)
{
    struct byte_buffer bytes = {0};
    split_opens(settings, split, count);
    for (int64_t i = 0; i < count; i++) {
        record_is_named(i, root_path("%s", paths[i]));
        assert_true(dataset_load(&dataset, i, &bytes, &error));
        assert_int_equal(dataset_label(&dataset, i), labels[i]);
        assert_true(bytes.count > 0);
    }
    free(bytes.data);
}

/* Names are compared by bytes, as Python's sorted() compares UTF-8. A folder precedes its content,
 * but follows "x-z" if that is smaller than "x/". */
TEST(order_is_torchvisions)
{
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
    root_write("train/a/notes.txt", "x", 1);
    root_write("train/README", "x", 1);
    /* sorted() of the paths of the walk: a, a/x, a/x-z, a/x/y */
    check_records("", SPLIT_TRAIN, 12, paths, labels);
    assert_int_equal(dataset.classes, 3);
    assert_string_equal(dataset.class_name[0], "A b\n");
    assert_string_equal(dataset.class_name[2], "\xc3\xa9");
}

TEST(links_are_followed)
{
    static const char *const paths[] = {"train/cat/1.jpg", "train/cat/more/2.jpg",
                                        "train/dog/1.jpg"};
    static const int32_t labels[] = {0, 0, 1};
    put_images("elsewhere/1.jpg more/2.jpg train/cat/1.jpg");
    put_link("train/dog", "../elsewhere");
    put_link("train/cat/more", "../../more");
    check_records("", SPLIT_TRAIN, 3, paths, labels);
    put_link("train/cat/circle", "..");
    split_fails("", SPLIT_TRAIN, "a circular link");
}

TEST(splits_are_found)
{
    put_images("train/a/1.jpg train/b/2.jpg");
    split_fails("data.allow_empty=on", SPLIT_TEST, "no folder test, val, valid or validation");
    put_images("valid/a/1.jpg");
    for (int split = SPLIT_VALIDATION; split <= SPLIT_TEST; split++) {
        split_opens("", (enum data_split)split, 1);
        record_is_named(0, "/valid/a/1.jpg");
    }
    put_images("test/a/1.jpg test/a/2.jpg test/a/3.jpg");
    split_opens("", SPLIT_VALIDATION, 3);
    split_opens("data.val=val", SPLIT_VALIDATION, 1);
    split_opens("", SPLIT_TEST, 3);
    split_opens("data.val=reference", SPLIT_TRAIN, 3); /* of all five: 3, 0, 2 */
}

/* ROOT/CLASS/FILE without splits. A larger fraction holds out the same images and more; the seed
 * has no effect. */
TEST(flat_folders_are_divided)
{
    static const int images[] = {1, 2, 9, 40};
    static const struct {
        const char *settings;
        int held_out[4];
    } expected[] = {{"data.val=0.001 run.seed=1", {0, 1, 1, 1}},
                    {"data.val=0.1 run.seed=2", {0, 1, 1, 4}},
                    {"data.val=0.5 run.seed=3", {0, 1, 4, 20}},
                    {"data.val=0.99 run.seed=4", {0, 1, 8, 39}}};
    char name[1024];
    int before[52] = {0};
    for (int label = 0; label < 4; label++)
        for (int i = 0; i < images[label]; i++) {
            OWNED char *path = allocate_text("%c/%02d.jpg", 'a' + label, i);
            put_image(path, "png_1x1");
        }
    split_fails("", SPLIT_TRAIN, "only a, b, c, d; it must contain train");
    split_fails("data.val=val", SPLIT_VALIDATION, "per class and data.val=0.1");
    split_opens("data.val=none", SPLIT_TRAIN, 52);
    split_fails("", SPLIT_TEST, "per class and data.val=0.1");
    split_opens("data.val=reference", SPLIT_TEST, 52 - 39 - 4);
    for (int row = 0; row < 4; row++) {
        int seen[52] = {0}, held_out[4] = {0};
        for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++) {
            split_opens(expected[row].settings, (enum data_split)split, -1);
            assert_int_equal(dataset.classes, 4);
            for (int64_t i = 0; i < dataset.count; i++) {
                seen[dataset_record(&dataset, i)] += 1 << (4 * split);
                dataset_name(&dataset, i, name, sizeof name);
                held_out[name[strlen(options.data.root) + 1] - 'a'] += split == SPLIT_VALIDATION;
            }
        }
        assert_memory_equal(held_out, expected[row].held_out, sizeof held_out);
        for (int i = 0; i < 52; i++) { /* each image is for training, or for both others */
            assert_true(seen[i] == 0x001 || seen[i] == 0x110);
            assert_true(seen[i] >= before[i]);
        }
        memcpy(before, seen, sizeof seen);
    }
}

TEST(roots_are_checked)
{
    assert_int_equal(rmdir(options.data.root), 0);
    split_fails("", SPLIT_TRAIN, "No such file or directory");
    root_write("notes.txt", "", 0);
    split_fails("", SPLIT_TRAIN,
                "no folder train, val or test, only notes.txt; it must contain train");
    root_write("train/x", "", 0);
    split_fails("", SPLIT_TRAIN, "no class folders");
    put_images("train/a/1.jpg test/a/1.jpg");
    split_fails("data.val=val", SPLIT_VALIDATION, "no folder val, valid or validation");
    split_fails("data.root=", SPLIT_TRAIN, "data.root");
}

/* Classes are those of the training folder. Hidden folders are no classes, and empty ones are
 * errors or allowed. */
TEST(classes_are_compared)
{
    put_images("train/a/1.jpg train/b/1.jpg train/.ipynb_checkpoints/1.jpg val/b/1.jpg");
    root_write("train/c/1.txt", "x", 1);
    assert_int_equal(mkdir(root_path("train/c/deep"), 0777), 0);
    split_fails("", SPLIT_TRAIN, "train/c: no images");
    split_fails("", SPLIT_TEST, "val/a: no images");
    split_opens("data.allow_empty=on", SPLIT_TRAIN, 2);
    assert_int_equal(dataset.classes, 3);
    split_opens("", SPLIT_TEST, 1);
    assert_int_equal(dataset_label(&dataset, 0), 1);
    put_images("val/d/1.jpg");
    split_fails("", SPLIT_TEST, "val/d: class missing");
}

/* A truncated file is found if files are decoded, and left out if broken files are skipped. */
TEST(truncated_files_are_found)
{
    put_images("train/a/1.jpg train/b/1.jpg");
    /* The header is valid; decoding finds the error. */
    const struct sample whole = sample_find("jpeg_420");
    root_write("train/b/2.jpg", whole.bytes, whole.count / 2 + 200);
    split_opens("", SPLIT_TRAIN, 3);
    split_fails("data.check=full", SPLIT_TRAIN, "train/b/2.jpg: is truncated");
    split_fails("data.max_pixels=1574", SPLIT_TRAIN, "3 of 3 files cannot be used");
    split_opens("data.max_pixels=1575 data.skip_broken=on", SPLIT_TRAIN, 2); /* 45 x 35 pixels */
    split_opens("data.check=header", SPLIT_TRAIN, 2);
    split_opens("data.check=none", SPLIT_TRAIN, 2);
}

/* Five of seven files are not images. Without a check at the start, those that are not files are
 * found when they are loaded. */
TEST(broken_files_are_counted)
{
    static const char *const paths[] = {"train/a/1.jpg", "train/b/2.PNG"};
    static const int32_t labels[] = {0, 1};
    struct byte_buffer bytes = {0};
    put_images("train/a/1.jpg");
    root_write("train/a/2.jpg", "", 0);
    root_write("train/a/3.webp", "RIFF\x10\0\0\0WEBPVP8 ", 16); /* truncated */
    put_link("train/a/4.jpg", "nowhere");
    root_write("train/b/1.png", "not found, said the server", 26);
    put_image("train/b/2.PNG", "jpeg_420"); /* the content decides, not the name */
    assert_int_equal(mkfifo(root_path("train/b/3.jpg"), 0600), 0);
    split_fails("", SPLIT_TRAIN, "5 of 7 files cannot be used");
    split_fails("", SPLIT_TRAIN, "train/a/2.jpg: is empty");
    check_records("data.skip_broken=on", SPLIT_TRAIN, 2, paths, labels);
    split_opens("data.skip_broken=off data.check=none", SPLIT_TRAIN, 7);
    for (int i = 1; i < 7; i++) {
        const char *part = i == 3   ? "train/a/4.jpg: No such file"
                           : i == 6 ? "train/b/3.jpg: is not a regular file"
                                    : "";
        error_clear(&error);
        assert_int_equal(dataset_load(&dataset, i, &bytes, &error), part[0] == '\0');
        assert_has(error.text, part);
    }
    free(bytes.data);
}

TEST(no_files_are_left)
{
    root_write("train/a/1.jpg", "", 0);
    root_write("train/b/1.jpg", "", 0);
    split_fails("data.skip_broken=on", SPLIT_TRAIN,
                "the training split of data.format=imagefolder is empty");
}

/* More files than a thread claims at once: each one is checked. */
TEST(many_files_are_checked)
{
    for (int i = 0; i < 700; i++) {
        OWNED char *path = allocate_text("train/%c/%04d.jpg", i < 350 ? 'a' : 'b', i);
        if (i % 7 == 3)
            root_write(path, "", 0);
        else
            put_image(path, i % 100 == 0 ? "jpeg_large_profile" : "png_1x1");
    }
    split_fails("", SPLIT_TRAIN, "100 of 700 files cannot be used");
    split_fails("", SPLIT_TRAIN, "0003.jpg");
}

/* ---- For scripts ---- */

static void make_images(const char *directory, const char *split, int count)
{
    static const char *const kinds[] = {"jpeg_420",      "png_rgb_8",  "jpeg_grey",
                                        "png_palette_8", "jpeg_444",   "jpeg_cmyk",
                                        "jpeg_33x17",    "webp_lossy", "webp_lossless_alpha"};
    static const char *const classes[] = {"bird", "cat", "dog"};
    snprintf(options.data.root, sizeof options.data.root, "%s/%s", directory, split);
    for (int i = 0; i < count; i++) {
        OWNED char *path = allocate_text("%s/%03d.jpg", classes[i % 3], i);
        put_image(path, kinds[i % 9]);
    }
}

int main(int argc, char **argv)
{
    int failed = 0;
    image_vectors_open();
    if (argc == 4 && strcmp(argv[1], "--make") == 0) {
        make_images(argv[2], "train", atoi(argv[3]));
        make_images(argv[2], "val", atoi(argv[3]) / 3);
    } else {
        failed = TESTS_RUN(.setup = temporary_setup, .teardown = temporary_close, .before = set_up);
    }
    image_vectors_close();
    return failed;
}
