// SPDX-License-Identifier: BSD-3-Clause
// sources: test/data/shards.c
/* WebDataset's tar shards: formats of archives, splits and patterns, labels and class names,
 * damage, also random damage. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <archive_entry.h>

#include "base/file.h"
#include "mutate.h"
#include "shards.h"

enum { MUTATIONS = 250 };

/* Write a shard of three samples with the labels 0, 2 and 1. */
static void shard_put(const char *name)
{
    shard_make(name, "ustar",
               "000000.cls=0|000000.jpg|000001.cls=2|000001.jpg|000002.cls=1|000002.jpg");
}

static char *shard_read(const char *name, size_t *bytes)
{
    char *content = text_file_read(root_path("%s", name), bytes);
    assert_non_null(content);
    return content;
}

static void text_write(const char *name, const char *text)
{
    root_write(name, text, strlen(text));
}

/* Set the checksum of a tar header. */
static void header_sum(char *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum & 0777777);
}

TEST(formats_are_read)
{
    static const char *const formats[] = {"v7tar", "ustar", "gnutar", "pax"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const int width = i > 0 ? 130 : 1; /* v7 has names of up to 99 bytes */
        OWNED char *members = allocate_text(
            "folder/=|folder/README=ignored|folder/._x.jpg=ignored: no key|"
            "folder/other.txt=ignored: neither image nor label|folder/a.cls= 001 \r\n|"
            "folder/a.JPG|%0*d/\xc3\xa9.jpeg|"
            "%0*d/\xc3\xa9.json={\"caption\": \"x\", \"label\": 0}|"
            "c.txt=ignored|c.png|c.json={\"cls\": 7, \"other\": [1, 2]}|c.cls=+2",
            width, 0, width, 0);
        shard_make("a.tar", formats[i], members);
        split_opens("", SPLIT_TRAIN, 3);
        assert_int_equal(dataset.classes, 3);
        assert_string_equal(dataset.class_name[2], "2");
        check_record(0, 1, "a.tar: folder/a.JPG at byte ");
        check_record(1, 0, "0/\xc3\xa9.jpeg at byte ");
        check_record(2, 2, ": c.png at byte ");
    }
}

TEST(splits_are_found)
{
    shard_put("x-train-000001.tar");
    shard_put("x-train-000000.tar");
    split_fails("", SPLIT_TEST,
                "none of the 2 shards has test, val, valid or validation in its name");
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++)
        split_opens("data.val=0.5", (enum data_split)split, 3);
    shard_put("x-validation-00.tar");
    split_opens("data.val=test", SPLIT_TEST, 3);
    check_record(2, 1, "x-validation-00.tar: 000002.jpg");
    split_opens("", SPLIT_TRAIN, 6);
    check_record(0, 0, "x-train-000000.tar: 000000.jpg");
    check_record(5, 1, "x-train-000001.tar: 000002.jpg");
    split_opens("data.val=val", SPLIT_VALIDATION, 3);
    shard_put("test.tar");
    split_opens("", SPLIT_TEST, 3);
    check_record(0, 0, "/test.tar: ");
    split_opens("data.val=reference", SPLIT_TRAIN, 6); /* of all nine: 6, 0, 3 */
}

TEST(folders_of_splits_are_found)
{
    assert_int_equal(mkdir(root_path("train"), 0777) + mkdir(root_path("val"), 0777), 0);
    shard_put("train/1.tar");
    shard_put("train/0.tar");
    shard_put("val/0.tar");
    text_write("classes.txt", "tench\r\nowl\nfox\nbear\n\n");
    split_opens("", SPLIT_TRAIN, 6);
    check_record(0, 0, "train/0.tar: 000000.jpg");
    assert_int_equal(dataset.classes, 4);
    assert_string_equal(dataset.class_name[0], "tench");
    assert_string_equal(dataset.class_name[3], "bear");
    split_opens("", SPLIT_TEST, 3);
    text_write("train/classes.txt", "a\nb\nc\nd\ne\n");
    split_opens("data.val=reference", SPLIT_TRAIN, 6);
    assert_int_equal(dataset.classes, 5); /* beside the first training shard */
}

