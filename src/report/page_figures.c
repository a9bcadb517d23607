/* What came of a run: metrics, times, speed. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/markdown.h"
#include "report/page.h"

/* Classes of which a page shows each. */
enum { CLASSES_MOST = 100, UNITS_MOST = 400 };

/* ---- metrics */

static void split_row(FILE *stream, const char *name, const json_t *split, const char *remark)
{
    const json_t *macro = json_object_get(split, "macro");
    if (split == NULL)
        return;
    const char *const cells[] = {name,
                                 page_number("%.0f", page_number_at(split, "samples")),
                                 page_number("%.4f", page_number_at(split, "loss")),
                                 page_figure(FIGURE_SHARE, page_number_at(split, "top1")),
                                 page_figure(FIGURE_SHARE, page_number_at(split, "top5")),
                                 page_number("%.4f", page_number_at(macro, "precision")),
                                 page_number("%.4f", page_number_at(macro, "recall")),
                                 page_number("%.4f", page_number_at(macro, "f1")),
                                 page_number("%.4f", page_number_at(macro, "specificity")),
                                 remark};
    markdown_row(stream, sizeof cells / sizeof cells[0], cells);
}

static void metrics_write(FILE *stream, const struct record *record)
{
    static const char *const head[] = {"split",     "samples", "loss", "top-1",       "top-5",
                                       "precision", "recall",  "F1",   "specificity", ""};
    enum { COLUMNS = sizeof head / sizeof head[0] };
    const json_t *result = record->result, *test = json_object_get(result, "test");
    const char *weights = json_string_value(json_object_get(test, "weights"));
    const char *monitor = record_text(record, "best.monitor");
    char remark[128];
    if (result == NULL)
        return;
    fputs("\n## Metrics\n\n", stream);
    markdown_row(stream, COLUMNS, head);
    fputs("|---|---|---|---|---|---|---|---|---|---|\n", stream);
    split_row(stream, "train", json_object_get(result, "train"),
              "the last epoch, while weights changed");
    if (json_object_get(result, "samples") != NULL)
        split_row(stream, "validation", result, "at the end");
    snprintf(remark, sizeof remark, "with the %s weights, of step %s",
             weights != NULL ? weights : "?", page_number("%.0f", page_number_at(test, "step")));
    split_row(stream, "test", test, remark);
    if (!isnan(record_number(record, "best.value")))
        fprintf(stream, "\nBest validation %s: %.4f, at step %.0f.\n",
                monitor != NULL ? monitor : "value", record_number(record, "best.value"),
                record_number(record, "best.step"));
}

/* Each class against the others, of the test split where there was one. */
static void classes_write(FILE *stream, const struct record *record)
{
    static const char *const head[] = {"class",  "accuracy", "precision",
                                       "recall", "F1",       "specificity"};
    const json_t *test = json_object_get(record->result, "test"), *class_object;
    const json_t *classes = json_object_get(test != NULL ? test : record->result, "classes");
    size_t index, count = json_array_size(classes);
    if (count == 0 || count > CLASSES_MOST)
        return;
    fprintf(stream, "\n## Classes (%s split)\n\n", test != NULL ? "test" : "validation");
    markdown_row(stream, sizeof head / sizeof head[0], head);
    fputs("|---|---|---|---|---|---|\n", stream);
    json_array_foreach(classes, index, class_object)
    {
        const char *name = json_string_value(json_object_get(class_object, "name"));
        const char *const cells[] = {
            name != NULL ? name : page_number("%.0f", (double)index),
            page_number("%.4f", page_number_at(class_object, "accuracy")),
            page_number("%.4f", page_number_at(class_object, "precision")),
            page_number("%.4f", page_number_at(class_object, "recall")),
            page_number("%.4f", page_number_at(class_object, "f1")),
            page_number("%.4f", page_number_at(class_object, "specificity"))};
        markdown_row(stream, sizeof cells / sizeof cells[0], cells);
    }
}

/* ---- times */

/* Over all parts. */
static double setup_seconds(const struct record *record)
{
    double total = record_number(record, "total_seconds");
    return total - record_number(record, "without_setup_seconds");
}

static void target_write(FILE *stream, const struct record *record)
{
    const char *option = record_option(record, "output.target");
    double target = option != NULL ? strtod(option, NULL) : 0;
    char name[64];
    if (!(target > 0))
        return;
    double seconds = record_seconds_to(record, "top1", target);
    snprintf(name, sizeof name, "to a top-1 of %.2f %%", 100 * target);
    markdown_pair(stream, name, "%s",
                  isnan(seconds) ? "not reached" : page_figure(FIGURE_SECONDS, seconds));
}

