// SPDX-License-Identifier: BSD-3-Clause
/* Records of complete and interrupted runs, and of runs by other versions. */
#include "tools/report/record.h"

#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/options.h"
#include "temporary.h"
#include "test.h"
#include "tools/report/facts.h"
#include "tools/report/logbook.h"

static struct record record_of(const char *name)
{
    struct record record;
    struct error error = {0};
    assert_ok(record_read(&record, temporary_path(name), &error), &error);
    return record;
}

static bool has_line(const struct lines *lines, const char *part)
{
    for (int i = 0; i < lines->count; i++)
        if (strstr(lines->line[i], part) != NULL)
            return true;
    return false;
}

static struct table table_of(const char *text)
{
    struct table table;
    struct error error = {0};
    temporary_write("some.csv", text);
    assert_ok(table_read(&table, temporary_path("some.csv"), &error), &error);
    return table;
}

TEST(table_gives_cells_by_name)
{
    struct table table = table_of("step,loss,top1\n1,2.5,\n2,1.25,0.5\n");
    assert_int_equal(table.columns, 3);
    assert_int_equal(table.rows, 2);
    assert_false(table.torn);
    assert_float_equal(table_number(&table, 1, table_column(&table, "loss")), 1.25, 0);
    assert_true(isnan(table_number(&table, 0, table_column(&table, "top1"))));
    assert_int_equal(table_column(&table, "lr"), -1);
    assert_string_equal(table_text(&table, 0, -1), "");
    assert_true(isnan(table_number(&table, 0, -1)));
    assert_true(isnan(table_number(&table, 7, 0)));
    table_free(&table);
}

TEST(table_skips_an_incomplete_line)
{
    struct table table = table_of("step,loss\n1,2.5\n2,1.2");
    assert_int_equal(table.rows, 1);
    assert_true(table.torn);
    table_free(&table);
    static const char zeros[] = "step,loss\n1,2.5\n\0\0\0\0\0\0";
    struct error error = {0};
    temporary_file("zeros.csv", zeros, sizeof zeros);
    assert_true(table_read(&table, temporary_path("zeros.csv"), &error));
    assert_int_equal(table.rows, 1);
    assert_true(table.torn);
    table_free(&table);
}

TEST(table_of_other_widths_is_read)
{
    struct table table = table_of("a,b,c\r\n1\r\n1,2,3,4,5\r\n\r\n7,8,9\r\n");
    assert_int_equal(table.rows, 3);
    assert_string_equal(table_text(&table, 0, 1), "");
    assert_string_equal(table_text(&table, 1, 2), "3");
    assert_string_equal(table_text(&table, 2, 2), "9");
    table_free(&table);
}

TEST(table_reads_quoted_cells)
{
    struct table table = table_of("a,b\n\"one, two\",\"say \"\"no\"\"\"\n\"open,3\nx,y\n");
    assert_int_equal(table.rows, 3);
    assert_string_equal(table_text(&table, 0, 0), "one, two");
    assert_string_equal(table_text(&table, 0, 1), "say \"no\"");
    assert_string_equal(table_text(&table, 1, 0), "open,3");
    assert_string_equal(table_text(&table, 1, 1), "");
    assert_string_equal(table_text(&table, 2, 1), "y");
    table_free(&table);
}

TEST(tables_join_by_names)
{
    struct table one = table_of("step,rank\n1,0\n2,0\n"), other = table_of("rank,power\n1,99\n");
    table_join(&one, &other);
    assert_int_equal(one.rows, 3);
    assert_int_equal(one.columns, 3);
    assert_string_equal(table_text(&one, 1, table_column(&one, "step")), "2");
    assert_string_equal(table_text(&one, 1, table_column(&one, "power")), "");
    assert_string_equal(table_text(&one, 2, table_column(&one, "step")), "");
    assert_string_equal(table_text(&one, 2, table_column(&one, "rank")), "1");
    assert_string_equal(table_text(&one, 2, table_column(&one, "power")), "99");
    struct table nothing = {0};
    table_join(&one, &nothing);
    assert_int_equal(one.rows, 3);
    table_join(&nothing, &one);
    assert_int_equal(nothing.rows, 3);
    assert_int_equal(one.rows, 0);
    table_free(&nothing);
}

TEST(table_without_a_header_is_an_error)
{
    static const char *const texts[] = {"", "step,loss", "\n1,2\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct table table;
        struct error error = {0};
        temporary_write("bad.csv", texts[i]);
        assert_false(table_read(&table, temporary_path("bad.csv"), &error));
        assert_int_equal(error.kind, ERROR_FILE);
        assert_int_equal(table_column(&table, "step"), -1);
        table_free(&table);
    }
}

