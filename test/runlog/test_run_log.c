// SPDX-License-Identifier: BSD-3-Clause
/* The tables of a run: format of the rows, and that the attempts of a run that was killed and
 * resumed form one table. */
#include "runlog/run_log.h"

#include <unistd.h>

#include "config/options.h"
#include "core/csv.h"
#include "runlog/evaluation.h"
#include "temporary.h"
#include "test.h"

#define METRICS_HEADER                                                                             \
    "epoch,step,split,loss,top1,top5,lr,grad_norm,images_per_second,step_seconds,data_seconds,"    \
    "compute_seconds,comm_seconds,exposed_comm_seconds,peak_share,elapsed_seconds,loss_scale,"     \
    "skipped_steps,forward_seconds,backward_seconds,reduce_seconds,update_seconds,miou,map,"       \
    "output,"                                                                                      \
    "rmse,mae,bias,r2,persistence_rmse,persistence_mae,seconds,eval_seconds,data_share,next_lr\n"

static struct run_folder folder;
static struct options options;

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder.path, sizeof folder.path, "%s", temporary_open());
    options.output.csv = true;
    options.output.tensorboard = true;
    return 0;
}

static struct run_log *open_log_at(const struct run_log_position *position)
{
    struct error error = {0};
    struct run_log *log = run_log_open(&folder, &options.output, position, &error);

    if (log == NULL)
        fail_msg("%s", error.text);
    return log;
}

static struct run_log *open_log(int64_t step)
{
    return open_log_at(&(struct run_log_position){.step = step});
}

static void write_train(struct run_log *log, int64_t step)
{
    struct error error = {0};
    struct metrics_row row = run_log_row("train", step / 10, step);
    row.loss = 2.5;
    row.top1 = 0.125;
    row.lr = 3e-4;
    row.grad_norm = 1.0 / 3;
    row.images_per_second = 1000;
    row.step_seconds = 0.064;
    row.data_seconds = 0;
    row.compute_seconds = 0.06;
    row.comm_seconds = 0.01;
    row.exposed_comm_seconds = 0.004;
    row.peak_share = 0.5;
    row.elapsed_seconds = (double)step;
    row.loss_scale = 32768;
    row.skipped_steps = 1;
    row.forward_seconds = 0.02;
    row.backward_seconds = 0.04;
    row.update_seconds = 0.0001;
    assert_true(run_log_metrics(log, &row, &error));
}

static void write_epoch(struct run_log *log, int64_t epoch, int64_t steps)
{
    struct error error = {0};
    struct metrics_row row = run_log_row("epoch", epoch, steps);
    row.loss = 2;
    row.top1 = 0.25;
    row.top5 = 0.75;
    row.lr = 0.1;
    row.images_per_second = 100;
    row.elapsed_seconds = (double)steps;
    row.seconds = 12.5;
    row.eval_seconds = 0.5;
    row.data_share = 0.01;
    row.next_lr = 0.0625;
    assert_true(run_log_metrics(log, &row, &error));
}

static void close_log(struct run_log *log)
{
    struct error error = {0};

    assert_true(run_log_flush(log, &error));
    run_log_close(log);
}

static void assert_file(const char *name, const char *expected)
{
    char *text = temporary_text(name);

    assert_string_equal(text, expected);
    free(text);
}

#define ROW(epoch, step)                                                                           \
    epoch "," step ",train,2.5,0.125,,0.0003,0.333333333,1000,0.064,0,0.06,0.01,0.004,0.5," step   \
          ",32768,1,0.02,0.04,,0.0001,,,,,,,,,,,,,\n"
#define EPOCH(epoch, step)                                                                         \
    epoch "," step ",epoch,2,0.25,0.75,0.1,,100,,,,,,," step                                       \
          ",,,,,,,,,,,,,,,,12.5,0.5,0.01,0.0625\n"

TEST_WITH(rows_have_the_given_values, make_folder, temporary_teardown)
{
    struct run_log *log = open_log(0);

    write_train(log, 5);
    write_epoch(log, 0, 10);
    close_log(log);
    assert_file("metrics.csv", METRICS_HEADER ROW("0", "5") EPOCH("0", "10"));
}

