// SPDX-License-Identifier: BSD-3-Clause
/* The folder of a sweep: its files, locks and the table of trials. Several processes (tasks) may
 * work on a sweep. Each holds the lock of its task number, so that trials of a task that has died
 * can be distinguished from running ones. The table is read and written as a whole. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/options.h"
#include "core/atomic_file.h"
#include "core/csv.h"
#include "core/folder.h"
#include "core/output_file.h"
#include "core/text.h"
#include "core/text_file.h"
#include "tools/sweep/sweep.h"
#include "tools/sweep/table.h"

static const char parent[] = "sweeps";

/* ---- text files */

static void path_in(const char *folder, const char *name, char path[SWEEP_PATH])
{
    snprintf(path, SWEEP_PATH, "%s/%s", folder, name);
}

static char *words_text(const struct sweep_words *words)
{
    struct text_stream text;
    FILE *file = text_stream_open(&text);
    for (int i = 0; i < words->count; i++)
        fprintf(file, "%s\n", words->word[i]);
    return text_stream_close(&text);
}

/* Read a file with one word per line; false if it does not exist. */
static bool words_read(const struct sweep *sweep, const char *name, struct sweep_words *words)
{
    char path[SWEEP_PATH];
    path_in(sweep->folder, name, path);
    char *text = text_file_read(path, NULL);
    for (char *word = text != NULL ? strtok(text, "\n") : NULL;
         word != NULL && words->count < SWEEP_WORDS; word = strtok(NULL, "\n"))
        words->word[words->count++] = word;
    return text != NULL;
}

/* ---- a new folder, or that of an interrupted sweep */

static bool words_write(const struct sweep *sweep, const char *name,
                        const struct sweep_words *words, struct error *error)
{
    char path[SWEEP_PATH], *text = words_text(words);
    path_in(sweep->folder, name, path);
    bool good = atomic_file_write(path, text, error);
    free(text);
    return good;
}

/* base.ini is written last: a folder that has it is complete. */
static bool folder_fill(const struct sweep *sweep, struct error *error)
{
    char path[SWEEP_PATH];
    static const char advice[] = "choose another sweep.dir";
    char *base = options_to_text(&sweep->options);
    path_in(sweep->folder, "base.ini", path);
    bool good = folder_make(sweep->folder, advice, error) &&
                words_write(sweep, "keys.txt", &sweep->keys, error) &&
                words_write(sweep, "command.txt", &sweep->command, error) &&
                atomic_file_write(path, base, error);
    free(base);
    return good;
}

/* True if the file exists and has this text, which is freed. */
static bool file_equals(const char *folder, const char *name, char *text)
{
    char path[SWEEP_PATH];
    path_in(folder, name, path);
    char *stored = text_file_read(path, NULL);
    bool equal = stored != NULL && strcmp(stored, text) == 0;
    free(stored);
    free(text);
    return equal;
}

/* True if this is the folder of the same sweep. */
static bool folder_equals(const struct sweep *sweep, const char *folder)
{
    return file_equals(folder, "base.ini", options_to_text(&sweep->options)) &&
           file_equals(folder, "keys.txt", words_text(&sweep->keys));
}

/* True if some trials have not ended. */
static bool folder_is_unfinished(const struct sweep *sweep, const char *folder)
{
    struct sweep other = *sweep;
    struct sweep_table table;
    struct error ignored = {0};
    snprintf(other.folder, sizeof other.folder, "%s", folder);
    if (!sweep_table_read(&other, &table, &ignored))
        return false;
    int64_t left = sweep->trials - table.count + sweep_table_count(&table, SWEEP_RUNNING);
    sweep_table_free(&table);
    return left > 0;
}

/* Find the newest unfinished folder of the same sweep. Names end with the date. */
static bool folder_find(struct sweep *sweep)
{
    DIR *entries = NULL;
    char found[OPTION_TEXT] = "";
    for (const char *name; (name = folder_next(&entries, parent)) != NULL;) {
        char path[OPTION_TEXT];
        snprintf(path, sizeof path, "%s/%.255s", parent, name);
        if (launched_folder_is_of(name, sweep->options.run.name) && strcmp(path, found) > 0 &&
            folder_equals(sweep, path) && folder_is_unfinished(sweep, path))
            snprintf(found, sizeof found, "%s", path);
    }
    snprintf(sweep->folder, sizeof sweep->folder, "%s", found);
    return found[0] != '\0';
}