TEST(whole_run_is_read)
{
    struct options options;
    options_default(&options);
    options.train.epochs = 3;
    options.output.target = 0.6;
    char *deck = options_to_run_deck(&options);
    temporary_write("whole/deck.ini", deck);
    free(deck);
    temporary_write("whole/run.json",
                    "{\"model\": \"vit\", \"ranks\": 2, \"image\": 32, \"precision\": "
                    "\"fp32\", \"parts\": [{\"hosts\": [\"a\", \"b\"]}]}");
    temporary_write("whole/result.json",
                    "{\"ranks\": 4, \"top1\": null, \"sensors\": {\"gpu_power\": "
                    "{\"mean\": 250.5}}}");
    temporary_write("whole/metrics.csv", "step,split,loss,top1,elapsed_seconds\n10,train,2,0.9,1\n"
                                         "10,val,2,0.4,5\n20,val,1.5,0.6,9.5\n30,val,1,0.7,12\n");
    temporary_write("whole/epochs.csv", "epoch\n0\n");
    temporary_write("whole/monitor.csv", "rank\n0\n");
    for (int rank = 1; rank <= 10; rank++) {
        char name[64], text[64];
        snprintf(name, sizeof name, "whole/monitor-%d.csv", rank);
        snprintf(text, sizeof text, "rank\n%d\n", rank);
        temporary_write(name, text);
    }
    temporary_write("whole/units.csv", "unit\nhead\n");
    temporary_write("whole/ranks.csv", "rank\n0\n");
    temporary_write("whole/checkpoints/step-000020.h5", "x");
    temporary_write("whole/checkpoints/step-000010.h5", "x");
    temporary_write("whole/checkpoints/step-000030.h5.part", "x");
    temporary_write("whole/train.log",
                    "2026-11-21T10:00:00 run: 30 steps\n"
                    "2026-11-21T10:00:01 warning: slow disk\n"
                    "2026-11-21T10:00:02 warning: slow disk\n"
                    "2026-11-21T10:00:03 resuming from last.h5: step 20, epoch 2\n"
                    "2026-11-21T10:00:04 step 7: gradients overflowed in fp16, 1 "
                    "update skipped (1 in all)\nwarn");
    struct record record = record_of("whole/");
    assert_string_equal(record.name, "whole");
    assert_int_equal(record.missing.count, 0);
    assert_float_equal(record_number(&record, "ranks"), 4, 0); /* result.json takes precedence */
    assert_string_equal(record_text(&record, "model"), "vit");
    assert_string_equal(record_text(&record, "parts.0.hosts.1"), "b");
    assert_null(record_value(&record, "parts.0.hosts.2"));
    assert_null(record_value(&record, "parts.first.hosts"));
    assert_null(record_value(&record, "top1"));
    assert_true(isnan(record_number(&record, "model")));
    assert_null(record_text(&record, "ranks"));
    assert_float_equal(record_number(&record, "sensors.gpu_power.mean"), 250.5, 0);
    assert_float_equal(fact_number(fact_find("target_seconds"), &record, &record), 9.5, 0);
    assert_int_equal(record.monitor.rows, 11);
    assert_string_equal(table_text(&record.monitor, 10, 0), "10");
    assert_int_equal(record.setting_count, 2);
    assert_string_equal(record.settings[0]->key, "train.epochs");
    assert_string_equal(record.settings[0]->value, "3");
    assert_string_equal(record_option(&record, "mesh.strategy"), "ddp");
    assert_null(record_option(&record, "mesh.nothing"));
    assert_int_equal(record.checkpoints.count, 2);
    assert_string_equal(record.checkpoints.line[1], "step-000020.h5");
    assert_int_equal(record.trouble.count, 3);
    assert_string_equal(record.trouble.line[0], "2026-11-21T10:00:01 warning: slow disk (2 times)");
    record_free(&record);
}

