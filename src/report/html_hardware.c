/* What the sensors read while a run went on: a chart a sensor, a line a rank. Of many ranks the
 * lowest, the mean and the highest. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report/chart.h"
#include "report/html.h"

enum { CHART_WIDTH = 400, CHART_HEIGHT = 210, LINES_MOST = 8, SLOTS = 200, NAME = 24 };

static const struct sensor_chart {
    const char *column, *title, *label;
    double scale;
    bool from_zero;
    double most; /* of the axis, from 0; 0: by what was read */
} sensor_charts[] = {
    {"gpu_busy", "GPU busy", "%", 100, true, 100},
    {"gpu_power", "GPU power", "W", 1, true, 0},
    {"gpu_temperature", "GPU temperature", "\u00b0C", 1, false, 0},
    {"gpu_memory_used_bytes", "GPU memory used", "GiB", 1.0 / (1 << 30), true, 0},
    {"gpu_sm_clock", "GPU clock", "MHz", 1, false, 0},
    {"cores_busy", "Processor cores busy", "%", 100, true, 100},
    {"process_cores", "Cores that the rank used", "cores", 1, true, 0},
    {"cpu_power", "Processor power", "W", 1, true, 0},
    {"cpu_temperature", "Processor temperature", "\u00b0C", 1, false, 0},
    {"resident_bytes", "Memory of the rank's process", "MiB", 1.0 / (1 << 20), true, 0},
};
enum { CHARTS = sizeof sensor_charts / sizeof sensor_charts[0] };

/* The monitor's rows, understood once. */
struct readings {
    const struct table *table;
    double *times; /* [rows], since the first reading of any rank, in units */
    struct time_unit unit;
    int *ranks;     /* [rows] */
    int rank_count; /* one more than the highest */
};

/* 2026-11-22T00:02:47.515Z in seconds; NAN: no such time. */
static double time_read(const char *text)
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
        readings->times[row] = time_read(table_text(table, row, time));
        readings->ranks[row] = number >= 0 && number < 1 << 24 ? (int)number : 0;
        if (readings->ranks[row] >= readings->rank_count)
            readings->rank_count = readings->ranks[row] + 1;
        first = fmin(first, readings->times[row]);
        last = fmax(last, readings->times[row]);
    }
    readings->unit = html_time_unit(last - first);
    for (int64_t row = 0; row < table->rows; row++)
        readings->times[row] = (readings->times[row] - first) / readings->unit.seconds;
}

static void readings_close(struct readings *readings)
{
    free(readings->times);
    free(readings->ranks);
}

/* Some points, owned. */
struct points {
    int64_t count;
    double *x, *y;
};

static void points_open(struct points *points, int64_t most)
{
    *points = (struct points){.x = calloc((size_t)most + 1, sizeof(double)),
                              .y = calloc((size_t)most + 1, sizeof(double))};
    ENSURE(points->x != NULL && points->y != NULL, "no memory for a chart");
}

/* Between two parts of a run the line is broken. */
static void points_add(struct points *points, double x, double y)
{
    const int64_t last = points->count - 1;
    if (last > 0 && x - points->x[last] > 10 * (points->x[last] - points->x[last - 1]) &&
        !isnan(points->y[last])) {
        points->x[points->count] = x;
        points->y[points->count++] = NAN;
    }
    points->x[points->count] = x;
    points->y[points->count++] = y;
}

static void rank_points(const struct readings *readings, const struct sensor_chart *sensor,
                        int rank, struct points *points)
{
    const int column = table_column(readings->table, sensor->column);
    points_open(points, 2 * readings->table->rows);
    for (int64_t row = 0; row < readings->table->rows; row++) {
        const double value = table_number(readings->table, row, column);
        if (readings->ranks[row] == rank && !isnan(value) && !isnan(readings->times[row]))
            points_add(points, readings->times[row], value * sensor->scale);
    }
}

