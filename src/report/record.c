/* Reads a run's folder. Whatever part of it is not there, or cannot be understood, costs its own
 * lines of what is made of the record and nothing else. */
#include "report/record.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/text.h"
#include "core/text_file.h"
#include "report/deck.h"
#include "report/trouble.h"

/* ---- lines of text */

void lines_add(struct lines *lines, const char *format, ...)
{
    va_list arguments;
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    ENSURE(stream != NULL, "no memory for a line of text");
    va_start(arguments, format);
    vfprintf(stream, format, arguments);
    va_end(arguments);
    ENSURE(fclose(stream) == 0, "no memory for a line of text");
    lines->line = realloc(lines->line, (size_t)(lines->count + 1) * sizeof *lines->line);
    ENSURE(lines->line != NULL, "no memory for a line of text");
    lines->line[lines->count++] = text;
}

void lines_free(struct lines *lines)
{
    for (int i = 0; i < lines->count; i++)
        free(lines->line[i]);
    free(lines->line);
    *lines = (struct lines){0};
}

static int line_compare(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* The names in FOLDER/NAME that `wanted` takes, sorted. */
static struct lines names_in(const struct record *record, const char *name,
                             bool (*wanted)(const char *name))
{
    char path[sizeof record->path + 32];
    struct lines names = {0};
    snprintf(path, sizeof path, "%s/%s", record->path, name);
    DIR *entries = opendir(path);
    if (entries == NULL)
        return names;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
        if (wanted(entry->d_name))
            lines_add(&names, "%s", entry->d_name);
    closedir(entries);
    if (names.count > 1)
        qsort(names.line, (size_t)names.count, sizeof *names.line, line_compare);
    return names;
}

/* ---- the files */

static void path_of(const struct record *record, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", record->path, name);
}

static struct json_t *json_open(struct record *record, const char *name, const char *absence)
{
    char path[sizeof record->path + 32];
    struct stat status;
    json_error_t why;
    path_of(record, name, path, sizeof path);
    FILE *file = text_file_open(path);
    json_t *json = file != NULL ? json_loadf(file, 0, &why) : NULL;
    if (file == NULL)
        snprintf(why.text, sizeof why.text, "%s", strerror(errno));
    else
        fclose(file);
    if (json != NULL && json_is_object(json))
        return json;
    if (stat(path, &status) != 0 && errno == ENOENT)
        lines_add(&record->missing, "%s: not there: %s", name, absence);
    else
        lines_add(&record->missing, "%s: cannot be read (%s)", name,
                  json == NULL ? why.text : "no JSON object");
    json_decref(json);
    return NULL;
}

static void table_open(struct record *record, struct table *table, const char *name,
                       const char *absence)
{
    char path[sizeof record->path + 300];
    struct stat status;
    struct error error = {0};
    path_of(record, name, path, sizeof path);
    if (table_read(table, path, &error)) {
        if (table->torn)
            lines_add(&record->missing, "%s: its last line is torn, and left out", name);
    } else if (stat(path, &status) != 0 && errno == ENOENT) {
        if (absence != NULL)
            lines_add(&record->missing, "%s: not there: %s", name, absence);
    } else {
        lines_add(&record->missing, "%s", error.text);
    }
}

static bool is_monitor(const char *name)
{
    return strncmp(name, "monitor-", 8) == 0 && text_ends_with(name, ".csv");
}

static bool is_checkpoint(const char *name)
{
    return strncmp(name, "step-", 5) == 0 && text_ends_with(name, ".h5");
}

static int rank_compare(const void *one, const void *other)
{
    int left = atoi(*(char *const *)one + 8), right = atoi(*(char *const *)other + 8);
    return (left > right) - (left < right);
}

static void monitors_open(struct record *record)
{
    struct lines names = names_in(record, ".", is_monitor);
    if (names.count > 1)
        qsort(names.line, (size_t)names.count, sizeof *names.line, rank_compare);
    table_open(record, &record->monitor, "monitor.csv",
               names.count == 0 ? "output.monitor or output.csv is off, or nothing was read"
                                : NULL);
    for (int i = 0; i < names.count; i++) {
        struct table more = {0};
        table_open(record, &more, names.line[i], NULL);
        table_join(&record->monitor, &more);
    }
    lines_free(&names);
}

static void files_open(struct record *record)
{
    record->run = json_open(record, "run.json",
                            "the run is of a version that wrote none, or it "
                            "ended before its first step");
    record->result =
        json_open(record, "result.json", "the run was cut off, failed, or is still running");
    deck_open(record);
    table_open(record, &record->metrics, "metrics.csv", "output.csv is off, or nothing was logged");
    table_open(record, &record->epochs, "epochs.csv", "output.csv is off, or no epoch ended");
    table_open(record, &record->units, "units.csv", "output.csv is off, or the run did not end");
    table_open(record, &record->ranks, "ranks.csv", "output.csv is off, or the run did not end");
    monitors_open(record);
    trouble_open(record);
    record->checkpoints = names_in(record, "checkpoints", is_checkpoint);
}

/* Is there anything that a run leaves? */
static bool holds_run(const struct record *record)
{
    static const char *const names[] = {"deck.ini",    "run.json",  "result.json",
                                        "metrics.csv", "train.log", "epochs.csv"};
    char path[sizeof record->path + 32];
    struct stat status;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        path_of(record, names[i], path, sizeof path);
        if (stat(path, &status) == 0)
            return true;
    }
    return false;
}

