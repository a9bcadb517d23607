// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/run_tables.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/sensors.h"
#include "core/text.h"
#include "tools/report/logbook.h"

enum { CLASSES_MOST = 60, UNITS_MOST = 400, RANKS_MOST = 256 };

const char *run_table_words(const char *name, const char *ending, char words[64])
{
    const size_t length = strlen(name) - (text_ends_with(name, ending) ? strlen(ending) : 0);
    snprintf(words, 64, "%.*s", (int)length, name);
    for (char *at = words; *at != '\0'; at++)
        *at = (char)(*at == '_' ? ' ' : *at);
    return words;
}

/* ---- quality */

static void split_add(struct sheet *sheet, const char *name, const json_t *split,
                      const char *measured)
{
    static const char *const averages[] = {"precision", "recall", "f1", "specificity"};
    if (split == NULL)
        return;
    sheet_text(sheet, name);
    sheet_figure(sheet, FIGURE_COUNT, json_number_of(split, "samples"));
    sheet_figure(sheet, FIGURE_NUMBER, json_number_of(split, "loss"));
    sheet_figure(sheet, FIGURE_SHARE, json_number_of(split, "top1"));
    sheet_figure(sheet, FIGURE_SHARE, json_number_of(split, "top5"));
    for (int i = 0; i < 4; i++)
        sheet_figure(sheet, FIGURE_SHARE,
                     json_number_of(json_object_get(split, "macro"), averages[i]));
    sheet_text(sheet, measured);
}

/* "Best validation top1: 52.78 %, at step 1,960." */
static void best_write(struct sheet *sheet, const struct record *record)
{
    const char *monitor = record_text(record, "best.monitor");
    const bool share = monitor != NULL && strncmp(monitor, "top", 3) == 0;
    char value[FORMAT_TEXT], step[FORMAT_TEXT];
    format_figure(value, share ? FIGURE_SHARE : FIGURE_NUMBER, record_number(record, "best.value"));
    format_figure(step, FIGURE_COUNT, record_number(record, "best.step"));
    snprintf(sheet->note, sizeof sheet->note, "Best validation %.40s: %.20s, at step %.20s.",
             monitor != NULL ? monitor : "value", value, step);
}

void run_table_splits(struct sheet *sheet, const struct record *record)
{
    const json_t *test = json_object_get(record->result, "test");
    const char *weights = json_text_of(test, "weights");
    char measured[96];

    sheet->title = "Quality by split";
    sheet->class = "ranks";
    sheet_column(sheet, "split", SHEET_TEXT);
    sheet_columns(sheet, SHEET_NUMBER, "samples", "loss", "top-1", "top-5", "precision",
                  "macro recall", "macro F1", "specificity", NULL);
    sheet_column(sheet, "measured", SHEET_TEXT);
    split_add(sheet, "training", json_object_get(record->result, "train"),
              "in the last epoch, during training");
    if (json_object_get(record->result, "samples") != NULL)
        split_add(sheet, "validation", record->result, "at the end");
    snprintf(measured, sizeof measured, "with the %s weights, of step %.0f",
             weights != NULL ? weights : "?", json_number_of(test, "step"));
    split_add(sheet, "test", test, measured);
    if (!isnan(record_number(record, "best.value")))
        best_write(sheet, record);
}

struct ranked {
    double f1;
    size_t class;
};

static int ranked_compare(const void *one, const void *other)
{
    const struct ranked *left = one, *right = other;
    if (left->f1 != right->f1)
        return (left->f1 > right->f1) - (left->f1 < right->f1);
    return (left->class > right->class) - (left->class < right->class);
}

