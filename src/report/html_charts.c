/* Charts over the course of a run: the curves of training, and the readings of the sensors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report/chart.h"
#include "report/html.h"
#include "report/sheet.h"

enum { SERIES_NAME = 24 };

/* `enlarged`: see chart_embed and the style sheet. */
static const struct size {
    double width, height, enlarged;
} large = {600, 330, 1.6}, wide = {1000, 360, 2}, small = {400, 220, 1.2};

struct time_unit {
    double seconds;
    const char *label;
};

/* The unit of a time axis of this length. */
static struct time_unit time_unit_of(double seconds)
{
    if (seconds < 300)
        return (struct time_unit){1, "seconds"};
    return seconds < 4 * 3600 ? (struct time_unit){60, "minutes"}
                              : (struct time_unit){3600, "hours"};
}

/* Write the names of the curves. `brief`: letters of the runs; validation is known by its dashes.
 */
static void legend_write(const struct page *page, const struct chart *chart, bool brief)
{
    fputs("<p class=\"legend\">", page->stream);
    for (int i = 0; i < chart->series_count; i++) {
        const struct chart_series *series = &chart->series[i];
        const int colour = (series->colour > 0 ? series->colour - 1 : i) % CHART_COLOURS;
        if (series->name == NULL || (brief && series->dashed))
            continue;
        fprintf(page->stream, "<span><i class=\"%s s%d\"></i>", series->dashed ? "dash" : "line",
                colour);
        html_text(page, "", brief ? (char[]){series->name[0], '\0'} : series->name, "</span>\n");
    }
    fprintf(page->stream, "%s</p>", brief ? "<span><i class=\"dash\"></i>validation</span>\n" : "");
}

static void figure_write(const struct page *page, const char *id, const struct chart *chart,
                         const struct size *size, bool brief)
{
    html_text(page, "<figure><figcaption>", chart->title, "");
    if (chart->y.label != NULL)
        html_text(page, " <small>", chart->y.label, "</small>");
    fputs("</figcaption>\n", page->stream);
    if (chart->series_count > 1 || chart->series[0].name != NULL)
        legend_write(page, chart, brief);
    chart_embed(chart, page->stream, id, size->width, size->height, size->enlarged);
    fputs("</figure>\n", page->stream);
}

/* ---- points of a curve */

static void series_open(struct chart_series *series, int64_t most)
{
    double *x = calloc((size_t)most * 2 + 1, sizeof *x);
    ENSURE(x != NULL, "no memory for a chart");
    *series = (struct chart_series){.x = x, .y = x + most};
}

static void series_add(struct chart_series *series, double x, double y)
{
    ((double *)series->x)[series->count] = x;
    ((double *)series->y)[series->count++] = y;
}

static void series_free(struct chart_series *series)
{
    free((double *)series->x);
}

/* ---- curves of metrics.csv. A chart and its column in the table of values have one description.
 */

enum axis { BY_STEP, BY_TIME };

/* clang-format off */
static const struct measure {
    const char *id, *title, *unit, *column;
    enum figure figure; /* in the table */
    double scale;       /* of the chart */
    double most;        /* larger values are measured wrongly and left out; 0: none */
    const char *whole;  /* the value is divided by this column; NULL: by nothing */
    enum axis x;
    bool large, evaluated, from_zero;
    enum chart_scale axis;
} measures[] = {
    {"loss-steps", "Loss", NULL, "loss", FIGURE_NUMBER, 1, .large = true, .evaluated = true},
    {"accuracy-steps", "Top-1 accuracy", "%", "top1", FIGURE_SHARE, 100, .large = true,
     .evaluated = true},
    {"rate-steps", "Learning rate", NULL, "lr", FIGURE_NUMBER, 1, .from_zero = true},
    {"gradient-steps", "Gradient norm", NULL, "grad_norm", FIGURE_NUMBER, 1, .axis = CHART_LOG},
    {"speed-steps", "Images/s", NULL, "images_per_second", FIGURE_RATE, 1, .from_zero = true},
    {"peak-steps", "MFU", "%", "peak_share", FIGURE_SHARE, 100, .most = 1, .from_zero = true},
    {"data-steps", "Waiting for data", "% of step time", "data_seconds", FIGURE_SHARE, 100,
     .whole = "step_seconds", .from_zero = true},
    {"waiting-steps", "Waiting for communication", "% of step time", "exposed_comm_seconds",
     FIGURE_SHARE, 100, .whole = "step_seconds", .from_zero = true},
    {"loss-time", "Loss over time", NULL, "loss", FIGURE_NUMBER, 1, .x = BY_TIME,
     .evaluated = true},
    {"accuracy-time", "Top-1 accuracy over time", "%", "top1", FIGURE_SHARE, 100, .x = BY_TIME,
     .evaluated = true},
};
/* clang-format on */
enum { MEASURES = sizeof measures / sizeof measures[0] };

