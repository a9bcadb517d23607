// SPDX-License-Identifier: BSD-3-Clause
/* The command `find` and its results in the log book. `find lr`: the range test on the deck's run,
 * its curve as a table, and the suggested learning rate. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/allocate.h"
#include "core/base.h"
#include "core/clock.h"
#include "core/columns.h"
#include "core/file.h"
#include "core/log.h"
#include "mesh/mesh.h"
#include "plan/plan.h"
#include "runlog/run_log.h"
#include "train/optimizer.h"
#include "train/range_test.h"

/* A row of found.csv in the log book: the result of `find batch` or `find lr`. */
struct found {
    const char *date, *host, *commit, *what, *model;
    int64_t image; /* height of the model's images */
    const char *precision, *strategy;
    int64_t ranks, nodes;
    double value;         /* the largest train.batch, or the learning rate */
    int64_t global_batch; /* at which the value was found */
    double peak_bytes;    /* of a rank, with this value; NAN: not measured */
    double limit;         /* memory available to a rank, in bytes; NAN: unknown */
    const char *detail;   /* a remark, for example the path of a table; "": none */
};

#define FOUND(kind, name) COLUMN(found, kind, name)
static const struct column found_columns[] = {
    FOUND(TEXT, date),         FOUND(TEXT, host),
    FOUND(TEXT, commit),       FOUND(TEXT, what),
    FOUND(TEXT, model),        FOUND(INTEGER, image),
    FOUND(TEXT, precision),    FOUND(TEXT, strategy),
    FOUND(INTEGER, ranks),     FOUND(INTEGER, nodes),
    FOUND(NUMBER, value),      FOUND(INTEGER, global_batch),
    FOUND(NUMBER, peak_bytes), FOUND(NUMBER, limit),
    FOUND(TEXT, detail),       COLUMNS_END};

/* Add a result to the log book (output.logbook), with date, place, strategy and model; rank 0 only.
 * A failure is a warning. */
static void found_record(const struct options *options, struct found *found)
{
    static const struct csv_keep all = {.last = INT64_MAX, .sets_aside = true};
    const char *logbook = options->output.logbook;
    char date[32];
    struct csv csv = {0};
    struct error error = {0};
    if (logbook[0] == '\0')
        return;
    clock_stamp_utc(date, sizeof date);
    found->date = date;
    found->host = error_host();
    found->commit = version_commit;
    found->model = options->model.name;
    found->strategy = mesh_strategy_name(options->mesh.strategy);
    OWNED char *path = allocate_text("%s/found.csv", logbook);
    const int lock = logbook_lock(logbook, &error);
    if (lock >= 0) {
        if (columns_open(&csv, path, found_columns, &all, &error) &&
            columns_write(found_columns, found, &csv, &error))
            error_defer(csv_flush(&csv, &error));
        csv_close(&csv);
        close(lock);
    }
    if (error.kind != ERROR_NONE)
        log_warn("log book: %s", error.text);
}

/* Maximum number of rows of the curve on standard output; the file has all rows. */
enum { ROWS = 40 };

#define POINT(kind, name) COLUMN(range_point, kind, name)
static const struct column curve_columns[] = {POINT(INTEGER, step), POINT(NUMBER, rate),
                                              POINT(NUMBER, loss), POINT(NUMBER, smoothed),
                                              COLUMNS_END};

struct search {
    struct comm *world;
    struct session session;
    struct range_test test;
    struct range_suggestion suggestion;
    struct csv csv; /* rank 0 only; not open if find.output is empty */
};

/* ---- preparation */

/* Open the file before the test, so that a path that cannot be written is an error at once. */
static bool curve_open(struct search *search, const char *output, struct error *error)
{
    OWNED char *path = allocate_text("%s.csv", output);
    if (search->world->rank == 0 && output[0] != '\0')
        error_defer(columns_open(&search->csv, path, curve_columns, NULL, error));
    return comm_agree(search->world, error);
}

static bool search_open(struct search *search, const struct options *options, struct error *error)
{
    static struct options without_evaluation;
    struct session *session = &search->session;
    without_evaluation = *options;
    without_evaluation.data.val = VALIDATION_NONE;
    if (!curve_open(search, options->find.output, error) ||
        !session_open(session, &without_evaluation, search->world, error))
        return false;
    if (!session_start(session, error) || !session_initialize(session, error))
        return false;
    flat_refresh(&session->flat);
    return true;
}

/* ---- results */

static void curve_print(const struct search *search)
{
    const struct range_test *test = &search->test;
    int64_t stride = round_up_division(test->count, ROWS);
    printf("%8s %12s %12s %12s\n", "step", "rate", "loss", "smoothed");
    for (int64_t i = 0; i < test->count; i += stride)
        printf("%8lld %12.3e %12.6f %12.6f\n", (long long)i + 1, test->points[i].rate,
               test->points[i].loss, test->points[i].smoothed);
}

static bool curve_write(struct search *search, struct error *error)
{
    const struct range_test *test = &search->test;
    for (int64_t i = 0; i < test->count; i++)
        if (!columns_write(curve_columns, &test->points[i], &search->csv, error))
            return false;
    return csv_flush(&search->csv, error);
}

static void end_print(const struct search *search)
{
    const struct range_test *test = &search->test;
    switch (test->end) {
    case RANGE_WHOLE:
        printf("\nstopped at the last learning rate, %g\n", test->end_rate);
        return;
    case RANGE_DIVERGED:
        printf("\nstopped at %.3g, where the smoothed loss exceeded %g times its minimum\n",
               test->end_rate, search->session.options.find.stop);
        return;
    case RANGE_NOT_FINITE:
        printf("\nstopped at %.3g, where loss or gradient was not finite\n", test->end_rate);
        return;
    case RANGE_STOPPED:
        printf("\nstopped at %.3g by a signal\n", test->end_rate);
        return;
    }
}

