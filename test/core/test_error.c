// SPDX-License-Identifier: BSD-3-Clause
/* Errors: the first mistake is kept, messages are one line, truncated to the size of the struct.
 * ENSURE ends the process with its exit code and prints rank and place. */
#include "core/error.h"

#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

TEST(first_mistake_wins)
{
    struct error error = {0};
    assert_false(error_set(&error, ERROR_DATA, "%s: %d bytes", "a.bin", 3));
    assert_false(error_set(&error, ERROR_USAGE, "later"));
    assert_int_equal(error.kind, ERROR_DATA);
    assert_string_equal(error.text, "a.bin: 3 bytes");
    error_clear(&error);
    assert_int_equal(error.kind, ERROR_NONE);
    assert_string_equal(error.text, "");
    error_set(&error, ERROR_USAGE, "later");
    assert_int_equal(error.kind, ERROR_USAGE);
}

TEST(message_is_one_line_that_fits)
{
    struct error error = {0};
    error_set(&error, ERROR_FILE, "%s: cannot write", "a\nb\rc\033[31md");
    assert_string_equal(error.text, "a b c [31md: cannot write");
    error_clear(&error);
    char path[2 * ERROR_TEXT_SIZE];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    error_set(&error, ERROR_FILE, "%s", path);
    assert_int_equal(strlen(error.text), ERROR_TEXT_SIZE - 1);
}

static void leave_with_42(int exit_code)
{
    _exit(exit_code == ERROR_INTERNAL ? 42 : 43);
}

/* Runs a false ENSURE or ENSURE_MEMORY in a child; gives its exit code and what it wrote to stderr.
 */
static int broken_promise(bool of_memory, const char *format, void (*handler)(int), char *text,
                          size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        error_identify(3, "node7");
        error_on_abort(handler);
        ENSURE_MEMORY(!of_memory, format, 2);
        ENSURE(1 + 1 == 3, format, 2);
        _exit(99);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t got;
    while ((got = read(ends[0], text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(ensure_ends_the_job)
{
    char text[1024];
    assert_int_equal(broken_promise(false, "sum is %d", NULL, text, sizeof text), ERROR_INTERNAL);
    assert_non_null(strstr(text, "rank 3 on node7: sum is 2 ("));
    assert_non_null(strstr(text, "test_error.c:"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_int_equal(broken_promise(false, "sum is %d", leave_with_42, text, sizeof text), 42);
    assert_int_equal(broken_promise(true, "no room for %d rows", NULL, text, sizeof text),
                     ERROR_MEMORY);
    assert_string_equal(text, "vittrain: error: rank 3 on node7: no room for 2 rows; check free "
                              "memory and the limits of this job (ulimit -v, ulimit -u)\n");
    assert_int_equal(broken_promise(true, "no room for %d rows", leave_with_42, text, sizeof text),
                     43);
}

TEST_MAIN()
