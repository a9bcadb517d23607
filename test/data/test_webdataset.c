// SPDX-License-Identifier: BSD-3-Clause
/* WebDataset's tar shards: formats of archives, splits and patterns, labels and class names,
 * damage, and the stored index. With a number as argument, only the test of random damage runs,
 * with so many mutations. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <archive.h>
#include <archive_entry.h>

#include "config/options.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "core/random.h"
#include "core/text_file.h"
#include "data/dataset.h"
#include "temporary.h"
#include "vector_file.h"

static struct vector_file *vectors;
static const uint8_t *image; /* a JPEG file */
static size_t image_bytes;
static struct options options;
static struct dataset dataset;
static struct error error;
static int trees;
static int mutations = 500;

/* Each test has its own folder, data.root. */
static int set_up(void **state)
{
    (void)state;
    char name[32];
    options_default(&options);
    error_clear(&error);
    snprintf(name, sizeof name, "tree%d", ++trees);
    snprintf(options.data.format, sizeof options.data.format, "webdataset");
    snprintf(options.data.root, sizeof options.data.root, "%s", temporary_directory(name));
    return 0;
}

/* ---- Shards. */

static char shard_path[2048];

static const char *path_of(const char *name)
{
    snprintf(shard_path, sizeof shard_path, "%s/%s", options.data.root, name);
    return shard_path;
}

static struct archive *shard_begin(const char *name, const char *format)
{
    struct archive *archive = archive_write_new();
    assert_int_equal(archive_write_set_format_by_name(archive, format), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(archive, path_of(name)), ARCHIVE_OK);
    return archive;
}

static void member(struct archive *archive, const char *name, const void *bytes, size_t count)
{
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, name);
    archive_entry_set_size(entry, (int64_t)count);
    archive_entry_set_filetype(entry, name[strlen(name) - 1] == '/' ? AE_IFDIR : AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    assert_true(archive_write_header(archive, entry) >= ARCHIVE_WARN); /* names not in ASCII */
    assert_int_equal(archive_write_data(archive, bytes, count), (int)count);
    archive_entry_free(entry);
}

static void text(struct archive *archive, const char *name, const char *content)
{
    member(archive, name, content, strlen(content));
}

static void jpeg(struct archive *archive, const char *name)
{
    member(archive, name, image, image_bytes);
}

static void shard_end(struct archive *archive)
{
    assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
}

/* A shard of samples 0, 1, ... with these labels. */
static void put_shard(const char *name, int count, const int *labels)
{
    char key[32], label[16];
    struct archive *archive = shard_begin(name, "ustar");
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%06d.cls", i);
        snprintf(label, sizeof label, "%d", labels[i]);
        text(archive, key, label);
        snprintf(key, sizeof key, "%06d.jpg", i);
        jpeg(archive, key);
    }
    shard_end(archive);
}

static const int few[] = {0, 2, 1};

/* ---- Opening. */

static void opens(enum data_split split, int64_t count)
{
    if (!dataset_open(&dataset, &options, split, &error))
        fail_msg("%s", error.text);
    assert_int_equal(dataset.count, count);
}

