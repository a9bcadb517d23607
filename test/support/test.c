// SPDX-License-Identifier: BSD-3-Clause
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

void test_add(struct test_list *list, const char *name, CMUnitTestFunction function,
              CMFixtureFunction before, CMFixtureFunction after)
{
    if (list->count == TEST_MOST)
        abort();
    list->tests[list->count++] = (struct CMUnitTest){name, function, before, after, NULL};
}

void test_begin(const char *name)
{
    printf("# begin %s\n", name);
    fflush(stdout);
}

int tests_run(const struct test_group *group)
{
    struct test_list *list = group->list;
    for (size_t i = 0; i < list->count; i++) {
        struct CMUnitTest *test = &list->tests[i];
        if (test->setup_func == NULL && test->teardown_func == NULL) {
            test->setup_func = group->before;
            test->teardown_func = group->after;
        }
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("tests", list->tests, list->count, group->setup,
                                   group->teardown);
}

void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, text);
}

void assert_error(const struct error *error, enum error_kind kind, const char *part)
{
    assert_has(error->text, part);
    assert_int_equal(error->kind, kind);
    assert_null(strchr(error->text, '\n'));
}

int child_run(void (*run)(void *context), void *context, char *text, size_t size)
{
    int ends[2], status = 0;
    size_t length = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        run(context);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + length, size - 1 - length)) > 0;)
        length += (size_t)got;
    text[length] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

void assert_share(double draws, double count, double share)
{
    if (fabs(count / draws - share) > 4.5 * sqrt(share * (1 - share) / draws))
        fail_msg("a share of %.4f, expected %.4f", count / draws, share);
}
