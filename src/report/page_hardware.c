/* What a run took of its machines: memory and processor time by rank, sensors, nvidia-smi's table.
 */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/sensors.h"
#include "core/text.h"
#include "report/markdown.h"
#include "report/marked.h"
#include "report/page.h"

enum { RANKS_MOST = 256 };

/* ---- ranks */

static const char *rank_share(const struct table *ranks, int64_t row, const char *name)
{
    double seconds = table_number(ranks, row, table_column(ranks, "seconds"));
    return page_figure(FIGURE_SHARE, table_number(ranks, row, table_column(ranks, name)) / seconds);
}

static void rank_write(FILE *stream, const struct table *ranks, int64_t row)
{
#define TEXT(name) table_text(ranks, row, table_column(ranks, name))
#define NUMBER(name) table_number(ranks, row, table_column(ranks, name))
    const char *const cells[] = {TEXT("part"),
                                 TEXT("rank"),
                                 TEXT("host"),
                                 page_figure(FIGURE_BYTES, NUMBER("planned_bytes")),
                                 page_figure(FIGURE_BYTES, NUMBER("peak_bytes")),
                                 page_number("%.2f s", NUMBER("user_seconds")),
                                 page_number("%.2f s", NUMBER("system_seconds")),
                                 rank_share(ranks, row, "data_seconds"),
                                 rank_share(ranks, row, "exposed_comm_seconds"),
                                 page_figure(FIGURE_SHARE, NUMBER("gpu_busy_mean")),
                                 page_figure(FIGURE_SHARE, NUMBER("gpu_busy_max")),
                                 page_number("%.1f W", NUMBER("gpu_power_mean")),
                                 page_number("%.1f W", NUMBER("gpu_power_max"))};
#undef TEXT
#undef NUMBER
    markdown_row(stream, sizeof cells / sizeof cells[0], cells);
}

static void ranks_write(FILE *stream, const struct record *record)
{
    static const char *const head[] = {"part",
                                       "rank",
                                       "host",
                                       "planned",
                                       "peak",
                                       "CPU user",
                                       "CPU system",
                                       "waits for data",
                                       "waits for ranks",
                                       "GPU busy, mean",
                                       "most",
                                       "GPU power, mean",
                                       "most"};
    enum { COLUMNS = sizeof head / sizeof head[0] };
    const struct table *ranks = &record->ranks;
    if (ranks->rows == 0)
        return;
    fputs("\n## Ranks: memory and processor time\n\n", stream);
    markdown_row(stream, COLUMNS, head);
    fputs("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n", stream);
    for (int64_t row = 0; row < ranks->rows && row < RANKS_MOST; row++)
        rank_write(stream, ranks, row);
    if (ranks->rows > RANKS_MOST)
        fprintf(stream, "\n%lld more rows: see ranks.csv.\n",
                (long long)(ranks->rows - RANKS_MOST));
}

/* ---- sensors */

struct reading {
    double value, most;
};

/* From the result; of a run that has none, from the rows of all ranks. */
static struct reading reading_of(const struct record *record, const struct sensor_column *sensor)
{
    static const char *const keys[] = {[SENSOR_LEVEL] = "mean",
                                       [SENSOR_PEAK] = "max",
                                       [SENSOR_LEAST] = "min",
                                       [SENSOR_COUNTER] = "total",
                                       [SENSOR_DURATION] = "max"};
    struct reading reading = {NAN, NAN};
    char path[96];
    if (record->result != NULL) {
        snprintf(path, sizeof path, "sensors.%s.%s", sensor->name, keys[sensor->kind]);
        reading.value = record_number(record, path);
        snprintf(path, sizeof path, "sensors.%s.max", sensor->name);
        reading.most = sensor->kind == SENSOR_LEVEL ? record_number(record, path) : (double)NAN;
        return reading;
    }
    if (sensor->kind != SENSOR_LEVEL && sensor->kind != SENSOR_PEAK)
        return reading;
    const struct column_facts facts = table_facts(&record->monitor, sensor->name);
    reading.most = facts.most;
    reading.value = sensor->kind == SENSOR_PEAK ? facts.most : facts.mean;
    return reading;
}

static void energy_write(FILE *stream, const struct record *record)
{
    const char *of = record_text(record, "sensors.energy_of");
    markdown_pair(stream, "energy", "%s%s%s",
                  page_figure(FIGURE_WATT_HOURS, record_number(record, "sensors.energy_wh")),
                  of != NULL ? ", of " : "", of != NULL ? of : "");
    markdown_pair(stream, "images a joule", "%s",
                  page_number("%.4g", record_number(record, "sensors.images_per_joule")));
}

static void sensors_write(FILE *stream, const struct record *record)
{
    static const char *const head[] = {"sensor", "", "most", "unit"};
    static const char *const words[] = {
        [SENSOR_LEVEL] = "mean",     [SENSOR_PEAK] = "at most",     [SENSOR_LEAST] = "at least",
        [SENSOR_COUNTER] = "in all", [SENSOR_DURATION] = "at most", [SENSOR_STATE] = ""};
    if (json_is_object(record_value(record, "sensors")) || record->monitor.rows > 0) {
        fputs("\n## Utilisation, power and energy\n\n", stream);
        markdown_row(stream, 4, head);
        fputs("|---|---|---|---|\n", stream);
    }
    for (int i = 0; i < SENSOR_COUNT; i++) {
        const struct sensor_column *sensor = &sensor_columns[i];
        if (sensor->kind == SENSOR_STATE)
            continue;
        struct reading reading = reading_of(record, sensor);
        char value[96];
        if (isnan(reading.value))
            continue;
        snprintf(value, sizeof value, "%s %.5g", words[sensor->kind],
                 reading.value / sensor->scale);
        const char *const cells[] = {
            sensor->name, value,
            sensor->kind == SENSOR_LEVEL ? page_number("%.5g", reading.most / sensor->scale) : "",
            sensor->shown};
        markdown_row(stream, 4, cells);
    }
    if (record->result != NULL && !isnan(record_number(record, "sensors.energy_wh"))) {
        markdown_pairs_begin(stream, "Energy");
        energy_write(stream, record);
    }
}

/* ---- nvidia-smi */

static int name_compare(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void smi_write(FILE *stream, const struct record *record)
{
    struct lines names = {0};
    DIR *folder = opendir(record->path);
    for (struct dirent *one; folder != NULL && (one = readdir(folder)) != NULL;)
        if (strncmp(one->d_name, "nvidia-smi", 10) == 0 && text_ends_with(one->d_name, ".txt"))
            lines_add(&names, "%s", one->d_name);
    if (folder != NULL)
        closedir(folder);
    if (names.count > 0) {
        qsort(names.line, (size_t)names.count, sizeof *names.line, name_compare);
        fputs("\n## nvidia-smi, at about the middle of the run\n", stream);
    }
    for (int i = 0; i < names.count; i++) {
        char path[sizeof record->path + 300];
        snprintf(path, sizeof path, "%s/%s", record->path, names.line[i]);
        char *text = marked_read(path);
        if (text != NULL)
            markdown_block(stream, "text", text);
        free(text);
    }
    lines_free(&names);
}

void page_hardware_write(FILE *stream, const struct record *record)
{
    ranks_write(stream, record);
    sensors_write(stream, record);
    smi_write(stream, record);
}