static void fails(enum data_split split, const char *expected)
{
    error_clear(&error);
    if (dataset_open(&dataset, &options, split, &error))
        fail_msg("no error where \"%s\" is expected", expected);
    if (strstr(error.text, expected) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", expected, error.text);
    assert_null(strchr(error.text, '\n'));
    error_clear(&error);
}

/* The record is the image, with this label and this end of its name. */
static void check_record(int64_t index, int32_t expected, const char *ending)
{
    char name[4096];
    struct byte_buffer bytes = {0};
    int32_t label = -1;
    if (!dataset_load(&dataset, index, &bytes, &label, &error))
        fail_msg("%s", error.text);
    assert_int_equal(label, expected);
    assert_int_equal(bytes.count, image_bytes);
    assert_memory_equal(bytes.data, image, image_bytes);
    free(bytes.data);
    dataset_name(&dataset, index, name, sizeof name);
    if (strstr(name, ending) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", ending, name);
}

static void formats_are_read(void **state)
{
    (void)state;
    static const char *const formats[] = {"v7tar", "ustar", "gnutar", "pax"};
    char folder[256], name[300];
    memset(folder, 'd', 130);
    folder[130] = '\0';
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        struct archive *archive = shard_begin("a.tar", formats[i]);
        const bool is_long = i > 0; /* v7 has names of up to 99 bytes */
        text(archive, "folder/", "");
        text(archive, "folder/README", "ignored");
        text(archive, "folder/._x.jpg", "ignored: no key");
        text(archive, "folder/other.txt", "ignored: neither image nor label");
        text(archive, "folder/a.cls", " 1\n");
        jpeg(archive, "folder/a.JPG");
        snprintf(name, sizeof name, "%s/\xc3\xa9.jpeg", is_long ? folder : "d");
        jpeg(archive, name);
        snprintf(name, sizeof name, "%s/\xc3\xa9.json", is_long ? folder : "d");
        text(archive, name, "{\"caption\": \"x\", \"label\": 0}");
        text(archive, "c.txt", "ignored");
        jpeg(archive, "c.png");
        text(archive, "c.json", "{\"cls\": 7, \"other\": [1, 2]}");
        text(archive, "c.cls", "2");
        shard_end(archive);
        opens(SPLIT_TRAIN, 3);
        assert_int_equal(dataset.classes, 3);
        assert_string_equal(dataset.class_name[2], "2");
        assert_true(dataset.encoded && dataset.channels == 3);
        check_record(0, 1, "a.tar: folder/a.JPG at byte ");
        check_record(1, 0, "d/\xc3\xa9.jpeg at byte ");
        check_record(2, 2, ": c.png at byte ");
        dataset_close(&dataset);
    }
}

static void put(const char *name)
{
    put_shard(name, 3, few);
}

static void splits_are_found(void **state)
{
    (void)state;
    put("x-train-000001.tar");
    put("x-train-000000.tar");
    options.data.val = VALIDATION_TEST;
    fails(SPLIT_TEST, "none of the 2 shards has test, val, valid or validation in its name");
    options.data.val = VALIDATION_FRACTION;
    options.data.val_fraction = 0.5;
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    opens(SPLIT_VALIDATION, 3);
    dataset_close(&dataset);
    opens(SPLIT_TEST, 3);
    dataset_close(&dataset);
    options.data.val = VALIDATION_TEST;
    put("x-validation-00.tar");
    opens(SPLIT_TEST, 3);
    check_record(2, 1, "x-validation-00.tar: 000002.jpg");
    dataset_close(&dataset);
    opens(SPLIT_TRAIN, 6);
    check_record(0, 0, "x-train-000000.tar: 000000.jpg");
    check_record(5, 1, "x-train-000001.tar: 000002.jpg");
    dataset_close(&dataset);
    options.data.val = VALIDATION_VAL;
    opens(SPLIT_VALIDATION, 3);
    dataset_close(&dataset);
    put("test.tar");
    opens(SPLIT_TEST, 3);
    check_record(0, 0, "/test.tar: ");
    dataset_close(&dataset);
    options.data.val = VALIDATION_REFERENCE; /* of all nine: 6, 0, 3 */
    opens(SPLIT_TRAIN, 6);
    dataset_close(&dataset);
}

static void folders_of_splits_are_found(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path_of("train"), 0777) + mkdir(path_of("val"), 0777), 0);
    put("train/1.tar");
    put("train/0.tar");
    put("val/0.tar");
    FILE *names = fopen(path_of("classes.txt"), "we");
    assert_true(names != NULL && fputs("tench\r\nowl\nfox\nbear\n\n", names) > 0 &&
                fclose(names) == 0);
    opens(SPLIT_TRAIN, 6);
    check_record(0, 0, "train/0.tar: 000000.jpg");
    assert_int_equal(dataset.classes, 4);
    assert_string_equal(dataset.class_name[0], "tench");
    assert_string_equal(dataset.class_name[3], "bear");
    dataset_close(&dataset);
    opens(SPLIT_TEST, 3);
    dataset_close(&dataset);
}

