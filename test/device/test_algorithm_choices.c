// SPDX-License-Identifier: BSD-3-Clause
/* Choices: the fastest candidate is measured once and then known to the process, to later
 * processes, and to concurrent ones; no file content causes a failure. */
#include "device/algorithm_choices.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "temporary.h"
#include "test.h"

enum { CANDIDATES = 3 };

/* Pauses of the wait for a lock. */
static int naps;

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    naps++;
    return (int)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, wanted, left);
}

static const struct choice candidates[CANDIDATES] = {
    {{1, 2, 3, 4, 5, 6, 7, 8}}, {{0xfedcba9876543210, 0, 1, 0, 1, 0, 1, 0}}, {{9}}};

/* Candidate 1 is the fastest. */
struct trial {
    double seconds[CANDIDATES];
    int measured; /* number of measurements */
    bool refuses; /* reject all earlier choices */
    int ready;    /* descriptor that gets a byte when the measurement begins; 0: none */
};

static double trial_time(void *context, int candidate)
{
    struct trial *trial = context;
    trial->measured++;
    if (trial->ready > 0)
        assert_int_equal(write(trial->ready, "r", 1), 1);
    return trial->seconds[candidate];
}

static bool trial_usable(void *context, const struct choice *choice)
{
    (void)choice;
    return !((struct trial *)context)->refuses;
}

static struct trial fresh(void)
{
    return (struct trial){.seconds = {3e-3, 1e-3, 2e-3}};
}

static const struct trial first_fastest = {.seconds = {1, 2, 3}};

/* Choose by a trial; return the number of measurements. */
static int make(struct choices *choices, const char *key, struct trial trial, uint64_t first_word)
{
    struct choice chosen;
    assert_true(choices_make(choices, key, candidates, CANDIDATES, trial_time, trial_usable, &trial,
                             &chosen));
    assert_true(chosen.words[0] == first_word);
    return trial.measured;
}

static struct choices *open_at(const char *folder)
{
    return choices_open(folder, "GPU X, 1.2");
}

/* Return the number of measurements that a process which knows only the file needs to choose `key`.
 */
static int measured_for(const char *folder, const char *key, uint64_t first_word)
{
    struct choices *choices = open_at(folder);
    const int measured = make(choices, key, fresh(), first_word);
    assert_int_equal(make(choices, key, fresh(), first_word), 0);
    choices_close(choices);
    return measured;
}

static const uint64_t fastest = 0xfedcba9876543210;
static const char file_name[] = "cache/deep/products-GPU-X--1-2";

static const char *cache(void)
{
    return temporary_path("cache/deep");
}

TEST(measured_once)
{
    assert_int_equal(measured_for("", "a", fastest), CANDIDATES);
    assert_int_equal(measured_for("", "a", fastest), CANDIDATES);
    assert_int_equal(measured_for(cache(), "a 1x2", fastest), CANDIDATES);
    assert_int_equal(measured_for(cache(), "a 1x2", fastest), 0);
    assert_int_equal(measured_for(cache(), "a 1x3", fastest), CANDIDATES);
    assert_int_equal(measured_for(cache(), "a 1x2", fastest), 0);
}

TEST(all_times_are_in_the_log)
{
    struct choices *choices = open_at("");
    assert_true(log_to_file(temporary_path("log"), &error));
    make(choices, "a 1x2", fresh(), fastest);
    log_close();
    choices_close(choices);
    OWNED char *log = temporary_text("log");
    assert_has(log, "algorithm of a 1x2: candidate 1 of 3; us: 3000.0 1000.0 2000.0\n");
}

TEST(what_cannot_be_used_is_not_chosen)
{
    struct trial trial = {.seconds = {INFINITY, INFINITY, INFINITY}};
    struct choice chosen;
    struct choices *choices = open_at(cache());
    assert_false(choices_make(choices, "none", candidates, CANDIDATES, trial_time, trial_usable,
                              &trial, &chosen));
    trial.seconds[2] = 1;
    make(choices, "none", trial, 9);
    /* If the library no longer accepts a choice, a new one replaces it, in the file, too. */
    trial = fresh();
    trial.refuses = true;
    make(choices, "none", trial, fastest);
    choices_close(choices);
    assert_int_equal(measured_for(cache(), "none", fastest), 0);
}

enum damage { DIGIT_CHANGED, END_CUT, ZEROS_WRITTEN };

/* Damage the file of the tests. */
static void file_damage(enum damage damage)
{
    OWNED char *text = temporary_text(file_name);
    const size_t length = strlen(text);
    if (damage == DIGIT_CHANGED)
        strstr(text, "damaged = 0")[strlen("damaged = ")] = '1';
    if (damage == ZEROS_WRITTEN)
        memset(text, 0, length / 2);
    temporary_file(file_name, text, damage == END_CUT ? length - 20 : length);
}

TEST(damage_is_measured_again)
{
    struct choices *choices = open_at(cache());
    make(choices, "damaged", first_fastest, 1);
    choices_close(choices);
    assert_int_equal(measured_for(cache(), "whole", fastest), CANDIDATES);
    file_damage(DIGIT_CHANGED);
    assert_int_equal(measured_for(cache(), "whole", fastest), 0);
    assert_int_equal(measured_for(cache(), "damaged", fastest), CANDIDATES);
    assert_int_equal(measured_for(cache(), "damaged", fastest), 0);

    assert_int_equal(measured_for(cache(), "last", fastest), CANDIDATES);
    file_damage(END_CUT);
    assert_int_equal(measured_for(cache(), "last", fastest), CANDIDATES);
    assert_int_equal(measured_for(cache(), "last", fastest), 0);
    assert_int_equal(measured_for(cache(), "whole", fastest), 0);

    file_damage(ZEROS_WRITTEN);
    assert_int_equal(measured_for(cache(), "after zeros", fastest), CANDIDATES);
    assert_int_equal(measured_for(cache(), "last", fastest), 0);
    assert_int_equal(measured_for(cache(), "after zeros", fastest), 0);
}