bool sweep_folder_begin(struct sweep *sweep, struct error *error)
{
    const char *wanted = sweep->options.sweep.dir;
    char path[SWEEP_PATH], date[32], stem[OPTION_TEXT];
    if (wanted[0] == '\0' && folder_find(sweep))
        return words_write(sweep, "command.txt", &sweep->command, error);
    if (wanted[0] == '\0') {
        time_t now = time(NULL);
        struct tm parts;
        strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &parts));
        snprintf(stem, sizeof stem, "%s/%.900s-%s", parent, sweep->options.run.name, date);
        snprintf(sweep->folder, sizeof sweep->folder, "%s", stem);
        for (int i = 2; access(sweep->folder, F_OK) == 0; i++)
            snprintf(sweep->folder, sizeof sweep->folder, "%.1000s-%d", stem, i);
        return folder_fill(sweep, error);
    }
    snprintf(sweep->folder, sizeof sweep->folder, "%s", wanted);
    path_in(wanted, "base.ini", path);
    if (access(path, F_OK) != 0)
        return folder_fill(sweep, error);
    if (folder_equals(sweep, wanted))
        return words_write(sweep, "command.txt", &sweep->command, error);
    return error_set(error, ERROR_USAGE,
                     "sweep: %s contains another sweep; continue it with `vittrain sweep %s` or "
                     "choose another sweep.dir",
                     wanted, wanted);
}

bool sweep_folder_read(struct sweep *sweep, struct error *error)
{
    char path[SWEEP_PATH];
    path_in(sweep->folder, "base.ini", path);
    if (!words_read(sweep, "keys.txt", &sweep->keys) || access(path, F_OK) != 0)
        return error_set(error, ERROR_USAGE,
                         "sweep: %s is not the folder of a sweep (it has no base.ini); for a new "
                         "sweep give a deck and key=A,B,C",
                         sweep->folder);
    if (sweep->command.count == 0)
        words_read(sweep, "command.txt", &sweep->command);
    options_default(&sweep->options);
    return options_read_file(path, &sweep->options, error);
}

/* ---- locks */

static int lock_open(const struct sweep *sweep, const char *name)
{
    char path[SWEEP_PATH];
    path_in(sweep->folder, name, path);
    return output_file_open(path, O_RDWR | O_CREAT);
}

static int task_lock_open(const struct sweep *sweep, int64_t task)
{
    char name[48];
    snprintf(name, sizeof name, ".task-%lld.lock", (long long)task);
    return lock_open(sweep, name);
}

static bool lock_fail(const struct sweep *sweep, struct error *error)
{
    return error_set(error, ERROR_FILE, "sweep: cannot lock files in %s: %s", sweep->folder,
                     strerror(errno));
}

