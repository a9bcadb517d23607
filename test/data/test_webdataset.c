// SPDX-License-Identifier: BSD-3-Clause
// sources: test/data/shards.c
/* WebDataset's tar shards: formats of archives, splits and patterns, labels and class names,
 * damage, also random damage. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <archive_entry.h>

#include "core/random.h"
#include "shards.h"

enum { MUTATIONS = 250 };

TEST(formats_are_read)
{
    static const char *const formats[] = {"v7tar", "ustar", "gnutar", "pax"};
    char folder[256], name[300];
    memset(folder, 'd', 130);
    folder[130] = '\0';
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        struct archive *archive = shard_begin("a.tar", formats[i]);
        const bool is_long = i > 0; /* v7 has names of up to 99 bytes */
        shard_add_text(archive, "folder/", "");
        shard_add_text(archive, "folder/README", "ignored");
        shard_add_text(archive, "folder/._x.jpg", "ignored: no key");
        shard_add_text(archive, "folder/other.txt", "ignored: neither image nor label");
        shard_add_text(archive, "folder/a.cls", " 1\n");
        shard_add_jpeg(archive, "folder/a.JPG");
        snprintf(name, sizeof name, "%s/\xc3\xa9.jpeg", is_long ? folder : "d");
        shard_add_jpeg(archive, name);
        snprintf(name, sizeof name, "%s/\xc3\xa9.json", is_long ? folder : "d");
        shard_add_text(archive, name, "{\"caption\": \"x\", \"label\": 0}");
        shard_add_text(archive, "c.txt", "ignored");
        shard_add_jpeg(archive, "c.png");
        shard_add_text(archive, "c.json", "{\"cls\": 7, \"other\": [1, 2]}");
        shard_add_text(archive, "c.cls", "2");
        shard_end(archive);
        split_opens(SPLIT_TRAIN, 3);
        assert_int_equal(dataset.classes, 3);
        assert_string_equal(dataset.class_name[2], "2");
        assert_true(dataset.encoded && dataset.channels == 3);
        check_record(0, 1, "a.tar: folder/a.JPG at byte ");
        check_record(1, 0, "d/\xc3\xa9.jpeg at byte ");
        check_record(2, 2, ": c.png at byte ");
    }
}

TEST(splits_are_found)
{
    shard_put_default("x-train-000001.tar");
    shard_put_default("x-train-000000.tar");
    options.data.val = VALIDATION_TEST;
    split_fails(SPLIT_TEST, "none of the 2 shards has test, val, valid or validation in its name");
    options.data.val = VALIDATION_FRACTION;
    options.data.val_fraction = 0.5;
    split_opens(SPLIT_TRAIN, 3);
    split_opens(SPLIT_VALIDATION, 3);
    split_opens(SPLIT_TEST, 3);
    options.data.val = VALIDATION_TEST;
    shard_put_default("x-validation-00.tar");
    split_opens(SPLIT_TEST, 3);
    check_record(2, 1, "x-validation-00.tar: 000002.jpg");
    split_opens(SPLIT_TRAIN, 6);
    check_record(0, 0, "x-train-000000.tar: 000000.jpg");
    check_record(5, 1, "x-train-000001.tar: 000002.jpg");
    options.data.val = VALIDATION_VAL;
    split_opens(SPLIT_VALIDATION, 3);
    shard_put_default("test.tar");
    split_opens(SPLIT_TEST, 3);
    check_record(0, 0, "/test.tar: ");
    options.data.val = VALIDATION_REFERENCE; /* of all nine: 6, 0, 3 */
    split_opens(SPLIT_TRAIN, 6);
}

TEST(folders_of_splits_are_found)
{
    assert_int_equal(mkdir(path_of("train"), 0777) + mkdir(path_of("val"), 0777), 0);
    shard_put_default("train/1.tar");
    shard_put_default("train/0.tar");
    shard_put_default("val/0.tar");
    FILE *names = fopen(path_of("classes.txt"), "we");
    assert_true(names != NULL && fputs("tench\r\nowl\nfox\nbear\n\n", names) > 0 &&
                fclose(names) == 0);
    split_opens(SPLIT_TRAIN, 6);
    check_record(0, 0, "train/0.tar: 000000.jpg");
    assert_int_equal(dataset.classes, 4);
    assert_string_equal(dataset.class_name[0], "tench");
    assert_string_equal(dataset.class_name[3], "bear");
    split_opens(SPLIT_TEST, 3);
}