/* The last part of the path; of "." and ".." what they stand for. */
static void name_take(struct record *record)
{
    const char *slash = strrchr(record->path, '/');
    const char *name = slash != NULL && slash[1] != '\0' ? slash + 1 : record->path;
    char *whole = NULL;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        whole = realpath(record->path, NULL);
        slash = whole != NULL ? strrchr(whole, '/') : NULL;
        name = slash != NULL && slash[1] != '\0' ? slash + 1 : name;
    }
    snprintf(record->name, sizeof record->name, "%.255s", name);
    free(whole);
}

bool record_read(struct record *record, const char *folder, struct error *error)
{
    struct stat status;
    *record = (struct record){0};
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    if (length == 0 || length >= sizeof record->path)
        return error_set(error, ERROR_FILE, "%.64s: no name of a run's folder", folder);
    memcpy(record->path, folder, length);
    name_take(record);
    if (stat(record->path, &status) != 0)
        return error_set(error, ERROR_FILE, "%s: %s: give the folder of a run", record->path,
                         strerror(errno));
    if (!S_ISDIR(status.st_mode) || !holds_run(record))
        return error_set(error, ERROR_FILE,
                         "%s is no folder of a run (deck.ini, metrics.csv, result.json)",
                         record->path);
    files_open(record);
    return true;
}

void record_free(struct record *record)
{
    json_decref(record->run);
    json_decref(record->result);
    table_free(&record->metrics);
    table_free(&record->epochs);
    table_free(&record->monitor);
    table_free(&record->units);
    table_free(&record->ranks);
    deck_free(record);
    lines_free(&record->trouble);
    lines_free(&record->checkpoints);
    lines_free(&record->missing);
    *record = (struct record){0};
}

/* ---- values */

static json_t *value_at(json_t *json, const char *path)
{
    while (json != NULL && *path != '\0') {
        char key[64], *end;
        size_t length = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)length, path);
        long index = strtol(key, &end, 10);
        json = json_is_array(json) && *end == '\0' && index >= 0
                   ? json_array_get(json, (size_t)index)
                   : json_object_get(json, key);
        path += length + (path[length] == '.');
    }
    return json_is_null(json) ? NULL : json;
}

struct json_t *record_value(const struct record *record, const char *path)
{
    json_t *value = value_at(record->result, path);
    return value != NULL ? value : value_at(record->run, path);
}

double record_number(const struct record *record, const char *path)
{
    const json_t *value = record_value(record, path);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const char *record_text(const struct record *record, const char *path)
{
    return json_string_value(record_value(record, path));
}

double record_step_mean(const struct record *record, const char *name)
{
    const struct table *metrics = &record->metrics;
    int split = table_column(metrics, "split"), step = table_column(metrics, "step");
    int column = table_column(metrics, name);
    double sum = 0, steps = 0, before = 0;
    for (int64_t row = 0; row < metrics->rows; row++) {
        double value = table_number(metrics, row, column), at = table_number(metrics, row, step);
        if (strcmp(table_text(metrics, row, split), "train") != 0 || !(at > before))
            continue;
        if (!isnan(value)) {
            sum += value * (at - before);
            steps += at - before;
        }
        before = at;
    }
    return steps > 0 ? sum / steps : (double)NAN;
}

double record_images_per_second(const struct record *record)
{
    const struct table *metrics = &record->metrics;
    int split = table_column(metrics, "split"), step = table_column(metrics, "step");
    int rate = table_column(metrics, "images_per_second");
    int duration = table_column(metrics, "step_seconds");
    double images = 0, seconds = 0, before = 0, known = record_number(record, "images_per_second");
    for (int64_t row = 0; isnan(known) && row < metrics->rows; row++) {
        double at = table_number(metrics, row, step), lasted = table_number(metrics, row, duration);
        double seen = table_number(metrics, row, rate) * lasted;
        if (strcmp(table_text(metrics, row, split), "train") != 0 || !(at > before))
            continue;
        if (!isnan(seen)) {
            images += seen * (at - before);
            seconds += lasted * (at - before);
        }
        before = at;
    }
    return isnan(known) && seconds > 0 ? images / seconds : known;
}

int record_parts(const struct record *record)
{
    return (int)json_array_size(record_value(record, "parts"));
}

double record_seconds_to(const struct record *record, const char *monitor, double target)
{
    const struct table *metrics = &record->metrics;
    int split = table_column(metrics, "split"), value = table_column(metrics, monitor);
    int elapsed = table_column(metrics, "elapsed_seconds");
    bool least = strcmp(monitor, "loss") != 0;
    for (int64_t row = 0; row < metrics->rows; row++) {
        double reached = table_number(metrics, row, value);
        if (strcmp(table_text(metrics, row, split), "val") == 0 &&
            (least ? reached >= target : reached <= target))
            return table_number(metrics, row, elapsed);
    }
    return NAN;
}
