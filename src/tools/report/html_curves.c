// SPDX-License-Identifier: BSD-3-Clause
/* The curves of training over steps and time, and their values, from metrics.csv. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report/html_figure.h"
#include "tools/report/sheet.h"

enum axis { BY_STEP, BY_TIME };

/* How the rows of a point are combined: means over their images or their time, or the last row. */
enum mean { OF_IMAGES, OF_TIME, LAST_ROW };

/* A point has at least this share of the images of the largest row. */
static const double POINT_LEAST = 0.75;

/* Each entry describes a chart and its column in the table of values. */
/* clang-format off */
static const struct measure {
    const char *id, *title, *unit, *column;
    enum figure figure; /* in the table */
    double scale;       /* of the chart */
    double most;        /* larger values are measurement errors and left out; 0: no limit */
    const char *whole;  /* column by which the value is divided, or NULL */
    enum mean mean;
    enum axis x;
    bool large, evaluated, from_zero;
    enum chart_scale axis;
} measures[] = {
    {"loss-steps", "Loss", NULL, "loss", FIGURE_NUMBER, 1, .large = true, .evaluated = true},
    {"accuracy-steps", "Top-1 accuracy", "%", "top1", FIGURE_SHARE, 100, .large = true,
     .evaluated = true},
    {"rate-steps", "Learning rate", NULL, "lr", FIGURE_NUMBER, 1, .mean = LAST_ROW, .from_zero = true},
    {"gradient-steps", "Gradient norm", NULL, "grad_norm", FIGURE_NUMBER, 1, .mean = LAST_ROW, .axis = CHART_LOG},
    {"speed-steps", "Images/s", NULL, "images_per_second", FIGURE_RATE, 1, .mean = OF_TIME, .from_zero = true},
    {"peak-steps", "MFU", "%", "peak_share", FIGURE_SHARE, 100, .most = 1, .mean = OF_TIME, .from_zero = true},
    {"data-steps", "Waiting for data", "% of step time", "data_seconds", FIGURE_SHARE, 100,
     .most = 1, .mean = OF_TIME, .whole = "step_seconds", .from_zero = true},
    {"waiting-steps", "Waiting for communication", "% of step time", "exposed_comm_seconds",
     FIGURE_SHARE, 100, .most = 1, .mean = OF_TIME, .whole = "step_seconds", .from_zero = true},
    {"loss-time", "Loss over time", NULL, "loss", FIGURE_NUMBER, 1, .x = BY_TIME,
     .evaluated = true},
    {"accuracy-time", "Top-1 accuracy over time", "%", "top1", FIGURE_SHARE, 100, .x = BY_TIME,
     .evaluated = true},
};
/* clang-format on */
enum { MEASURES = sizeof measures / sizeof measures[0] };

/* With more runs, the legend names the runs only, and one entry for all dashed lines. */
enum { SPLITS_NAMED_MOST = 3 };

/* Return the value in a row of metrics.csv, NAN if it is unknown. */
static double measure_value(const struct measure *measure, const struct table *metrics, int64_t row)
{
    double value = table_number_at(metrics, row, measure->column);
    if (measure->whole != NULL)
        value /= table_number_at(metrics, row, measure->whole);
    return measure->most > 0 && value > measure->most ? NAN : value;
}

static bool row_is_of(const struct table *metrics, int64_t row, const char *split)
{
    return strcmp(table_text_at(metrics, row, "split"), split) == 0;
}

/* Seconds and images of a row of training, which covers the steps since `before`. */
struct extent {
    double seconds, images;
};

static struct extent row_extent(const struct table *metrics, int64_t row, double before)
{
    const double steps = table_number_at(metrics, row, "step") - before;
    const double seconds = steps * table_number_at(metrics, row, "step_seconds");
    return (struct extent){seconds, seconds * table_number_at(metrics, row, "images_per_second")};
}

/* Return the images of the largest row of training. */
static double images_most(const struct table *metrics)
{
    double most = 0, before = 0;
    for (int64_t row = 0; row < metrics->rows; row++) {
        if (!row_is_of(metrics, row, "train"))
            continue;
        most = fmax(most, row_extent(metrics, row, before).images);
        before = table_number_at(metrics, row, "step");
    }
    return most;
}

/* Weighted sum of the rows of a point. */
struct point {
    double sum, weight, images;
};

