// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/record.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/option.h"
#include "config/options.h"
#include "core/folder.h"
#include "core/text.h"
#include "core/text_file.h"

enum { RUN_FORMAT = 1 }; /* of the run folder, docs/outputs.md */

/* ---- lines of text */

void lines_add(struct lines *lines, const char *format, ...)
{
    va_list arguments;
    struct text_stream text;
    va_start(arguments, format);
    vfprintf(text_stream_open(&text), format, arguments);
    va_end(arguments);
    lines->line = allocate_resized(lines->line, (size_t)(lines->count + 1) * sizeof *lines->line);
    lines->line[lines->count++] = text_stream_close(&text);
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

struct lines record_names(const struct record *record, const char *folder, const char *begin,
                          const char *end)
{
    char path[sizeof record->path + 32];
    struct lines names = {0};
    snprintf(path, sizeof path, "%s/%s", record->path, folder);
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, path)) != NULL;)
        if (strncmp(name, begin, strlen(begin)) == 0 && text_ends_with(name, end))
            lines_add(&names, "%s", name);
    if (names.count > 1)
        qsort(names.line, (size_t)names.count, sizeof *names.line, line_compare);
    return names;
}

/* ---- the deck. An older or newer program may have written options that this one does not know. */

static struct record_setting *setting_find(const struct record *record, const char *key)
{
    for (int i = 0; i < record->deck_count; i++)
        if (strcmp(record->deck[i].key, key) == 0)
            return &record->deck[i];
    return NULL;
}

static void setting_add(struct record *record, const char *section, const char *name,
                        const char *value)
{
    struct record_setting *setting;
    char key[sizeof setting->key];
    snprintf(key, sizeof key, "%.30s.%.30s", section, name);
    setting = setting_find(record, key);
    if (setting == NULL) {
        size_t count = (size_t)record->deck_count + 1;
        record->deck = allocate_resized(record->deck, count * sizeof *record->deck);
        setting = &record->deck[record->deck_count++];
        *setting = (struct record_setting){0};
        memcpy(setting->key, key, sizeof key);
        const struct option_entry *entry = option_find(key);
        setting->preset = entry != NULL ? entry->preset : NULL;
    }
    const size_t length = setting->value != NULL ? strlen(setting->value) : 0;
    setting->value = allocate_resized(setting->value, length + strlen(value) + 1);
    memcpy(setting->value + length, value, strlen(value) + 1);
}

/* Parse "key = value", or "key += value", which appends to a long text. */
static void line_read(struct record *record, char *line, char *section, size_t size)
{
    line[strcspn(line, "\r\n")] = '\0';
    char *equals = strchr(line, '=');
    if (line[0] == '[') {
        snprintf(section, size, "%.*s", (int)strcspn(line + 1, "]"), line + 1);
        return;
    }
    if (equals == NULL || line[0] == ';' || line[0] == '#')
        return;
    const char *value = equals + 1 + strspn(equals + 1, " ");
    if (equals > line && equals[-1] == '+')
        equals--;
    while (equals > line && equals[-1] == ' ')
        equals--;
    *equals = '\0';
    setting_add(record, section, line, value);
}

/* True if the value equals the default, also if it is written differently (0.10 and 1e-1). */
static bool same_value(const struct record_setting *setting)
{
    static struct options one, other; /* large */
    struct error ignored = {0};
    char texts[2][OPTION_TEXT];
    const struct option_entry *entry = option_find(setting->key);
    if (entry == NULL || setting->preset == NULL)
        return false;
    if (!option_read(entry, "", setting->value, &one, &ignored) ||
        !option_read(entry, "", setting->preset, &other, &ignored))
        return strcmp(setting->value, setting->preset) == 0;
    option_write(entry, &one, texts[0], sizeof texts[0]);
    option_write(entry, &other, texts[1], sizeof texts[1]);
    return strcmp(texts[0], texts[1]) == 0;
}

