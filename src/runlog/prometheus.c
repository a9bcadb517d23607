// SPDX-License-Identifier: BSD-3-Clause
/* Names follow https://prometheus.io/docs/practices/naming/: they end in the base unit, and
 * counters in _total. */
#include "runlog/prometheus.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/option_types.h"
#include "core/atomic_file.h"

enum { LABELS_SIZE = 2 * OPTION_TEXT };

void run_figures_clear(struct run_figures *figures)
{
    *figures = (struct run_figures){.loss = NAN,
                                    .top1 = NAN,
                                    .validation_loss = NAN,
                                    .validation_top1 = NAN,
                                    .images_per_second = NAN,
                                    .data_share = NAN,
                                    .best = NAN,
                                    .checkpoint_at = NAN};
}

/* ---- the format */

/* Escape backslash, quote and newline. */
static void label_escape(const char *text, char *escaped, size_t size)
{
    size_t used = 0;
    for (; *text != '\0' && used + 3 < size; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n')
            escaped[used++] = '\\';
        escaped[used++] = (char)(*text == '\n' ? 'n' : *text);
    }
    escaped[used] = '\0';
}

struct writer {
    FILE *stream;
    char labels[LABELS_SIZE];
};

static void head_write(struct writer *writer, const char *name, const char *type, const char *help)
{
    fprintf(writer->stream, "# HELP vittrain_%s %s\n# TYPE vittrain_%s %s\n", name, help, name,
            type);
}

static void value_write(struct writer *writer, const char *name, const char *more, double value)
{
    fprintf(writer->stream, "vittrain_%s{%s%s} ", name, writer->labels, more);
    if (isinf(value))
        fprintf(writer->stream, "%cInf\n", value > 0 ? '+' : '-');
    else
        fprintf(writer->stream, "%.10g\n", value);
}

static void metric_write(struct writer *writer, const char *name, const char *type,
                         const char *help, double value)
{
    if (isnan(value))
        return;
    head_write(writer, name, type, help);
    value_write(writer, name, "", value);
}

/* Write one metric with a value for training and one for validation. */
static void pair_write(struct writer *writer, const char *name, const char *help, double train,
                       double validation)
{
    if (isnan(train) && isnan(validation))
        return;
    head_write(writer, name, "gauge", help);
    if (!isnan(train))
        value_write(writer, name, ",split=\"train\"", train);
    if (!isnan(validation))
        value_write(writer, name, ",split=\"val\"", validation);
}

/* ---- the page */

static void figures_write(struct writer *writer, const struct prometheus_page *page)
{
    const struct run_figures *figures = page->figures;
    metric_write(writer, "steps_total", "counter", "Completed optimizer steps.",
                 (double)page->step);
    metric_write(writer, "epoch", "gauge", "Current epoch, from 0.", (double)figures->epoch);
    pair_write(writer, "loss", "Mean loss of the newest log interval or evaluation.", figures->loss,
               figures->validation_loss);
    pair_write(writer, "accuracy_ratio", "Top-1 accuracy of the newest log interval or evaluation.",
               figures->top1, figures->validation_top1);
    metric_write(writer, "best_metric", "gauge", "Best value of checkpoint.monitor so far.",
                 figures->best);
    metric_write(writer, "images_per_second", "gauge", "Training images per second, all ranks.",
                 figures->images_per_second);
    metric_write(writer, "data_wait_ratio", "gauge", "Share of the time spent waiting for data.",
                 figures->data_share);
    metric_write(writer, "checkpoint_timestamp_seconds", "gauge",
                 "Time of the newest checkpoint; its age is time() minus this value.",
                 figures->checkpoint_at);
}

static const struct {
    const char *unit, *ending; /* unit of a sensor; suffix of the metric's name */
    double scale;              /* to the base unit */
} units[] = {
    {"0 to 1", "_ratio", 1}, {"MHz", "_hertz", 1e6}, {"C", "_celsius", 1},
    {"W", "_watts", 1},      {"J", "_joules", 1},
};

static void sensor_write(struct writer *writer, const struct sensor_column *column, double value)
{
    char name[96], help[256];
    const char *ending = "";
    bool counts = column->kind == SENSOR_COUNTER || column->kind == SENSOR_DURATION;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(units[i].unit, column->unit) == 0) {
            ending = units[i].ending;
            value *= units[i].scale;
        }
    snprintf(name, sizeof name, "%s%s%s", column->name, ending, counts ? "_total" : "");
    snprintf(help, sizeof help, "%s.", column->meaning);
    metric_write(writer, name, counts ? "counter" : "gauge", help, value);
}

bool prometheus_write(const char *path, const struct prometheus_page *page, struct error *error)
{
    struct atomic_file file;
    struct writer writer;
    char run[OPTION_TEXT], host[OPTION_TEXT / 2];
    if (!atomic_file_open(&file, path, error))
        return false;
    label_escape(page->run, run, sizeof run);
    label_escape(page->host, host, sizeof host);
    writer.stream = file.stream;
    snprintf(writer.labels, sizeof writer.labels, "run=\"%s\",rank=\"%d\",host=\"%s\"", run,
             page->rank, host);
    if (page->figures != NULL)
        figures_write(&writer, page);
    for (int i = 0; i < SENSOR_COUNT; i++)
        sensor_write(&writer, &sensor_columns[i], page->reading->value[i]);
    return atomic_file_commit(&file, error);
}