static void times_write(FILE *stream, const struct record *record)
{
    const struct column_facts epoch = table_facts(&record->epochs, "seconds");
    markdown_pairs_begin(stream, "Times");
    markdown_pair(stream, "in all", "%s",
                  page_figure(FIGURE_SECONDS, record_number(record, "total_seconds")));
    markdown_pair(stream, "set-up", "%s", page_figure(FIGURE_SECONDS, setup_seconds(record)));
    markdown_pair(stream, "without set-up", "%s",
                  page_figure(FIGURE_SECONDS, record_number(record, "without_setup_seconds")));
    markdown_pair(stream, "without set-up, evaluations and checkpoints", "%s",
                  page_figure(FIGURE_SECONDS, record_number(record, "training_seconds")));
    if (!isnan(epoch.mean))
        markdown_pair(stream, "an epoch", "%s (from %s to %s, %lld epochs)",
                      page_figure(FIGURE_SECONDS, epoch.mean),
                      page_figure(FIGURE_SECONDS, epoch.least),
                      page_figure(FIGURE_SECONDS, epoch.most), (long long)record->epochs.rows);
    markdown_pair(stream, "an evaluation", "%s",
                  page_figure(FIGURE_SECONDS, table_facts(&record->epochs, "eval_seconds").mean));
    markdown_pair(stream, "a step", "%s",
                  page_figure(FIGURE_SECONDS, record_step_mean(record, "step_seconds")));
    target_write(stream, record);
}

/* ---- speed */

static void share_pair(FILE *stream, const struct record *record, const char *name,
                       const char *column)
{
    double step = record_step_mean(record, "step_seconds"), part = record_step_mean(record, column);
    if (!isnan(part) && step > 0)
        markdown_pair(stream, name, "%s of a step (%s)", page_figure(FIGURE_SHARE, part / step),
                      page_figure(FIGURE_SECONDS, part));
}

static void speed_write(FILE *stream, const struct record *record)
{
    markdown_pairs_begin(stream, "Speed");
    markdown_pair(stream, "images a second", "%s",
                  page_figure(FIGURE_RATE, record_images_per_second(record)));
    markdown_pair(stream, "MFU (products over what the hardware could do)", "%s",
                  page_figure(FIGURE_SHARE, record_step_mean(record, "peak_share")));
    share_pair(stream, record, "waiting for data", "data_seconds");
    share_pair(stream, record, "waiting for communication", "exposed_comm_seconds");
    share_pair(stream, record, "the communication thread at work", "comm_seconds");
    share_pair(stream, record, "forward", "forward_seconds");
    share_pair(stream, record, "backward", "backward_seconds");
    share_pair(stream, record, "end of reduction", "reduce_seconds");
    share_pair(stream, record, "update", "update_seconds");
}

static double bytes_of_unit(const struct table *units, int64_t row)
{
    double sum = 0;
    for (int column = 0; column < units->columns; column++) {
        size_t length = strlen(units->names[column]);
        if (length > 6 && strcmp(units->names[column] + length - 6, "_bytes") == 0)
            sum += table_number(units, row, column);
    }
    return sum;
}

static void units_write(FILE *stream, const struct record *record)
{
    static const char *const head[] = {"unit",       "parameters",  "memory",
                                       "forward ms", "backward ms", "waiting ms"};
    const struct table *units = &record->units;
    if (units->rows == 0 || units->rows > UNITS_MOST)
        return;
    fputs("\n## Units\n\n", stream);
    markdown_row(stream, sizeof head / sizeof head[0], head);
    fputs("|---|---|---|---|---|---|\n", stream);
    for (int64_t row = 0; row < units->rows; row++) {
        static const char *const times[] = {"forward_seconds", "backward_seconds",
                                            "waiting_seconds"};
        const char *cells[sizeof head / sizeof head[0]] = {
            table_text(units, row, table_column(units, "unit")),
            table_text(units, row, table_column(units, "parameters")),
            page_figure(FIGURE_BYTES, bytes_of_unit(units, row))};
        for (int i = 0; i < 3; i++)
            cells[3 + i] =
                page_number("%.4f", 1e3 * table_number(units, row, table_column(units, times[i])));
        markdown_row(stream, sizeof head / sizeof head[0], cells);
    }
}

void page_figures_write(FILE *stream, const struct record *record)
{
    metrics_write(stream, record);
    times_write(stream, record);
    speed_write(stream, record);
    classes_write(stream, record);
    units_write(stream, record);
}