static void patterns_are_expanded(void **state)
{
    (void)state;
    char root[1024];
    snprintf(root, sizeof root, "%.900s", options.data.root);
    for (int i = 8; i <= 11; i++) {
        char name[32];
        snprintf(name, sizeof name, "t-%03d.tar", i);
        put(name);
    }
    put("val-0.tar");
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
        {"%/val-0.tar", SPLIT_TRAIN, 0, "none of the 1 shards has train in its name"},
        {"https://host/a-{0..9}.tar", SPLIT_TRAIN, 0, "read from local files only"},
        {"pipe:cat %/x.tar", SPLIT_TRAIN, 0, "read from local files only"},
        {"%/nowhere", SPLIT_TRAIN, 0, "no such file or folder"},
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
            fails(cases[i].split, cases[i].error);
            continue;
        }
        opens(cases[i].split, cases[i].count);
        dataset_close(&dataset);
    }
}

static void folders_without_shards_are_errors(void **state)
{
    (void)state;
    fails(SPLIT_TRAIN, "is empty; set data.root to the folder of the shards or to their names");
    FILE *file = fopen(path_of("a.tar.gz"), "we");
    assert_true(file != NULL && fclose(file) == 0);
    fails(SPLIT_TRAIN, "holds the archive a.tar.gz: extract it");
    assert_int_equal(unlink(shard_path), 0);
    file = fopen(path_of("a.txt"), "we");
    assert_true(file != NULL && fclose(file) == 0);
    fails(SPLIT_TRAIN, "no shards (*.tar or train/*.tar), only a.txt; set data.root");
    put("a.tar");
    snprintf(options.data.format, sizeof options.data.format, "imagefolder");
    fails(SPLIT_TRAIN, "holds a.tar: set data.format=webdataset if it has samples (KEY.jpg, "
                       "KEY.cls), else extract it");
}

/* ---- Samples that cannot be used. */

static void put_problems(void)
{
    struct archive *archive = shard_begin("a.tar", "ustar");
    text(archive, "0.cls", "0");
    jpeg(archive, "0.jpg");
    jpeg(archive, "1.jpg"); /* no label */
    text(archive, "2.cls", "1");
    text(archive, "3.cls", "x");
    jpeg(archive, "3.jpg");
    text(archive, "4.json", "{\"label\": \"cat\"}");
    jpeg(archive, "4.jpg");
    text(archive, "5.cls", "1");
    jpeg(archive, "5.jpg");
    jpeg(archive, "5.png");
    text(archive, "6.cls", "-1");
    jpeg(archive, "6.jpg");
    text(archive, "0.cls", "1"); /* twice */
    jpeg(archive, "0.jpg");
    text(archive, "7.cls", "1234567890123456789012345678901234567890123456789012345678901234567");
    jpeg(archive, "7.jpg");
    text(archive, "8.cls", "2");
    jpeg(archive, "8.jpg");
    shard_end(archive);
}

static void samples_are_checked(void **state)
{
    (void)state;
    put_problems();
    fails(SPLIT_TRAIN, "8 problems in the shards, the first: ");
    fails(SPLIT_TRAIN, "a.tar: 1 at byte 2560: no label, .cls or .json, next to the image; "
                       "data.skip_broken=on skips such samples");
    options.data.skip_broken = true;
    opens(SPLIT_TRAIN, 2);
    check_record(1, 2, "8.jpg");
    dataset_close(&dataset);
}

static void each_problem_is_named(void **state)
{
    (void)state;
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
            jpeg(archive, cases[i].image);
        if (cases[i].second != NULL)
            jpeg(archive, cases[i].second);
        text(archive, cases[i].label, cases[i].content);
        shard_end(archive);
        fails(SPLIT_TRAIN, cases[i].error);
    }
}

static void duplicates_are_found(void **state)
{
    (void)state;
    struct archive *archive = shard_begin("a.tar", "pax");
    for (int i = 0; i < 6; i++) {
        static const char *const keys[] = {"a", "b", "c", "b", "a", "b"};
        char name[16];
        snprintf(name, sizeof name, "%s.cls", keys[i]);
        text(archive, name, "1");
        snprintf(name, sizeof name, "%s.jpg", keys[i]);
        jpeg(archive, name);
    }
    shard_end(archive);
    fails(SPLIT_TRAIN, "3 problems");
    fails(SPLIT_TRAIN, "the shard has an earlier sample of this name");
    options.data.skip_broken = true;
    opens(SPLIT_TRAIN, 3);
    check_record(2, 1, "c.jpg");
    dataset_close(&dataset);
}