TEST(no_file_no_harm)
{
    temporary_file("plain", "x", 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(measured_for(temporary_path("plain/folder"), "a", fastest), CANDIDATES);
}

/* A candidate that needs a choice of its own. */
static double nesting_time(void *context, int candidate)
{
    make(context, "inner", fresh(), fastest);
    return candidate == 0 ? 1 : 2;
}

static bool always_usable(void *context, const struct choice *choice)
{
    (void)context;
    (void)choice;
    return true;
}

/* The file keeps both choices, also after a truncated line. The lock of the outer measurement is
 * not waited for. */
TEST(a_measurement_may_need_another)
{
    struct choice chosen;
    naps = 0;
    temporary_directory("nested");
    temporary_file("nested/products-GPU-X--1-2", "trunc", 5);
    struct choices *choices = open_at(temporary_path("nested"));
    assert_true(choices_make(choices, "outer", candidates, CANDIDATES, nesting_time, always_usable,
                             choices, &chosen));
    assert_int_equal(naps, 0);
    choices_close(choices);
    assert_int_equal(measured_for(temporary_path("nested"), "inner", fastest), 0);
    assert_int_equal(measured_for(temporary_path("nested"), "outer", 1), 0);
}

/* Two ranks that need a key at the same time use the same choice: the second waits for the first.
 */
TEST(ranks_agree)
{
    int ready[2], status = 0;
    char letter = 0;
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", temporary_path("shared"));
    assert_int_equal(pipe(ready), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct trial trial = {.seconds = {1, 2, 3}, .ready = ready[1]};
        struct choice chosen;
        struct choices *choices = open_at(folder);
        _exit(choices_make(choices, "both", candidates, CANDIDATES, trial_time, trial_usable,
                           &trial, &chosen)
                  ? 0
                  : 1);
    }
    assert_int_equal(read(ready[0], &letter, 1), 1);
    assert_int_equal(measured_for(folder, "both", 1), 0);
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    close(ready[0]);
    close(ready[1]);
}

/* True if `key` is known without measurement, with this first word. */
static bool knows(struct choices *choices, const char *key, uint64_t first_word)
{
    struct trial trial = fresh();
    struct choice chosen;
    return choices_find(choices, key, trial_usable, &trial, &chosen) &&
           chosen.words[0] == first_word;
}

/* A rank measures two shapes; another rank has chosen differently for one of them. */
TEST(adopted_choices_replace_own)
{
    struct choices *giver = open_at(""), *taker = open_at("");
    make(giver, "both", fresh(), fastest);
    make(giver, "one", fresh(), fastest);
    make(taker, "both", first_fastest, 1);
    make(taker, "own", first_fastest, 1);
    assert_true(choices_are_new(giver));
    OWNED char *text = choices_export(giver);
    assert_false(choices_adopt(giver, text)); /* its own text changes nothing */
    assert_false(choices_are_new(giver));
    assert_true(choices_adopt(taker, text));
    assert_true(choices_are_new(taker)); /* "own", which the sender does not have */
    assert_false(choices_adopt(taker, text));
    assert_true(knows(taker, "both", fastest));
    assert_true(knows(taker, "one", fastest));
    assert_true(knows(taker, "own", 1));
    choices_close(giver);
    choices_close(taker);
}

/* The file has a different choice, and adopted choices are not written to it. */
TEST(adopted_choices_precede_the_file)
{
    struct choices *giver = open_at("");
    make(giver, "adopted", first_fastest, 1);
    OWNED char *text = choices_export(giver);
    assert_int_equal(measured_for(cache(), "adopted", fastest), CANDIDATES);
    struct choices *taker = open_at(cache());
    assert_false(choices_adopt(taker, text));
    make(taker, "another", fresh(), fastest); /* reads the file */
    make(taker, "adopted", fresh(), 1);
    OWNED char *again = choices_export(taker);
    assert_has(again, "\nadopted = 0000000000000001 ");
    assert_null(strstr(again, "whole")); /* in the file, but not in use */
    assert_int_equal(measured_for(cache(), "adopted", fastest), 0);
    choices_close(giver);
    choices_close(taker);
}

TEST(what_cannot_be_adopted_is_measured)
{
    struct choices *giver = open_at(""), *other = choices_open("", "GPU X, 1.3");
    struct choices *taker = open_at("");
    struct trial refuses = fresh();
    refuses.refuses = true;
    OWNED char *none = choices_export(giver);
    assert_string_equal(none, "GPU X, 1.2\n");
    assert_false(choices_adopt(taker, none));
    make(giver, "a", first_fastest, 1);
    choices_put(giver, "b", &candidates[0]);
    OWNED char *text = choices_export(giver);
    assert_false(choices_adopt(other, text)); /* another version of the library */
    assert_false(knows(other, "a", 1));
    assert_false(choices_adopt(taker, text));
    assert_false(choices_are_new(taker));
    make(taker, "a", refuses, fastest);
    assert_true(choices_are_new(taker));
    assert_true(knows(taker, "b", 1));
    text[strlen(text) - 3] ^= 1; /* in the sum of "b" */
    struct choices *careful = open_at("");
    choices_adopt(careful, text);
    assert_true(knows(careful, "a", 1));
    assert_false(knows(careful, "b", 1));
    choices_close(giver);
    choices_close(other);
    choices_close(taker);
    choices_close(careful);
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_close)