TEST(patterns_are_expanded)
{
    char root[1024];
    snprintf(root, sizeof root, "%.900s", options.data.root);
    for (int i = 8; i <= 11; i++) {
        char name[32];
        snprintf(name, sizeof name, "t-%03d.tar", i);
        shard_put_default(name);
    }
    shard_put_default("val-0.tar");
    static const struct {
        const char *pattern;
        enum data_split split;
        int64_t count;
        const char *error;
    } cases[] = {
        {"%/t-{008..011}.tar", SPLIT_TRAIN, 12, NULL},
        {"%/t-0{08..9}.tar", SPLIT_TRAIN, 6, NULL},
        {"%/{t-{008,01{0..1}},val-0}.tar", SPLIT_TRAIN, 9, NULL},
        {"%/{t-{008,01{0..1}},val-0}.tar", SPLIT_TEST, 3, NULL},
        {"%/t-*1?.tar", SPLIT_TRAIN, 6, NULL},
        {"%/t-008.tar::%/val-*.tar", SPLIT_TEST, 3, NULL},
        {"%/t-{008..012}.tar", SPLIT_TRAIN, 0,
         "t-012.tar: No such file or directory; check data.root"},
        {"%/t-{011..008}.tar", SPLIT_TRAIN, 0, "a range that ends before it begins"},
        {"%/t-{008.tar", SPLIT_TRAIN, 0, "a brace is not closed"},
        {"%/t-9*.tar", SPLIT_TRAIN, 0, "no file matches"},
        {"%/{t-008,t-008}.tar", SPLIT_TRAIN, 0, "t-008.tar twice"},
        {"%/val-0.tar", SPLIT_TRAIN, 0, "all 1 shards are for evaluation"},
        {"https://host/a-{0..9}.tar", SPLIT_TRAIN, 0, "read from local files only"},
        {"pipe:cat %/x.tar", SPLIT_TRAIN, 0, "read from local files only"},
        {"%/nowhere", SPLIT_TRAIN, 0, "No such file or directory"},
        {"/dev/null", SPLIT_TRAIN, 0, "/dev/null: is not a regular file"},
        {"", SPLIT_TRAIN, 0, "needs data.root"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *at = cases[i].pattern;
        size_t used = 0;
        for (; *at != '\0'; at++) /* % is the folder */
            used +=
                (size_t)snprintf(options.data.root + used, sizeof options.data.root - used, "%.*s",
                                 *at == '%' ? (int)strlen(root) : 1, *at == '%' ? root : at);
        options.data.root[used] = '\0';
        if (cases[i].error != NULL) {
            split_fails(cases[i].split, cases[i].error);
            continue;
        }
        split_opens(cases[i].split, cases[i].count);
    }
}

TEST(folders_without_shards_are_errors)
{
    split_fails(SPLIT_TRAIN,
                "is empty; set data.root to the folder of the shards or to their names");
    FILE *file = fopen(path_of("a.tar.gz"), "we");
    assert_true(file != NULL && fclose(file) == 0);
    split_fails(SPLIT_TRAIN, "no shards (*.tar or train/*.tar), only a.tar.gz; set");
    assert_int_equal(unlink(shard_path), 0);
    file = fopen(path_of("a.txt"), "we");
    assert_true(file != NULL && fclose(file) == 0);
    split_fails(SPLIT_TRAIN, "no shards (*.tar or train/*.tar), only a.txt; set data.root");
    shard_put_default("a.tar");
    snprintf(options.data.format, sizeof options.data.format, "imagefolder");
    split_fails(SPLIT_TRAIN, ", only a.tar");
}

TEST(samples_are_checked)
{
    shard_put_problems();
    split_fails(SPLIT_TRAIN, "8 problems in the shards, the first: ");
    split_fails(SPLIT_TRAIN, "a.tar: 1 at byte 2560: no label, .cls or .json, next to the image; "
                             "data.skip_broken=on skips such samples");
    options.data.skip_broken = true;
    split_opens(SPLIT_TRAIN, 2);
    check_record(1, 2, "8.jpg");
}

TEST(each_problem_is_named)
{
    static const struct {
        const char *image, *second, *label, *content, *error;
    } cases[] = {
        {NULL, NULL, "k.cls", "1", "k at byte 0: no image, .jpg, .jpeg, .png or .webp, next to"},
        {"k.jpg", NULL, "k.cls", "one", "k at byte 0: .cls is not a class number from 0"},
        {"k.jpg", NULL, "k.cls", "", ".cls is not a class number from 0"},
        {"k.jpg", NULL, "k.cls", "1 2", ".cls is not a class number from 0"},
        {"k.jpg", NULL, "k.cls", "99999999999999999999", ".cls is not a class number"},
        {"k.jpg", NULL, "k.json", "{\"label\": -1}",
         ".json has no class number from 0 to 499999 as"},
        {"k.jpg", NULL, "k.json", "{\"label\": 1.5}", ".json has no class number"},
        {"k.jpg", NULL, "k.json", "[1]", ".json has no class number"},
        {"k.jpg", NULL, "k.json", "{", ".json has no class number"},
        {"k.jpg", "k.jpeg", "k.cls", "1", "more than one image"},
        {"k.jpg", "k.cls", "k.cls", "1", "more than one .cls"},
        {"k.jpg", "k.json", "k.json", "{}", "more than one .json"},
        {"k.1.jpg", NULL, "k.1.cls", "1", "no samples: a sample is KEY.jpg"},
        {"k\n.jpg", NULL, "l.cls", "1", "k? at byte 0: no label"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct archive *archive = shard_begin("a.tar", "ustar");
        if (cases[i].image != NULL)
            shard_add_jpeg(archive, cases[i].image);
        if (cases[i].second != NULL)
            shard_add_jpeg(archive, cases[i].second);
        shard_add_text(archive, cases[i].label, cases[i].content);
        shard_end(archive);
        split_fails(SPLIT_TRAIN, cases[i].error);
    }
}

TEST(duplicates_are_found)
{
    struct archive *archive = shard_begin("a.tar", "pax");
    for (int i = 0; i < 6; i++) {
        static const char *const keys[] = {"a", "b", "c", "b", "a", "b"};
        char name[16];
        snprintf(name, sizeof name, "%s.cls", keys[i]);
        shard_add_text(archive, name, "1");
        snprintf(name, sizeof name, "%s.jpg", keys[i]);
        shard_add_jpeg(archive, name);
    }
    shard_end(archive);
    split_fails(SPLIT_TRAIN, "3 problems");
    split_fails(SPLIT_TRAIN, "the shard has an earlier sample of this name");
    options.data.skip_broken = true;
    split_opens(SPLIT_TRAIN, 3);
    check_record(2, 1, "c.jpg");
}

/* Labels and images are checked when the data set is opened, since options decide. */
TEST(images_are_checked)
{
    struct archive *archive = shard_begin("a.tar", "ustar");
    shard_add_text(archive, "0.cls", "0");
    shard_add_jpeg(archive, "0.jpg");
    shard_add_text(archive, "1.cls", "1");
    shard_add_text(archive, "1.jpg", "not an image at all");
    shard_add_text(archive, "2.cls", "1");
    shard_add_file(archive, "2.jpg", image, image_bytes / 2); /* truncated */
    shard_end(archive);
    split_fails(SPLIT_TRAIN, "1 of 3 files cannot be used, the first: ");
    split_fails(SPLIT_TRAIN, "a.tar: 1.jpg at byte 3584: is not an image");
    options.data.skip_broken = true; /* all images are decoded */
    split_opens(SPLIT_TRAIN, 1);
    check_record(0, 0, "0.jpg");
    options.data.check = CHECK_FULL;
    split_opens(SPLIT_TRAIN, 1);
    options.data.skip_broken = false;
    options.data.check = CHECK_NONE;
    split_opens(SPLIT_TRAIN, 3);
    options.data.check = CHECK_HEADER;
    options.data.max_pixels = 3;
    split_fails(SPLIT_TRAIN, "3 of 3 files cannot be used");
    split_fails(SPLIT_TRAIN, "more than data.max_pixels=3");
}

TEST(labels_are_compared_with_classes)
{
    shard_put_default("train.tar");
    static const int more[] = {0, 3};
    shard_put("val.tar", 2, more);
    split_fails(SPLIT_TEST, "label 3 is out of range: the training split has 3 classes");
    FILE *names = fopen(path_of("classnames.txt"), "we");
    assert_true(names != NULL && fputs("a\nb", names) > 0 && fclose(names) == 0);
    split_fails(SPLIT_TRAIN, "label 2 is out of range: the file of class names has 2 classes");
}

TEST(damage_is_reported)
{
    size_t bytes;
    shard_put_default("a.tar");
    char *whole = shard_read("a.tar", &bytes);
    const size_t padded = (image_bytes + 511) / 512 * 512, sample = 1536 + padded;
    options.data.skip_broken = true;
    shard_write("a.tar", whole, 2 * sample + 1536 + 100); /* inside the third image */
    split_opens(SPLIT_TRAIN, 2);
    options.data.skip_broken = false;
    split_fails(SPLIT_TRAIN, "ends after the end of the file: the shard is truncated");
    shard_write("a.tar", whole, 2 * sample); /* after the second image */
    split_fails(SPLIT_TRAIN, "no end of archive: the shard is truncated");
    shard_write("a.tar", whole, 2 * sample + 100);
    split_fails(SPLIT_TRAIN, "a.tar: archive at byte ");
    shard_write("a.tar", whole, 0);
    split_fails(SPLIT_TRAIN, "a.tar: archive at byte 0: is empty");
    shard_write("a.tar", "garbage, garbage", 16);
    split_fails(SPLIT_TRAIN, "is not a tar archive");
    shard_write("a.tar", "\x1f\x8b\x08 gzip", 8);
    split_fails(SPLIT_TRAIN, "is compressed with gzip, which cannot be read in place");
    shard_write("a.tar", "\x28\xb5\x2f\xfd zstd", 9);
    split_fails(SPLIT_TRAIN, "is compressed with zstd");
    memcpy(whole + sample + 257, "ustar  ", 8); /* a GNU archive */
    whole[sample + 156] = 'S';                  /* a sparse member without a map, */
    memset(whole + sample + 483, 0xff, 12);     /* and with the size -1 */
    header_sum(whole + sample);
    shard_write("a.tar", whole, bytes);
    split_fails(SPLIT_TRAIN,
                archive_version_number() < 3008000
                    ? "000001.cls at byte 2560: has a size below 0: the shard is damaged"
                    : "Tar entry has negative file size");
    whole[sample + 20] ^= 1; /* the header's checksum is wrong */
    shard_write("a.tar", whole, bytes);
    split_fails(SPLIT_TRAIN, "Damaged tar archive");
    free(whole);
}

TEST(sparse_members_are_refused)
{
    struct archive *archive = shard_begin("a.tar", "pax");
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, "a.jpg");
    archive_entry_set_size(entry, 100000);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_sparse_add_entry(entry, 50000, 1000);
    assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
    char *zeros = calloc(1, 100000);
    archive_write_data(archive, zeros, 100000);
    free(zeros);
    archive_entry_free(entry);
    shard_end(archive);
    split_fails(SPLIT_TRAIN, "a.jpg at byte 0: is sparse: write it without tar --sparse");
}

/* A shard that became shorter after it was opened is an error of the read. */
TEST(truncation_while_open_is_an_error)
{
    struct error error = {0};
    struct byte_buffer bytes = {0};
    int32_t label;
    shard_put_default("a.tar");
    split_opens(SPLIT_TRAIN, 3);
    assert_int_equal(truncate(path_of("a.tar"), 2000), 0);
    assert_false(dataset_load(&dataset, 2, &bytes, &label, &error));
    assert_error(&error, ERROR_DATA, "a.tar is truncated");
    dataset_advise(&dataset, 0, 3);
    free(bytes.data);
}

TEST(one_class_is_an_error)
{
    shard_put("a.tar", 2, (int[]){0, 0});
    split_fails(SPLIT_TRAIN, "one class only: training needs two or more");
    shard_put("a.tar", 2, (int[]){0, 600000});
    split_fails(SPLIT_TRAIN, ".cls is not a class number from 0 to 499999");
}

/* The same images with other labels and names, so that the members keep their places. */
TEST(rewriting_while_open_is_an_error)
{
    struct error error = {0};
    struct byte_buffer bytes = {0};
    int32_t label;
    shard_put_default("a.tar");
    split_opens(SPLIT_TRAIN, 3);
    assert_true(dataset_load(&dataset, 0, &bytes, &label, &error));
    struct archive *archive = shard_begin("a.tar", "ustar");
    for (int i = 3; i > 0; i--) {
        char key[32];
        snprintf(key, sizeof key, "%06d.cls", i);
        shard_add_text(archive, key, "1");
        snprintf(key, sizeof key, "%06d.jpg", i);
        shard_add_jpeg(archive, key);
    }
    shard_end(archive);
    assert_false(dataset_load(&dataset, 0, &bytes, &label, &error));
    assert_error(&error, ERROR_DATA, "a.tar was rewritten: the tar header of the sample at byte ");
    free(bytes.data);
}

/* All shards stay open; the limit of open files is named. */
TEST(limit_of_open_files_is_named)
{
    struct rlimit limit;
    char name[16];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "%02d.tar", i);
        shard_put(name, 1, default_labels + 1);
    }
    split_opens(SPLIT_TRAIN, 40);
    dataset_close(&dataset);
    const pid_t child = fork(); /* a hard limit cannot be raised again */
    if (child == 0) {
        struct error error = {0};
        limit = (struct rlimit){.rlim_cur = 30, .rlim_max = 30};
        _exit(setrlimit(RLIMIT_NOFILE, &limit) != 0 ||
              dataset_open(&dataset, &options, SPLIT_TRAIN, NULL, &error) ||
              strstr(error.text,
                     "Too many open files: the limit is 30 (ulimit -n); raise the hard") == NULL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- Random damage. */

static uint32_t draw(uint32_t number, uint32_t turn, uint32_t below)
{
    return random_block_at(1, RANDOM_SYNTHETIC, 0, 0, number, turn).word[0] % below;
}

/* Change some bytes of the headers, half of the time with a right checksum; cut the file. */
static size_t damage_shard(char *shard, size_t bytes, uint32_t number)
{
    const uint32_t changes = 1 + draw(number, 0, 4);
    const uint32_t blocks = (uint32_t)bytes / 512;
    for (uint32_t turn = 1; turn <= changes; turn++) {
        char *header = shard + (size_t)draw(number, 8 * turn, blocks) * 512;
        while (header > shard && memcmp(header + 257, "ustar", 5) != 0)
            header -= 512;
        static const char values[] = "\0\377\2000179 x./gLKS";
        const uint32_t at = draw(number, 8 * turn + 1, draw(number, 8 * turn + 5, 2) ? 512 : 160);
        header[at] = draw(number, 8 * turn + 2, 2) == 0
                         ? values[draw(number, 8 * turn + 3, sizeof values - 1)]
                         : (char)draw(number, 8 * turn + 3, 256);
        if (draw(number, 8 * turn + 4, 4) != 0)
            header_sum(header);
    }
    return draw(number, 1, 8) == 0 ? draw(number, 2, (uint32_t)bytes) : bytes;
}

/* Open a data set and load each record. Return whether it could be opened. */
static bool try_all(void)
{
    struct byte_buffer bytes = {0};
    int32_t label;
    char name[4096];
    struct error error = {0};
    dataset_close(&dataset);
    if (!dataset_open(&dataset, &options, SPLIT_TRAIN, NULL, &error)) {
        assert_true(error.kind == ERROR_DATA || error.kind == ERROR_MEMORY);
        assert_null(strchr(error.text, '\n'));
        return false;
    }
    for (int64_t i = 0; i < dataset.count; i++) {
        assert_ok(dataset_load(&dataset, i, &bytes, &label, &error), &error);
        assert_in_range(label, 0, dataset.classes - 1);
        dataset_name(&dataset, i, name, sizeof name);
    }
    free(bytes.data);
    return true;
}

TEST(random_damage_does_no_harm)
{
    static const char *const formats[] = {"ustar", "gnutar", "pax"};
    size_t bytes[3];
    char *whole[3], name[160];
    int opened = 0;
    for (int f = 0; f < 3; f++) {
        struct archive *archive = shard_begin("a.tar", formats[f]);
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "%0*d.cls", f == 0 ? 3 : 120, i);
            shard_add_text(archive, name, "1");
            snprintf(name, sizeof name, "%0*d.jpg", f == 0 ? 3 : 120, i);
            shard_add_file(archive, name, image, 600);
        }
        shard_end(archive);
        whole[f] = shard_read("a.tar", &bytes[f]);
    }
    char *damaged = malloc(bytes[0] + bytes[1] + bytes[2]);
    for (uint32_t number = 0; number < MUTATIONS; number++) {
        const uint32_t f = number % 3;
        options.data.skip_broken = draw(number, 99, 2) == 0;
        memcpy(damaged, whole[f], bytes[f]);
        shard_write("a.tar", damaged, damage_shard(damaged, bytes[f], number));
        opened += try_all();
    }
    assert_in_range(opened, MUTATIONS / 50, MUTATIONS * 98 / 100);
    for (int f = 0; f < 3; f++)
        free(whole[f]);
    free(damaged);
}

TEST_MAIN(.setup = shards_open, .teardown = shards_close, .before = shards_begin)