TEST_WITH(rows_after_the_checkpoint_are_removed, make_folder, temporary_teardown)
{
    struct run_log *log = open_log(0);

    for (int64_t step = 5; step <= 25; step += 5) {
        write_train(log, step);
        if (step % 10 == 0)
            write_epoch(log, step / 10 - 1, step);
    }
    close_log(log);
    log = open_log(15);
    write_train(log, 20);
    write_epoch(log, 1, 20);
    close_log(log);
    assert_file("metrics.csv", METRICS_HEADER ROW("0", "5") ROW("1", "10") EPOCH("0", "10")
                                   ROW("1", "15") ROW("2", "20") EPOCH("1", "20"));
}

TEST_WITH(row_of_a_partial_epoch_is_removed, make_folder, temporary_teardown)
{
    struct run_log *log = open_log(0);

    write_epoch(log, 0, 10);
    write_train(log, 15);
    write_epoch(log, 1, 15);
    close_log(log);
    close_log(open_log_at(&(struct run_log_position){.step = 15, .mid_epoch = true}));
    assert_file("metrics.csv", METRICS_HEADER EPOCH("0", "10") ROW("1", "15"));
}

/* Rows that a killed attempt wrote at the step of its checkpoint, after that checkpoint. */
TEST_WITH(evaluations_after_the_checkpoint_are_removed, make_folder, temporary_teardown)
{
    static const char before[] = METRICS_HEADER ROW("0", "5") "0,10,val,1\n" ROW("0", "20");
    static const char val[] = "0,20,val,1\n", test[] = "0,20,test,1\n";
    char written[2048], kept[2048];

    snprintf(written, sizeof written, "%s%s%s", before, val, test);
    temporary_write("metrics.csv", written);
    close_log(open_log_at(&(struct run_log_position){.step = 20}));
    assert_file("metrics.csv", written);
    close_log(open_log_at(&(struct run_log_position){.step = 20, .untested = true}));
    snprintf(kept, sizeof kept, "%s%s", before, val);
    assert_file("metrics.csv", kept);
    temporary_write("metrics.csv", written);
    close_log(
        open_log_at(&(struct run_log_position){.step = 20, .unevaluated = true, .untested = true}));
    assert_file("metrics.csv", before);
}

/* One row for each output of a regression; a resumed run replaces those after its checkpoint. */
TEST_WITH(outputs_have_rows, make_folder, temporary_teardown)
{
    static const char rows[] =
        METRICS_HEADER "0,10,val,,,,,,,,,,,,,,,,,,,,,,u,2,1.5,-0.5,0.25,4,3,,,,\n"
                       "0,10,val,,,,,,,,,,,,,,,,,,,,,,\"v, w\",1,1,,,,,,,,\n";
    struct output_errors errors[2] = {{2, 1.5, -0.5, 0.25, 4, 3}, {1, 1, NAN, NAN, NAN, NAN}};
    char *names[] = {"u", "v, w"};
    const struct dataset dataset = {.target = {.count = 2}, .target_name = names};
    const struct evaluation evaluation = {.outputs = 2, .errors = errors};
    const struct metrics_row row = run_log_row("val", 0, 10);
    struct error error = {0};
    struct run_log *log = open_log(0);

    assert_true(run_log_targets(log, &row, &evaluation, &dataset, &error));
    close_log(log);
    assert_file("metrics.csv", rows);
    close_log(open_log(10));
    assert_file("metrics.csv", rows);
    close_log(open_log_at(&(struct run_log_position){.step = 10, .unevaluated = true}));
    assert_file("metrics.csv", METRICS_HEADER);
    assert_true(run_log_targets(NULL, &row, &evaluation, &dataset, &error));
}

TEST_WITH(truncated_last_line_is_dropped, make_folder, temporary_teardown)
{
    temporary_write("metrics.csv", METRICS_HEADER ROW("0", "5") "1,10,train,2.");
    close_log(open_log(100));
    assert_file("metrics.csv", METRICS_HEADER ROW("0", "5"));
    temporary_write("metrics.csv", "epoch,st");
    close_log(open_log(100));
    assert_file("metrics.csv", METRICS_HEADER);
}

TEST_WITH(lines_without_a_step_are_dropped, make_folder, temporary_teardown)
{
    temporary_write("metrics.csv", METRICS_HEADER "\nnonsense\n1,,x\n" ROW("0", "5"));
    close_log(open_log(5));
    assert_file("metrics.csv", METRICS_HEADER ROW("0", "5"));
}

