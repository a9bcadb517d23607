// SPDX-License-Identifier: BSD-3-Clause
/* The HTML report of complete, interrupted, malformed and large runs. */
#include "tools/report/html.h"

#include <time.h>
#include <unistd.h>

#include "markup.h"
#include "temporary.h"
#include "test.h"
#include "tools/report/facts.h"

static const char metrics_head[] = "epoch,step,split,loss,top1,lr,images_per_second,step_seconds,"
                                   "data_seconds,forward_seconds,exposed_comm_seconds,"
                                   "elapsed_seconds\n";

/* Write a run of two steps with three classes, one of them named with markup. */
static void small_run_make(const char *folder, const char *batch)
{
    char name[128], text[2048];
    snprintf(name, sizeof name, "%s/metrics.csv", folder);
    snprintf(text, sizeof text,
             "%s0,1,train,2.5,0.25,0.1,100,0.02,0.002,0.01,0.004,1\n"
             "0,2,train,1.5,0.5,0.1,300,0.04,0.002,0.03,0.004,2\n"
             "0,2,val,1.25,0.625,,,,,,,3\n",
             metrics_head);
    temporary_write(name, text);
    snprintf(name, sizeof name, "%s/deck.ini", folder);
    snprintf(text, sizeof text, "[train]\nglobal_batch = %s\n[run]\nname = %s\n", batch, folder);
    temporary_write(name, text);
    snprintf(name, sizeof name, "%s/result.json", folder);
    temporary_write(
        name, "{\"model\": \"vit\", \"ranks\": 2, \"finished\": true, \"split\": \"val\","
              "\"images_per_second\": 200, \"classes\": [{\"name\": \"<script>alert(1)</script>\","
              "\"f1\": 0.5}, {\"name\": \"cat & \\\"dog\\\"\", \"f1\": null}, {}],"
              "\"confusion_matrix\": [[41, 2, 3], [4, 50, 6], [7, 8, 90]]}");
    snprintf(name, sizeof name, "%s/units.csv", folder);
    temporary_write(name, "unit,parameters,weights_bytes,forward_seconds\n<i>stem,5,1048576,0.001\n"
                          "head,5,3145728,0.004\n");
}

static struct record *records_read(const char *const *folders, int count)
{
    struct record *records = calloc((size_t)count, sizeof *records);
    struct error error = {0};
    for (int i = 0; i < count; i++)
        assert_ok(record_read(&records[i], temporary_path(folders[i]), &error), &error);
    return records;
}

static void records_close(struct record *records, int count)
{
    for (int i = 0; i < count; i++)
        record_free(&records[i]);
    free(records);
}

/* Fail if two elements have one id, headings skip a level, or two charts draw the same curves. */
static void page_check(const char *page)
{
    int level = 1;
    for (const char *at = page; (at = strstr(at, " id=\"")) != NULL; at++) {
        char id[80];
        snprintf(id, sizeof id, "%.*s", (int)strcspn(at + 5, "\"") + 6, at);
        if (text_count(page, id) != 1)
            fail_msg("%s is there %d times", id, text_count(page, id));
    }
    for (const char *at = page; (at = strstr(at, "<h")) != NULL; at++)
        if (at[2] >= '1' && at[2] <= '6') {
            assert_true(at[2] - '0' <= level + 1);
            level = at[2] - '0';
        }
    for (const char *at = page; (at = strstr(at, "<figcaption>")) != NULL; at++) {
        char title[160]; /* with its section: runs repeat a chart under a heading of their own */
        snprintf(title, sizeof title, "%.*s", (int)strcspn(at + 12, "\n"), at);
        if (strstr(page, "<h3>") == NULL && text_count(page, title) != 1)
            fail_msg("%s is drawn %d times", title, text_count(page, title));
    }
    assert_int_equal(text_count(page, "<h1>"), 1);
    assert_int_equal(text_count(page, "<details "), 8);
    assert_int_equal(text_count(page, "<details open"), 0);
    assert_int_equal(text_count(page, "<summary><h2>"), 8);
    assert_int_equal(text_count(page, "<figure"), text_count(page, "<figcaption>"));
    assert_int_equal(text_count(page, "<svg"), text_count(page, " role=\"img\" aria-label=\""));
}

/* Return the page of these runs, to be freed. Fails if it is not well-formed or needs other files.
 */