/* Add the value of a row. Values above the measure's limit are left out. */
static void point_add(struct point *point, const struct measure *measure,
                      const struct table *metrics, int64_t row, double before)
{
    const struct extent extent = row_extent(metrics, row, before);
    const double value = measure_value(measure, metrics, row);
    double weight = measure->mean == OF_TIME ? extent.seconds : extent.images;
    point->images += extent.images;
    if (isnan(value) && measure->most > 0)
        return;
    if (measure->mean == LAST_ROW || !(weight > 0)) {
        point->sum = point->weight = 0;
        weight = 1;
    }
    point->sum += weight * value;
    point->weight += weight;
}

/* Read the points of one split of a run. Rows of training with few steps, as at the end of an
 * epoch, are joined with the next ones, the last with the previous point. */
static void points_read(const struct table *metrics, const struct measure *measure,
                        const char *split, double time_unit, struct chart_series *series)
{
    const int column = table_column(metrics, measure->column);
    const int at = table_column(metrics, measure->x == BY_TIME ? "elapsed_seconds" : "step");
    const bool training = strcmp(split, "train") == 0;
    const double least = training ? POINT_LEAST * images_most(metrics) : 0;
    struct point point = {0}, previous = {0};
    double x = 0, before = 0;
    series_open(series, metrics->rows);
    for (int64_t row = 0; row < metrics->rows; row++) {
        if (!row_is_of(metrics, row, split) || table_text(metrics, row, column)[0] == '\0')
            continue;
        point_add(&point, measure, metrics, row, before);
        x = table_number(metrics, row, at) / (measure->x == BY_TIME ? time_unit : 1);
        before = table_number_at(metrics, row, "step");
        if (point.images < least)
            continue;
        series_add(series, x, point.sum / point.weight * measure->scale);
        previous = point;
        point = (struct point){0};
    }
    if (point.weight == 0)
        return;
    if (series->count > 0)
        series->count--;
    if (measure->mean != LAST_ROW) {
        point.sum += previous.sum;
        point.weight += previous.weight;
    }
    series_add(series, x, point.sum / point.weight * measure->scale);
}

/* True if the curve has points; with from_zero, only if one of them is not 0. */
static bool series_shows(const struct chart_series *series, bool from_zero)
{
    for (int64_t i = 0; i < series->count; i++)
        if (!from_zero || (series->y[i] != 0 && !isnan(series->y[i])))
            return true;
    return false;
}

/* Collect the series of all runs: training solid, validation dashed. Return their number. */
static int series_collect(const struct page *page, const struct measure *measure, double time_unit,
                          struct chart_series *series, char (*names)[SERIES_NAME])
{
    int count = 0;
    for (int run = 0; run < page->count; run++)
        for (int k = 0; k <= (int)measure->evaluated; k++) {
            struct chart_series *next = &series[count];
            const char *split = k == 1 ? "validation" : "training";
            points_read(&page->records[run].metrics, measure, k == 1 ? "val" : "train", time_unit,
                        next);
            if (!series_shows(next, measure->from_zero)) {
                series_free(next);
                continue;
            }
            next->dashed = k == 1;
            next->colour = page->count == 1 ? k + 1 : run + 1;
            if (page->count == 1)
                snprintf(names[count], SERIES_NAME, "%s", measure->evaluated ? split : "");
            else
                snprintf(names[count], SERIES_NAME, measure->evaluated ? "%s %s" : "%s",
                         html_letters(run).text, split);
            next->name = names[count][0] != '\0' ? names[count] : NULL;
            count++;
        }
    return count;
}

/* True if two curves look the same up to the last point of the shorter one. */
static bool series_coincide(const struct chart_series *one, const struct chart_series *other)
{
    const int64_t count = one->count < other->count ? one->count : other->count;
    double apart = 0, least = INFINITY, most = -INFINITY;
    if (one->dashed != other->dashed)
        return false;
    for (int64_t i = 0; i < count; i++) {
        if (one->x[i] != other->x[i])
            return false;
        apart += fabs(one->y[i] - other->y[i]);
        least = fmin(least, one->y[i]);
        most = fmax(most, one->y[i]);
    }
    return apart <= 0.02 * (double)count * (most - least);
}