/* Labels and images are checked when the data set is opened, since options decide. */
static void images_are_checked(void **state)
{
    (void)state;
    struct archive *archive = shard_begin("a.tar", "ustar");
    text(archive, "0.cls", "0");
    jpeg(archive, "0.jpg");
    text(archive, "1.cls", "1");
    text(archive, "1.jpg", "not an image at all");
    text(archive, "2.cls", "1");
    member(archive, "2.jpg", image, image_bytes / 2); /* truncated */
    shard_end(archive);
    for (int i = 0; i < 2; i++) /* the second time from the stored index */
        fails(SPLIT_TRAIN, "1 of 3 files cannot be used, the first: ");
    fails(SPLIT_TRAIN, "a.tar: 1.jpg at byte 3584: is not an image");
    options.data.skip_broken = true;
    opens(SPLIT_TRAIN, 2);
    check_record(0, 0, "0.jpg");
    dataset_close(&dataset);
    options.data.check = CHECK_FULL;
    opens(SPLIT_TRAIN, 1);
    dataset_close(&dataset);
    options.data.skip_broken = false;
    options.data.check = CHECK_NONE;
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    options.data.check = CHECK_HEADER;
    options.data.max_pixels = 3;
    fails(SPLIT_TRAIN, "3 of 3 files cannot be used");
    fails(SPLIT_TRAIN, "more than data.max_pixels=3");
}

static void labels_are_compared_with_classes(void **state)
{
    (void)state;
    put("train.tar");
    static const int more[] = {0, 3};
    put_shard("val.tar", 2, more);
    fails(SPLIT_TEST, "label 3 is out of range: the training split has 3 classes");
    FILE *names = fopen(path_of("classnames.txt"), "we");
    assert_true(names != NULL && fputs("a\nb", names) > 0 && fclose(names) == 0);
    fails(SPLIT_TRAIN, "label 2 is out of range: the file of class names has 2 classes");
}

/* ---- Damaged shards. */

static char *shard_read(const char *name, size_t *bytes)
{
    char *content = text_file_read(path_of(name), bytes);
    assert_non_null(content);
    return content;
}

/* A new file is written faster than an old one is replaced: some file systems flush the latter. */
static void file_write(const char *path, const void *content, size_t bytes)
{
    unlink(path);
    FILE *file = fopen(path, "we");
    assert_true(file != NULL && fwrite(content, 1, bytes, file) == bytes && fclose(file) == 0);
}

static void shard_write(const char *name, const void *content, size_t bytes)
{
    file_write(path_of(name), content, bytes);
}

/* The checksum of a tar header. */
static void header_sum(char *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum & 0777777);
}

static void damage_is_reported(void **state)
{
    (void)state;
    size_t bytes;
    put("a.tar");
    char *whole = shard_read("a.tar", &bytes);
    const size_t padded = (image_bytes + 511) / 512 * 512, sample = 1536 + padded;
    options.data.skip_broken = true;
    shard_write("a.tar", whole, 2 * sample + 1536 + 100); /* inside the third image */
    opens(SPLIT_TRAIN, 2);
    dataset_close(&dataset);
    options.data.skip_broken = false;
    fails(SPLIT_TRAIN, "ends after the end of the file: the shard is truncated");
    shard_write("a.tar", whole, 2 * sample); /* after the second image */
    fails(SPLIT_TRAIN, "no end of archive: the shard is truncated");
    shard_write("a.tar", whole, 2 * sample + 100);
    fails(SPLIT_TRAIN, "a.tar: archive at byte ");
    shard_write("a.tar", whole, 0);
    fails(SPLIT_TRAIN, "a.tar: archive at byte 0: is empty");
    shard_write("a.tar", "garbage, garbage", 16);
    fails(SPLIT_TRAIN, "is not a tar archive");
    shard_write("a.tar", "\x1f\x8b\x08 gzip", 8);
    fails(SPLIT_TRAIN, "is compressed with gzip, which cannot be read in place");
    shard_write("a.tar", "\x28\xb5\x2f\xfd zstd", 9);
    fails(SPLIT_TRAIN, "is compressed with zstd");
    memcpy(whole + sample + 257, "ustar  ", 8); /* a GNU archive */
    whole[sample + 156] = 'S';                  /* a sparse member without a map, */
    memset(whole + sample + 483, 0xff, 12);     /* and with the size -1 */
    header_sum(whole + sample);
    shard_write("a.tar", whole, bytes);
    fails(SPLIT_TRAIN, archive_version_number() < 3008000
                           ? "000001.cls at byte 2560: has a size below 0: the shard is damaged"
                           : "Tar entry has negative file size");
    whole[sample + 20] ^= 1; /* the header's checksum is wrong */
    shard_write("a.tar", whole, bytes);
    fails(SPLIT_TRAIN, "Damaged tar archive");
    free(whole);
}