static char *page_of(const char *const *folders, int count)
{
    struct error error = {0};
    struct record *records = records_read(folders, count);
    assert_ok(html_write(records, count, temporary_path("page.html"), &error), &error);
    records_close(records, count);
    char *page = temporary_text("page.html");
    const char *wrong = markup_fault(page);
    if (wrong != NULL)
        fail_msg("%s", wrong);
    assert_null(strstr(page, "http"));
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "<link"));
    assert_int_equal(text_count(page, "<img"), text_count(page, " src=\"data:image/png;base64,"));
    assert_null(strstr(page, "@import"));
    assert_null(strstr(page, "url("));
    assert_has(page, "<html lang=\"en\">");
    page_check(page);
    return page;
}

TEST(a_run_is_shown)
{
    small_run_make("one", "64");
    char *page = page_of((const char *const[]){"one"}, 1);
    assert_has(page, "<h1>Run one</h1>");
    assert_true(strstr(page, "id=\"confusion-A\"") < strstr(page, "<details "));
    assert_has(page, "<dt>Validation loss</dt>");
    assert_has(page, "&lt;script&gt;alert(1)&lt;/script&gt;");
    assert_has(page, "cat &amp; &quot;dog&quot;");
    assert_has(page, "<tr><th scope=\"row\">cat &amp; &quot;dog&quot;</th>"
                     "<td style=\"--v:0.07\">4</td><td style=\"--v:0.83\">50</td>"
                     "<td style=\"--v:0.10\">6</td></tr>");
    assert_has(page, "id=\"loss-steps\"");
    /* The row of step 1 has few images and is joined with the next one. */
    assert_has(page, "<title>step 2\ntraining 1.643\nvalidation 1.250</title>");
    assert_has(page, "id=\"steps-phases\"");
    assert_has(page, "data: 2.000 ms");
    assert_has(page, "forward: 20.00 ms");
    assert_has(page, "other: 8.000 ms");
    assert_has(page, "&lt;i&gt;stem, weights: 1.000 MiB");
    assert_has(page, "head, forward: 4.000 ms");
    assert_has(page, "<dt>Images/s</dt><dd>200</dd>");
    assert_has(page, "<td class=\"n\">5.00 %</td><td class=\"n\">10.00 %</td>"); /* values */
    assert_null(strstr(page, "loss-time"));
    assert_null(strstr(page, "peak-steps")); /* MFU is unknown */
    assert_has(page, "<code>train.global_batch</code></th><td><code>64</code>");
    assert_has(page, "run.json: missing");
    assert_null(strstr(page, "Speed-up"));
    free(page);
}

TEST(local_times_optimizer_and_choice_on_the_test_set)
{
    small_run_make("zone", "64");
    temporary_write("zone/run.json",
                    "{\"parts\": [{\"started\": \"2026-11-21T23:03:59.123Z\", "
                    "\"ended\": \"2026-11-22T00:00:00.000Z\"}], \"base_lr\": 0.002, "
                    "\"chosen_on_test\": true}");
    temporary_write("zone/deck.ini", "[optim]\nname = lamb\n");
    temporary_write("zone/epochs.csv", "epoch,step,val_loss,val_top1\n0,1,2,0.5\n1,2,1.5,0.625\n");
    setenv("TZ", "CET-1", 1);
    tzset();
    char *page = page_of((const char *const[]){"zone"}, 1);
    assert_has(page, "<td class=\"t\">2026-11-22 00:03:59 CET</td>");
    assert_has(page, "<td>2026-11-22 01:00:00 CET</td>");
    assert_has(page, "lamb, learning rate 0.002");
    assert_has(page, "<dt>Best validation top\xE2\x80\x91\x31</dt>");
    assert_has(page, "The best checkpoint was chosen on the test set (data.val=test)");
    unsetenv("TZ");
    tzset();
    free(page);
    temporary_write("zone/run.json", "{\"chosen_on_test\": false}");
    page = page_of((const char *const[]){"zone"}, 1);
    assert_null(strstr(page, "chosen on the test set"));
    free(page);
}

TEST(misclassified_images_are_shown)
{
    small_run_make("wrong", "64");
    temporary_write("wrong/misclassified.json",
                    "{\"split\": \"test\", \"samples\": [{\"name\": \"a\\\"b.png\", \"class\": 0, "
                    "\"predicted\": 1, \"probability\": 0.875, \"png\": \"iVBORw==\"}, "
                    "{\"class\": -1, \"predicted\": 70, \"png\": \"AA\\\"><script>\"}, "
                    "{\"class\": -1, \"predicted\": 70, \"png\": \"AAAA\"}, 7]}");
    char *page = page_of((const char *const[]){"wrong"}, 1);
    assert_has(
        page,
        "<img alt=\"\" title=\"a&quot;b.png\" "
        "src=\"data:image/png;base64,iVBORw==\"><p><b>&lt;script&gt;alert(1)"
        "&lt;/script&gt;</b><span>as cat &amp; &quot;dog&quot;</span><span>87.50 %</span></p>");
    assert_int_equal(text_count(page, "<img"), 2);
    assert_has(page, "Of the test split: class, prediction");
    free(page);
    temporary_write("wrong/misclassified.json", "{\"samples\": {}, \"split\": 3");
    page = page_of((const char *const[]){"wrong"}, 1);
    assert_has(page, "misclassified.json: cannot be read");
    free(page);
}

