/* Charts over the course of a run: the curves of training, and the readings of the sensors. Each is
 * an SVG in a data URL, so the page is self-contained. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report/chart.h"
#include "report/escape.h"
#include "report/html.h"

enum { CHART_WIDTH = 400, CURVE_HEIGHT = 240, SENSOR_HEIGHT = 195, SERIES_NAME = 24 };

static const char no_cairo[] = "<p>No charts: vittrain was built without Cairo.</p>\n";

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

/* Write a figure with the chart and, for browsers that read pages aloud, a description. */
static void chart_write(FILE *stream, const char *id, const char *title, const struct chart *chart,
                        int height)
{
    struct chart_frame frame;
    char *svg = chart_svg(chart, CHART_WIDTH, height, &frame);

    fprintf(stream, "<figure><figcaption>%s</figcaption><img class=\"chart\" id=\"%s\" ", title,
            id);
    fprintf(stream,
            "width=\"%d\" height=\"%d\" data-frame=\"%.2f %.2f %.2f %.2f\" "
            "data-range=\"%.9g %.9g %.9g %.9g\" alt=\"%s from %.4g to %.4g, %s from %.4g to %.4g.",
            CHART_WIDTH, height, frame.left, frame.top, frame.right, frame.bottom, frame.x_least,
            frame.x_most, frame.y_least, frame.y_most, chart->x.label, frame.x_least, frame.x_most,
            chart->y.label == NULL ? "y" : chart->y.label, frame.y_least, frame.y_most);
    for (int i = 0; i < chart->series_count; i++) {
        const struct chart_series *series = &chart->series[i];
        int64_t last = series->count;
        while (last > 0 && isnan(series->y[last - 1]))
            last--;
        if (series->name != NULL && last > 0)
            fprintf(stream, " %s: %lld points, last %.4g.", series->name, (long long)series->count,
                    series->y[last - 1]);
    }
    fputs("\" src=\"data:image/svg+xml,", stream);
    for (const char *at = svg; *at != '\0'; at++)
        if (strchr("\"#%&<>\n", *at) != NULL)
            fprintf(stream, "%%%02X", (unsigned)(unsigned char)*at);
        else
            fputc(*at, stream);
    fputs("\"></figure>\n", stream);
    free(svg);
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

/* ---- curves of metrics.csv */

static const struct measure {
    const char *id, *title, *label, *column;
    double scale;
    const char *whole; /* the value is divided by this column; NULL: by nothing */
    bool over_time, evaluated, from_zero;
    enum chart_scale axis;
} measures[] = {
    {"loss-steps", "Loss", "nats", "loss", 1, .evaluated = true},
    {"accuracy-steps", "Top-1 accuracy", "%", "top1", 100, .evaluated = true},
    {"rate-steps", "Learning rate", NULL, "lr", 1, .from_zero = true},
    {"loss-time", "Loss over time", "nats", "loss", 1, .over_time = true, .evaluated = true},
    {"accuracy-time", "Top-1 accuracy over time", "%", "top1", 100, .over_time = true,
     .evaluated = true},
    {"speed-time", "Images per second", "1/s", "images_per_second", 1, .over_time = true,
     .from_zero = true},
    {"gradient-steps", "Gradient norm", NULL, "grad_norm", 1, .axis = CHART_LOG},
    {"data-steps", "Waiting for data", "% of the step", "data_seconds", 100, "step_seconds",
     .from_zero = true},
    {"waiting-steps", "Waiting for communication", "% of the step", "exposed_comm_seconds", 100,
     "step_seconds", .from_zero = true},
    {"peak-steps", "MFU", "%", "peak_share", 100, .from_zero = true},
};

/* With more runs, the legend names the runs only, and validation is known by its dashes. */
enum { SPLITS_NAMED_MOST = 3 };

/* Read the points of one split of a run. */
static void points_read(const struct table *metrics, const struct measure *measure,
                        const char *split, double time_unit, struct chart_series *series)
{
    const int splits = table_column(metrics, "split"), of = table_column(metrics, measure->column);
    const int at = table_column(metrics, measure->over_time ? "elapsed_seconds" : "step");
    const int whole = measure->whole == NULL ? -1 : table_column(metrics, measure->whole);
    series_open(series, metrics->rows);
    for (int64_t row = 0; row < metrics->rows; row++) {
        if (strcmp(table_text(metrics, row, splits), split) != 0 ||
            table_text(metrics, row, of)[0] == '\0')
            continue;
        const double unit = measure->over_time ? time_unit : 1;
        const double of_whole = measure->whole != NULL ? table_number(metrics, row, whole) : 1;
        series_add(series, table_number(metrics, row, at) / unit,
                   table_number(metrics, row, of) * measure->scale / of_whole);
    }
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
            if (next->count == 0) {
                series_free(next);
                continue;
            }
            next->dashed = k == 1;
            next->colour = page->count == 1 ? k + 1 : run + 1;
            names[count][0] = '\0';
            if (page->count == 1)
                snprintf(names[count], SERIES_NAME, "%s", measure->evaluated ? split : "");
            else if (page->count <= SPLITS_NAMED_MOST && measure->evaluated)
                snprintf(names[count], SERIES_NAME, "%c %s", html_letter(run), split);
            else if (k == 0)
                snprintf(names[count], SERIES_NAME, "%c", html_letter(run));
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

static bool measure_draw(const struct page *page, const struct measure *measure,
                         struct time_unit time_unit)
{
    struct chart_series series[2 * HTML_RUNS_MOST];
    char names[2 * HTML_RUNS_MOST][SERIES_NAME];
    const int count = series_collect(page, measure, time_unit.seconds, series, names);
    for (int i = 0; i < count; i++)
        for (int k = i + 1; k < count; k++)
            series[i].covered += series_coincide(&series[i], &series[k]);
    if (count > 0) {
        const struct chart chart = {
            .x = {.label = measure->over_time ? time_unit.label : "step", .from_zero = true},
            .y = {.label = measure->label, .scale = measure->axis, .from_zero = measure->from_zero},
            .series_count = count,
            .series = series};
        chart_write(page->stream, measure->id, measure->title, &chart, CURVE_HEIGHT);
    }
    for (int i = 0; i < count; i++)
        series_free(&series[i]);
    return count > 0;
}

void html_curves(const struct page *page)
{
    double longest = 0;
    int drawn = 0;
    for (int i = 0; i < page->count; i++)
        longest = fmax(longest, table_facts(&page->records[i].metrics, "elapsed_seconds").most);
    if (page->count > SPLITS_NAMED_MOST)
        fputs("<p class=\"note\">Dashed: validation.</p>\n", page->stream);
    fputs(chart_available ? "" : no_cairo, page->stream);
    fputs("<div class=\"charts\">\n", page->stream);
    for (size_t i = 0; chart_available && i < sizeof measures / sizeof measures[0]; i++)
        drawn += measure_draw(page, &measures[i], time_unit_of(longest));
    fputs("</div>\n", page->stream);
    if (chart_available && drawn == 0)
        fputs("<p>None: metrics.csv is missing or has no rows.</p>\n", page->stream);
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
        .x = {.label = readings->unit.label, .from_zero = true},
        .y = {.label = sensor->label, .from_zero = sensor->from_zero, .most = sensor->most},
        .series_count = count,
        .series = series};
    if (count > 0 && series[0].count > 0) {
        snprintf(id, sizeof id, "sensor-%s-%c", sensor->column, html_letter(run));
        chart_write(page->stream, id, sensor->title, &chart, SENSOR_HEIGHT);
    }
    for (int i = 0; i < count; i++)
        series_free(&series[i]);
}

void html_hardware(const struct page *page)
{
    struct readings readings;
    fputs(chart_available ? "" : no_cairo, page->stream);
    for (int run = 0; chart_available && run < page->count; run++) {
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