static void sparse_members_are_refused(void **state)
{
    (void)state;
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
    fails(SPLIT_TRAIN, "a.jpg at byte 0: is sparse: write it without tar --sparse");
}

/* A shard that became shorter after it was opened is an error of the read. */
static void truncation_while_open_is_an_error(void **state)
{
    (void)state;
    struct byte_buffer bytes = {0};
    int32_t label;
    put("a.tar");
    opens(SPLIT_TRAIN, 3);
    assert_int_equal(truncate(path_of("a.tar"), 2000), 0);
    assert_false(dataset_load(&dataset, 2, &bytes, &label, &error));
    assert_int_equal(error.kind, ERROR_DATA);
    assert_non_null(strstr(error.text, "a.tar is truncated"));
    dataset_advise(&dataset, 0, 3);
    free(bytes.data);
    dataset_close(&dataset);
}

static void one_class_is_an_error(void **state)
{
    (void)state;
    put_shard("a.tar", 2, (int[]){0, 0});
    fails(SPLIT_TRAIN, "one class only: training needs two or more");
    put_shard("a.tar", 2, (int[]){0, 600000});
    fails(SPLIT_TRAIN, ".cls is not a class number from 0 to 499999");
}

/* The same images with other labels and names, so that the members keep their places. */
static void rewriting_while_open_is_an_error(void **state)
{
    (void)state;
    struct byte_buffer bytes = {0};
    int32_t label;
    put("a.tar");
    opens(SPLIT_TRAIN, 3);
    assert_true(dataset_load(&dataset, 0, &bytes, &label, &error));
    struct archive *archive = shard_begin("a.tar", "ustar");
    for (int i = 3; i > 0; i--) {
        char key[32];
        snprintf(key, sizeof key, "%06d.cls", i);
        text(archive, key, "1");
        snprintf(key, sizeof key, "%06d.jpg", i);
        jpeg(archive, key);
    }
    shard_end(archive);
    assert_false(dataset_load(&dataset, 0, &bytes, &label, &error));
    assert_int_equal(error.kind, ERROR_DATA);
    assert_non_null(
        strstr(error.text, "a.tar was rewritten: the tar header of the sample at byte "));
    free(bytes.data);
    dataset_close(&dataset);
}

/* ---- The stored index. */

static char index_name[2048];

