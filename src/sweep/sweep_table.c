/* The table of a sweep's trials: read and written as a whole, so that it is always one that was. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/options.h"
#include "core/atomic_file.h"
#include "report/escape.h"
#include "report/table.h"
#include "sweep/sweep.h"

static const char *const state_names[] = {
    [SWEEP_RUNNING] = "running", [SWEEP_FINISHED] = "finished", [SWEEP_FAILED] = "failed"};

enum { STATES = sizeof state_names / sizeof state_names[0] };

const char *sweep_metric(const struct sweep *sweep, bool *less)
{
    *less = sweep->options.checkpoint.monitor == MONITOR_LOSS;
    return *less ? "loss" : "top1";
}

static void table_path(const struct sweep *sweep, char path[SWEEP_PATH])
{
    snprintf(path, SWEEP_PATH, "%s/trials.csv", sweep->folder);
}

/* ---- reading */

static bool row_fail(const char *path, int64_t row, const char *what, struct error *error)
{
    return error_set(error, ERROR_FILE,
                     "%s: row %lld: the %s is none of this sweep's: mend the table, or begin anew "
                     "with another sweep.dir",
                     path, (long long)row + 1, what);
}

static bool row_read(const struct sweep *sweep, const struct table *table, int64_t i,
                     struct sweep_row *row, const char *path, struct error *error)
{
    const char *state = table_text(table, i, table_column(table, "state"));
    int known = 0;
    while (known < STATES && strcmp(state, state_names[known]) != 0)
        known++;
    if (known == STATES || table_number(table, i, table_column(table, "trial")) != (double)i + 1)
        return row_fail(path, i, known == STATES ? "state" : "number", error);
    row->state = (enum sweep_state)known;
    row->task = (int64_t)table_number(table, i, table_column(table, "task"));
    row->metric = table_number(table, i, table_column(table, "metric"));
    row->seconds = table_number(table, i, table_column(table, "seconds"));
    row->seconds = isnan(row->seconds) ? 0 : row->seconds;
    snprintf(row->reason, sizeof row->reason, "%s",
             table_text(table, i, table_column(table, "reason")));
    for (int k = 0; k < sweep->space.count; k++) {
        const struct sweep_key *key = &sweep->space.keys[k];
        const char *text = table_text(table, i, table_column(table, key->entry->name));
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
    table_path(sweep, path);
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

struct sweep_row *sweep_table_add(struct sweep_table *table)
{
    struct sweep_row *rows = realloc(table->rows, (size_t)(table->count + 1) * sizeof *rows);
    ENSURE(rows != NULL, "no memory for %lld trials", (long long)table->count + 1);
    table->rows = rows;
    rows[table->count] = (struct sweep_row){.state = SWEEP_RUNNING, .metric = NAN};
    return &rows[table->count++];
}

void sweep_table_free(struct sweep_table *table)
{
    free(table->rows);
    memset(table, 0, sizeof *table);
}

/* ---- writing */

static void row_write(const struct sweep *sweep, int64_t number, const struct sweep_row *row,
                      FILE *stream)
{
    fprintf(stream, "%lld,%s,%lld", (long long)number + 1, state_names[row->state],
            (long long)row->task);
    for (int k = 0; k < sweep->space.count; k++) {
        char text[OPTION_TEXT];
        sweep_value_text(&sweep->space.keys[k], row->point.value[k], text, sizeof text);
        fputc(',', stream);
        escape_csv(stream, text);
    }
    if (isnan(row->metric))
        fprintf(stream, ",,%.3f,", row->seconds);
    else
        fprintf(stream, ",%.9g,%.3f,", row->metric, row->seconds);
    fprintf(stream, "trial-%03lld,", (long long)number + 1);
    escape_csv(stream, row->reason);
    fputc('\n', stream);
}

bool sweep_table_write(const struct sweep *sweep, const struct sweep_table *table,
                       struct error *error)
{
    char path[SWEEP_PATH];
    struct atomic_file file;
    table_path(sweep, path);
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

/* ---- the best */

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
    snprintf(path, sizeof path, "%s/best.ini", sweep->folder);
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

/* ---- for people */

/* Trials in the order in which they are shown; the caller frees it. */
static int64_t *order_make(const struct sweep *sweep, const struct sweep_table *table)
{
    int64_t *order = calloc((size_t)table->count + 1, sizeof *order);
    ENSURE(order != NULL, "no memory for the order of %lld trials", (long long)table->count);
    for (int64_t i = 0; i < table->count; i++) {
        int64_t at = i;
        for (; at > 0 && is_better(sweep, &table->rows[i], &table->rows[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return order;
}

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
    int64_t *order = order_make(sweep, table);
    int widths[SWEEP_KEYS];
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