static void deck_open(struct record *record)
{
    char path[sizeof record->path + 16], section[64] = "", *line = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/deck.ini", record->path);
    FILE *file = text_file_open(path);
    if (file == NULL) {
        lines_add(&record->missing, "deck.ini: cannot be read: %s", strerror(errno));
        return;
    }
    while (getline(&line, &size, file) >= 0)
        line_read(record, line, section, sizeof section);
    free(line);
    fclose(file);
    record->settings = allocate((size_t)record->deck_count + 1, sizeof(struct record_setting *));
    for (int i = 0; i < record->deck_count; i++)
        if (!same_value(&record->deck[i]))
            record->settings[record->setting_count++] = &record->deck[i];
    if (record->deck_count == 0)
        lines_add(&record->missing, "deck.ini: empty");
}

/* ---- the files */

/* absence: explanation in the list of missing files, or NULL if the file is not expected. */
static struct json_t *json_open(struct record *record, const char *name, const char *absence)
{
    char path[sizeof record->path + 32];
    struct stat status;
    json_error_t why;
    snprintf(path, sizeof path, "%s/%s", record->path, name);
    FILE *file = text_file_open(path);
    json_t *json = file != NULL ? json_loadf(file, 0, &why) : NULL;
    if (file == NULL)
        snprintf(why.text, sizeof why.text, "%s", strerror(errno));
    else
        fclose(file);
    if (json != NULL && json_is_object(json))
        return json;
    if (stat(path, &status) == 0 || errno != ENOENT)
        lines_add(&record->missing, "%s: cannot be read (%s)", name,
                  json == NULL ? why.text : "not a JSON object");
    else if (absence != NULL)
        lines_add(&record->missing, "%s: missing: %s", name, absence);
    json_decref(json);
    return NULL;
}

static void table_open(struct record *record, struct table *table, const char *name,
                       const char *absence)
{
    char path[sizeof record->path + 300];
    struct stat status;
    struct error error = {0};
    snprintf(path, sizeof path, "%s/%s", record->path, name);
    if (table_read(table, path, &error)) {
        if (table->torn)
            lines_add(&record->missing, "%s: the incomplete last line is skipped", name);
    } else if (stat(path, &status) != 0 && errno == ENOENT) {
        if (absence != NULL)
            lines_add(&record->missing, "%s: missing: %s", name, absence);
    } else {
        lines_add(&record->missing, "%s", error.text);
    }
}

/* ---- the log: warnings and errors, and lines about restarts, early ends and skipped updates.
 * Equal lines are counted, since a warning about a slow link may repeat every minute for hours. */

enum { TROUBLE_MOST = 200 };

/* "2026-11-21T04:05:06 ", or of output.style=course "2026-11-21 04:05:06,789 - " */
enum { STAMP_LENGTH = 20, COURSE_STAMP_LENGTH = 26 };

struct trouble {
    char *text; /* the first such line, with its time stamp */
    int64_t times;
};

static bool is_trouble(const char *line)
{
    static const char *const begins[] = {"warning: ",       "vittrain: error: ", "stopped at step ",
                                         "stopped before ", "resuming from ",    "mesh.elastic: "};
    static const char *const holds[] = {"gradients overflowed in fp16",
                                        "before its results were written",
                                        "is left to the next attempt"};
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (strncmp(line, begins[i], strlen(begins[i])) == 0)
            return true;
    for (size_t i = 0; i < sizeof holds / sizeof holds[0]; i++)
        if (strstr(line, holds[i]) != NULL)
            return true;
    return false;
}

/* Return the line without its time stamp; NULL: no stamp, so the line is incomplete or foreign. */
static const char *line_words(const char *line)
{
    const size_t length = strlen(line);
    if (length <= STAMP_LENGTH || line[4] != '-')
        return NULL;
    if (line[10] == 'T' && line[STAMP_LENGTH - 1] == ' ')
        return line + STAMP_LENGTH;
    return length > COURSE_STAMP_LENGTH && line[19] == ',' && line[24] == '-'
               ? line + COURSE_STAMP_LENGTH
               : NULL;
}

static void line_count(struct trouble *troubles, int *count, int64_t *more, const char *line)
{
    const char *words = line_words(line);
    if (words == NULL || !is_trouble(words))
        return;
    for (int i = 0; i < *count; i++)
        if (strcmp(line_words(troubles[i].text), words) == 0) {
            troubles[i].times++;
            return;
        }
    if (*count == TROUBLE_MOST) {
        ++*more;
        return;
    }
    troubles[*count] = (struct trouble){.text = allocate_copy(line), .times = 1};
    ++*count;
}

