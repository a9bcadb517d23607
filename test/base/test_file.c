// SPDX-License-Identifier: BSD-3-Clause
/* Output files: links and pipes are not opened, two writers of one file lose nothing, and only
 * files of dead processes are removed. More input files than the process can have open: the limit
 * is raised, then files are closed and opened again, also while several threads read. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"
#include "temporary.h"
#include "test.h"

static char *path_of(const char *name)
{
    return allocate_copy(temporary_path(name));
}

static void assert_text(const char *name, const char *expected)
{
    OWNED char *text = temporary_text(name);
    assert_string_equal(text, expected);
}

TEST(only_regular_files_are_opened)
{
    temporary_write("victim", "not yours");
    OWNED char *victim = path_of("victim"), *link = path_of("link"), *pipe = path_of("pipe");
    assert_int_equal(symlink(victim, link), 0);
    assert_int_equal(output_file_open(link, O_RDWR | O_CREAT), -1);
    assert_int_equal(errno, ELOOP);
    assert_null(output_file_stream(link, "a"));
    assert_null(output_file_stream(link, "r"));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_null(output_file_stream(pipe, "r"));
    assert_int_equal(errno, EINVAL);
    assert_null(output_file_stream(pipe, "a"));
    assert_int_equal(errno, ENXIO);
    assert_int_equal(output_file_open(temporary_directory("folder"), O_RDONLY), -1);
    assert_int_equal(errno, EISDIR);
    assert_text("victim", "not yours");
}

TEST(links_are_replaced_by_temporary_files)
{
    temporary_write("victim", "not yours");
    OWNED char *victim = path_of("victim"), *path = path_of("file"), *part = path_of("file.part");
    assert_int_equal(symlink(victim, path), 0);
    assert_int_equal(symlink(victim, part), 0);
    assert_true(atomic_file_write(path, "mine", &error));
    assert_text("victim", "not yours");
    assert_text("file", "mine");
    struct stat status;
    assert_int_equal(lstat(path, &status), 0);
    assert_true(S_ISREG(status.st_mode));
}

/* The lock is held while the second process starts; the file of the second is the last one. */
TEST(a_second_writer_waits_for_the_first)
{
    OWNED char *path = path_of("file");
    struct atomic_file first;
    int status = 0;
    assert_ok(atomic_file_open(&first, path, &error), &error);
    pid_t second = fork();
    assert_true(second >= 0);
    if (second == 0) {
        close(fileno(first.stream)); /* the lock of the parent, inherited */
        _exit(atomic_file_write(path, "second", &error) ? 0 : 1);
    }
    fputs("first", first.stream);
    assert_ok(atomic_file_commit(&first, &error), &error);
    assert_int_equal(waitpid(second, &status, 0), second);
    assert_int_equal(status, 0);
    assert_text("file", "second");
}

/* ---- Folders ---- */

/* The reason is that of the failed mkdir, not of a later check. */
TEST(a_folder_that_cannot_be_made_is_an_error)
{
    char name[301] = "";
    OWNED char *link = path_of("link");
    memset(name, 'x', sizeof name - 1);
    const struct {
        const char *path, *reason;
    } cases[] = {{link, "Not a directory; go elsewhere"},
                 {"", "No such file"},
                 {name, "File name too long"}};
    assert_int_equal(symlink("nowhere", link), 0);
    for (int i = 0; i < 3; i++) {
        error_clear(&error);
        assert_false(folder_make(cases[i].path, "go elsewhere", &error));
        assert_error(&error, ERROR_FILE, cases[i].reason);
    }
}

/* Without the home folder there is no cache folder: a home folder is never created. */
TEST(the_cache_is_in_the_home_folder)
{
    char path[2048];
    unsetenv("XDG_CACHE_HOME");
    OWNED char *home = path_of("home"), *cache = path_of("home/.cache/vittrain");
    assert_int_equal(setenv("HOME", home, 1), 0);
    folder_cache(path, sizeof path);
    assert_string_equal(path, "");
    temporary_directory("home");
    folder_cache(path, sizeof path);
    assert_string_equal(path, cache);
}

/* ---- Input files beyond the limit ---- */

enum { FILES = 100, LIMIT = 40, THREADS = 4, READS = 2000 };

static struct open_file *files[FILES];
static struct file_stamp stamps[FILES];

static const char *path_of_number(int file)
{
    char name[16];
    snprintf(name, sizeof name, "%d", file);
    return temporary_path(name);
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
        OWNED char *name = allocate_text("%d", n), *text = allocate_text("%04d", n);
        temporary_write(name, text);
        files[n] = open_file_new(path_of_number(n), &stamps[n]);
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
    FILE *stream = fopen(path_of_number(0), "a");
    assert_true(stream != NULL && fputc('0', stream) == '0' && fclose(stream) == 0);
    assert_int_equal(unlink(path_of_number(1)), 0);
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

TEST_MAIN(.before = temporary_setup, .after = temporary_close)
