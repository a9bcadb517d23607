// SPDX-License-Identifier: BSD-3-Clause
/* The log book: rows of the index, text of the user, concurrent writers, results of searches. */
#include "runlog/logbook.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "temporary.h"
#include "test.h"

static char book[4096];

static int make_folder(void **state)
{
    (void)state;
    temporary_open();
    snprintf(book, sizeof book, "%s", temporary_path("book"));
    return 0;
}

static void row_add(const char *row, bool again)
{
    struct error error = {0};
    assert_ok(logbook_add(book, row, again, &error), &error);
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

TEST(markup_in_names_is_escaped)
{
    char cell[LOGBOOK_CELL], long_name[1000];
    assert_string_equal(logbook_cell("a|b <!-- `c` *d* [e]\nf_g", cell),
                        "a\\|b \\<!-- \\`c\\` \\*d\\* \\[e\\] f_g");
    memset(long_name, '|', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_true(strlen(logbook_cell(long_name, cell)) < sizeof cell);
}

TEST(the_newest_run_is_the_first_row)
{
    row_add("| runs/one | 1 |\n", false);
    row_add("| runs/two\\|b | 2 |\n", false);
    char *index = temporary_text("book/README.md");
    assert_int_equal(strncmp(index, "# Log book\n", 11), 0);
    assert_has(index, "|---|\n| runs/two\\|b | 2 |\n| runs/one | 1 |\n<!-- vittrain: end -->\n");
    assert_int_equal(count_of(index, "| Run |"), 1);
    free(index);
}

TEST(an_attempt_replaces_the_row_of_its_run)
{
    row_add("| runs/on | 1 |\n", false);
    row_add("| runs/on | 2 |\n", false); /* another run, in a new folder of the same name */
    row_add("| runs/one | 3 |\n", false);
    row_add("| runs/on | 4 |\n", true);
    char *index = temporary_text("book/README.md");
    assert_int_equal(count_of(index, "| runs/on |"), 1);
    assert_has(index, "| runs/on | 4 |\n| runs/one | 3 |\n");
    free(index);
}

TEST(text_of_the_user_is_kept)
{
    static const char before[] =
        "Ours\n<!-- vittrain: begin, edited -->\n| Run | Old |\n|---|---|\n"
        "| [first](first.md) | a |\n<!-- vittrain: end -->\nlast";
    static const char foreign[] = "no marks here";
    temporary_write("book/README.md", before);
    row_add("| runs/own | 1 |\n", true);
    char *index = temporary_text("book/README.md");
    assert_int_equal(strncmp(index, "Ours\n<!-- vittrain: begin, generated -->\n| Run |", 48), 0);
    assert_has(index, "|\n| runs/own | 1 |\n| [first](first.md) | a |\n"
                      "<!-- vittrain: end -->\nlast");
    assert_null(strstr(index, "Old"));
    free(index);
    temporary_write("book/README.md", foreign);
    row_add("| runs/own | 1 |\n", false);
    row_add("| runs/own | 2 |\n", false);
    index = temporary_text("book/README.md");
    assert_int_equal(strncmp(index, "no marks here\n\n<!--", 19), 0);
    assert_has(index, "| runs/own | 2 |\n| runs/own | 1 |\n<!-- vittrain: end -->\n");
    free(index);
}

TEST(a_book_that_cannot_be_written_is_an_error)
{
    struct error error = {0};
    temporary_file("file", "x", 1);
    assert_false(logbook_add(temporary_path("file"), "| a |\n", false, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    error_clear(&error);
    temporary_directory("odd/README.md"); /* a folder instead of the index */
    assert_false(logbook_add(temporary_path("odd"), "| a |\n", false, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    error_clear(&error);
    temporary_directory("zeros");
    temporary_file("zeros/README.md", "a\0b", 3); /* text behind the zero is not lost */
    assert_false(logbook_add(temporary_path("zeros"), "| a |\n", false, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    assert_int_equal(access(temporary_path("zeros/.index.lock"), F_OK), -1);
    error_clear(&error);
    const struct found found = {.what = "lr", .model = "", .precision = "", .detail = ""};
    temporary_write("other/found.csv", "another,header\n");
    assert_false(found_add(temporary_path("other"), &found, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    assert_int_equal(access(temporary_path("other/.index.lock"), F_OK), -1);
}

TEST(the_lock_of_a_killed_process_is_removed)
{
    const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    temporary_write("book/.index.lock", "");
    assert_int_equal(utimensat(AT_FDCWD, temporary_path("book/.index.lock"), long_ago, 0), 0);
    row_add("| runs/later | 1 |\n", false);
    assert_int_equal(access(temporary_path("book/.index.lock"), F_OK), -1);
}

/* Processes that add a row to the index and to found.csv at the same time. */
enum { WRITERS = 8 };

TEST(concurrent_writers_lose_nothing)
{
    pid_t writers[WRITERS];
    for (int writer = 0; writer < WRITERS; writer++) {
        writers[writer] = fork();
        assert_true(writers[writer] >= 0);
        if (writers[writer] > 0)
            continue;
        char row[64];
        struct error error = {0};
        const struct found found = {.what = "lr",
                                    .model = "concurrent",
                                    .precision = "fp32",
                                    .strategy = "ddp",
                                    .value = writer,
                                    .peak_bytes = NAN,
                                    .limit = NAN,
                                    .detail = ""};
        snprintf(row, sizeof row, "| runs/concurrent-%d | 1 |\n", writer);
        _exit(!found_add(book, &found, &error) || !logbook_add(book, row, false, &error));
    }
    for (int writer = 0; writer < WRITERS; writer++) {
        int status;
        assert_int_equal(waitpid(writers[writer], &status, 0), writers[writer]);
        assert_int_equal(status, 0);
    }
    char *index = temporary_text("book/README.md"), *table = temporary_text("book/found.csv");
    assert_int_equal(count_of(index, "| runs/concurrent-"), WRITERS);
    assert_int_equal(count_of(table, ",lr,concurrent,0,fp32,ddp,0,0,"), WRITERS);
    assert_int_equal(strncmp(table, "date,", 5), 0);
    free(index);
    free(table);
}

TEST(found_has_the_result_of_a_search)
{
    struct error error = {0};
    const struct found found = {.what = "batch",
                                .model = "vit_cifar",
                                .image = 32,
                                .precision = "fp32",
                                .strategy = "ddp",
                                .ranks = 2,
                                .nodes = 1,
                                .value = 4321,
                                .global_batch = 8642,
                                .peak_bytes = 1000,
                                .limit = NAN,
                                .detail = "a, b"};
    assert_ok(found_add(book, &found, &error), &error);
    char *table = temporary_text("book/found.csv");
    assert_has(table, ",batch,vit_cifar,32,fp32,ddp,2,1,4321,8642,1000,,\"a, b\"\n");
    free(table);
}

int main(void)
{
    return TESTS_RUN(.setup = make_folder, .teardown = temporary_teardown);
}
