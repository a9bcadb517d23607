// SPDX-License-Identifier: BSD-3-Clause
/* Output files: links and pipes are not opened, two writers of one file lose nothing, and only
 * files of dead processes are removed. */

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file.h"
#include "core/text.h"
#include "temporary.h"
#include "test.h"

static void path_of(const char *name, char path[FILE_PATH])
{
    snprintf(path, FILE_PATH, "%s", temporary_path(name));
}

static void assert_text(const char *name, const char *expected)
{
    char *text = temporary_text(name);
    assert_string_equal(text, expected);
    free(text);
}

TEST(only_regular_files_are_opened)
{
    char victim[FILE_PATH], path[FILE_PATH];
    temporary_write("victim", "not yours");
    path_of("victim", victim);
    path_of("link", path);
    assert_int_equal(symlink(victim, path), 0);
    assert_int_equal(output_file_open(path, O_RDWR | O_CREAT), -1);
    assert_int_equal(errno, ELOOP);
    assert_null(output_file_stream(path, "a"));
    assert_null(output_file_stream(path, "r"));
    path_of("pipe", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_null(output_file_stream(path, "r"));
    assert_int_equal(errno, EINVAL);
    assert_null(output_file_stream(path, "w"));
    assert_int_equal(errno, ENXIO);
    assert_int_equal(output_file_open(temporary_directory("folder"), O_RDONLY), -1);
    assert_int_equal(errno, EISDIR);
    assert_text("victim", "not yours");
}

TEST(links_are_replaced_by_temporary_files)
{
    char victim[FILE_PATH], path[FILE_PATH], part[FILE_PATH];
    struct error error = {0};
    temporary_write("victim", "not yours");
    path_of("victim", victim);
    path_of("file", path);
    path_of("file.part", part);
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
    char path[FILE_PATH];
    struct atomic_file first;
    struct error error = {0};
    int status = 0;
    path_of("file", path);
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

static bool is_part(const char *name)
{
    return text_ends_with(name, ".part");
}

/* The file of a living process is locked, also for another descriptor of this process. */
TEST(files_of_dead_processes_are_removed)
{
    char path[FILE_PATH];
    struct atomic_file alive;
    struct error error = {0};
    path_of("alive", path);
    assert_ok(atomic_file_open(&alive, path, &error), &error);
    temporary_write("dead.part", "x");
    temporary_write("other", "x");
    output_file_clean(temporary_path(""), is_part);
    assert_int_equal(access(temporary_path("dead.part"), F_OK), -1);
    assert_int_equal(access(temporary_path("alive.part"), F_OK), 0);
    assert_int_equal(access(temporary_path("other"), F_OK), 0);
    fclose(alive.stream); /* as at the end of the process */
    output_file_clean(temporary_path(""), is_part);
    assert_int_equal(access(temporary_path("alive.part"), F_OK), -1);
    output_file_clean(temporary_path("nowhere"), is_part);
}

TEST_MAIN(.before = temporary_setup, .after = temporary_teardown)