/* Fill record->trouble from train.log. */
static void trouble_open(struct record *record)
{
    char path[sizeof record->path + 16], *line = NULL;
    struct trouble troubles[TROUBLE_MOST];
    int count = 0;
    int64_t more = 0;
    size_t size = 0;
    ssize_t length;
    snprintf(path, sizeof path, "%s/train.log", record->path);
    FILE *file = text_file_open(path);
    if (file == NULL) {
        lines_add(&record->missing, "train.log: cannot be read: %s", strerror(errno));
        return;
    }
    while ((length = getline(&line, &size, file)) >= 0) {
        line[strcspn(line, "\r\n")] = '\0';
        line_count(troubles, &count, &more, line);
    }
    free(line);
    fclose(file);
    for (int i = 0; i < count; i++) {
        if (troubles[i].times > 1)
            lines_add(&record->trouble, "%s (%lld times)", troubles[i].text,
                      (long long)troubles[i].times);
        else
            lines_add(&record->trouble, "%s", troubles[i].text);
        free(troubles[i].text);
    }
    if (more > 0)
        lines_add(&record->trouble, "%lld more lines, see train.log", (long long)more);
}

/* ---- all files */

static int rank_compare(const void *one, const void *other)
{
    int left = atoi(*(char *const *)one + 8), right = atoi(*(char *const *)other + 8);
    return (left > right) - (left < right);
}

static void monitors_open(struct record *record)
{
    struct lines names = record_names(record, ".", "monitor-", ".csv");
    if (names.count > 1)
        qsort(names.line, (size_t)names.count, sizeof *names.line, rank_compare);
    table_open(record, &record->monitor, "monitor.csv",
               names.count == 0 ? "output.monitor or output.csv is off, or there were no readings"
                                : NULL);
    for (int i = 0; i < names.count; i++) {
        struct table more = {0};
        table_open(record, &more, names.line[i], NULL);
        table_join(&record->monitor, &more);
    }
    lines_free(&names);
}

/* Empty the column of the MFU if the peak was wrong: a value is above 1, or is empty because the
 * run detected that its peak was wrong. */
static void peak_share_check(struct table *metrics)
{
    const int split = table_column(metrics, "split"), column = table_column(metrics, "peak_share");
    bool wrong = false;
    for (int64_t row = 0; row < metrics->rows; row++)
        wrong = wrong || (strcmp(table_text(metrics, row, split), "train") == 0 &&
                          !(table_number(metrics, row, column) <= 1));
    if (wrong)
        table_clear(metrics, column);
}

static void files_open(struct record *record)
{
    char absence[64];
    record->run = json_open(record, "run.json",
                            "written by an old version, or the run "
                            "ended before its first step");
    snprintf(absence, sizeof absence, "status of the run: %s", record_status(record));
    record->result = json_open(record, "result.json", absence);
    record->misclassified = json_open(record, "misclassified.json", NULL);
    record->planes = json_open(record, "planes.json", NULL);
    deck_open(record);
    table_open(record, &record->metrics, "metrics.csv", "output.csv is off, or nothing was logged");
    peak_share_check(&record->metrics);
    table_open(record, &record->epochs, "epochs.csv", "output.csv is off, or no epoch ended");
    table_open(record, &record->units, "units.csv", "output.csv is off, or the run has not ended");
    table_open(record, &record->ranks, "ranks.csv", "output.csv is off, or the run has not ended");
    monitors_open(record);
    trouble_open(record);
    record->checkpoints = record_names(record, "checkpoints", "step-", ".h5");
}

/* True if the folder has a file that runs write. */
static bool has_record(const struct record *record)
{
    static const char *const names[] = {"deck.ini",    "run.json",  "result.json",
                                        "metrics.csv", "train.log", "epochs.csv"};
    char path[sizeof record->path + 32];
    struct stat status;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", record->path, names[i]);
        if (stat(path, &status) == 0)
            return true;
    }
    return false;
}