/* With more runs, the legend names the runs only, and validation is known by its dashes. */
enum { SPLITS_NAMED_MOST = 3 };

/* Return the value in a row of metrics.csv; NAN: unknown. */
static double measure_value(const struct measure *measure, const struct table *metrics, int64_t row)
{
    double value = table_number(metrics, row, table_column(metrics, measure->column));
    if (measure->whole != NULL)
        value /= table_number(metrics, row, table_column(metrics, measure->whole));
    return measure->most > 0 && value > measure->most ? NAN : value;
}

static bool row_is_of(const struct table *metrics, int64_t row, const char *split)
{
    return strcmp(table_text(metrics, row, table_column(metrics, "split")), split) == 0;
}

/* Read the points of one split of a run. */
static void points_read(const struct table *metrics, const struct measure *measure,
                        const char *split, double time_unit, struct chart_series *series)
{
    const int column = table_column(metrics, measure->column);
    const int at = table_column(metrics, measure->x == BY_TIME ? "elapsed_seconds" : "step");
    series_open(series, metrics->rows);
    for (int64_t row = 0; row < metrics->rows; row++)
        if (row_is_of(metrics, row, split) && table_text(metrics, row, column)[0] != '\0')
            series_add(series,
                       table_number(metrics, row, at) / (measure->x == BY_TIME ? time_unit : 1),
                       measure_value(measure, metrics, row) * measure->scale);
}

/* True if the curve has something to show: a value, and for a share or rate one that is not 0. */
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
                snprintf(names[count], SERIES_NAME, measure->evaluated ? "%c %s" : "%c",
                         html_letter(run), split);
            next->name = names[count][0] != '\0' ? names[count] : NULL;
            count++;
        }
    return count;
}

/* True if two curves look the same. */
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

/* Draw one measure of all runs, if any has values. */
static void measure_draw(const struct page *page, const struct measure *measure,
                         const struct size *size)
{
    struct chart_series series[2 * HTML_RUNS_MOST];
    char names[2 * HTML_RUNS_MOST][SERIES_NAME];
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
}

void html_curves(const struct page *page)
{
    bool any = false, classifies = false;
    for (int i = 0; i < page->count; i++) {
        any = any || page->records[i].metrics.rows > 0;
        classifies = classifies || !isnan(table_facts(&page->records[i].metrics, "top1").most);
    }
    fputs(any ? "<div class=\"large\">\n"
              : "<p>None: metrics.csv is missing or has no rows.</p>\n<div>",
          page->stream);
    for (int i = 0; i < MEASURES; i++)
        if (measures[i].large)
            measure_draw(page, &measures[i], classifies ? &large : &wide);
    fputs("</div>\n", page->stream);
}

/* ---- the values of the curves at each evaluation, else of each row */

enum { VALUES_MOST = 100 };

/* True if the row of metrics.csv has a row in the table: one with an evaluation, if there are any.
 */
static bool row_is_shown(const struct table *metrics, int64_t row, bool evaluated, int64_t each)
{
    return evaluated ? row_is_of(metrics, row, "val")
                     : row_is_of(metrics, row, "train") && (row + 1) % each == 0;
}

/* Add the cells of a measure: of the newest row of training, and of this evaluation. */
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
    bool evaluated = false;
    int64_t train = -1;
    for (int64_t row = 0; row < metrics->rows; row++)
        evaluated = evaluated || row_is_of(metrics, row, "val");
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
    for (int64_t row = 0; row < metrics->rows && sheet_rows(&sheet) < VALUES_MOST; row++) {
        train = row_is_of(metrics, row, "train") ? row : train;
        if (!row_is_shown(metrics, row, evaluated, (metrics->rows + 19) / 20))
            continue;
        sheet_figure(&sheet, FIGURE_COUNT,
                     table_number(metrics, row, table_column(metrics, "step")));
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
            measure_draw(page, &measures[i], &small);
    fputs("</div>\n", page->stream);
    for (int run = 0; run < page->count; run++)
        values_write(page, run);
}

