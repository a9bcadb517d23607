// SPDX-License-Identifier: BSD-3-Clause
/* The readings of the sensors over time, from monitor.csv. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report/format.h"
#include "tools/report/html_figure.h"

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

static void readings_open(struct readings *readings, const struct table *table)
{
    const int time = table_column(table, "time"), rank = table_column(table, "rank");
    double first = INFINITY, last = -INFINITY;
    *readings = (struct readings){.table = table};
    readings->times = allocate((size_t)table->rows + 1, sizeof *readings->times);
    readings->ranks = allocate((size_t)table->rows + 1, sizeof *readings->ranks);
    for (int64_t row = 0; row < table->rows; row++) {
        const double number = table_number(table, row, rank);
        readings->times[row] = format_stamp_seconds(table_text(table, row, time));
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
        snprintf(id, sizeof id, "sensor-%s-%s", sensor->column, html_letters(run).text);
        figure_write(page, id, &chart, FIGURE_SMALL, false);
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