static const char *index_find(void)
{
    glob_t found = {0};
    assert_int_equal(glob(path_of(".vittrain-*.index"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(index_name, sizeof index_name, "%s", found.gl_pathv[0]);
    globfree(&found);
    return index_name;
}

static void index_is_stored(void **state)
{
    (void)state;
    struct stat first, second;
    put("a.tar");
    opens(SPLIT_TRAIN, 3);
    const uint32_t sum = dataset.sum;
    dataset_close(&dataset);
    assert_int_equal(stat(index_find(), &first), 0);
    opens(SPLIT_TRAIN, 3);
    assert_int_equal(dataset.sum, sum);
    check_record(1, 2, "000001.jpg");
    dataset_close(&dataset);
    assert_int_equal(stat(index_name, &second), 0);
    assert_int_equal(first.st_ino, second.st_ino); /* not written again */

    static const int other[] = {1, 1};
    put_shard("a.tar", 2, other); /* another size and time */
    opens(SPLIT_TRAIN, 2);
    check_record(0, 1, "000000.jpg");
    dataset_close(&dataset);
    put_shard("a.tar", 2, few); /* another time only */
    opens(SPLIT_TRAIN, 2);
    check_record(1, 2, "000001.jpg");
    dataset_close(&dataset);
}

/* An index is used only if it is whole; each damage leads to a new one. */
static void damaged_index_is_replaced(void **state)
{
    (void)state;
    size_t bytes, again;
    put("a.tar");
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    char *whole = text_file_read(index_find(), &bytes);
    for (size_t at = 0; at < bytes; at += 7) {
        char *damaged = malloc(bytes);
        memcpy(damaged, whole, bytes);
        damaged[at] ^= 4;
        file_write(index_name, damaged, at % 2 == 0 ? bytes : at);
        free(damaged);
        opens(SPLIT_TRAIN, 3);
        dataset_close(&dataset);
        char *new = text_file_read(index_name, &again);
        assert_int_equal(again, bytes);
        assert_memory_equal(new, whole, bytes);
        free(new);
    }
    free(whole);
}

/* An index that cannot be stored beside the shards is stored in the cache folder, or not at all. A
 * directory with the name of the index makes it unwritable also for root. */
static void index_is_stored_elsewhere(void **state)
{
    (void)state;
    char part[2100];
    glob_t found = {0};
    put("a.tar");
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    assert_int_equal(unlink(index_find()), 0);
    snprintf(part, sizeof part, "%s.part", index_name);
    assert_int_equal(mkdir(part, 0777), 0);
    setenv("XDG_CACHE_HOME", path_of("cache"), 1);
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    assert_int_equal(glob(path_of("cache/vittrain/shards-*.index"), 0, NULL, &found), 0);
    struct stat first, second;
    assert_int_equal(stat(found.gl_pathv[0], &first), 0);
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    assert_int_equal(stat(found.gl_pathv[0], &second), 0);
    assert_int_equal(first.st_ino, second.st_ino);
    globfree(&found);
    setenv("XDG_CACHE_HOME", path_of("a.tar"), 1); /* not a folder */
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "", 1);
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
}

/* The process that builds the index: it stores the index after a while, or fails. */
struct builder {
    char part[2100], *content; /* NULL: the index is not stored */
    size_t bytes;
    int descriptor;
};

static void *store_later(void *argument)
{
    const struct builder *builder = argument;
    const struct timespec pause = {.tv_nsec = 200 * 1000 * 1000};
    nanosleep(&pause, NULL);
    if (builder->content != NULL) {
        assert_int_equal(write(builder->descriptor, builder->content, builder->bytes),
                         (int)builder->bytes);
        assert_int_equal(rename(builder->part, index_name), 0);
    } else {
        unlink(builder->part);
    }
    close(builder->descriptor);
    return NULL;
}

/* Remove the stored index, take the lock and start the thread that releases it. */
static void builder_start(struct builder *builder, pthread_t *thread)
{
    assert_int_equal(unlink(index_name), 0);
    snprintf(builder->part, sizeof builder->part, "%s.part", index_name);
    builder->descriptor = open(builder->part, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(flock(builder->descriptor, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(pthread_create(thread, NULL, store_later, builder), 0);
}

/* The process that was waited for has stored no index: this one builds its own. */
static void index_that_is_not_stored_is_built(void **state)
{
    (void)state;
    struct builder builder = {.content = NULL};
    pthread_t thread;
    put("a.tar");
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    index_find();
    builder_start(&builder, &thread);
    opens(SPLIT_TRAIN, 3);
    pthread_join(thread, NULL);
    check_record(1, 2, "000001.jpg");
    dataset_close(&dataset);
    assert_int_equal(access(builder.part, F_OK), -1);
}

/* Another process holds the lock: the index that it stores is used. That index has the labels 1, 2,
 * 3; one that was built here would have 0, 2, 1. */
static void index_of_another_process_is_waited_for(void **state)
{
    (void)state;
    struct builder builder;
    pthread_t thread;
    put("a.tar");
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    builder.content = text_file_read(index_find(), &builder.bytes);
    int32_t labels[3];
    for (int i = 0; i < 3; i++) {
        char *label = builder.content + builder.bytes - (size_t)(3 - i) * 32 + 12;
        memcpy(&labels[i], label, 4);
        assert_int_equal(labels[i], few[i]);
        labels[i] = i + 1;
        memcpy(label, &labels[i], 4);
    }
    const uint32_t sum = crc32c_update(0, builder.content + 24, builder.bytes - 24);
    memcpy(builder.content + 12, &sum, 4);
    builder_start(&builder, &thread);
    opens(SPLIT_TRAIN, 3);
    pthread_join(thread, NULL);
    check_record(0, 1, "000000.jpg");
    check_record(2, 3, "000002.jpg");
    dataset_close(&dataset);
    free(builder.content);
}

/* The builder was killed: its lock is gone, and its part is replaced. */
static void rest_of_a_killed_process_is_replaced(void **state)
{
    (void)state;
    char part[2100];
    put("a.tar");
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    snprintf(part, sizeof part, "%s.part", index_find());
    assert_int_equal(rename(index_name, part), 0);
    assert_int_equal(truncate(part, 50), 0);
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    assert_int_equal(access(part, F_OK), -1);
    index_find();
}

/* Problems are stored with the index. */
static void problems_are_stored(void **state)
{
    (void)state;
    put_problems();
    for (int i = 0; i < 2; i++)
        fails(SPLIT_TRAIN, "8 problems in the shards, the first: ");
    index_find();
}

/* All shards stay open: the soft limit of open files is raised; the hard limit is named. */
static void limit_of_open_files_is_raised(void **state)
{
    (void)state;
    struct rlimit before, limit;
    char name[16];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "%02d.tar", i);
        put_shard(name, 1, few + 1);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 30, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    opens(SPLIT_TRAIN, 40);
    dataset_close(&dataset);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    const pid_t child = fork(); /* a hard limit cannot be raised again */
    if (child == 0) {
        limit = (struct rlimit){.rlim_cur = 30, .rlim_max = 30};
        _exit(setrlimit(RLIMIT_NOFILE, &limit) != 0 ||
              dataset_open(&dataset, &options, SPLIT_TRAIN, &error) ||
              strstr(error.text, "Too many open files: the limit is 30 (ulimit -n); raise it") ==
                  NULL);
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

/* Change some bytes of the index; the checksum is right. */
static size_t damage_index(char *index, size_t bytes, uint32_t number)
{
    const uint32_t changes = 1 + draw(number, 0, 4);
    for (uint32_t turn = 1; turn <= changes; turn++) {
        static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
        index[draw(number, 4 * turn, (uint32_t)bytes)] =
            draw(number, 4 * turn + 1, 2) == 0 ? (char)values[draw(number, 4 * turn + 2, 5)]
                                               : (char)draw(number, 4 * turn + 2, 256);
    }
    const size_t kept =
        draw(number, 1, 4) == 0 ? 24 + draw(number, 2, (uint32_t)bytes - 24) : bytes;
    const uint32_t sum = crc32c_update(0, index + 24, kept - 24);
    memcpy(index + 12, &sum, 4);
    return kept;
}

/* Open a data set and load each record. Return whether it could be opened. */
static bool try_all(void)
{
    struct byte_buffer bytes = {0};
    int32_t label;
    char name[4096];
    error_clear(&error);
    if (!dataset_open(&dataset, &options, SPLIT_TRAIN, &error)) {
        assert_true(error.kind == ERROR_DATA || error.kind == ERROR_MEMORY);
        assert_null(strchr(error.text, '\n'));
        return false;
    }
    for (int64_t i = 0; i < dataset.count; i++) {
        if (!dataset_load(&dataset, i, &bytes, &label, &error)) { /* a position in the index */
            assert_non_null(strstr(error.text, "was rewritten"));
            error_clear(&error);
        }
        assert_in_range(label, 0, dataset.classes - 1);
        dataset_name(&dataset, i, name, sizeof name);
    }
    free(bytes.data);
    dataset_close(&dataset);
    return true;
}

static void random_damage_does_no_harm(void **state)
{
    (void)state;
    static const char *const formats[] = {"ustar", "gnutar", "pax"};
    size_t bytes[3], index_bytes;
    char *whole[3], name[160];
    int opened[2] = {0};
    for (int f = 0; f < 3; f++) {
        struct archive *archive = shard_begin("a.tar", formats[f]);
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "%0*d.cls", f == 0 ? 3 : 120, i);
            text(archive, name, "1");
            snprintf(name, sizeof name, "%0*d.jpg", f == 0 ? 3 : 120, i);
            member(archive, name, image, 600);
        }
        shard_end(archive);
        whole[f] = shard_read("a.tar", &bytes[f]);
    }
    opens(SPLIT_TRAIN, 3);
    dataset_close(&dataset);
    char *index = text_file_read(index_find(), &index_bytes);
    char *damaged = malloc(bytes[0] + bytes[1] + bytes[2] + index_bytes);
    for (uint32_t number = 0; number < (uint32_t)mutations; number++) {
        options.data.skip_broken = draw(number, 99, 2) == 0;
        if (number % 2 == 0) {
            const int f = (int)(number / 2 % 3);
            memcpy(damaged, whole[f], bytes[f]);
            shard_write("a.tar", damaged, damage_shard(damaged, bytes[f], number));
            unlink(index_name);
        } else {
            /* The shard of the index, with its time. */
            const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
            shard_write("a.tar", whole[2], bytes[2]);
            assert_int_equal(utimensat(AT_FDCWD, path_of("a.tar"), times, 0), 0);
            if (number == 1) {
                unlink(index_name);
                assert_true(try_all());
                free(index);
                index = text_file_read(index_find(), &index_bytes);
            }
            memcpy(damaged, index, index_bytes);
            const size_t kept = damage_index(damaged, index_bytes, number);
            file_write(index_name, damaged, kept);
        }
        opened[number % 2] += try_all();
    }
    assert_in_range(opened[0], mutations / 100, mutations / 2);
    assert_in_range(opened[1], mutations / 100, mutations / 2);
    for (int f = 0; f < 3; f++)
        free(whole[f]);
    free(index);
    free(damaged);
}

static int open_tree(void **state)
{
    (void)state;
    int64_t count;
    vectors = vector_file_open("image_files.safetensors");
    image = vector_file_bytes(vectors, "file.jpeg_420", &count);
    image_bytes = (size_t)count;
    temporary_open();
    setenv("XDG_CACHE_HOME", temporary_path("cache"), 1);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(formats_are_read, set_up),
        cmocka_unit_test_setup(splits_are_found, set_up),
        cmocka_unit_test_setup(folders_of_splits_are_found, set_up),
        cmocka_unit_test_setup(patterns_are_expanded, set_up),
        cmocka_unit_test_setup(folders_without_shards_are_errors, set_up),
        cmocka_unit_test_setup(samples_are_checked, set_up),
        cmocka_unit_test_setup(each_problem_is_named, set_up),
        cmocka_unit_test_setup(duplicates_are_found, set_up),
        cmocka_unit_test_setup(images_are_checked, set_up),
        cmocka_unit_test_setup(labels_are_compared_with_classes, set_up),
        cmocka_unit_test_setup(damage_is_reported, set_up),
        cmocka_unit_test_setup(sparse_members_are_refused, set_up),
        cmocka_unit_test_setup(truncation_while_open_is_an_error, set_up),
        cmocka_unit_test_setup(one_class_is_an_error, set_up),
        cmocka_unit_test_setup(rewriting_while_open_is_an_error, set_up),
        cmocka_unit_test_setup(index_is_stored, set_up),
        cmocka_unit_test_setup(damaged_index_is_replaced, set_up),
        cmocka_unit_test_setup(index_is_stored_elsewhere, set_up),
        cmocka_unit_test_setup(index_of_another_process_is_waited_for, set_up),
        cmocka_unit_test_setup(index_that_is_not_stored_is_built, set_up),
        cmocka_unit_test_setup(limit_of_open_files_is_raised, set_up),
        cmocka_unit_test_setup(rest_of_a_killed_process_is_replaced, set_up),
        cmocka_unit_test_setup(problems_are_stored, set_up),
        cmocka_unit_test_setup(random_damage_does_no_harm, set_up),
    };
    const struct CMUnitTest damage[] = {cmocka_unit_test_setup(random_damage_does_no_harm, set_up)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    log_open(0, LOG_QUIET);
    if (argc == 2)
        mutations = atoi(argv[1]);
    return argc == 2 ? cmocka_run_group_tests_name("webdataset", damage, open_tree, close_tree)
                     : cmocka_run_group_tests_name("webdataset", tests, open_tree, close_tree);
}