bool sweep_task_hold(struct sweep *sweep, struct error *error)
{
    sweep->lock = task_lock_open(sweep, sweep->task);
    if (sweep->lock < 0)
        return lock_fail(sweep, error);
    if (flock(sweep->lock, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (errno != EWOULDBLOCK)
        return lock_fail(sweep, error);
    return error_set(error, ERROR_USAGE,
                     "sweep: another process works on %s; find it with fuser %s/.task-%lld.lock",
                     sweep->folder, sweep->folder, (long long)sweep->task);
}

bool sweep_task_lives(const struct sweep *sweep, int64_t task)
{
    int lock = task_lock_open(sweep, task);
    if (lock < 0)
        return false;
    bool lives = flock(lock, LOCK_EX | LOCK_NB) != 0;
    close(lock);
    return lives;
}

/* ---- the table of trials */

static const char *const state_names[] = {
    [SWEEP_RUNNING] = "running", [SWEEP_FINISHED] = "finished", [SWEEP_FAILED] = "failed"};

enum { STATES = sizeof state_names / sizeof state_names[0] };

const char *sweep_metric(const struct sweep *sweep, bool *less)
{
    static const char *const names[] = {[MONITOR_AUTO] = "top1",
                                        [MONITOR_TOP1] = "top1",
                                        [MONITOR_TOP5] = "top5",
                                        [MONITOR_MIOU] = "miou",
                                        [MONITOR_MAP] = "map"};
    const struct options *options = &sweep->options;
    const int monitor = options->checkpoint.monitor;
    *less = monitor == MONITOR_LOSS ||
            (monitor == MONITOR_AUTO &&
             (options->data.task != TASK_CLASSES || options->model.head == HEAD_DENSE));
    return *less ? "loss" : names[monitor];
}

static bool row_fail(const char *path, int64_t row, const char *what, struct error *error)
{
    return error_set(error, ERROR_FILE,
                     "%s: row %lld: the %s does not belong to this sweep; correct the table or "
                     "start again with another sweep.dir",
                     path, (long long)row + 1, what);
}

static bool row_read(const struct sweep *sweep, const struct table *table, int64_t i,
                     struct sweep_row *row, const char *path, struct error *error)
{
    const char *state = table_text_at(table, i, "state");
    int known = 0;
    while (known < STATES && strcmp(state, state_names[known]) != 0)
        known++;
    if (known == STATES || table_number_at(table, i, "trial") != (double)i + 1)
        return row_fail(path, i, known == STATES ? "state" : "number", error);
    row->state = (enum sweep_state)known;
    row->task = (int64_t)table_number_at(table, i, "task");
    row->metric = table_number_at(table, i, "metric");
    row->seconds = table_number_at(table, i, "seconds");
    row->seconds = isnan(row->seconds) ? 0 : row->seconds;
    snprintf(row->reason, sizeof row->reason, "%s", table_text_at(table, i, "reason"));
    for (int k = 0; k < sweep->space.count; k++) {
        const struct sweep_key *key = &sweep->space.keys[k];
        const char *text = table_text_at(table, i, key->entry->name);
        if (!sweep_value_read(key, text, &row->point.value[k]))
            return row_fail(path, i, key->entry->name, error);
    }
    return true;
}

bool sweep_table_read(const struct sweep *sweep, struct sweep_table *trials, struct error *error)
{
    char path[SWEEP_PATH];
    struct table table;
    bool good = true;
    memset(trials, 0, sizeof *trials);
    path_in(sweep->folder, "trials.csv", path);
    if (access(path, F_OK) != 0)
        return true;
    if (!table_read(&table, path, error))
        return false;
    for (int64_t i = 0; good && i < table.rows; i++)
        good = row_read(sweep, &table, i, sweep_table_add(trials), path, error);
    table_free(&table);
    if (!good)
        sweep_table_free(trials);
    return good;
}

int sweep_table_open(const struct sweep *sweep, struct sweep_table *table, struct error *error)
{
    int lock = lock_open(sweep, ".lock");
    if (lock < 0 || flock(lock, LOCK_EX) != 0)
        lock_fail(sweep, error);
    else if (sweep_table_read(sweep, table, error))
        return lock;
    if (lock >= 0)
        close(lock);
    return -1;
}

struct sweep_row *sweep_table_add(struct sweep_table *table)
{
    struct sweep_row *rows =
        allocate_resized(table->rows, (size_t)(table->count + 1) * sizeof *rows);
    table->rows = rows;
    rows[table->count] = (struct sweep_row){.state = SWEEP_RUNNING, .metric = NAN};
    return &rows[table->count++];
}

void sweep_table_free(struct sweep_table *table)
{
    free(table->rows);
    memset(table, 0, sizeof *table);
}

/* ---- writing the table */

static void row_write(const struct sweep *sweep, int64_t number, const struct sweep_row *row,
                      FILE *stream)
{
    struct csv csv = {.stream = stream};
    char text[OPTION_TEXT];
    csv_integer(&csv, number + 1);
    csv_text(&csv, state_names[row->state]);
    csv_integer(&csv, row->task);
    for (int k = 0; k < sweep->space.count; k++) {
        sweep_value_text(&sweep->space.keys[k], row->point.value[k], text, sizeof text);
        csv_text(&csv, text);
    }
    csv_number(&csv, row->metric);
    snprintf(text, sizeof text, "%.3f", row->seconds);
    csv_text(&csv, text);
    snprintf(text, sizeof text, "trial-%03lld", (long long)number + 1);
    csv_text(&csv, text);
    csv_text(&csv, row->reason);
    fputc('\n', stream);
}

bool sweep_table_write(const struct sweep *sweep, const struct sweep_table *table,
                       struct error *error)
{
    char path[SWEEP_PATH];
    struct atomic_file file;
    path_in(sweep->folder, "trials.csv", path);
    if (!atomic_file_open(&file, path, error))
        return false;
    fprintf(file.stream, "trial,state,task");
    for (int k = 0; k < sweep->space.count; k++)
        fprintf(file.stream, ",%s", sweep->space.keys[k].entry->name);
    fprintf(file.stream, ",metric,seconds,folder,reason\n");
    for (int64_t i = 0; i < table->count; i++)
        row_write(sweep, i, &table->rows[i], file.stream);
    return atomic_file_commit(&file, error);
}

/* ---- the best trial */

static bool is_better(const struct sweep *sweep, const struct sweep_row *one,
                      const struct sweep_row *other)
{
    bool less;
    sweep_metric(sweep, &less);
    if (one->state != other->state)
        return one->state == SWEEP_FINISHED ||
               (one->state == SWEEP_FAILED && other->state == SWEEP_RUNNING);
    return less ? one->metric < other->metric : one->metric > other->metric;
}

int64_t sweep_table_best(const struct sweep *sweep, const struct sweep_table *table)
{
    int64_t best = -1;
    for (int64_t i = 0; i < table->count; i++)
        if (table->rows[i].state == SWEEP_FINISHED &&
            (best < 0 || is_better(sweep, &table->rows[i], &table->rows[best])))
            best = i;
    return best;
}

bool sweep_best_write(const struct sweep *sweep, const struct sweep_table *table,
                      struct error *error)
{
    char path[SWEEP_PATH];
    static struct options options;
    int64_t best = sweep_table_best(sweep, table);
    if (best < 0)
        return true;
    options = sweep->options;
    if (!sweep_point_apply(&sweep->space, &table->rows[best].point, &options, error))
        return false;
    path_in(sweep->folder, "best.ini", path);
    char *text = options_to_run_deck(&options);
    bool good = atomic_file_write(path, text, error);
    free(text);
    return good;
}

int64_t sweep_table_count(const struct sweep_table *table, enum sweep_state state)
{
    int64_t count = 0;
    for (int64_t i = 0; i < table->count; i++)
        count += table->rows[i].state == state;
    return count;
}

/* ---- printing the table */

static int column_width(const struct sweep *sweep, const struct sweep_table *table, int k)
{
    const struct sweep_key *key = &sweep->space.keys[k];
    size_t width = strlen(key->entry->name);
    for (int64_t i = 0; i < table->count; i++) {
        char text[OPTION_TEXT];
        sweep_value_text(key, table->rows[i].point.value[k], text, sizeof text);
        width = strlen(text) > width ? strlen(text) : width;
    }
    return (int)width;
}

void sweep_table_print(const struct sweep *sweep, const struct sweep_table *table)
{
    bool less;
    int widths[SWEEP_KEYS];
    int64_t *order = allocate((size_t)table->count + 1, sizeof *order); /* by rank */
    for (int64_t i = 0; i < table->count; i++) {
        int64_t at = i;
        for (; at > 0 && is_better(sweep, &table->rows[i], &table->rows[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    printf("\n%6s  %-8s  %10s  %9s", "trial", "state", sweep_metric(sweep, &less), "seconds");
    for (int k = 0; k < sweep->space.count; k++) {
        widths[k] = column_width(sweep, table, k);
        printf("  %-*s", widths[k], sweep->space.keys[k].entry->name);
    }
    printf("\n");
    for (int64_t i = 0; i < table->count; i++) {
        const struct sweep_row *row = &table->rows[order[i]];
        printf("%6lld  %-8s  ", (long long)order[i] + 1, state_names[row->state]);
        if (isnan(row->metric))
            printf("%10s  %9.1f", "-", row->seconds);
        else
            printf("%10.6g  %9.1f", row->metric, row->seconds);
        for (int k = 0; k < sweep->space.count; k++) {
            char text[OPTION_TEXT];
            sweep_value_text(&sweep->space.keys[k], row->point.value[k], text, sizeof text);
            bool last = k + 1 == sweep->space.count && row->reason[0] == '\0';
            printf("  %-*s", last ? 0 : widths[k], text);
        }
        printf("%s%s\n", row->reason[0] != '\0' ? "  " : "", row->reason);
    }
    free(order);
}