/* Patterns are relative to the working directory. */
TEST(patterns_are_expanded)
{
    static const char *const names[] = {"t-008.tar",     "t-009.tar", "t-010.tar",
                                        "t-011.tar",     "val-0.tar", "day-20200131.tar",
                                        "s-00000009.tar"};
    static const struct {
        const char *pattern;
        enum data_split split;
        int64_t count;
        const char *error;
    } cases[] = {
        {"t-{008..011}.tar", SPLIT_TRAIN, 12, NULL},
        {"./t-0{08..9}.tar", SPLIT_TRAIN, 6, NULL},
        {"{t-{008,01{0..1}},val-0}.tar", SPLIT_TRAIN, 9, NULL},
        {"{t-{008,01{0..1}},val-0}.tar", SPLIT_TEST, 3, NULL},
        {"t-*1?.tar", SPLIT_TRAIN, 6, NULL},
        {"t-008.tar::./val-*.tar", SPLIT_TEST, 3, NULL},
        {"t-{008..012}.tar", SPLIT_TRAIN, 0, "t-012.tar: No such file"},
        {"t-{011..008}.tar", SPLIT_TRAIN, 0, "the range {011..008} ends before it begins"},
        {"day-{20200131..20200131}.tar", SPLIT_TRAIN, 3, NULL},
        {"s-{00000009..00000009}.tar", SPLIT_TRAIN, 3, NULL},
        {"s-{00000000..01048576}.tar", SPLIT_TRAIN, 0, "more than 1048576 shards in {0"},
        {"folder", SPLIT_TRAIN, 3, NULL}, /* without the folder x.tar */
        {"t-{008.tar", SPLIT_TRAIN, 0, "a brace is not closed"},
        {"t-9*.tar", SPLIT_TRAIN, 0, "no file matches"},
        {"{t-008,t-008}.tar", SPLIT_TRAIN, 0, "t-008.tar twice"},
        {"val-0.tar", SPLIT_TRAIN, 0, "all 1 shards are for evaluation"},
        {"nowhere", SPLIT_TRAIN, 0, "No such file or directory"},
        {"/dev/null", SPLIT_TRAIN, 0, "/dev/null: is not a regular file"},
        {"", SPLIT_TRAIN, 0, "needs data.root"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        shard_put(names[i]);
    root_write("folder/x.tar/0.jpg", image, image_bytes);
    shard_put("folder/y.tar");
    assert_int_equal(chdir(options.data.root), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OWNED char *root = allocate_text("data.root=%s", cases[i].pattern);
        if (cases[i].error != NULL)
            split_fails(root, cases[i].split, cases[i].error);
        else
            split_opens(root, cases[i].split, cases[i].count);
    }
}

TEST(folders_without_shards_are_errors)
{
    split_fails("", SPLIT_TRAIN, "is empty");
    text_write("a.tar.gz", "");
    split_fails("", SPLIT_TRAIN, ", only a.tar.gz");
    assert_int_equal(unlink(root_path("a.tar.gz")), 0);
    text_write("a.txt", "");
    split_fails("", SPLIT_TRAIN, ", only a.txt");
    shard_put("a.tar");
    split_fails("data.format=imagefolder", SPLIT_TRAIN, ", only a.tar");
}

TEST(each_problem_is_named)
{
    static const char *const cases[][2] = {
        {"k.jpg|l.cls=1", "k at byte 0: no label"},
        {"k\n.jpg|l.cls=1", "k  at byte 0: no label"},
        {"k.cls=1", "k at byte 0: no image"},
        {"k.jpg|k.cls=one", "k at byte 0: .cls"},
        {"k.jpg|k.cls=", ".cls is not a class number"},
        {"k.jpg|k.cls=1 2", ".cls is not a class number"},
        {"k.jpg|k.cls=-1", ".cls is not a class number"},
        {"k.jpg|k.cls=600000", ".cls is not a class number"},
        {"k.jpg|k.cls=99999999999999999999", ".cls is not a class number"},
        {"k.jpg|k.json={\"label\": -1}", ".json has no class number"},
        {"k.jpg|k.json={\"label\": 1.5}", ".json has no class number"},
        {"k.jpg|k.json={\"label\": \"cat\"}", ".json has no class number"},
        {"k.jpg|k.json=[1]", ".json has no class number"},
        {"k.jpg|k.json={", ".json has no class number"},
        {"k.jpg|k.png|k.cls=1", "more than one image"},
        {"k.jpg|k.cls=1|k.cls=1", "more than one .cls"},
        {"k.jpg|k.json={}|k.json={}", "more than one .json"},
        {"k.1.jpg|k.1.cls=1", "no samples"},
        {"k.jpg|k.cls=0", "one class only"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        shard_make("a.tar", "pax", cases[i][0]);
        split_fails("", SPLIT_TRAIN, cases[i][1]);
    }
}

/* With data.skip_broken=on the other samples are used. */
TEST(problems_are_counted)
{
    shard_make("a.tar", "pax", "a.cls=1|a.jpg|b.cls=x|b.jpg|c.cls=1|c.jpg|d.jpg");
    split_fails("", SPLIT_TRAIN, "2 problems");
    split_opens("data.skip_broken=on", SPLIT_TRAIN, 2);
    check_record(1, 1, "c.jpg");
}

/* Labels and images are checked when the data set is opened, since options decide. */
TEST(images_are_checked)
{
    struct archive *archive = shard_begin("a.tar", "ustar");
    shard_add(archive, "0.cls=0|0.jpg|1.cls=1|1.jpg=not an image at all|2.cls=1");
    shard_add_file(archive, "2.jpg", image, image_bytes / 2); /* truncated */
    shard_end(archive);
    split_fails("", SPLIT_TRAIN, "1 of 3 files cannot be used");
    split_fails("", SPLIT_TRAIN, "a.tar: 1.jpg at byte 3584: is not an image");
    split_opens("data.skip_broken=on", SPLIT_TRAIN, 1); /* all images are decoded */
    check_record(0, 0, "0.jpg");
    split_opens("data.skip_broken=off data.check=none", SPLIT_TRAIN, 3);
}

TEST(labels_are_compared_with_classes)
{
    shard_put("train.tar");
    shard_make("val.tar", "ustar", "a.cls=0|a.jpg|b.cls=3|b.jpg");
    split_fails("", SPLIT_TEST, "label 3 is out of range: ");
    split_opens("data.skip_broken=on", SPLIT_TEST, 1);
    text_write("classnames.txt", "a\nb");
    split_fails("data.skip_broken=off data.check=none", SPLIT_TRAIN,
                "train.tar: 000001.jpg at byte ");
    split_fails("", SPLIT_TRAIN, "label 2 is out of range: ");
    split_opens("data.skip_broken=on", SPLIT_TRAIN, 2);
}

TEST(damage_is_reported)
{
    size_t bytes;
    shard_put("a.tar");
    char *whole = shard_read("a.tar", &bytes);
    const size_t padded = (image_bytes + 511) / 512 * 512, sample = 1536 + padded;
    const struct {
        const char *content;
        size_t bytes;
        const char *part;
    } cases[] = {{whole, 2 * sample + 1536 + 100, "the shard is truncated"}, /* inside an image */
                 {whole, 2 * sample, "no end of archive: the shard is truncated"},
                 {whole, 2 * sample + 100, "a.tar: archive at byte "},
                 {whole, 0, "a.tar: archive at byte 0: is not a tar archive"},
                 {"garbage, garbage", 16, "is not a tar archive"},
                 {"\x1f\x8b\x08 gzip", 8, "a compressed one: unpack it"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        root_write("a.tar", cases[i].content, cases[i].bytes);
        if (i == 0)
            split_opens("data.skip_broken=on", SPLIT_TRAIN, 2);
        split_fails("data.skip_broken=off", SPLIT_TRAIN, cases[i].part);
    }
    memcpy(whole + sample + 257, "ustar  ", 8); /* a GNU archive */
    whole[sample + 156] = 'S';                  /* a sparse member without a map, */
    memset(whole + sample + 483, 0xff, 12);     /* and with the size -1 */
    header_sum(whole + sample);
    root_write("a.tar", whole, bytes);
    split_fails("", SPLIT_TRAIN,
                archive_version_number() < 3008000 ? "000001.cls at byte 2560"
                                                   : "Tar entry has negative file size");
    whole[sample + 20] ^= 1; /* the header's checksum is wrong */
    root_write("a.tar", whole, bytes);
    split_fails("", SPLIT_TRAIN, "Damaged tar archive");
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
    split_fails("", SPLIT_TRAIN, "a.jpg at byte 0: is sparse: write it without tar --sparse");
}

/* The same images with other labels and names, so that the members keep their places; then a
 * shorter file. */
TEST(changes_while_open_are_errors)
{
    struct byte_buffer bytes = {0};
    shard_put("a.tar");
    split_opens("", SPLIT_TRAIN, 3);
    assert_true(dataset_load(&dataset, 0, &bytes, &error));
    shard_make("a.tar", "ustar",
               "000003.cls=1|000003.jpg|000002.cls=1|000002.jpg|000001.cls=1|000001.jpg");
    assert_false(dataset_load(&dataset, 0, &bytes, &error));
    assert_error(&error, ERROR_DATA, "the shard was rewritten");
    error_clear(&error);
    assert_int_equal(truncate(root_path("a.tar"), 2000), 0); /* inside the first image */
    assert_false(dataset_load(&dataset, 0, &bytes, &error));
    assert_error(&error, ERROR_DATA, "cannot be read: it was truncated");
    free(bytes.data);
}

static void open_with_limit(void *unused)
{
    const struct rlimit limit = {.rlim_cur = 30, .rlim_max = 30};
    assert_null(unused);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    split_fails("", SPLIT_TRAIN, "Too many open files; raise the hard limit");
}

/* All shards stay open; the limit of open files is named. A hard limit cannot be raised again. */
TEST(limit_of_open_files_is_named)
{
    char output[1024];
    for (int i = 0; i < 40; i++) {
        OWNED char *name = allocate_text("%02d.tar", i);
        shard_make(name, "ustar", "0.cls=2|0.jpg");
    }
    split_opens("", SPLIT_TRAIN, 40);
    dataset_close(&dataset);
    assert_int_equal(child_run(open_with_limit, NULL, output, sizeof output), 0);
}

/* ---- Random damage. */

/* Change some bytes of the headers, half of the time with a right checksum; cut the file. */
static size_t damage_shard(char *shard, size_t bytes, uint32_t number)
{
    const uint32_t changes = 1 + draw_below(number, 0, 4);
    const uint32_t blocks = (uint32_t)bytes / 512;
    for (uint32_t turn = 1; turn <= changes; turn++) {
        char *header = shard + (size_t)draw_below(number, 8 * turn, blocks) * 512;
        while (header > shard && memcmp(header + 257, "ustar", 5) != 0)
            header -= 512;
        static const char values[] = "\0\377\2000179 x./gLKS";
        const uint32_t at =
            draw_below(number, 8 * turn + 1, draw_below(number, 8 * turn + 5, 2) ? 512 : 160);
        header[at] = draw_below(number, 8 * turn + 2, 2) == 0
                         ? values[draw_below(number, 8 * turn + 3, sizeof values - 1)]
                         : (char)draw_below(number, 8 * turn + 3, 256);
        if (draw_below(number, 8 * turn + 4, 4) != 0)
            header_sum(header);
    }
    return draw_below(number, 1, 8) == 0 ? draw_below(number, 2, (uint32_t)bytes) : bytes;
}

/* Open a data set and load each record. Return whether it could be opened. */
static bool try_all(void)
{
    struct byte_buffer bytes = {0};
    error_clear(&error);
    dataset_close(&dataset);
    if (!dataset_open(&dataset, &options, SPLIT_TRAIN, NULL, &error)) {
        assert_true(error.kind == ERROR_DATA || error.kind == ERROR_MEMORY);
        assert_null(strchr(error.text, '\n'));
        return false;
    }
    for (int64_t i = 0; i < dataset.count; i++) {
        assert_ok(dataset_load(&dataset, i, &bytes, &error), &error);
        assert_in_range(dataset_label(&dataset, i), 0, dataset.classes - 1);
        record_is_named(i, "a.tar");
    }
    free(bytes.data);
    return true;
}

TEST(random_damage_does_no_harm)
{
    static const char *const formats[] = {"ustar", "gnutar", "pax"};
    size_t bytes[3];
    char *whole[3];
    int opened = 0;
    for (int f = 0; f < 3; f++) {
        const int width = f == 0 ? 3 : 120; /* of names */
        OWNED char *members = allocate_text("%0*d.cls=1|%0*d.jpg|%0*d.cls=1|%0*d.jpg", width, 0,
                                            width, 0, width, 1, width, 1);
        shard_make("a.tar", formats[f], members);
        whole[f] = shard_read("a.tar", &bytes[f]);
    }
    char *damaged = malloc(bytes[0] + bytes[1] + bytes[2]);
    for (uint32_t number = 0; number < MUTATIONS; number++) {
        const uint32_t f = number % 3;
        options.data.skip_broken = draw_below(number, 99, 2) == 0;
        memcpy(damaged, whole[f], bytes[f]);
        root_write("a.tar", damaged, damage_shard(damaged, bytes[f], number));
        opened += try_all();
    }
    assert_in_range(opened, MUTATIONS / 50, MUTATIONS * 98 / 100);
    for (int f = 0; f < 3; f++)
        free(whole[f]);
    free(damaged);
}

TEST_MAIN(.setup = shards_open, .teardown = shards_close, .before = shards_begin)