/* Set the name to the last component of the path, after resolving "." and "..". */
static void name_set(struct record *record)
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
        return error_set(error, ERROR_FILE,
                         "cannot read a run: \"%.64s\" is not the name of a folder", folder);
    memcpy(record->path, folder, length);
    name_set(record);
    if (stat(record->path, &status) != 0)
        return error_set(error, ERROR_FILE, "cannot read %s: %s; specify a run folder",
                         record->path, strerror(errno));
    if (!S_ISDIR(status.st_mode) || !has_record(record))
        return error_set(error, ERROR_FILE,
                         "%s is not a run folder: it has no deck.ini, metrics.csv or result.json",
                         record->path);
    files_open(record);
    const double format = record_number(record, "format");
    if (!(format > RUN_FORMAT))
        return true;
    error_set(error, ERROR_FILE,
              "cannot read %s: run.json has format %g, this program reads %d; use a newer version",
              record->path, format, RUN_FORMAT);
    record_free(record);
    return false;
}

void record_free(struct record *record)
{
    json_decref(record->run);
    json_decref(record->result);
    json_decref(record->misclassified);
    json_decref(record->planes);
    table_free(&record->metrics);
    table_free(&record->epochs);
    table_free(&record->monitor);
    table_free(&record->units);
    table_free(&record->ranks);
    for (int i = 0; i < record->deck_count; i++)
        free(record->deck[i].value);
    free(record->deck);
    free(record->settings);
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

static double number_or_nan(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

double record_number(const struct record *record, const char *path)
{
    return number_or_nan(record_value(record, path));
}

double json_number_of(const struct json_t *object, const char *key)
{
    return number_or_nan(json_object_get(object, key));
}

const char *json_text_of(const struct json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

double record_class_metric(const struct json_t *class, const char *key)
{
    const json_t *value = json_object_get(class, key);
    /* Its name in version 0.2 */
    if (value == NULL && strcmp(key, "one_vs_rest_accuracy") == 0)
        value = json_object_get(class, "accuracy");
    return number_or_nan(value);
}

const char *record_text(const struct record *record, const char *path)
{
    return json_string_value(record_value(record, path));
}

/* Mean over the training steps of a column of metrics.csv; `weight`: column of the weights, or
 * NULL. A row is the mean of the steps since the previous row. */
static double step_mean(const struct record *record, const char *name, const char *weight)
{
    const struct table *metrics = &record->metrics;
    int split = table_column(metrics, "split"), step = table_column(metrics, "step");
    int column = table_column(metrics, name), factor = -1;
    double sum = 0, weights = 0, before = 0;
    if (weight != NULL)
        factor = table_column(metrics, weight);
    for (int64_t row = 0; row < metrics->rows; row++) {
        double each = weight != NULL ? table_number(metrics, row, factor) : 1;
        double value = table_number(metrics, row, column) * each;
        double at = table_number(metrics, row, step);
        if (strcmp(table_text(metrics, row, split), "train") != 0 || !(at > before))
            continue;
        if (!isnan(value)) {
            sum += value * (at - before);
            weights += each * (at - before);
        }
        before = at;
    }
    return weights > 0 ? sum / weights : (double)NAN;
}

double record_step_mean(const struct record *record, const char *column)
{
    return step_mean(record, column, NULL);
}

double record_images_per_second(const struct record *record)
{
    const double known = record_number(record, "images_per_second");
    return isnan(known) ? step_mean(record, "images_per_second", "step_seconds") : known;
}

/* Return the status of a run whose last attempt has no end: its lock file is locked while the
 * process runs. Downloaded folders have no lock file. */
static const char *status_of_unended(const struct record *record)
{
    const enum folder_use use = folder_use(record->path);
    return use == FOLDER_USE_UNKNOWN ? "interrupted or still running"
           : use == FOLDER_IN_USE    ? "still running"
                                     : "interrupted";
}

const char *record_status(const struct record *record)
{
    const json_t *attempts = record_value(record, "parts");
    const size_t count = json_array_size(attempts);
    const json_t *last = count > 0 ? json_array_get(attempts, count - 1) : NULL;
    if (json_is_string(json_object_get(last, "error")))
        return "failed";
    if (record->result == NULL || (last != NULL && !json_is_string(json_object_get(last, "ended"))))
        return status_of_unended(record);
    return json_is_false(record_value(record, "finished")) ? "stopped" : "finished";
}

int record_attempts(const struct record *record)
{
    return (int)json_array_size(record_value(record, "parts"));
}

const char *record_option(const struct record *record, const char *key)
{
    const struct record_setting *setting = setting_find(record, key);
    return setting != NULL ? setting->value : NULL;
}
