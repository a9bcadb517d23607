// SPDX-License-Identifier: BSD-3-Clause
/* More input files than the process can have open: the limit is raised, then files are closed and
 * opened again, also while several threads read. */
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/file.h"
#include "core/thread.h"
#include "temporary.h"
#include "test.h"

enum { FILES = 100, LIMIT = 40, THREADS = 4, READS = 2000 };

static struct open_file *files[FILES];
static struct file_stamp stamps[FILES];

static const char *path_of(int file)
{
    char name[16];
    snprintf(name, sizeof name, "%d", file);
    return temporary_path(name);
}

static void file_write(int file)
{
    FILE *stream = fopen(path_of(file), "w");
    assert_true(stream != NULL && fprintf(stream, "%04d", file) == 4 && fclose(stream) == 0);
}

static int descriptors(void)
{
    DIR *entries = NULL;
    int count = 0;
    while (folder_next(&entries, "/proc/self/fd") != NULL)
        count++;
    return count;
}

/* Return the number in a file, or -1. */
static int number_read(int file)
{
    char text[5] = "";
    const int descriptor = open_file_take(files[file]);
    const bool good = descriptor >= 0 && pread(descriptor, text, 4, 0) == 4 &&
                      file_stamp_holds(descriptor, &stamps[file]);
    if (descriptor >= 0)
        open_file_give(files[file]);
    return good ? atoi(text) : -1;
}

static void *files_read(void *argument)
{
    int *errors = argument;
    for (int n = 0; n < READS; n++)
        if (number_read(n * 37 % FILES) != n * 37 % FILES)
            __atomic_fetch_add(errors, 1, __ATOMIC_RELAXED);
    return NULL;
}

TEST(more_files_than_the_limit_are_read)
{
    struct rlimit before, limit;
    int errors = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = (struct rlimit){.rlim_cur = LIMIT, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const int others = descriptors();
    for (int n = 0; n < FILES; n++) {
        file_write(n);
        files[n] = open_file_new(path_of(n), &stamps[n]);
        assert_non_null(files[n]);
    }
    assert_int_equal(descriptors() - others, LIMIT / 2);
    threads_run("reader", THREADS, files_read, &errors);
    assert_int_equal(errors, 0);
    assert_true(descriptors() - others <= LIMIT / 2 + THREADS);
    /* A file that is changed while it is closed has another stamp; one that is removed is an
     * error. */
    for (int n = 2; n < FILES; n++)
        assert_int_equal(number_read(n), n);
    FILE *stream = fopen(path_of(0), "a");
    assert_true(stream != NULL && fputc('0', stream) == '0' && fclose(stream) == 0);
    assert_int_equal(unlink(path_of(1)), 0);
    assert_int_equal(number_read(0), -1);
    assert_int_equal(open_file_take(files[1]), -1);
    assert_int_equal(errno, ENOENT);
    for (int n = 0; n < FILES; n++)
        open_file_close(files[n]);
    assert_int_equal(descriptors(), others);
    assert_null(open_file_new(temporary_path("none"), &stamps[0]));
    assert_int_equal(errno, ENOENT);
    open_file_raise_limit();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(limit.rlim_cur == before.rlim_max || limit.rlim_cur == (rlim_t)1 << 20);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_teardown)