/* Lowest, mean and highest of all ranks in slots of time. */
static void slot_points(const struct readings *readings, const struct sensor_chart *sensor,
                        struct points *points)
{
    const int column = table_column(readings->table, sensor->column);
    double lowest[SLOTS], highest[SLOTS], sum[SLOTS] = {0}, most = 0;
    int64_t count[SLOTS] = {0};
    for (int64_t row = 0; row < readings->table->rows; row++)
        most = fmax(most, readings->times[row]);
    for (int64_t row = 0; row < readings->table->rows; row++) {
        const double value = table_number(readings->table, row, column) * sensor->scale;
        if (isnan(value) || isnan(readings->times[row]))
            continue;
        const double share = most > 0 ? readings->times[row] / most : 0;
        const int slot = share >= 1 ? SLOTS - 1 : (int)(share * SLOTS);
        lowest[slot] = count[slot] == 0 ? value : fmin(lowest[slot], value);
        highest[slot] = count[slot] == 0 ? value : fmax(highest[slot], value);
        sum[slot] += value;
        count[slot]++;
    }
    for (int i = 0; i < 3; i++)
        points_open(&points[i], SLOTS);
    for (int slot = 0; slot < SLOTS; slot++) {
        const double values[] = {sum[slot] / (double)count[slot], lowest[slot], highest[slot]};
        for (int i = 0; i < 3 && count[slot] > 0; i++) {
            points[i].x[points[i].count] = (slot + 0.5) / SLOTS * most;
            points[i].y[points[i].count++] = values[i];
        }
    }
}

static void sensor_draw(const struct page *page, int run, const struct readings *readings,
                        const struct sensor_chart *sensor)
{
    static const char *const of_all[] = {"mean of the ranks", "lowest", "highest"};
    const bool each = readings->rank_count <= LINES_MOST;
    const int count = each ? readings->rank_count : 3;
    struct points points[LINES_MOST];
    struct chart_series series[LINES_MOST];
    char names[LINES_MOST][NAME], id[64];
    int drawn = 0;

    if (!each)
        slot_points(readings, sensor, points);
    for (int i = 0; i < count; i++) {
        if (each)
            rank_points(readings, sensor, i, &points[i]);
        snprintf(names[i], NAME, "rank %d", i);
        if (points[i].count == 0)
            continue; /* as of a sensor that only a node's first rank reads */
        series[drawn++] = (struct chart_series){.name = each ? names[i] : of_all[i],
                                                .x = points[i].x,
                                                .y = points[i].y,
                                                .count = points[i].count,
                                                .colour = each ? i + 1 : 1,
                                                .dashed = each ? i % 2 == 1 : i > 0,
                                                .thin = !each && i > 0};
    }
    if (drawn > 0) {
        snprintf(id, sizeof id, "sensor-%s-%c", sensor->column, html_letter(run));
        fputs("<figure>", page->stream);
        chart_svg_write(
            &(struct chart){
                .title = sensor->title,
                .id = id,
                .x = {.label = readings->unit.label, .from_zero = true},
                .y = {.label = sensor->label, .from_zero = sensor->from_zero, .most = sensor->most},
                .series_count = drawn,
                .series = series},
            page->stream, CHART_WIDTH, CHART_HEIGHT);
        fputs("</figure>\n", page->stream);
    }
    for (int i = 0; i < count; i++) {
        free(points[i].x);
        free(points[i].y);
    }
}

void html_hardware(const struct page *page)
{
    struct readings readings;
    html_section(page, "hardware", "Hardware over time");
    for (int run = 0; run < page->count; run++) {
        html_run_title(page, run);
        if (page->records[run].monitor.rows == 0) {
            fputs("<p>Not known: there is no monitor.csv with rows in it.</p>\n", page->stream);
            continue;
        }
        readings_open(&readings, &page->records[run].monitor);
        fputs("<div class=\"charts\">\n", page->stream);
        for (int i = 0; i < CHARTS; i++)
            sensor_draw(page, run, &readings, &sensor_charts[i]);
        fputs("</div>\n", page->stream);
        readings_close(&readings);
    }
    html_section_end(page);
}
