// SPDX-License-Identifier: BSD-3-Clause
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "options/options.h"

void test_add(struct test_list *list, const char *name, CMUnitTestFunction function)
{
    if (list->count == TEST_MOST)
        abort();
    list->tests[list->count++] = (struct CMUnitTest){.name = name, .test_func = function};
}

void test_begin(const char *name)
{
    printf("# begin %s\n", name);
    fflush(stdout);
}

/* The functions of the group that runs, called by cmocka. */
static const struct test_group *running;

#define GROUP_CALL(name)                                                                           \
    static int running_##name(__attribute__((unused)) void **state)                                \
    {                                                                                              \
        if (running->name != NULL)                                                                 \
            running->name();                                                                       \
        return 0;                                                                                  \
    }
GROUP_CALL(setup)
GROUP_CALL(teardown)
GROUP_CALL(before)
GROUP_CALL(after)

int tests_run(const struct test_group *group)
{
    struct test_list *list = group->list;
    running = group;
    for (size_t i = 0; i < list->count; i++) {
        list->tests[i].setup_func = running_before;
        list->tests[i].teardown_func = running_after;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("tests", list->tests, list->count, running_setup,
                                   running_teardown);
}

void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, text);
}

int text_count(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

void assert_error(const struct error *failure, enum error_kind kind, const char *part)
{
    assert_has(failure->text, part);
    assert_int_equal(failure->kind, kind);
    assert_null(strchr(failure->text, '\n'));
}

uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_bf16(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

uint16_t to_fp16(double value)
{
    const double magnitude = fabs(value);
    const unsigned sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value))
        return 0x7e00;
    if (magnitude >= 65520)
        return (uint16_t)(sign | 0x7c00);
    const int exponent = magnitude < 0x1p-14 ? -14 : ilogb(magnitude);
    const long steps = lrint(ldexp(magnitude, 10 - exponent));
    return (uint16_t)(sign | (unsigned)((exponent + 14) * 1024 + steps));
}

double from_fp16(uint16_t value)
{
    const int exponent = value >> 10 & 31, mantissa = value & 1023;
    const double sign = value >> 15 ? -1 : 1;
    if (exponent == 31)
        return mantissa != 0 ? NAN : sign * INFINITY;
    return sign * (exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25));
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

void assert_uniform(const double *values, int count, double low, double high)
{
    double bins[10] = {0};
    for (int i = 0; i < count; i++) {
        const int bin = (int)floor(10 * (values[i] - low) / (high - low));
        bins[bin < 0 ? 0 : bin > 9 ? 9 : bin]++;
    }
    for (int bin = 0; bin < 10; bin++)
        assert_share(count, bins[bin], 0.1);
}

void settings_apply(struct options *options, const char *words)
{
    char copy[2048];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *rest, *word = strtok_r(copy, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest))
        assert_ok(options_set(word, options, &error), &error);
}

void settings_set(struct options *options, const char *words)
{
    options_default(options);
    settings_apply(options, words);
}