void run_table_classes(struct sheet *sheet, const struct record *record)
{
    const bool tested = record_value(record, "test.classes") != NULL;
    const bool has_iou = record_value(record, tested ? "test.miou" : "miou") != NULL;
    const bool has_precision = record_value(record, tested ? "test.map" : "map") != NULL;
    const char *const keys[] = {"f1",
                                "recall",
                                "precision",
                                "specificity",
                                "one_vs_rest_accuracy",
                                has_iou ? "iou" : "average_precision"};
    const json_t *classes = record_value(record, tested ? "test.classes" : "classes");
    const json_t *matrix =
        record_value(record, tested ? "test.confusion_matrix" : "confusion_matrix");
    const size_t count = json_array_size(classes);
    struct ranked *order = allocate(count + 1, sizeof *order);

    sheet->title = tested ? "Classes (test split)" : "Classes";
    sheet->class = "classes";
    sheet_column(sheet, "class", SHEET_TEXT);
    sheet_column(sheet, "F1", SHEET_SHARE);
    for (int i = 1; i < 5; i++)
        sheet_column(sheet, i < 4 ? keys[i] : "one-vs-rest accuracy", SHEET_NUMBER);
    if (has_iou || has_precision)
        sheet_column(sheet, has_iou ? "IoU" : "average precision", SHEET_SHARE);
    sheet_column(sheet, has_iou ? "pixels" : "images", SHEET_NUMBER);
    for (size_t i = 0; i < count; i++)
        order[i] = (struct ranked){json_number_of(json_array_get(classes, i), "f1"), i};
    if (count > CLASSES_MOST) {
        qsort(order, count, sizeof *order, ranked_compare);
        snprintf(sheet->note, sizeof sheet->note, "The %d of %zu classes with the lowest F1.",
                 CLASSES_MOST, count);
    }
    for (size_t i = 0; i < count && i < CLASSES_MOST; i++) {
        const json_t *class = json_array_get(classes, order[i].class);
        const json_t *row = json_array_get(matrix, order[i].class);
        const char *name = json_text_of(class, "name");
        double images = json_is_array(row) ? 0 : NAN;
        for (size_t k = 0; k < json_array_size(row); k++)
            images += json_number_value(json_array_get(row, k));
        sheet_text(sheet, name == NULL ? "?" : name);
        for (int k = 0; k < 5 + (has_iou || has_precision); k++)
            sheet_figure(sheet, FIGURE_SHARE, record_class_metric(class, keys[k]));
        sheet_figure(sheet, FIGURE_COUNT, images);
    }
    free(order);
}

void run_table_outputs(struct sheet *sheet, const struct record *record)
{
    static const char *const keys[] = {"rmse",           "mae", "bias", "r2", "persistence_rmse",
                                       "persistence_mae"};
    const bool tested = record_value(record, "test.outputs") != NULL;
    const json_t *outputs = record_value(record, tested ? "test.outputs" : "outputs");

    sheet->title = tested ? "Outputs (test split)" : "Outputs";
    sheet->class = "classes";
    sheet_column(sheet, "output", SHEET_TEXT);
    sheet_columns(sheet, SHEET_NUMBER, "RMSE", "MAE", "bias", "R2", "persistence RMSE",
                  "persistence MAE", "RMSE / persistence", NULL);
    for (size_t i = 0; i < json_array_size(outputs); i++) {
        const json_t *output = json_array_get(outputs, i);
        const char *name = json_text_of(output, "name");
        sheet_text(sheet, name == NULL ? "?" : name);
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            sheet_figure(sheet, FIGURE_NUMBER, json_number_of(output, keys[k]));
        const double persistence = json_number_of(output, "persistence_rmse");
        sheet_figure(sheet, FIGURE_NUMBER,
                     persistence > 0 ? json_number_of(output, "rmse") / persistence : (double)NAN);
    }
}

/* ---- units and ranks */

void run_table_units(struct sheet *sheet, const struct record *record)
{
    const struct table *units = &record->units;
    char words[64];

    sheet->title = "Units of the model";
    sheet->class = "facts";
    if (units->rows > UNITS_MOST)
        return;
    sheet_column(sheet, "unit", SHEET_TEXT);
    sheet_columns(sheet, SHEET_NUMBER, "parameters", "planned memory", NULL);
    for (int i = 0; i < units->columns; i++)
        if (text_ends_with(units->names[i], "_seconds"))
            sheet_column(sheet, run_table_words(units->names[i], "_seconds", words), SHEET_NUMBER);
    for (int64_t row = 0; row < units->rows; row++) {
        double bytes = NAN;
        for (int i = 0; i < units->columns; i++)
            if (text_ends_with(units->names[i], "_bytes"))
                bytes = (isnan(bytes) ? 0 : bytes) + table_number(units, row, i);
        sheet_text(sheet, table_text_at(units, row, "unit"));
        sheet_figure(sheet, FIGURE_COUNT, table_number_at(units, row, "parameters"));
        sheet_figure(sheet, FIGURE_BYTES, bytes);
        for (int i = 0; i < units->columns; i++)
            if (text_ends_with(units->names[i], "_seconds"))
                sheet_figure(sheet, FIGURE_SECONDS, table_number(units, row, i));
    }
}