TEST(runs_are_side_by_side)
{
    small_run_make("a", "64");
    small_run_make("b & <c>", "128");
    char *page = page_of((const char *const[]){"a", "b & <c>"}, 2);
    assert_has(page, "<h1>a and b &amp; &lt;c&gt;</h1>");
    assert_has(page,
               "<th scope=\"row\"><code>train.global_batch</code></th><td><code>64</code></td>"
               "<td><code>128</code></td>");
    assert_null(strstr(page, "<code>run.name</code></th>")); /* differs always */
    assert_has(page, "<tr data-key=\"speed_up\"><th scope=\"row\">Speed-up</th>"
                     "<td class=\"n\">1.00x</td><td class=\"n\">1.00x</td></tr>");
    assert_has(page, "id=\"confusion-A\"");
    assert_has(page, "id=\"confusion-B\"");
    assert_has(page, "id=\"accuracy-time\"");
    assert_has(page, "<title>step 2\nA training 1.643\nA validation 1.250\nB training 1.643\n");
    free(page);
}

/* Write a small run with a deck, and replace `part` of its result.json by `other`. */
static void other_run_make(const char *folder, const char *part, const char *other,
                           const char *deck)
{
    char name[128], whole[2048];
    small_run_make(folder, "64");
    snprintf(name, sizeof name, "%s/result.json", folder);
    char *text = temporary_text(name), *at = strstr(text, part);
    assert_non_null(at);
    snprintf(whole, sizeof whole, "%.*s%s%s", (int)(at - text), text, other, at + strlen(part));
    temporary_write(name, whole);
    free(text);
    snprintf(name, sizeof name, "%s/deck.ini", folder);
    temporary_write(name, deck);
}

/* Runs of different models or precision, on different parts of the data. */
TEST(only_like_is_compared)
{
    other_run_make("vit", "200", "100, \"image\": 32, \"precision\": \"fp32\"",
                   "[debug]\nfraction = 1\nbatches = 0\n[model]\ninit = none\n");
    other_run_make("cnn", "\"vit\"",
                   "\"cnn_a\", \"steps\": 7, \"steps_per_epoch\": 2, \"total_steps\": 20",
                   "[debug]\nfraction = 0.25\nbatches = 7\n[model]\ninit = a/best.h5\n");
    other_run_make("bf16", "200", "300, \"image\": 32, \"precision\": \"bf16\"",
                   "[run]\nseed = 1\n");
    struct record *records = records_read((const char *const[]){"vit", "cnn", "bf16"}, 3);
    const struct fact *speed = fact_find("images_per_second");
    assert_false(fact_is_best(speed, records, 3, 2)); /* the fastest, but of another model */
    records_close(records, 3);
    records = records_read((const char *const[]){"vit", "bf16"}, 2);
    assert_true(fact_is_best(speed, records, 2, 1));
    records_close(records, 2);
    char *page = page_of((const char *const[]){"vit", "cnn", "bf16"}, 3);
    assert_has(page, "speed not compared with vit: model cnn_a, not vit.</p>");
    assert_has(page, "scaling efficiency not compared with vit: precision bf16, not fp32.</p>");
    assert_has(page, "25 %, at most 7 batches</td>");
    assert_has(page, "pretrained (best.h5)</td>");
    assert_has(page, "3.5 of 10</td>");
    assert_has(page,
               "<td class=\"n\">1.00x</td><td class=\"n\"></td><td class=\"n best\">3.00x</td>");
    free(page);
}

