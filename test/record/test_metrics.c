// SPDX-License-Identifier: BSD-3-Clause
/* The tables of a run: format of the rows, and that the attempts of a run that was killed and
 * resumed form one table. */
#include "record/metrics.h"

#include "base/columns.h"
#include "options/options.h"
#include "record/evaluation.h"
#include "temporary.h"
#include "test.h"

#define METRICS_HEADER                                                                             \
    "epoch,step,split,loss,top1,top5,lr,grad_norm,images_per_second,step_seconds,data_seconds,"    \
    "compute_seconds,comm_seconds,exposed_comm_seconds,peak_share,elapsed_seconds,loss_scale,"     \
    "skipped_steps,forward_seconds,backward_seconds,reduce_seconds,update_seconds,miou,map,"       \
    "output,"                                                                                      \
    "rmse,mae,bias,r2,persistence_rmse,persistence_mae,seconds,eval_seconds,data_share,next_lr,"   \
    "output_loss\n"

static struct run_folder folder;
static struct options options;

static void make_folder(void)
{
    snprintf(folder.path, sizeof folder.path, "%s", temporary_open());
    options.output.tensorboard = true;
}

static struct metrics *open_log(const struct metrics_position *position)
{
    struct metrics *log = metrics_open(&folder, &options.output, position, &error);
    assert_ok(log != NULL, &error);
    return log;
}

static const struct metrics_position new_run;

static void write_train(struct metrics *log, int64_t step)
{
    struct metrics_row row = metrics_row_empty("train", step / 10, step);
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
    assert_true(metrics_write_row(log, &row, &error));
}

static void write_epoch(struct metrics *log, int64_t epoch, int64_t steps)
{
    struct metrics_row row = metrics_row_empty("epoch", epoch, steps);
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
    assert_true(metrics_write_row(log, &row, &error));
}

static void close_log(struct metrics *log)
{
    assert_true(metrics_flush(log, &error));
    metrics_close(log);
}

static void assert_file(const char *name, const char *expected)
{
    OWNED char *text = temporary_text(name);
    assert_string_equal(text, expected);
}

#define ROW(epoch, step)                                                                           \
    epoch "," step ",train,2.5,0.125,,0.0003,0.333333333,1000,0.064,0,0.06,0.01,0.004,0.5," step   \
          ",32768,1,0.02,0.04,,0.0001,,,,,,,,,,,,,,\n"
#define EPOCH(epoch, step)                                                                         \
    epoch "," step ",epoch,2,0.25,0.75,0.1,,100,,,,,,," step                                       \
          ",,,,,,,,,,,,,,,,12.5,0.5,0.01,0.0625,\n"

/* The second time without TensorBoard. */
TEST(rows_have_the_given_values)
{
    for (int turn = 0; turn < 2; turn++) {
        options.output.tensorboard = turn == 0;
        struct metrics *log = open_log(&new_run);
        write_train(log, 5);
        write_epoch(log, 0, 10);
        close_log(log);
        assert_file("metrics.csv", METRICS_HEADER ROW("0", "5") EPOCH("0", "10"));
    }
    /* ranks without a log */
    write_train(NULL, 5);
    assert_true(metrics_flush(NULL, &error));
    metrics_close(NULL);
}

TEST(a_resumed_run_keeps_the_rows_before_its_checkpoint)
{
#define EMPTY ",,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,\n"
#define BEFORE ROW("0", "5") "0,10,val,1\n" ROW("0", "20")
#define VAL "0,20,val,1\n"
#define TEST_ROW "0,20,test,1\n"
    static const struct {
        const char *written;
        struct metrics_position position;
        const char *kept; /* after the header */
    } cases[] = {{METRICS_HEADER ROW("0", "5") EPOCH("0", "10") ROW("1", "15") ROW("2", "20"),
                  {.step = 15},
                  ROW("0", "5") EPOCH("0", "10") ROW("1", "15")},
                 {METRICS_HEADER EPOCH("0", "10") ROW("1", "15") EPOCH("1", "15"),
                  {.step = 15, .mid_epoch = true},
                  EPOCH("0", "10") ROW("1", "15")},
                 /* Rows that a killed attempt wrote at the step of its checkpoint, after it. */
                 {METRICS_HEADER BEFORE VAL TEST_ROW, {.step = 20}, BEFORE VAL TEST_ROW},
                 {METRICS_HEADER BEFORE VAL TEST_ROW, {.step = 20, .untested = true}, BEFORE VAL},
                 {METRICS_HEADER BEFORE VAL TEST_ROW,
                  {.step = 20, .unevaluated = true, .untested = true},
                  BEFORE},
                 /* Incomplete and damaged lines. */
                 {METRICS_HEADER ROW("0", "5") "1,10,train,2.", {.step = 100}, ROW("0", "5")},
                 {"epoch,st", {.step = 100}, ""},
                 {METRICS_HEADER "\nnonsense\n1,,x\n" ROW("0", "5"), {.step = 5}, ROW("0", "5")},
                 {METRICS_HEADER ROW("0", "5"), {.step = 0}, ""},
                 /* An older version with fewer columns. */
                 {"epoch,step,split,loss\n0,10,val,2.5\n1,20,val,2.25\n2,30,val,2\n",
                  {.step = 20},
                  "0,10,val,2.5" EMPTY "1,20,val,2.25" EMPTY}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[2048];
        temporary_write("metrics.csv", cases[i].written);
        close_log(open_log(&cases[i].position));
        snprintf(expected, sizeof expected, "%s%s", METRICS_HEADER, cases[i].kept);
        assert_file("metrics.csv", expected);
    }
}

