/* Curves of training, over steps and over time: a small chart for each figure, all of the same
 * size, which is that of a phone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/chart.h"
#include "report/html.h"

enum { CHART_WIDTH = 400, CHART_HEIGHT = 256, SERIES_NAME = 24, SPLITS_NAMED_MOST = 3 };

/* What a chart shows: a column of metrics.csv. */
static const struct measure {
    const char *id, *title, *label, *column;
    double scale;
    const char *whole; /* the column that it is a share of; NULL: none */
    bool over_time, evaluated, from_zero;
    enum chart_scale axis;
} measures[] = {
    {"loss-steps", "Loss", "nats", "loss", 1, .evaluated = true},
    {"accuracy-steps", "Accuracy", "%", "top1", 100, .evaluated = true},
    {"rate-steps", "Learning rate", NULL, "lr", 1, .from_zero = true},
    {"loss-time", "Loss over time", "nats", "loss", 1, .over_time = true, .evaluated = true},
    {"accuracy-time", "Accuracy over time", "%", "top1", 100, .over_time = true, .evaluated = true},
    {"speed-time", "Images a second", "1/s", "images_per_second", 1, .over_time = true,
     .from_zero = true},
    {"gradient-steps", "Gradient norm", NULL, "grad_norm", 1, .axis = CHART_LOG},
    {"data-steps", "Waiting for data", "% of the step", "data_seconds", 100, "step_seconds",
     .from_zero = true},
    {"waiting-steps", "Waiting for other ranks", "% of the step", "exposed_comm_seconds", 100,
     "step_seconds", .from_zero = true},
    {"peak-steps", "Work done of what the machine could", "%", "peak_share", 100,
     .from_zero = true},
};
enum { MEASURES = sizeof measures / sizeof measures[0] };

/* In what fits the longest run. */
static struct time_unit time_unit_of(const struct page *page)
{
    double most = 0;
    for (int i = 0; i < page->count; i++) {
        const struct table *metrics = &page->records[i].metrics;
        const int column = table_column(metrics, "elapsed_seconds");
        for (int64_t row = metrics->rows; row > 0 && row > metrics->rows - 3; row--)
            most = fmax(most, table_number(metrics, row - 1, column));
    }
    return html_time_unit(most);
}

/* The points of a run's split, owned. */
static void points_take(const struct table *metrics, const struct measure *measure,
                        const char *split, double time_unit, struct chart_series *series)
{
    const int splits = table_column(metrics, "split"), of = table_column(metrics, measure->column);
    const int at = table_column(metrics, measure->over_time ? "elapsed_seconds" : "step");
    const int whole = measure->whole == NULL ? -1 : table_column(metrics, measure->whole);
    double *x = calloc((size_t)metrics->rows * 2 + 1, sizeof *x), *y = x + metrics->rows;
    ENSURE(x != NULL, "no memory for a chart");
    for (int64_t row = 0; row < metrics->rows; row++) {
        if (strcmp(table_text(metrics, row, splits), split) != 0 ||
            table_text(metrics, row, of)[0] == '\0')
            continue;
        x[series->count] = table_number(metrics, row, at) / (measure->over_time ? time_unit : 1);
        y[series->count] = table_number(metrics, row, of) * measure->scale;
        if (measure->whole != NULL)
            y[series->count] /= table_number(metrics, row, whole);
        series->count++;
    }
    series->x = x;
    series->y = y;
}

/* As the legend has it. Of many runs it has their letters only: dashes say what is validation. */
static void series_name(const struct page *page, int run, bool evaluation, bool both,
                        char name[SERIES_NAME])
{
    const char *split = evaluation ? "validation" : "training";
    if (page->count == 1)
        snprintf(name, SERIES_NAME, "%s", both ? split : "");
    else if (page->count <= SPLITS_NAMED_MOST && both)
        snprintf(name, SERIES_NAME, "%c %s", html_letter(run), split);
    else if (!evaluation)
        snprintf(name, SERIES_NAME, "%c", html_letter(run));
    else
        name[0] = '\0';
}

/* The series of all runs: training, and dashed the evaluation. Gives how many there are. */
static int series_take(const struct page *page, const struct measure *measure, double time_unit,
                       struct chart_series *series, char (*names)[SERIES_NAME])
{
    static const char *const splits[] = {"train", "val"};
    int count = 0;
    for (int run = 0; run < page->count; run++)
        for (int k = 0; k <= (int)measure->evaluated; k++) {
            struct chart_series *next = &series[count];
            *next = (struct chart_series){.dashed = k == 1,
                                          .colour = page->count == 1 ? k + 1 : run + 1};
            points_take(&page->records[run].metrics, measure, splits[k], time_unit, next);
            if (next->count == 0) {
                free((double *)next->x);
                continue;
            }
            series_name(page, run, k == 1, measure->evaluated, names[count]);
            if (names[count][0] != '\0')
                next->name = names[count];
            count++;
        }
    return count;
}

/* Are two curves one to the eye? Then the lower one is drawn wider, as both are to be seen. */
static bool series_coincide(const struct chart_series *one, const struct chart_series *other)
{
    double apart = 0, least = INFINITY, most = -INFINITY;
    if (one->count != other->count || one->dashed != other->dashed)
        return false;
    for (int64_t i = 0; i < one->count; i++) {
        if (one->x[i] != other->x[i])
            return false;
        apart += fabs(one->y[i] - other->y[i]);
        least = fmin(least, one->y[i]);
        most = fmax(most, one->y[i]);
    }
    return apart <= 0.02 * (double)one->count * (most - least);
}

static void coinciding_widen(struct chart_series *series, int count)
{
    for (int i = 0; i < count; i++)
        for (int k = i + 1; k < count; k++)
            series[i].covered += series_coincide(&series[i], &series[k]);
}

static bool measure_draw(const struct page *page, const struct measure *measure,
                         struct time_unit time_unit)
{
    struct chart_series series[2 * HTML_RUNS_MOST];
    char names[2 * HTML_RUNS_MOST][SERIES_NAME];
    const int count = series_take(page, measure, time_unit.seconds, series, names);
    coinciding_widen(series, count);
    if (count > 0) {
        const struct chart chart = {
            .title = measure->title,
            .id = measure->id,
            .x = {.label = measure->over_time ? time_unit.label : "step", .from_zero = true},
            .y = {.label = measure->label, .scale = measure->axis, .from_zero = measure->from_zero},
            .series_count = count,
            .series = series};
        fputs("<figure>", page->stream);
        chart_svg_write(&chart, page->stream, CHART_WIDTH, CHART_HEIGHT);
        fputs("</figure>\n", page->stream);
    }
    for (int i = 0; i < count; i++)
        free((double *)series[i].x);
    return count > 0;
}

void html_curves(const struct page *page)
{
    const struct time_unit time_unit = time_unit_of(page);
    int drawn = 0;
    html_section(page, "curves", "Curves");
    if (page->count > SPLITS_NAMED_MOST)
        fputs("<p class=\"note\">Dashed: validation.</p>\n", page->stream);
    fputs("<div class=\"charts\">\n", page->stream);
    for (int i = 0; i < MEASURES; i++)
        drawn += measure_draw(page, &measures[i], time_unit);
    fputs("</div>\n", page->stream);
    if (drawn == 0)
        fputs("<p>None: there is no metrics.csv with rows in it.</p>\n", page->stream);
    html_section_end(page);
}