TEST(tables_can_be_pasted)
{
    char text[8192] = "";
    small_run_make("a", "64");
    small_run_make("b|c,\"d\"", "64");
    struct record *records = records_read((const char *const[]){"a", "b|c,\"d\""}, 2);
    FILE *stream = fmemopen(text, sizeof text, "w");
    facts_markdown(&records[1], stream);
    fclose(stream);
    assert_has(text, "| | b\\|c,\"d\" |\n|---|---:|\n");
    assert_has(text, "| Images/s | 200 |\n");
    assert_has(text, "| Validation top-1 | 62.50 % |\n");
    assert_null(strstr(text, "Energy")); /* unknown */
    memset(text, 0, sizeof text);
    stream = fmemopen(text, sizeof text, "w");
    facts_csv(records, 2, stream);
    fclose(stream);
    records_close(records, 2);
    assert_int_equal(text_count(text, "\n"), 3);
    assert_has(text, "\n\"b|c,\"\"d\"\"\",finished,");
    const char *line = text;
    int commas[3] = {0};
    for (int i = 0; i < 3; i++, line = strchr(line, '\n') + 1)
        for (const char *at = line; *at != '\n'; at++)
            commas[i] += *at == ',';
    assert_int_equal(commas[1], commas[0]);
    assert_int_equal(commas[2], commas[0] + 1); /* the one in its name */
}

TEST(missing_files_are_listed)
{
    static const char text[] = "epoch,step,split,loss\n0,1,train,2.5\n0,2,train,nan\n0,3,tr";
    temporary_write("cut/metrics.csv", text);
    temporary_write("cut/result.json",
                    "{\"classes\": 7, \"confusion_matrix\": {}, \"finished\": \"maybe\"");
    temporary_write("cut/monitor.csv", "time,step,rank,gpu_busy\nnonsense,1,-4,0.5\n,,,\n");
    temporary_write("cut/ranks.csv", "rank\n");
    temporary_write("cut/units.csv", "unit\nstem\n");
    char *page = page_of((const char *const[]){"cut"}, 1);
    assert_has(page, "interrupted or still running");
    assert_has(page, "metrics.csv: the incomplete last line is skipped");
    assert_has(page, "result.json: cannot be read");
    assert_has(page, "deck.ini");
    assert_has(page, "Classes are unknown");
    free(page);
    temporary_write("cut/run.json", "{\"parts\": [{\"ended\": \"then\", \"error\": \"NaN\"}]}");
    page = page_of((const char *const[]){"cut"}, 1);
    assert_has(page, "<span class=\"state no\">failed</span>");
    free(page);
    small_run_make("whole", "64");
    page = page_of((const char *const[]){"cut", "whole"}, 2);
    free(page);
    temporary_write("cut/result.json",
                    "{\"classes\": [1, {\"name\": 3}], \"confusion_matrix\": [[1], \"x\"],"
                    "\"parts\": {}, \"split\": 4, \"sensors\": []}");
    page = page_of((const char *const[]){"cut"}, 1);
    free(page);
}

/* The table of values has at most 100 evaluations, spread over the run, and always the last one. */
TEST(values_cover_the_whole_run)
{
    temporary_directory("evaluations");
    FILE *file = fopen(temporary_path("evaluations/metrics.csv"), "w");
    fputs(metrics_head, file);
    for (int i = 1; i <= 250; i++)
        fprintf(file, "%d,%d,train,2,0.5,0.1,100,0.02,,,,%d\n%d,%d,val,2,0.%03d,,,,,,,%d\n", i,
                10 * i, i, i, 10 * i, 500 + i, i);
    fclose(file);
    char *page = page_of((const char *const[]){"evaluations"}, 1);
    const char *values = strstr(page, "aria-label=\"Values\"");
    assert_non_null(values);
    const int rows = text_count(values, "<tr><th scope=\"row\" class=\"n\">");
    assert_true(rows > 50 && rows <= 100);
    assert_has(values, "<tr><th scope=\"row\" class=\"n\">2,500</th>");
    assert_has(values, ">75.00 %</td>");
    free(page);
}

/* ---- a large run */

static void large_tables_make(void)
{
    FILE *file = fopen(temporary_path("large/metrics.csv"), "w");
    fputs(metrics_head, file);
    for (int i = 1; i <= 100000; i++)
        fprintf(file, "0,%d,train,%.3f,0.5,0.1,100,0.02,0.002,0.01,0.004,%d\n", i,
                (i * 7919 % 1000) / 500.0, i);
    fclose(file);
    file = fopen(temporary_path("large/monitor.csv"), "w");
    fputs("time,step,rank,host,gpu_busy,gpu_power\n", file);
    for (int rank = 0; rank < 64; rank++)
        for (int i = 0; i < 300; i++)
            fprintf(file, "2026-11-21T%02d:%02d:00Z,%d,%d,h,0.%d,%d\n", i / 60, i % 60, i, rank,
                    i * 13 % 100, 200 + rank);
    fclose(file);
    file = fopen(temporary_path("large/units.csv"), "w");
    fputs("unit,weights_bytes\n", file);
    for (int i = 0; i < 1000; i++)
        fprintf(file, "unit.%d,1048576\n", i);
    fclose(file);
}