TEST(interrupted_run_lists_missing_files)
{
    temporary_write("cut/deck.ini",
                    "[train]\nepochs = 2\n[gone]\nkey = value\nlong = one\nlong += two\n");
    temporary_write("cut/metrics.csv", "step,split,loss\n1,train,2.5\n2,tra");
    temporary_write("cut/epochs.csv", "");
    temporary_write("cut/run.json", "");
    temporary_write("cut/result.json", "[1]");
    assert_int_equal(mkfifo(temporary_path("cut/units.csv"), 0600), 0);
    assert_int_equal(mkfifo(temporary_path("cut/train.log"), 0600), 0);
    struct record record = record_of("cut");
    assert_null(record.run);
    assert_null(record.result);
    assert_true(isnan(record_number(&record, "ranks")));
    assert_int_equal(record.metrics.rows, 1);
    assert_true(has_line(&record.missing, "metrics.csv: the incomplete last line is skipped"));
    assert_true(has_line(&record.missing, "epochs.csv: no first line"));
    assert_true(has_line(&record.missing, "run.json: cannot be read"));
    assert_true(has_line(&record.missing, "result.json: cannot be read"));
    assert_true(has_line(&record.missing, "units.csv: Invalid argument"));
    assert_true(has_line(&record.missing, "monitor.csv: missing"));
    assert_true(has_line(&record.missing, "train.log"));
    assert_int_equal(record.setting_count, 3);
    assert_string_equal(record_option(&record, "gone.long"), "onetwo");
    assert_null(record.settings[1]->preset);
    record_free(&record);
}

/* A share of the peak above 1, or values that stop, prove that the peak was wrong. */
TEST(wrong_peak_gives_no_share)
{
    static const struct {
        const char *metrics;
        double mean;
    } cases[] = {{"1,train,0.25\n2,train,0.75\n2,val,\n", 0.5},
                 {"1,train,0.25\n2,train,5.21\n2,val,\n", NAN},
                 {"1,train,0.25\n2,train,\n2,val,\n", NAN},
                 {"1,train,\n2,train,\n", NAN}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        struct record record;
        struct error error = {0};
        snprintf(text, sizeof text, "step,split,peak_share\n%s", cases[i].metrics);
        temporary_write("peak/metrics.csv", text);
        assert_true(record_read(&record, temporary_path("peak"), &error));
        const double mean = record_step_mean(&record, "peak_share");
        assert_true(isnan(cases[i].mean) ? isnan(mean) : mean == cases[i].mean);
        record_free(&record);
    }
}

TEST(other_folders_are_errors)
{
    struct record record;
    struct error error = {0};
    temporary_directory("empty");
    assert_false(record_read(&record, temporary_path("empty"), &error));
    assert_error(&error, ERROR_FILE, "not a run folder");
    error_clear(&error);
    assert_false(record_read(&record, temporary_path("nowhere"), &error));
    assert_int_equal(error.kind, ERROR_FILE);
    error_clear(&error);
    assert_false(record_read(&record, "", &error));
}

static struct found found_example(const char *what, double value)
{
    return (struct found){.what = what,
                          .model = "vit_cifar",
                          .image = 32,
                          .precision = "fp32",
                          .strategy = "ddp",
                          .ranks = 2,
                          .nodes = 1,
                          .value = value,
                          .global_batch = 2 * (int64_t)value,
                          .peak_bytes = 123456789012,
                          .limit = -1,
                          .detail = "a plot, \"this\"\none"};
}

TEST(found_rows_are_added)
{
    struct error error = {0};
    struct table table;
    const struct found one = found_example("batch", 512), two = found_example("batch", 640);
    struct found other = found_example("batch", 7);
    char logbook[4096];
    other.ranks = 8;
    snprintf(logbook, sizeof logbook, "%s", temporary_path("books/mine"));
    assert_true(found_add(logbook, &one, &error));
    assert_true(found_add(logbook, &two, &error));
    assert_true(found_add(logbook, &other, &error));
    assert_true(table_read(&table, temporary_path("books/mine/found.csv"), &error));
    assert_int_equal(table.rows, 3);
    assert_string_equal(table_text(&table, 0, table_column(&table, "detail")),
                        "a plot, \"this\" one");
    assert_float_equal(table_number(&table, 0, table_column(&table, "peak_bytes")), 123456789012.0,
                       0);
    assert_string_equal(table_text(&table, 0, table_column(&table, "limit")), "");
    temporary_write("searched/deck.ini", "[model]\nname = vit_cifar\n[mesh]\nstrategy = ddp\n");
    temporary_write("searched/run.json", "{\"image\": 32, \"precision\": \"fp32\", \"ranks\": 2}");
    struct record record = record_of("searched");
    assert_int_equal(found_newest(&table, "batch", &record), 1);
    assert_int_equal(found_newest(&table, "lr", &record), -1);
    record_free(&record);
    table_free(&table);
}

TEST(found_reports_write_errors)
{
    struct error error = {0};
    const struct found found = found_example("lr", 1e-3);
    temporary_write("file", "x");
    assert_false(found_add(temporary_path("file"), &found, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    error_clear(&error);
    temporary_directory("taken/found.csv");
    assert_false(found_add(temporary_path("taken"), &found, &error));
    assert_int_equal(error.kind, ERROR_FILE);
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_teardown)