/* ---- readings of monitor.csv */

/* With more ranks than LINES_MOST, a chart shows their lowest, mean and highest values. */
enum { LINES_MOST = 8, SLOTS = 200 };

static const struct sensor_chart {
    const char *column, *title, *label;
    double scale;
    bool from_zero;
    double most; /* upper end of the axis, which then starts at 0; 0: from the data */
} sensor_charts[] = {
    {"gpu_busy", "GPU utilization", "%", 100, true, 100},
    {"gpu_power", "GPU power", "W", 1, true, 0},
    {"gpu_temperature", "GPU temperature", "\u00b0C", 1, false, 0},
    {"gpu_memory_used_bytes", "GPU memory in use", "GiB", 1.0 / (1 << 30), true, 0},
    {"gpu_sm_clock", "GPU clock", "MHz", 1, false, 0},
    {"cores_busy", "CPU utilization of the node", "%", 100, true, 100},
    {"process_cores", "CPU cores used by the rank", "cores", 1, true, 0},
    {"cpu_power", "CPU power", "W", 1, true, 0},
    {"cpu_temperature", "CPU temperature", "\u00b0C", 1, false, 0},
    {"resident_bytes", "Resident memory of the rank", "MiB", 1.0 / (1 << 20), true, 0},
};

/* The rows of monitor.csv with parsed times and ranks. */
struct readings {
    const struct table *table;
    double *times; /* [rows], since the first reading of any rank, in units */
    struct time_unit unit;
    int *ranks;     /* [rows] */
    int rank_count; /* highest rank plus 1 */
};

/* Parse a time stamp such as 2026-11-22T00:02:47.515Z. Return seconds; NAN: not a time. */
static double time_parse(const char *text)
{
    struct tm date = {0};
    double seconds;
    if (sscanf(text, "%d-%d-%dT%d:%d:%lf", &date.tm_year, &date.tm_mon, &date.tm_mday,
               &date.tm_hour, &date.tm_min, &seconds) != 6 ||
        date.tm_year < 1970 || date.tm_year > 9999 || !(seconds >= 0 && seconds <= 60))
        return NAN;
    date.tm_year -= 1900;
    date.tm_mon -= 1;
    return (double)timegm(&date) + seconds;
}

static void readings_open(struct readings *readings, const struct table *table)
{
    const int time = table_column(table, "time"), rank = table_column(table, "rank");
    double first = INFINITY, last = -INFINITY;
    *readings = (struct readings){.table = table};
    readings->times = calloc((size_t)table->rows + 1, sizeof *readings->times);
    readings->ranks = calloc((size_t)table->rows + 1, sizeof *readings->ranks);
    ENSURE(readings->times != NULL && readings->ranks != NULL, "no memory for readings");
    for (int64_t row = 0; row < table->rows; row++) {
        const double number = table_number(table, row, rank);
        readings->times[row] = time_parse(table_text(table, row, time));
        readings->ranks[row] = number >= 0 && number < 1 << 24 ? (int)number : 0;
        if (readings->ranks[row] >= readings->rank_count)
            readings->rank_count = readings->ranks[row] + 1;
        first = fmin(first, readings->times[row]);
        last = fmax(last, readings->times[row]);
    }
    readings->unit = time_unit_of(last - first);
    for (int64_t row = 0; row < table->rows; row++)
        readings->times[row] = (readings->times[row] - first) / readings->unit.seconds;
}

