// SPDX-License-Identifier: BSD-3-Clause
/* Included by every test program, with the headers that cmocka and most tests need. TEST(name)
 * { ... } defines a test and adds it to the program's list. The tests run in the order of the
 * source; TEST_MAIN() is the program. `error` is the error of each source file: TEST clears it
 * before the test. */
#ifndef VITTRAIN_TEST_TEST_H
#define VITTRAIN_TEST_TEST_H

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/allocate.h"
#include "base/error.h"

enum { TEST_MOST = 64 };

struct test_list {
    struct CMUnitTest tests[TEST_MOST];
    size_t count;
};

struct test_group {
    struct test_list *list;
    void (*setup)(void), (*teardown)(void); /* of the program; NULL: none */
    void (*before)(void), (*after)(void);   /* of each test; NULL: none */
};

/* One of each per source file. */
__attribute__((unused)) static struct test_list test_list;
__attribute__((unused)) static struct error error;

void test_add(struct test_list *list, const char *name, CMUnitTestFunction function);

/* Print the name of a test, which run_test.sh reports if the program crashes. */
void test_begin(const char *name);

/* Run the tests; return the exit status. */
int tests_run(const struct test_group *group);

#define TEST(function)                                                                             \
    static void function##_body(void);                                                             \
    static void function(__attribute__((unused)) void **state)                                     \
    {                                                                                              \
        test_begin(#function);                                                                     \
        error_clear(&error);                                                                       \
        function##_body();                                                                         \
    }                                                                                              \
    __attribute__((constructor)) static void function##_add(void)                                  \
    {                                                                                              \
        test_add(&test_list, #function, function);                                                 \
    }                                                                                              \
    static void function##_body(void)

/* Arguments: other members of struct test_group. */
#define TEST_GROUP(...) (&(const struct test_group){.list = &test_list, __VA_ARGS__})
#define TESTS_RUN(...) tests_run(TEST_GROUP(__VA_ARGS__))
#define TEST_MAIN(...)                                                                             \
    int main(void)                                                                                 \
    {                                                                                              \
        return TESTS_RUN(__VA_ARGS__);                                                             \
    }

/* Fail with the text of the error unless `good`. */
#define assert_ok(good, error)                                                                     \
    do {                                                                                           \
        if (!(good))                                                                               \
            fail_msg("%s", (error)->text);                                                         \
    } while (0)

/* Fail unless the text contains the part. */
void assert_has(const char *text, const char *part);

/* Return how many times the text contains the part. */
int text_count(const char *text, const char *part);

/* Fail unless the error is of this kind, and its text is one line that contains the part. */
void assert_error(const struct error *failure, enum error_kind kind, const char *part);

/* Conversions of bf16 and fp16, to the nearest value; half way to the even one. */
uint16_t to_bf16(float value);
float from_bf16(uint16_t value);
uint16_t to_fp16(double value);
double from_fp16(uint16_t value);

/* Fail unless `count` of `draws` random draws is this share of them within 4.5 standard deviations.
 */
void assert_share(double draws, double count, double share);

/* Fail unless each tenth of the range has a tenth of the random values. */
void assert_uniform(const double *values, int count, double low, double high);

/* Run a function in a child process and return its exit status: 0 if the function returns. `text`
 * gets what the child writes to stdout and stderr. */
int child_run(void (*run)(void *context), void *context, char *text, size_t size);

/* Skip the calling test with a reason, which run_test.sh appends to the test's result line. */
#define SKIP_BECAUSE(reason)                                                                       \
    do {                                                                                           \
        printf("# skipped: %s\n", reason);                                                         \
        skip();                                                                                    \
    } while (0)

/* Apply each "section.key=value" of words separated by spaces; settings_set begins with the
 * defaults. The test fails at an error. */
struct options;
void settings_apply(struct options *options, const char *words);
void settings_set(struct options *options, const char *words);

#endif
