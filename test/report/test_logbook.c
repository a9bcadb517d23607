// SPDX-License-Identifier: BSD-3-Clause
/* The log book: pages, index, notes of users, concurrent writers. */
#include "tools/report/logbook.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "temporary.h"
#include "test.h"
#include "tools/report/escape.h"

static char book[4096];

static int make_folder(void **state)
{
    (void)state;
    temporary_open();
    snprintf(book, sizeof book, "%s", temporary_path("book"));
    return 0;
}

/* Write a minimal run folder and read it. */
static struct record run_make(const char *folder, const char *started, double top1)
{
    char name[300], text[1024];
    struct record record;
    struct error error = {0};
    snprintf(name, sizeof name, "%s/run.json", folder);
    snprintf(text, sizeof text,
             "{\"model\": \"vit_cifar\", \"ranks\": 2, \"nodes\": 1, \"image\": 32, \"precision\": "
             "\"fp32\", \"parts\": [{\"started\": \"%s\", \"ended\": \"later\", \"command\": \"run "
             "'a ``` b'\", \"hosts\": [\"one|two\"], \"error\": null}]}",
             started);
    temporary_write(name, text);
    snprintf(name, sizeof name, "%s/result.json", folder);
    snprintf(text, sizeof text,
             "{\"finished\": true, \"stop_reason\": \"all | steps -- done\", \"split\": \"val\", "
             "\"samples\": 10, \"loss\": 1.5, \"top1\": %g, \"classes\": [{\"name\": \"a|b\", "
             "\"accuracy\": 1}]}",
             top1);
    temporary_write(name, text);
    assert_ok(record_read(&record, temporary_path(folder), &error), &error);
    return record;
}

static void run_add(const char *folder, const char *started, double top1)
{
    struct error error = {0};
    struct record record = run_make(folder, started, top1);
    assert_ok(logbook_add(book, &record, &error), &error);
    record_free(&record);
}