static enum figure figure_of(const char *column)
{
    static const struct {
        const char *part;
        enum figure figure;
    } parts[] = {{"_bytes", FIGURE_BYTES}, {"seconds", FIGURE_SECONDS}, {"_share", FIGURE_SHARE},
                 {"_busy", FIGURE_SHARE},  {"_power", FIGURE_WATTS},    {"steps", FIGURE_COUNT}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(column, parts[i].part) != NULL)
            return parts[i].figure;
    return FIGURE_TEXT;
}

/* Return the heading of a column of ranks.csv. */
static const char *rank_heading(const char *column, char words[64])
{
    static const char *const names[][2] = {{"part", "attempt"},
                                           {"planned_bytes", "planned memory"},
                                           {"peak_bytes", "peak memory"},
                                           {"user_seconds", "user CPU time"},
                                           {"system_seconds", "system CPU time"},
                                           {"seconds", "training time"},
                                           {"data_seconds", "waiting for data"},
                                           {"exposed_comm_seconds", "waiting for communication"},
                                           {"gpu_busy_mean", "GPU utilization"},
                                           {"gpu_busy_max", "highest GPU utilization"},
                                           {"gpu_power_mean", "GPU power"},
                                           {"gpu_power_max", "highest GPU power"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(column, names[i][0]) == 0)
            return names[i][1];
    return run_table_words(column, "_seconds", words);
}

void run_table_ranks(struct sheet *sheet, const struct record *record)
{
    const struct table *ranks = &record->ranks;
    int *columns = allocate((size_t)ranks->columns + 1, sizeof *columns);
    char words[64];

    sheet->title = "Ranks";
    sheet->class = "ranks";
    for (int i = 0; i < ranks->columns; i++) {
        bool empty = true;
        for (int64_t row = 0; empty && row < ranks->rows; row++)
            empty = table_text(ranks, row, i)[0] == '\0';
        if (empty)
            continue;
        const bool number = !isnan(table_number(ranks, 0, i));
        columns[sheet->columns] = i;
        sheet_column(sheet, rank_heading(ranks->names[i], words),
                     number ? SHEET_NUMBER : SHEET_TEXT);
    }
    for (int64_t row = 0; row < ranks->rows && row < RANKS_MOST; row++)
        for (int i = 0; i < sheet->columns; i++) {
            const enum figure figure = figure_of(ranks->names[columns[i]]);
            if (figure == FIGURE_TEXT)
                sheet_text(sheet, table_text(ranks, row, columns[i]));
            else
                sheet_figure(sheet, figure, table_number(ranks, row, columns[i]));
        }
    if (ranks->rows > RANKS_MOST)
        snprintf(sheet->note, sizeof sheet->note, "The first %d of %lld rows of ranks.csv.",
                 RANKS_MOST, (long long)ranks->rows);
    free(columns);
}

/* ---- sensors */

void run_table_sensors(struct sheet *sheet, const struct record *record)
{
    static const struct {
        const char *key, *words;
    } kinds[] = {[SENSOR_LEVEL] = {"mean", "mean"},
                 [SENSOR_PEAK] = {"max", "maximum"},
                 [SENSOR_LEAST] = {"min", "minimum"}};
    sheet->title = "Utilization, power and energy";
    sheet->class = "facts";
    sheet_columns(sheet, SHEET_TEXT, "sensor", "", NULL);
    sheet_columns(sheet, SHEET_NUMBER, "value", "maximum", NULL);
    sheet_column(sheet, "unit", SHEET_TEXT);
    for (int i = 0; i < SENSOR_COUNT; i++) {
        const struct sensor_column *sensor = &sensor_columns[i];
        char path[96];
        snprintf(path, sizeof path, "sensors.%s.%s", sensor->name, kinds[sensor->kind].key);
        double value = record_number(record, path);
        snprintf(path, sizeof path, "sensors.%s.max", sensor->name);
        double most = sensor->kind == SENSOR_LEVEL ? record_number(record, path) : NAN;
        /* An interrupted run has no summary: use the rows of all ranks. */
        const struct column_facts facts = table_facts(&record->monitor, sensor->name);
        if (record->result == NULL && sensor->kind == SENSOR_LEVEL) {
            value = facts.mean;
            most = facts.most;
        } else if (record->result == NULL && sensor->kind == SENSOR_PEAK) {
            value = facts.most;
        }
        if (isnan(value))
            continue;
        sheet_text(sheet, sensor->name);
        sheet_text(sheet, kinds[sensor->kind].words);
        lines_add(&sheet->cells, "%.5g", value / sensor->scale);
        if (isnan(most))
            sheet_text(sheet, "");
        else
            lines_add(&sheet->cells, "%.5g", most / sensor->scale);
        sheet_text(sheet, sensor->shown);
    }
}

/* ---- how it was run */

/* Add a cell with the texts of an array, separated by commas. */
static void list_add(struct sheet *sheet, const json_t *array)
{
    char text[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(array) && used < sizeof text; i++) {
        const char *item = json_string_value(json_array_get(array, i));
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : "",
                                 item != NULL ? item : "?");
    }
    sheet_text(sheet, text);
}