/* Return the learning rate of an update divided by optim.lr (optim.lr_scale). */
static double rate_scale(const struct search *search)
{
    struct options unit = search->session.options;
    unit.optim.lr = 1;
    return schedule_base_rate(&unit, search->session.global_batch);
}

static void suggestion_print(const struct search *search)
{
    const struct range_test *test = &search->test;
    const struct range_suggestion *found = &search->suggestion;
    double scale = rate_scale(search);
    if (isnan(found->steepest_rate)) {
        printf(
            "no suggestion: the smoothed loss falls by %.3g, which may be noise (%.2g); use more "
            "steps (find.steps=%lld) or a larger batch\n",
            found->fall, found->noise, (long long)(4 * test->steps));
        return;
    }
    printf("steps %lld to %lld: the smoothed loss falls fastest at %.3g and has its minimum at "
           "%.3g\n",
           (long long)found->first + 1, (long long)found->end, found->steepest_rate,
           test->points[found->lowest].rate);
    printf("suggestion: optim.lr=%.2g, the steepest descent (Smith 2017); alternative, a tenth of "
           "the rate at the minimum: optim.lr=%.2g\n",
           found->steepest_rate / scale, found->tenth_of_lowest / scale);
    if (scale != 1)
        printf("(optim.lr_scale multiplies it by %.4g for the global batch of %lld)\n", scale,
               (long long)search->session.global_batch);
}

/* Add the suggestion to the log book. */
static void suggestion_record(const struct search *search)
{
    const struct session *session = &search->session;
    char detail[OPTION_TEXT + 8] = "";
    if (isnan(search->suggestion.steepest_rate))
        return;
    if (search->session.options.find.output[0] != '\0')
        snprintf(detail, sizeof detail, "%s.csv", search->session.options.find.output);
    struct found found = {.what = "lr",
                          .image = session->model->image.height,
                          .precision = type_name(session->compute),
                          .ranks = search->world->size,
                          .nodes = session->mesh.node_count,
                          .value = search->suggestion.steepest_rate / rate_scale(search),
                          .global_batch = search->session.global_batch,
                          .peak_bytes = NAN,
                          .limit = NAN,
                          .detail = detail};
    found_record(&search->session.options, &found);
}

/* Print and write the results; rank 0 only. */
static void search_report(struct search *search, struct error *error)
{
    printf("range test from %g to %g in %lld steps of global batch %lld on %d rank%s\n",
           search->session.options.find.first, search->session.options.find.last,
           (long long)search->test.steps, (long long)search->session.global_batch,
           search->world->size, search->world->size == 1 ? "" : "s");
    curve_print(search);
    end_print(search);
    suggestion_print(search);
    const char *name = search->session.options.find.output;
    if (app_output_arrived(error) && name[0] != '\0')
        error_defer(curve_write(search, error));
    suggestion_record(search);
}

/* Run the learning-rate range test and print the result on rank 0. */
static void find_lr(const struct options *options, struct comm *world, struct error *error)
{
    static struct search search;
    search = (struct search){.world = world};
    if (search_open(&search, options, error) &&
        range_test_run(&search.session, &search.test, error)) {
        range_test_suggest(&search.test, options->find.beta, &search.suggestion);
        if (world->rank == 0)
            search_report(&search, error);
        comm_agree(world, error);
    }
    csv_close(&search.csv);
    range_test_free(&search.test);
    session_close(&search.session);
}

static void batch_run(const struct options *options, struct comm *world, struct error *error)
{
    static struct batch_search search;
    if (find_batch(options, world, &search, error) && world->rank == 0) {
        const struct batch_trial *best = &search.best;
        struct found found = {.what = "batch",
                              .image = best->image,
                              .precision = type_name(best->compute),
                              .ranks = world->size,
                              .nodes = best->nodes,
                              .value = (double)best->batch,
                              .global_batch = best->batch * world->size,
                              .peak_bytes = (double)best->peak,
                              .limit = (double)search.limit,
                              .detail = ""};
        found_record(options, &found);
        error_defer(app_output_arrived(error));
    }
    comm_agree(world, error);
}

static void find_run(const struct options *options, const struct command_line *line,
                     struct comm *world, struct error *error)
{
    log_open(world->rank, LOG_WARN); /* no memory tables */
    const char *what = line->operand_count == 1 ? line->operand[0] : "";
    if (strcmp(what, "batch") == 0)
        batch_run(options, world, error);
    else if (strcmp(what, "lr") == 0)
        find_lr(options, world, error);
    else
        error_set(error, ERROR_USAGE,
                  "find needs one word: `vittrain find batch` or `vittrain find lr`");
}

const struct command command_find = {
    .name = "find",
    .synopsis = "find batch|lr [DECK.ini ...] [section.key=value ...]",
    .summary = "find the largest batch that fits, or a good learning rate",
    .detail =
        "find batch tries batches of the deck's run on all ranks together: it allocates all "
        "memory and runs a step on random images, or on samples of arrays. The limit per rank is "
        "plan.memory, or its share of the node's available memory less a reserve of 5 %. It "
        "prints each trial, the largest train.batch that runs, and the memory predicted by plan. "
        "find lr is the learning-rate range test (Smith 2017): with the deck's data, optimizer "
        "and mesh, the learning rate grows by the same factor at each update, from find.first to "
        "find.last within an epoch (find.steps), until the smoothed loss exceeds find.stop times "
        "its minimum. It prints the curve and suggests the rate of steepest descent; it writes "
        "the curve as a table (find.output), which `vittrain report` draws, and discards the "
        "weights. Both add a row to found.csv in output.logbook.",
    .run = find_run};
