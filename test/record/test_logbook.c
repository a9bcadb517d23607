// SPDX-License-Identifier: BSD-3-Clause
/* The log book: rows of the index, text of the user, concurrent writers. */
#include "record/metrics.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "temporary.h"
#include "test.h"

static char book[4096];

static void make_folder(void)
{
    temporary_open();
    snprintf(book, sizeof book, "%s", temporary_path("book"));
}

static void row_add(const char *row, bool again)
{
    assert_ok(logbook_add(book, row, again, &error), &error);
}

TEST(markup_in_names_is_escaped)
{
    struct text_stream stream;
    char long_name[1000] = "";
    logbook_cell(text_stream_open(&stream), "a|b <!-- `c` *d* [e]\nf_g");
    OWNED char *cell = text_stream_close(&stream);
    assert_string_equal(cell, " a\\|b \\<!-- \\`c\\` \\*d\\* \\[e\\] f_g |");
    memset(long_name, '|', sizeof long_name - 1);
    logbook_cell(text_stream_open(&stream), "%s", long_name);
    OWNED char *cut = text_stream_close(&stream);
    assert_in_range(strlen(cut), 100, 300);
}

/* The index contains the part, and has one table. */
static void assert_index(const char *part)
{
    OWNED char *index = temporary_text("book/README.md");
    assert_has(index, part);
    assert_int_equal(text_count(index, "| Run |"), 1);
}

TEST(the_newest_run_is_the_first_row)
{
    row_add(" runs/one | 1 |", false);
    row_add(" runs/two\\|b | 2 |", false);
    assert_index("|---|\n| runs/two\\|b | 2 |\n| runs/one | 1 |\n<!-- vittrain: end -->\n");
    assert_index("# Log book\n");
}

TEST(an_attempt_replaces_the_rows_of_its_run)
{
    row_add(" runs/on | 1 |", false);
    row_add(" runs/on | 2 |", false); /* another run, in a new folder of the same name */
    row_add(" runs/one | 3 |", false);
    row_add(" runs/on | 4 |", true);
    assert_index("|---|\n| runs/on | 4 |\n| runs/one | 3 |\n| runs/two");
}

TEST(text_of_the_user_is_kept)
{
    temporary_write("book/README.md", "no marks here");
    row_add(" runs/own | 1 |", false);
    assert_index("no marks here\n\n<!-- vittrain: begin, generated -->\n");
    OWNED char *index = temporary_text("book/README.md"), *after = allocate_text("%slast", index);
    memcpy(strstr(after, "begin, generated"), "begin, edited by", strlen("begin, edited by"));
    temporary_write("book/README.md", after);
    row_add(" runs/own | 2 |", false);
    assert_index("no marks here\n\n<!-- vittrain: begin, edited by -->\n");
    assert_index("| runs/own | 2 |\n| runs/own | 1 |\n<!-- vittrain: end -->\nlast");
}

TEST(an_index_with_other_columns_is_set_aside)
{
    static const char before[] = "Ours\n<!-- vittrain: begin, generated -->\n| Run | Old |\n"
                                 "|---|---|\n| [first](first.md) | a |\n<!-- vittrain: end -->\n";
    temporary_write("book/README.md", before);
    row_add(" runs/own | 1 |", true);
    assert_index("|---|\n| runs/own | 1 |\n<!-- vittrain: end -->\n");
    OWNED char *old = temporary_text("book/README.md.old");
    assert_string_equal(old, before);
}

TEST(a_book_that_cannot_be_written_is_an_error)
{
    static const char *const books[] = {"file", "odd", "zeros"};
    temporary_write("file", "x");
    temporary_directory("odd/README.md"); /* a folder instead of the index */
    temporary_directory("zeros");
    temporary_file("zeros/README.md", "a\0b", 3); /* text behind the zero is not lost */
    for (int i = 0; i < 3; i++) {
        error_clear(&error);
        assert_false(logbook_add(temporary_path(books[i]), " a |", false, &error));
        assert_int_equal(error.kind, ERROR_FILE);
    }
    OWNED char *index = temporary_text("zeros/README.md");
    assert_string_equal(index, "a");
}

enum { WRITERS = 8, ROWS = 5 };

TEST(concurrent_writers_lose_nothing)
{
    pid_t writers[WRITERS];
    for (int writer = 0; writer < WRITERS; writer++) {
        writers[writer] = fork();
        assert_true(writers[writer] >= 0);
        if (writers[writer] > 0)
            continue;
        bool good = true;
        for (int i = 0; i < ROWS; i++) {
            char row[64];
            error_clear(&error);
            snprintf(row, sizeof row, " runs/concurrent-%d-%d | 1 |", writer, i);
            good = good && logbook_add(book, row, false, &error);
        }
        _exit(!good);
    }
    for (int writer = 0; writer < WRITERS; writer++) {
        int status;
        assert_int_equal(waitpid(writers[writer], &status, 0), writers[writer]);
        assert_int_equal(status, 0);
    }
    OWNED char *index = temporary_text("book/README.md");
    assert_int_equal(text_count(index, "| runs/concurrent-"), WRITERS * ROWS);
}

TEST_MAIN(.setup = make_folder, .teardown = temporary_close)