void run_table_attempts(struct sheet *sheet, const struct record *record)
{
    const json_t *attempts = record_value(record, "parts");
    char text[FORMAT_TEXT];

    sheet->title = "Attempts";
    sheet->class = "facts";
    sheet_columns(sheet, SHEET_TEXT, "attempt", "started", "ended", "steps", "ranks", "hosts",
                  "devices", "set-up", "outcome", NULL);
    sheet_column(sheet, "command", SHEET_CODE);
    for (size_t i = 0; i < json_array_size(attempts); i++) {
        const json_t *attempt = json_array_get(attempts, i);
        const char *failure = json_text_of(attempt, "error"),
                   *reason = json_text_of(attempt, "stop_reason");
        const double end = json_number_of(attempt, "to_step");
        lines_add(&sheet->cells, "%zu", i + 1);
        sheet_text(sheet, format_stamp(text, json_text_of(attempt, "started")));
        sheet_text(sheet, format_stamp(text, json_text_of(attempt, "ended")));
        lines_add(&sheet->cells, isnan(end) ? "%.0f to ?" : "%.0f to %.0f",
                  fmax(json_number_of(attempt, "from_step"), 0), end);
        sheet_figure(sheet, FIGURE_COUNT, json_number_of(attempt, "ranks"));
        list_add(sheet, json_object_get(attempt, "hosts"));
        list_add(sheet, json_object_get(attempt, "devices"));
        sheet_figure(sheet, FIGURE_SECONDS, json_number_of(attempt, "setup_seconds"));
        sheet_text(sheet, failure != NULL                     ? failure
                          : reason != NULL                    ? reason
                          : i + 1 < json_array_size(attempts) ? "interrupted"
                                                              : record_status(record));
        sheet_text(sheet, json_text_of(attempt, "command"));
    }
}

void run_table_deck(struct sheet *sheet, const struct record *record)
{
    sheet->title = "Options that differ from their defaults";
    sheet->class = "decks";
    sheet_columns(sheet, SHEET_CODE, "option", "value", "default", NULL);
    for (int i = 0; i < record->setting_count; i++) {
        const struct record_setting *setting = record->settings[i];
        sheet_text(sheet, setting->key);
        sheet_text(sheet, setting->value);
        sheet_text(sheet, setting->preset == NULL ? "(unknown option)" : setting->preset);
    }
}

void run_table_found(struct sheet *sheet, const struct record *record, const char *logbook)
{
    static const char *const keys[] = {"value", "global_batch", "peak_bytes", "limit",
                                       "date",  "host",         "detail"};
    static const char *const searches[][2] = {{"batch", "largest batch per rank (find batch)"},
                                              {"lr", "learning rate (find lr)"}};
    char path[4096 + 32];
    struct table table;
    struct error ignored = {.kind = ERROR_NONE};

    sheet->title = "Results of searches";
    sheet->class = "facts";
    sheet_columns(sheet, SHEET_TEXT, "search", "found", "global batch", "peak bytes",
                  "bytes available", "date", "host", "detail", NULL);
    snprintf(path, sizeof path, "%s/found.csv", logbook);
    if (!table_read(&table, path, &ignored))
        return;
    for (int i = 0; i < 2; i++) {
        const int64_t row = found_newest(&table, searches[i][0], record);
        if (row < 0)
            continue;
        sheet_text(sheet, searches[i][1]);
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            sheet_text(sheet, table_text_at(&table, row, keys[k]));
    }
    table_free(&table);
}