/* Draw one measure of all runs, if any has values. */
static void measure_draw(const struct page *page, const struct measure *measure,
                         enum figure_size size)
{
    const size_t most = 2 * (size_t)page->count;
    struct chart_series *series = allocate(most, sizeof *series);
    char(*names)[SERIES_NAME] = allocate(most, sizeof *names);
    double longest = 0;
    for (int i = 0; i < page->count; i++)
        longest = fmax(longest, table_facts(&page->records[i].metrics, "elapsed_seconds").most);
    const struct time_unit time = time_unit_of(longest);
    const int count = series_collect(page, measure, time.seconds, series, names);
    for (int i = 0; i < count; i++)
        for (int k = i + 1; k < count; k++)
            series[i].covered += series_coincide(&series[i], &series[k]);
    const struct chart chart = {
        .title = measure->title,
        .x = {.label = measure->x == BY_TIME ? time.label : "step",
              .from_zero = true,
              .whole = measure->x == BY_STEP},
        .y = {.label = measure->unit, .scale = measure->axis, .from_zero = measure->from_zero},
        .series_count = count,
        .series = series};
    if (count > 0)
        figure_write(page, measure->id, &chart, size,
                     measure->evaluated && page->count > SPLITS_NAMED_MOST);
    for (int i = 0; i < count; i++)
        series_free(&series[i]);
    free(series);
    free(names);
}

void html_curves(const struct page *page)
{
    bool any = false;
    for (int i = 0; i < page->count; i++)
        any = any || page->records[i].metrics.rows > 0;
    if (!any)
        fputs("<p>No curves: metrics.csv is missing or has no rows.</p>\n", page->stream);
    fputs("<div class=\"large\">\n", page->stream);
    for (int i = 0; i < MEASURES; i++)
        if (measures[i].large)
            measure_draw(page, &measures[i], FIGURE_LARGE);
    fputs("</div>\n", page->stream);
}

/* ---- the values of the curves at each evaluation; without evaluations at rows of training */

enum { VALUES_MOST = 100, TRAINING_VALUES_MOST = 20 };

static int64_t rows_count(const struct table *metrics, const char *split)
{
    int64_t count = 0;
    for (int64_t row = 0; row < metrics->rows; row++)
        count += row_is_of(metrics, row, split);
    return count;
}

/* Add the cells of a measure: the value of the last row of training up to this row, and that of
 * this evaluation. */
static void measure_add(struct sheet *sheet, const struct measure *measure,
                        const struct table *metrics, int64_t train, int64_t row)
{
    sheet_figure(sheet, measure->figure, train < 0 ? NAN : measure_value(measure, metrics, train));
    if (measure->evaluated)
        sheet_figure(sheet, measure->figure,
                     row == train ? NAN : measure_value(measure, metrics, row));
}

static void values_write(const struct page *page, int run)
{
    const struct table *metrics = &page->records[run].metrics;
    struct sheet sheet = {.title = "Values", .class = "ranks"};
    const bool evaluated = rows_count(metrics, "val") > 0;
    const char *split = evaluated ? "val" : "train";
    const int64_t most = evaluated ? VALUES_MOST / (1 + page->count / 8) : TRAINING_VALUES_MOST;
    int64_t train = -1, left = rows_count(metrics, split);
    const int64_t each = (left + most - 1) / most;
    sheet_column(&sheet, "step", SHEET_NUMBER);
    for (int i = 0; i < MEASURES; i++) {
        char name[64];
        if (measures[i].x == BY_TIME)
            continue;
        snprintf(name, sizeof name, measures[i].evaluated ? "%s, training" : "%s",
                 measures[i].title);
        sheet_column(&sheet, name, SHEET_NUMBER);
        if (measures[i].evaluated)
            sheet_column(&sheet, "validation", SHEET_NUMBER);
    }
    for (int64_t row = 0; row < metrics->rows; row++) {
        train = row_is_of(metrics, row, "train") ? row : train;
        if (!row_is_of(metrics, row, split) || --left % each != 0)
            continue; /* the last row is always shown */
        sheet_figure(&sheet, FIGURE_COUNT, table_number_at(metrics, row, "step"));
        for (int i = 0; i < MEASURES; i++)
            if (measures[i].x != BY_TIME)
                measure_add(&sheet, &measures[i], metrics, train, row);
    }
    html_run_title(page, run);
    sheet_html(&sheet, page->stream);
    sheet_free(&sheet);
}

void html_details(const struct page *page)
{
    fputs("<div class=\"charts\">\n", page->stream);
    for (int i = 0; i < MEASURES; i++)
        if (!measures[i].large && (measures[i].x == BY_STEP || page->count > 1))
            measure_draw(page, &measures[i], FIGURE_SMALL);
    fputs("</div>\n", page->stream);
    for (int run = 0; run < page->count; run++)
        values_write(page, run);
}