/* One row for each output of a regression; a resumed run replaces those after its checkpoint. */
TEST(outputs_have_rows)
{
    static const char rows[] =
        METRICS_HEADER "0,10,val,,,,,,,,,,,,,,,,,,,,,,u,2,1.5,-0.5,0.25,4,3,,,,,0.125\n"
                       "0,10,val,,,,,,,,,,,,,,,,,,,,,,\"v, w\",1,1,,,,,,,,,\n";
    struct output_errors errors[2] = {{2, 1.5, -0.5, 0.25, 4, 3, 0.125},
                                      {1, 1, NAN, NAN, NAN, NAN, NAN}};
    char *names[] = {"u", "v, w"};
    const struct dataset dataset = {.target = {.count = 2}, .target_name = names};
    const struct evaluation evaluation = {.outputs = 2, .errors = errors};
    const struct metrics_row row = metrics_row_empty("val", 0, 10);
    struct metrics *log = open_log(&new_run);

    assert_true(metrics_write_targets(log, &row, &evaluation, &dataset, &error));
    close_log(log);
    assert_file("metrics.csv", rows);
    close_log(open_log(&(struct metrics_position){.step = 10}));
    assert_file("metrics.csv", rows);
    close_log(open_log(&(struct metrics_position){.step = 10, .unevaluated = true}));
    assert_file("metrics.csv", METRICS_HEADER);
    assert_true(metrics_write_targets(NULL, &row, &evaluation, &dataset, &error));
}

TEST(table_with_other_columns_is_an_error_and_stays)
{
    static const char *const tables[] = {"a,b\n1,2\n", "epoch,step,spl\n1,2,train\n"};
    for (int i = 0; i < 4; i++) {
        error_clear(&error);
        temporary_write("metrics.csv", tables[i % 2]);
        const struct metrics_position position = {.step = i < 2 ? 10 : 0};
        assert_null(metrics_open(&folder, &options.output, &position, &error));
        assert_error(&error, ERROR_FILE, "metrics.csv: its columns are not those of this program");
        assert_file("metrics.csv", tables[i % 2]);
    }
}

TEST(missing_folder_is_an_error)
{
    struct run_folder missing = {.path = ""};
    snprintf(missing.path, sizeof missing.path, "%s", temporary_path("none/run"));
    assert_null(metrics_open(&missing, &options.output, &new_run, &error));
    assert_int_equal(error.kind, ERROR_FILE);
}

/* On a full disk, a row or the flush reports the error. */
TEST(full_disk_is_an_error)
{
    static const struct column columns[] = {COLUMN(metrics_row, INTEGER, step), COLUMNS_END};
    const struct metrics_row row = {.step = 1};
    struct csv csv = {.path = "metrics.csv"};

    csv.stream = fopen("/dev/full", "a");
    assert_non_null(csv.stream);
    assert_true(columns_write(columns, &row, &csv, &error));
    assert_false(csv_flush(&csv, &error));
    assert_error(&error, ERROR_FILE, "No space left");
    error_clear(&error);
    for (int i = 0; i < 10000 && columns_write(columns, &row, &csv, &error); i++)
        continue;
    assert_int_equal(error.kind, ERROR_FILE);
    csv_close(&csv);
}

/* ---- log intervals */

static void assert_due(int tags, const char *steps)
{
    const struct output_options output = {.tensorboard_tags = tags, .log_every = 50};
    char found[64] = "";
    for (int64_t step = 1; step <= 2 * 75; step++)
        if (metrics_is_due(&output, step, (step - 1) % 75 + 1))
            snprintf(found + strlen(found), sizeof found - strlen(found), " %d", (int)step);
    assert_string_equal(found, steps);
}

TEST(intervals_end_at_the_steps_of_the_tags)
{
    assert_due(TAGS_VITTRAIN, " 50 100 150");
    assert_due(TAGS_LIGHTNING, " 50 100 150");
    assert_due(TAGS_IMAGENET, " 1 51 76 126");
}

TEST_MAIN(.before = make_folder, .after = temporary_close)
