// SPDX-License-Identifier: BSD-3-Clause
/* TensorBoard event files, read byte by byte: framing, checksums (by a bitwise CRC32C) and the
 * numbers of the protobuf fields. check_tensorboard.py reads such files with TensorBoard itself. */
#include "record/tensorboard.h"

#include <glob.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/file.h"
#include "temporary.h"
#include "test.h"

enum { RECORDS = 8, FILES = 4 };

struct record {
    size_t length;
    const unsigned char *data;
};

struct event_file {
    char *content;
    int count;
    struct record records[RECORDS];
};

static const char *folder;

static void make_folder(void)
{
    folder = temporary_open();
}

static uint32_t masked_crc32c(const unsigned char *data, size_t bytes)
{
    uint32_t sum = 0xffffffff;

    for (size_t i = 0; i < bytes; i++) {
        sum ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            sum = (sum >> 1) ^ (sum & 1 ? 0x82f63b78U : 0);
    }
    sum = ~sum;
    return ((sum >> 15) | (sum << 17)) + 0xa282ead8U;
}

static uint64_t little_endian(const unsigned char *bytes, int count)
{
    uint64_t value = 0;

    for (int i = count - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

/* Read the records of a file and check their framing. */
static void read_records(struct event_file *file, const char *path)
{
    size_t bytes, at = 0;
    file->content = text_file_read(path, &bytes);
    assert_non_null(file->content);
    for (file->count = 0; at < bytes; file->count++) {
        assert_in_range(file->count, 0, RECORDS - 1);
        const unsigned char *header = (const unsigned char *)file->content + at,
                            *data = header + 12;
        const size_t length = little_endian(header, 8);
        at += length + 16;
        assert_true(at <= bytes);
        assert_int_equal(little_endian(header + 8, 4), masked_crc32c(header, 8));
        assert_int_equal(little_endian(data + length, 4), masked_crc32c(data, length));
        file->records[file->count] = (struct record){length, data};
    }
}

/* Read the event files in the order in which TensorBoard reads them. */
static int read_files(struct event_file files[FILES])
{
    glob_t found;
    assert_int_equal(glob(temporary_path("events.out.tfevents.*"), 0, NULL, &found), 0);
    const int count = (int)found.gl_pathc;
    assert_in_range(count, 1, FILES);
    for (int i = 0; i < count; i++)
        read_records(&files[i], found.gl_pathv[i]);
    globfree(&found);
    return count;
}

/* Assert that an event is its wall time (field 1, a double) followed by `expected`. */
static void assert_event(const struct record *record, const void *expected, size_t bytes)
{
    double time;

    assert_int_equal(record->data[0], 1 << 3 | 1);
    memcpy(&time, record->data + 1, sizeof time);
    assert_true(time > 1.7e9 && time < 1e10);
    assert_int_equal(record->length, 9 + bytes);
    assert_memory_equal(record->data + 9, expected, bytes);
}

static struct tensorboard *open_board(void)
{
    struct tensorboard *board = tensorboard_open(folder, &error);
    assert_ok(board != NULL, &error);
    return board;
}

TEST(events_have_the_published_fields)
{
    static const char version[] = "\x1a\x0d" /* 3: file version */ "brain.Event:2";
    static const char point[] = "\x10\xac\x02"      /* 2: step 300 */
                                "\x2a\x12"          /* 5: summary */
                                "\x0a\x10"          /* 1: value */
                                "\x0a\x09train/acc" /* 1: tag */
                                "\x15\x00\x00\x20\x3f" /* 2: 0.625f */;
    static const char zero[] = "\x10\x00\x2a\x0b\x0a\x09\x0a\x02lr\x15\x00\x00\x00\x00";
    static const char restart[] = "\x10\x07\x3a\x02\x08\x01" /* 7: session log, 1: START */;
    struct event_file files[FILES];
    struct tensorboard *board = open_board();

    assert_true(tensorboard_scalar(board, "train/acc", 300, 0.625, &error));
    assert_true(tensorboard_scalar(board, "lr", 0, 0, &error));
    assert_true(tensorboard_restart(board, 7, &error));
    assert_true(tensorboard_flush(board, &error));
    tensorboard_close(board);
    assert_int_equal(read_files(files), 1);
    assert_int_equal(files->count, 4);
    assert_event(&files->records[0], version, sizeof version - 1);
    assert_event(&files->records[1], point, sizeof point - 1);
    assert_event(&files->records[2], zero, sizeof zero - 1);
    assert_event(&files->records[3], restart, sizeof restart - 1);
    free(files[0].content);
}

/* TensorBoard reads files in the order of their names, so names must not depend on the clock alone.
 */
TEST(later_files_sort_last)
{
    struct event_file files[FILES];

    temporary_file("events.out.tfevents.9000000000.host.1", "", 0);
    for (int64_t part = 1; part <= 2; part++) {
        struct tensorboard *board = open_board();
        assert_true(tensorboard_restart(board, part, &error));
        tensorboard_close(board);
    }
    assert_int_equal(read_files(files), 3);
    assert_int_equal(files[0].count, 0);
    assert_int_equal(files[1].records[1].data[10], 1);
    assert_int_equal(files[2].records[1].data[10], 2);
    for (int i = 0; i < 3; i++)
        free(files[i].content);
}

/* The limit on the file size acts as a full disk. */
TEST(full_disk_is_an_error)
{
    struct rlimit old, small = {.rlim_cur = 20000};
    struct tensorboard *board = open_board();
    bool good = true;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int64_t step = 0; step < 1000 && good; step++)
        good = tensorboard_scalar(board, "train/loss", step, 1, &error) &&
               tensorboard_flush(board, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_false(good);
    assert_error(&error, ERROR_FILE, "events.out.tfevents.");
    tensorboard_close(board);
}

TEST_MAIN(.before = make_folder, .after = temporary_close)