/* One line per rank. Return the number of lines. */
static int ranks_collect(const struct readings *readings, const struct sensor_chart *sensor,
                         struct chart_series *series, char (*names)[SERIES_NAME])
{
    const int column = table_column(readings->table, sensor->column);
    int count = 0;
    for (int rank = 0; rank < readings->rank_count; rank++) {
        struct chart_series *next = &series[count];
        series_open(next, 2 * readings->table->rows);
        for (int64_t row = 0; row < readings->table->rows; row++) {
            const double value = table_number(readings->table, row, column);
            const double time = readings->times[row];
            const int64_t last = next->count - 1;
            if (readings->ranks[row] != rank || isnan(value) || isnan(time))
                continue;
            /* Interrupt the line between two attempts of a run. */
            if (last > 0 && time - next->x[last] > 10 * (next->x[last] - next->x[last - 1]) &&
                !isnan(next->y[last]))
                series_add(next, time, NAN);
            series_add(next, time, value * sensor->scale);
        }
        if (next->count == 0) { /* some sensors are read by the first rank of a node only */
            series_free(next);
            continue;
        }
        snprintf(names[count], SERIES_NAME, "rank %d", rank);
        next->name = names[count++];
        next->colour = rank + 1;
        next->dashed = rank % 2 == 1;
    }
    return count;
}

/* Mean, lowest and highest of all ranks in slots of time. Return the number of lines. */
static int slots_collect(const struct readings *readings, const struct sensor_chart *sensor,
                         struct chart_series *series)
{
    static const char *const names[] = {"mean of the ranks", "lowest", "highest"};
    const int column = table_column(readings->table, sensor->column);
    double lowest[SLOTS], highest[SLOTS], sum[SLOTS] = {0}, end = 0;
    int64_t count[SLOTS] = {0};
    for (int64_t row = 0; row < readings->table->rows; row++)
        end = fmax(end, readings->times[row]);
    for (int64_t row = 0; row < readings->table->rows; row++) {
        const double value = table_number(readings->table, row, column) * sensor->scale;
        if (isnan(value) || isnan(readings->times[row]))
            continue;
        const double position = end > 0 ? readings->times[row] / end : 0;
        const int slot = position >= 1 ? SLOTS - 1 : (int)(position * SLOTS);
        lowest[slot] = count[slot] == 0 ? value : fmin(lowest[slot], value);
        highest[slot] = count[slot] == 0 ? value : fmax(highest[slot], value);
        sum[slot] += value;
        count[slot]++;
    }
    for (int i = 0; i < 3; i++) {
        series_open(&series[i], SLOTS);
        series[i].name = names[i];
        series[i].colour = 1;
        series[i].dashed = series[i].thin = i > 0;
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        const double x = (slot + 0.5) / SLOTS * end;
        if (count[slot] == 0)
            continue;
        series_add(&series[0], x, sum[slot] / (double)count[slot]);
        series_add(&series[1], x, lowest[slot]);
        series_add(&series[2], x, highest[slot]);
    }
    return 3;
}

static void sensor_draw(const struct page *page, int run, const struct readings *readings,
                        const struct sensor_chart *sensor)
{
    struct chart_series series[LINES_MOST];
    char names[LINES_MOST][SERIES_NAME], id[64];
    const int count = readings->rank_count <= LINES_MOST
                          ? ranks_collect(readings, sensor, series, names)
                          : slots_collect(readings, sensor, series);
    const struct chart chart = {
        .title = sensor->title,
        .x = {.label = readings->unit.label, .from_zero = true},
        .y = {.label = sensor->label, .from_zero = sensor->from_zero, .most = sensor->most},
        .series_count = count,
        .series = series};
    if (count > 0 && series[0].count > 0) {
        snprintf(id, sizeof id, "sensor-%s-%c", sensor->column, html_letter(run));
        figure_write(page, id, &chart, &small, false);
    }
    for (int i = 0; i < count; i++)
        series_free(&series[i]);
}

void html_hardware(const struct page *page)
{
    struct readings readings;
    for (int run = 0; run < page->count; run++) {
        html_run_title(page, run);
        if (page->records[run].monitor.rows == 0) {
            fputs("<p>Unknown: monitor.csv is missing or has no rows.</p>\n", page->stream);
            continue;
        }
        readings_open(&readings, &page->records[run].monitor);
        fputs("<div class=\"charts\">\n", page->stream);
        for (size_t i = 0; i < sizeof sensor_charts / sizeof sensor_charts[0]; i++)
            sensor_draw(page, run, &readings, &sensor_charts[i]);
        fputs("</div>\n", page->stream);
        free(readings.times);
        free(readings.ranks);
    }
}