TEST_WITH(new_run_removes_all_rows, make_folder, temporary_teardown)
{
    struct run_log *log = open_log(0);

    write_train(log, 5);
    close_log(log);
    close_log(open_log(0));
    assert_file("metrics.csv", METRICS_HEADER);
}

/* Rows of an older version with fewer columns get empty cells. */
TEST_WITH(newer_columns_are_empty, make_folder, temporary_teardown)
{
#define EMPTY ",,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,\n"
    temporary_write("metrics.csv",
                    "epoch,step,split,loss\n0,10,val,2.5\n1,20,val,2.25\n2,30,val,2\n");
    close_log(open_log(20));
    assert_file("metrics.csv", METRICS_HEADER "0,10,val,2.5" EMPTY "1,20,val,2.25" EMPTY);
}

TEST_WITH(table_with_other_columns_is_an_error_and_stays, make_folder, temporary_teardown)
{
    struct error error = {0};

    static const char *const tables[] = {"a,b\n1,2\n", "epoch,step,spl\n1,2,train\n"};
    for (int i = 0; i < 2; i++) {
        error_clear(&error);
        temporary_write("metrics.csv", tables[i]);
        assert_null(
            run_log_open(&folder, &options.output, &(struct run_log_position){.step = 10}, &error));
        assert_error(&error, ERROR_FILE, "metrics.csv: its columns are not those of this program");
        assert_file("metrics.csv", tables[i]);
    }
}

TEST_WITH(outputs_can_be_disabled, make_folder, temporary_teardown)
{
    struct error error = {0};

    options.output.csv = false;
    options.output.tensorboard = false;
    struct run_log *log = open_log(0);
    write_train(log, 5);
    write_epoch(log, 0, 10);
    close_log(log);
    assert_int_not_equal(access(temporary_path("metrics.csv"), F_OK), 0);
    /* ranks without a log */
    write_train(NULL, 5);
    assert_true(run_log_flush(NULL, &error));
    run_log_close(NULL);
}

TEST_WITH(missing_folder_is_an_error, make_folder, temporary_teardown)
{
    struct run_folder missing = {.path = ""};
    struct error error = {0};

    snprintf(missing.path, sizeof missing.path, "%s", temporary_path("none/run"));
    assert_null(run_log_open(&missing, &options.output, &(struct run_log_position){0}, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    error_clear(&error);
    options.output.csv = false;
    assert_null(run_log_open(&missing, &options.output, &(struct run_log_position){0}, &error));
    assert_int_equal(error.kind, ERROR_FILE);
}

/* On a full disk, a row or the flush reports the error. */
TEST_WITH(full_disk_is_an_error, make_folder, temporary_teardown)
{
    struct csv csv = {.path = "metrics.csv"};
    struct error error = {0};
    bool good = true;

    csv.stream = fopen("/dev/full", "a");
    assert_non_null(csv.stream);
    csv_integer(&csv, 1);
    assert_true(csv_end_row(&csv, &error));
    assert_false(csv_flush(&csv, &error));
    assert_error(&error, ERROR_FILE, "No space left");
    error_clear(&error);
    for (int row = 0; row < 10000 && good; row++) {
        csv_number(&csv, row);
        good = csv_end_row(&csv, &error);
    }
    assert_false(good);
    assert_int_equal(error.kind, ERROR_FILE);
    csv_close(&csv);
}

/* ---- log intervals */

static void assert_due(int tags, const int64_t *steps, int count)
{
    const struct output_options output = {.tensorboard_tags = tags, .log_every = 50};
    int found = 0;
    for (int64_t step = 1; step <= 2 * 75; step++)
        if (run_log_is_due(&output, step, (step - 1) % 75 + 1)) {
            assert_true(found < count);
            assert_int_equal(step, steps[found++]);
        }
    assert_int_equal(found, count);
}

TEST(intervals_end_at_the_steps_of_the_tags)
{
    assert_due(TAGS_VITTRAIN, (const int64_t[]){50, 100, 150}, 3);
    assert_due(TAGS_LIGHTNING, (const int64_t[]){50, 100, 150}, 3);
    assert_due(TAGS_IMAGENET, (const int64_t[]){1, 51, 76, 126}, 4);
}

TEST_MAIN()