static void large_result_make(void)
{
    FILE *file = fopen(temporary_path("large/result.json"), "w");
    fputs("{\"finished\": true, \"classes\": [", file);
    for (int i = 0; i < 1000; i++)
        fprintf(file, "%s{\"name\": \"class %d\", \"f1\": 0.%03d}", i == 0 ? "" : ",", i,
                (i + 500) % 1000);
    fputs("], \"confusion_matrix\": [", file);
    for (int row = 0; row < 1000; row++) {
        fputs(row == 0 ? "[" : ",[", file);
        for (int i = 0; i < 1000; i++)
            fprintf(file, "%s%d", i == 0 ? "" : ",", row == i ? 9 : row == 7 && i == 9 ? 8 : 0);
        fputs("]", file);
    }
    fputs("]}", file);
    fclose(file);
}

TEST(a_large_run_makes_a_small_page)
{
    temporary_directory("large");
    large_tables_make();
    large_result_make();
    char *page = page_of((const char *const[]){"large"}, 1);
    assert_true(strlen(page) < 400000);
    assert_has(page, "<th scope=\"row\">class 7</th><td>class 9</td><td class=\"n\">8</td>");
    assert_has(page, "The 60 of 1000 classes with the lowest F1.");
    assert_has(page, "<th scope=\"row\">class 500</th><td class=\"n\">0.00 %</td>");
    assert_has(page, "mean of the ranks");
    assert_has(page, "unit.0 ..., weights: 21.00 MiB");
    free(page);
}

/* 40 classes: one path per shade of a picture. Each fourth image of class 3 is taken for class 5.
 */
TEST(many_classes_are_a_picture)
{
    temporary_directory("forty");
    FILE *file = fopen(temporary_path("forty/result.json"), "w");
    fputs("{\"classes\": [", file);
    for (int i = 0; i < 40; i++)
        fprintf(file, "%s{\"name\": \"<%d>\"}", i == 0 ? "" : ",", i);
    fputs("], \"confusion_matrix\": [", file);
    for (int row = 0; row < 40; row++)
        for (int i = 0; i < 40; i++)
            fprintf(file, "%s%d%s",
                    i > 0     ? ","
                    : row > 0 ? ",["
                              : "[",
                    row == 3 && i == 5 ? 1
                    : row == i         ? 3
                                       : 0,
                    i == 39 ? "]" : "");
    fputs("]}", file);
    fclose(file);
    char *page = page_of((const char *const[]){"forty"}, 1);
    assert_has(page, "aria-label=\"Confusion matrix of 40 classes\" viewBox=\"0 0 40 40\"");
    assert_has(page, "<path stroke-opacity=\"0.25\" d=\"M0 0M5 3.5h1\"/>");
    assert_has(page, "<path stroke-opacity=\"0.75\" d=\"M0 0M3 3.5h1\"/>");
    assert_has(page, "M38 38.5h1M39 39.5h1\"/>");
    assert_has(page, "<title>&lt;3&gt;: recall 75.00 %\nmost often wrong as &lt;5&gt;: 1</title>");
    assert_has(page, "<title>&lt;4&gt;: recall 100.00 %</title>");
    free(page);
}

/* An MFU above 100 % is not shown. A loss of NaN does not end the axis. */
TEST(impossible_values_are_left_out)
{
    temporary_write("wild/metrics.csv", "step,split,loss,peak_share,elapsed_seconds\n"
                                        "10,train,2.5,5.21,1\n20,train,nan,5.21,2\n"
                                        "30,train,nan,5.21,3\n");
    char *page = page_of((const char *const[]){"wild"}, 1);
    assert_null(strstr(page, "data-key=\"peak_share\""));
    assert_null(strstr(page, "id=\"peak-steps\""));
    assert_null(strstr(page, "521"));
    assert_has(page, "data-range=\"0 30 ");
    assert_has(page, "<title>step 30\ntraining not finite</title>");
    assert_has(page, "<dt>Total time</dt><dd>3.00 s</dd>");
    free(page);
}

TEST(a_page_that_cannot_be_written_is_an_error)
{
    struct error error = {0};
    small_run_make("one", "64");
    struct record *records = records_read((const char *const[]){"one"}, 1);
    assert_false(html_write(records, 1, temporary_path("no/such/page.html"), &error));
    assert_int_equal(error.kind, ERROR_FILE);
    records_close(records, 1);
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_teardown)