static int lines_with(const char *text, const char *begin)
{
    int count = 0;
    for (const char *line = text; line != NULL && *line != '\0';) {
        count += strncmp(line, begin, strlen(begin)) == 0;
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return count;
}

TEST(markup_in_names_is_escaped)
{
    char *text = NULL;
    size_t length = 0;
    const char *const cells[] = {"a|b", "<!-- x -->", "`c` *d* [e]\nf\x01", "vit_base_patch32"};
    FILE *stream = open_memstream(&text, &length);
    markdown_row(stream, 4, cells);
    markdown_link(stream, "r [1]", "r [1].md");
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(text, "| a\\|b | &lt;!-- x --> | \\`c\\` \\*d\\* \\[e\\] f? | "
                              "vit_base_patch32 |\n[r \\[1\\]](r%20%5B1%5D.md)");
    free(text);
}

TEST(pages_and_index_are_made)
{
    run_add("first", "2026-11-20T10:00:00.000Z", 0.25);
    run_add("second", "2026-11-21T10:00:00.000Z", 0.5);
    char *index = temporary_text("book/README.md"), *page = temporary_text("book/first.md");
    assert_has(index, "| [first](first.md) | 2026-11-20 10:00:00 UTC | vit_cifar | 2 | 1 |");
    assert_has(index, "| 25.00 % |");
    assert_true(strstr(index, "[second]") < strstr(index, "[first]")); /* newest first */
    assert_has(index, "| finished | all \\| steps _- done |"); /* "--" would end the comment */
    assert_has(page, "| First host | one\\|two |");
    assert_has(page, "| run 'a \\`\\`\\` b' |");
    assert_has(page, "| a\\|b |  |  |  |  | 100.00 % |");
    assert_has(page, "## Missing or damaged files");
    assert_has(page, "* deck.ini: cannot be read");
    assert_int_equal(lines_with(index, "| ["), 2);
    free(index);
    free(page);
}

TEST(runs_of_one_name_have_pages_of_their_own)
{
    run_add("here/same", "2026-11-20T11:00:00.000Z", 0.1);
    run_add("there/same", "2026-11-20T12:00:00.000Z", 0.2);
    run_add("here/same", "2026-11-20T11:00:00.000Z", 0.3); /* the same run again: the same page */
    run_add("there/<a>\xFF--b", "2026-11-20T13:00:00.000Z", 0.4);
    run_add("there/<a>\xFF--b", "2026-11-20T13:00:00.000Z", 0.5);
    char *one = temporary_text("book/same.md"), *two = temporary_text("book/same-2.md");
    char *index = temporary_text("book/README.md");
    assert_has(one, "30.00 %");
    assert_has(two, "20.00 %");
    assert_has(index, "| [&lt;a>?--b](%3Ca%3E%FF--b.md) |");
    assert_int_equal(lines_with(index, "| [&lt;a>"), 1);
    assert_null(strchr(index, 0xFF));
    assert_int_equal(access(temporary_path("book/same-3.md"), F_OK), -1);
    assert_int_equal(lines_with(index, "| [same"), 2);
    free(one);
    free(two);
    free(index);
}

TEST(notes_are_kept)
{
    static const char before[] =
        "Ours\n<!-- vittrain: begin -->\nold\n<!-- vittrain: end -->\nlast";
    static const char foreign[] = "# My own\n\nno marks here";
    temporary_write("book/README.md", before);
    temporary_write("book/own.md", foreign);
    run_add("own", "2026-11-20T13:00:00.000Z", 0.1);
    run_add("own", "2026-11-20T13:00:00.000Z", 0.2);
    char *index = temporary_text("book/README.md"), *own = temporary_text("book/own.md");
    char *page = temporary_text("book/own-2.md");
    assert_int_equal(strncmp(index, "Ours\n<!-- vittrain: begin", 25), 0);
    assert_has(index, "<!-- vittrain: end -->\nlast");
    assert_null(strstr(index, "old"));
    assert_has(index, "[own-2](own-2.md)");
    assert_string_equal(own, foreign);
    assert_has(page, "20.00 %");
    free(index);
    free(own);
    free(page);
}

TEST(missing_marks_are_appended)
{
    static const char cut[] = "a note\n<!-- vittrain: begin -->\nhalf";
    temporary_write("book/README.md", cut);
    run_add("old", "2026-11-20T14:00:00.000Z", 0.1);
    run_add("new", "2026-11-20T15:00:00.000Z", 0.2);
    char *index = temporary_text("book/README.md");
    assert_int_equal(strncmp(index, cut, strlen(cut)), 0);
    assert_int_equal(lines_with(index, "| [old]"), 1);
    assert_int_equal(lines_with(index, "| [new]"), 1);
    assert_int_equal(lines_with(index, "<!-- vittrain: end -->"), 1);
    free(index);
}

/* Processes that add a run and a row of found.csv at the same time, and repetitions. */
enum { WRITERS = 8, ROUNDS = 6 };

/* In a child: prepare everything, then start when `gate` is closed. */
static void writer_run(const char *name, int round, int writer, int gate)
{
    char folder[64], started[64], byte;
    struct error error = {0};
    const struct found found = {.what = "lr",
                                .model = name,
                                .precision = "fp32",
                                .strategy = "ddp",
                                .value = writer,
                                .detail = ""};
    snprintf(folder, sizeof folder, "%s-%d-%d", name, round, writer);
    snprintf(started, sizeof started, "2026-11-22T%02d:0%d:00.000Z", writer, round);
    struct record record = run_make(folder, started, 0.5);
    if (read(gate, &byte, 1) != 0 || !found_add(book, &found, &error) ||
        !logbook_add(book, &record, &error))
        _exit(1);
    _exit(0);
}

static void round_run(const char *name, int round)
{
    pid_t writers[WRITERS];
    int gate[2];
    assert_int_equal(pipe(gate), 0);
    for (int writer = 0; writer < WRITERS; writer++) {
        writers[writer] = fork();
        assert_true(writers[writer] >= 0);
        if (writers[writer] == 0) {
            close(gate[1]);
            writer_run(name, round, writer, gate[0]);
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (int writer = 0; writer < WRITERS; writer++) {
        int status;
        assert_int_equal(waitpid(writers[writer], &status, 0), writers[writer]);
        assert_int_equal(status, 0);
    }
}

/* After each round the index and found.csv have all rows. */
TEST(concurrent_writers_lose_nothing)
{
    static const char name[] = "free";
    char link[64], row[64];
    snprintf(link, sizeof link, "| [%s-", name);
    snprintf(row, sizeof row, ",lr,%s,", name);
    for (int round = 0; round < ROUNDS; round++) {
        round_run(name, round);
        char *index = temporary_text("book/README.md"), *table = temporary_text("book/found.csv");
        int rows = 0;
        for (const char *at = table; (at = strstr(at, row)) != NULL; at++)
            rows++;
        assert_int_equal(lines_with(index, link), WRITERS * (round + 1));
        assert_int_equal(rows, WRITERS);
        assert_int_equal(strncmp(table, "date,", 5), 0);
        free(index);
        free(table);
        unlink(temporary_path("book/found.csv"));
    }
}

TEST(a_book_that_cannot_be_written_is_an_error)
{
    struct error error = {0};
    struct record record = run_make("late", "2026-11-20T14:00:00.000Z", 0.1);
    temporary_file("file", "x", 1);
    assert_false(logbook_add(temporary_path("file"), &record, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    error_clear(&error);
    temporary_directory("odd/README.md"); /* a folder instead of the index */
    assert_false(logbook_add(temporary_path("odd"), &record, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    error_clear(&error);
    temporary_directory("zeros");
    temporary_file("zeros/README.md", "a\0b", 3); /* text behind the zero is not lost */
    assert_int_equal(mkfifo(temporary_path("zeros/pipe.md"), 0600), 0); /* a pipe does not block */
    assert_false(logbook_add(temporary_path("zeros"), &record, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    record_free(&record);
}

TEST(search_results_are_on_the_page)
{
    struct error error = {0};
    static const char deck[] = "[model]\nname = vit_cifar\n[mesh]\nstrategy = ddp\n";
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
                                .limit = -1,
                                .detail = "by trials"};
    temporary_write("sought/deck.ini", deck);
    assert_true(found_add(book, &found, &error));
    run_add("sought", "2026-11-20T16:00:00.000Z", 0.25);
    char *page = temporary_text("book/sought.md");
    assert_has(page, "| largest batch per rank (find batch) | 4321 | 8642 | 1000 |  | 2");
    assert_has(page, " | by trials |");
    free(page);
}

/* Skipped steps and warnings of the log. */
TEST(warnings_are_on_the_page)
{
    static const char metrics[] = "step,split,skipped_steps\n1,train,0\n2,train,3\n2,val,\n";
    static const char log[] = "2026-11-21T10:00:01 warning: a | slow <disk>\n";
    static const char table[] = "node at time, step 3\n| <A100> |\n";
    temporary_write("wrong/metrics.csv", metrics);
    temporary_write("wrong/train.log", log);
    temporary_write("wrong/nvidia-smi.txt", table);
    temporary_write("wrong/checkpoints/step-00000001.h5", log);
    run_add("wrong", "2026-11-20T17:00:00.000Z", 0.25);
    char *page = temporary_text("book/wrong.md");
    assert_has(page, "\n| Skipped steps | 3 |\n");
    assert_has(page, "\n* 2026-11-21T10:00:01 warning: a \\| slow &lt;disk>\n");
    assert_has(page, "\n```text\nnode at time, step 3\n| <A100> |\n```\n");
    assert_has(page, "\n* checkpoints/step-00000001.h5, 0.0 MB\n");
    free(page);
}

/* A killed run has no result, no end, and an incomplete table. */
TEST(an_interrupted_run_has_a_page)
{
    struct error error = {0};
    struct record record;
    static const char run[] =
        "{\"model\": \"vit\", \"global_batch\": 64, \"parts\": [{\"started\": "
        "\"2026-11-20T15:00:00.000Z\"}]}";
    static const char metrics[] =
        "epoch,step,split,loss,step_seconds,data_seconds,images_per_second\n"
        "0,10,train,2,0.5,0.1,128\n0,30,train,2,0.2,0,320\n0,40,tra";
    temporary_write("killed/run.json", run);
    temporary_write("killed/metrics.csv", metrics);
    assert_true(record_read(&record, temporary_path("killed"), &error));
    assert_true(logbook_add(book, &record, &error));
    assert_int_equal(lround(record_images_per_second(&record)), 213); /* 64 x 30 in 9 s */
    record_free(&record);
    char *page = temporary_text("book/killed.md");
    assert_has(page, "| Status | interrupted or still running |");
    assert_has(page, "| Step time | 300 ms |");
    assert_has(page, "| Images/s | 213 |");
    assert_has(page, "| Waiting for data | 11.11 % |");
    assert_has(page, "metrics.csv: the incomplete last line is skipped");
    assert_has(page, "result.json: missing");
    assert_has(page, " | 0 to ? |  |  |  |  | interrupted or still running");
    free(page);
}

int main(void)
{
    setenv("TZ", "UTC0", 1); /* pages have local times */
    return TESTS_RUN(.setup = make_folder, .teardown = temporary_teardown);
}
