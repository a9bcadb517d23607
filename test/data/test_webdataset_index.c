// SPDX-License-Identifier: BSD-3-Clause
// sources: test/data/shards.c
/* The stored index of WebDataset's tar shards, and random damage of shards and index. With a number
 * as argument, only the test of random damage runs, with that number of mutations. */
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/crc32c.h"
#include "core/random.h"
#include "core/text_file.h"
#include "shards.h"

static int mutations = 500;

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

TEST(index_is_stored)
{
    struct stat first, second;
    shard_put_default("a.tar");
    split_opens(SPLIT_TRAIN, 3);
    const uint32_t sum = dataset.sum;
    assert_int_equal(stat(index_find(), &first), 0);
    split_opens(SPLIT_TRAIN, 3);
    assert_int_equal(dataset.sum, sum);
    check_record(1, 2, "000001.jpg");
    assert_int_equal(stat(index_name, &second), 0);
    assert_int_equal(first.st_ino, second.st_ino); /* not written again */

    static const int other[] = {1, 1};
    shard_put("a.tar", 2, other); /* another size and time */
    split_opens(SPLIT_TRAIN, 2);
    check_record(0, 1, "000000.jpg");
    shard_put("a.tar", 2, default_labels); /* another time only */
    split_opens(SPLIT_TRAIN, 2);
    check_record(1, 2, "000001.jpg");
}

/* An index is used only if it is whole; each damage leads to a new one. */
TEST(damaged_index_is_replaced)
{
    size_t bytes, again;
    shard_put_default("a.tar");
    split_opens(SPLIT_TRAIN, 3);
    char *whole = text_file_read(index_find(), &bytes);
    for (size_t at = 0; at < bytes; at += 7) {
        char *damaged = malloc(bytes);
        memcpy(damaged, whole, bytes);
        damaged[at] ^= 4;
        file_write(index_name, damaged, at % 2 == 0 ? bytes : at);
        free(damaged);
        split_opens(SPLIT_TRAIN, 3);
        char *new = text_file_read(index_name, &again);
        assert_int_equal(again, bytes);
        assert_memory_equal(new, whole, bytes);
        free(new);
    }
    free(whole);
}

/* An index that cannot be stored beside the shards is stored in the cache folder, or not at all. A
 * directory with the name of the index makes it unwritable also for root. */
TEST(index_is_stored_elsewhere)
{
    char part[2100];
    glob_t found = {0};
    shard_put_default("a.tar");
    split_opens(SPLIT_TRAIN, 3);
    assert_int_equal(unlink(index_find()), 0);
    snprintf(part, sizeof part, "%s.part", index_name);
    assert_int_equal(mkdir(part, 0777), 0);
    setenv("XDG_CACHE_HOME", path_of("cache"), 1);
    split_opens(SPLIT_TRAIN, 3);
    assert_int_equal(glob(path_of("cache/vittrain/shards-*.index"), 0, NULL, &found), 0);
    struct stat first, second;
    assert_int_equal(stat(found.gl_pathv[0], &first), 0);
    split_opens(SPLIT_TRAIN, 3);
    assert_int_equal(stat(found.gl_pathv[0], &second), 0);
    assert_int_equal(first.st_ino, second.st_ino);
    globfree(&found);
    setenv("XDG_CACHE_HOME", path_of("a.tar"), 1); /* not a folder */
    split_opens(SPLIT_TRAIN, 3);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "", 1);
    split_opens(SPLIT_TRAIN, 3);
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
TEST(index_that_is_not_stored_is_built)
{
    struct builder builder = {.content = NULL};
    pthread_t thread;
    shard_put_default("a.tar");
    split_opens(SPLIT_TRAIN, 3);
    index_find();
    builder_start(&builder, &thread);
    split_opens(SPLIT_TRAIN, 3);
    pthread_join(thread, NULL);
    check_record(1, 2, "000001.jpg");
    assert_int_equal(access(builder.part, F_OK), -1);
}

/* Another process holds the lock: the index that it stores is used. That index has the labels 1, 2,
 * 3; one that was built here would have 0, 2, 1. */
TEST(index_of_another_process_is_waited_for)
{
    struct builder builder;
    pthread_t thread;
    shard_put_default("a.tar");
    split_opens(SPLIT_TRAIN, 3);
    builder.content = text_file_read(index_find(), &builder.bytes);
    int32_t labels[3];
    for (int i = 0; i < 3; i++) {
        char *label = builder.content + builder.bytes - (size_t)(3 - i) * 32 + 12;
        memcpy(&labels[i], label, 4);
        assert_int_equal(labels[i], default_labels[i]);
        labels[i] = i + 1;
        memcpy(label, &labels[i], 4);
    }
    const uint32_t sum = crc32c_update(0, builder.content + 24, builder.bytes - 24);
    memcpy(builder.content + 12, &sum, 4);
    builder_start(&builder, &thread);
    split_opens(SPLIT_TRAIN, 3);
    pthread_join(thread, NULL);
    check_record(0, 1, "000000.jpg");
    check_record(2, 3, "000002.jpg");
    free(builder.content);
}

/* The process that built the index was killed: its lock is released, and its partial file is
 * replaced. */
TEST(rest_of_a_killed_process_is_replaced)
{
    char part[2100];
    shard_put_default("a.tar");
    split_opens(SPLIT_TRAIN, 3);
    snprintf(part, sizeof part, "%s.part", index_find());
    assert_int_equal(rename(index_name, part), 0);
    assert_int_equal(truncate(part, 50), 0);
    split_opens(SPLIT_TRAIN, 3);
    assert_int_equal(access(part, F_OK), -1);
    index_find();
}

/* Problems are stored with the index. */
TEST(problems_are_stored)
{
    shard_put_problems();
    for (int i = 0; i < 2; i++)
        split_fails(SPLIT_TRAIN, "8 problems in the shards, the first: ");
    index_find();
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
    struct error error = {0};
    dataset_close(&dataset);
    if (!dataset_open(&dataset, &options, SPLIT_TRAIN, &error)) {
        assert_true(error.kind == ERROR_DATA || error.kind == ERROR_MEMORY);
        assert_null(strchr(error.text, '\n'));
        return false;
    }
    for (int64_t i = 0; i < dataset.count; i++) {
        if (!dataset_load(&dataset, i, &bytes, &label, &error)) { /* a position in the index */
            assert_has(error.text, "was rewritten");
            error_clear(&error);
        }
        assert_in_range(label, 0, dataset.classes - 1);
        dataset_name(&dataset, i, name, sizeof name);
    }
    free(bytes.data);
    return true;
}

TEST(random_damage_does_no_harm)
{
    static const char *const formats[] = {"ustar", "gnutar", "pax"};
    size_t bytes[3], index_bytes;
    char *whole[3], name[160];
    int opened[2] = {0};
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
    split_opens(SPLIT_TRAIN, 3);
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

int main(int argc, char **argv)
{
    if (argc == 2) {
        mutations = atoi(argv[1]);
        cmocka_set_test_filter("random_damage_does_no_harm");
    }
    return TESTS_RUN(.setup = shards_open, .teardown = shards_close, .before = shards_begin);
}
