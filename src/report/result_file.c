/* Lines from the tables of a run: epochs.csv has the epochs, metrics.csv the steps between, and
 * result.json how it ended. The lines are the console's of output.style=course. */
#include "report/result_file.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/atomic_file.h"
#include "report/chart.h"
#include "report/course_lines.h"

enum { PLOT_WIDTH = 1200, PLOT_HEIGHT = 500, EPOCHS_MOST = 1000000 };

/* What the lines count by. */
struct counts {
    enum course_program program;
    int64_t epochs, epoch_steps, steps_between;
};

static void line_put(void *self, const char *text)
{
    fprintf(self, "%s\n", text);
}

/* ---- the name */

static bool numbers_get(const struct record *record, const char *const *keys, int count,
                        double *values, struct error *error)
{
    for (int i = 0; i < count; i++) {
        values[i] = record_number(record, keys[i]);
        if (!(values[i] >= 1))
            return error_set(error, ERROR_FILE,
                             "%s: neither run.json nor result.json tells %s: there is no result "
                             "file for this run",
                             record->path, keys[i]);
    }
    return true;
}

bool result_file_name(const struct record *record, char *name, size_t size, struct error *error)
{
    static const char *const keys[] = {"global_batch", "ranks", "nodes", "total_steps",
                                       "steps_per_epoch"};
    double of[5] = {0};
    if (!numbers_get(record, keys, 5, of, error))
        return false;
    snprintf(name, size, "%.0f_%.0f_%.0f_%.0f.txt", ceil(of[0] / of[1]), ceil(of[3] / of[4]), of[2],
             of[1]);
    return true;
}

static bool counts_make(const struct record *record, struct counts *counts, struct error *error)
{
    static const char *const keys[] = {"total_steps", "steps_per_epoch"};
    const char *model = record_text(record, "model"),
               *style = record_option(record, "output.style");
    const char *every = record_option(record, "output.log_every");
    double of[2] = {0};
    if (!numbers_get(record, keys, 2, of, error))
        return false;
    if (of[0] > EPOCHS_MOST * of[1])
        return error_set(error, ERROR_FILE, "%s: total_steps of %g cannot be", record->path, of[0]);
    counts->program = course_program_of(model != NULL ? model : "");
    counts->epochs = (int64_t)ceil(of[0] / of[1]);
    counts->epoch_steps = (int64_t)of[1];
    counts->steps_between = course_steps_between(counts->program);
    if (style != NULL && strcmp(style, "course") == 0 && every != NULL && atoll(every) > 0)
        counts->steps_between = atoll(every);
    return true;
}

/* ---- epochs */

/* A column times a factor; the caller frees it. */
static double *column_of(const struct table *table, const char *name, double factor, double add)
{
    double *values = calloc((size_t)table->rows + 1, sizeof *values);
    ENSURE(values != NULL, "no memory for %lld rows", (long long)table->rows);
    for (int64_t row = 0; row < table->rows; row++)
        values[row] = factor * table_number(table, row, table_column(table, name)) + add;
    return values;
}

/* The lines within an epoch; those of steps that are no multiple are passed over. The accuracy is
 * that of the epoch so far, of the samples that each row stands for. */
static void steps_write(const struct record *record, const struct counts *counts, int64_t epoch,
                        const double *epochs, const struct course_sink *sink)
{
    const struct table *table = &record->metrics;
    const int steps = table_column(table, "step");
    const int split = table_column(table, "split"), loss = table_column(table, "loss");
    const int top1 = table_column(table, "top1");
    const int rate = table_column(table, "images_per_second");
    const int seconds = table_column(table, "step_seconds");
    double right = 0, samples = 0;
    int64_t before = 0;
    for (int64_t row = 0; row < table->rows; row++) {
        if (epochs[row] != (double)epoch || strcmp(table_text(table, row, split), "train") != 0)
            continue;
        const double in_epoch =
            table_number(table, row, steps) - (double)epoch * (double)counts->epoch_steps;
        if (!(in_epoch >= 1 && in_epoch <= (double)counts->epoch_steps))
            continue; /* a damaged row */
        const int64_t step = (int64_t)in_epoch;
        double seen = table_number(table, row, rate) * table_number(table, row, seconds) *
                      (double)(step - before);
        right += seen * table_number(table, row, top1);
        samples += seen;
        before = step;
        const struct course_place place = {epoch + 1, counts->epochs, step, counts->epoch_steps};
        if (step % counts->steps_between == 0)
            course_step(sink, counts->program, &place, table_number(table, row, loss),
                        right / samples);
    }
}

/* So far, over the epochs. */
struct course_sums {
    double seconds, best_top1; /* NAN: none was evaluated */
};

static void epoch_write(const struct record *record, const struct counts *counts, int64_t row,
                        struct course_sums *sums, const struct course_sink *sink)
{
    const struct table *table = &record->epochs;
    struct course_epoch epoch = {
        .loss = table_number(table, row, table_column(table, "train_loss")),
        .train_top1 = table_number(table, row, table_column(table, "train_top1")),
        .test_top1 = table_number(table, row, table_column(table, "val_top1")),
        .train_seconds = table_number(table, row, table_column(table, "seconds")),
        .test_seconds = table_number(table, row, table_column(table, "eval_seconds"))};
    sums->seconds += epoch.train_seconds + (isnan(epoch.test_seconds) ? 0 : epoch.test_seconds);
    epoch.total_seconds = sums->seconds;
    epoch.best = !isnan(epoch.test_top1) && !(sums->best_top1 >= epoch.test_top1);
    if (epoch.best)
        sums->best_top1 = epoch.test_top1;
    const struct course_place place = {
        .epoch = (int64_t)table_number(table, row, table_column(table, "epoch")) + 1,
        .epochs = counts->epochs,
        .steps = counts->epoch_steps};
    course_epoch(sink, counts->program, &place, &epoch);
}

static void epochs_write(const struct record *record, const struct counts *counts,
                         struct course_sums *sums, const struct course_sink *sink)
{
    const int column = table_column(&record->epochs, "epoch");
    double *epochs = column_of(&record->metrics, "epoch", 1, 0);
    int64_t row = 0;
    for (int64_t epoch = 0; epoch < counts->epochs; epoch++) {
        steps_write(record, counts, epoch, epochs, sink);
        for (; row < record->epochs.rows &&
               !(table_number(&record->epochs, row, column) > (double)epoch);
             row++)
            if (table_number(&record->epochs, row, column) >= 0)
                epoch_write(record, counts, row, sums, sink);
    }
    free(epochs);
}

/* ---- the end */

static double member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* What result.json says of each class. */
struct classes {
    int64_t count;
    struct course_class *of_class;
    int64_t *confusion;
    char (*numbers)[24]; /* for classes without names */
};

static void classes_read(const struct record *record, struct classes *classes)
{
    const json_t *all = record_value(record, "classes");
    const json_t *matrix = record_value(record, "confusion_matrix");
    const size_t count = json_array_size(all);
    *classes = (struct classes){0};
    if (count == 0 || json_array_size(matrix) != count)
        return;
    classes->count = (int64_t)count;
    classes->of_class = calloc(count, sizeof *classes->of_class);
    classes->confusion = calloc(count * count, sizeof *classes->confusion);
    classes->numbers = calloc(count, sizeof *classes->numbers);
    ENSURE(classes->of_class != NULL && classes->confusion != NULL && classes->numbers != NULL,
           "no memory for %zu classes", count);
    for (size_t i = 0; i < count; i++) {
        const json_t *class = json_array_get(all, i), *row = json_array_get(matrix, i);
        const char *name = json_string_value(json_object_get(class, "name"));
        snprintf(classes->numbers[i], sizeof classes->numbers[i], "%zu", i);
        classes->of_class[i] = (struct course_class){.name = name ? name : classes->numbers[i],
                                                     .accuracy = member(class, "accuracy"),
                                                     .precision = member(class, "precision"),
                                                     .recall = member(class, "recall"),
                                                     .f1 = member(class, "f1"),
                                                     .specificity = member(class, "specificity")};
        for (size_t j = 0; j < count; j++)
            classes->confusion[i * count + j] = json_integer_value(json_array_get(row, j));
    }
}

static void end_write(const struct record *record, const struct counts *counts,
                      const struct course_sums *sums, const char *folder,
                      const struct course_sink *sink)
{
    char plot[FILE_PATH];
    struct classes classes;
    if (record->result == NULL)
        return;
    classes_read(record, &classes);
    snprintf(plot, sizeof plot, "%s/accuracy_plot.png", folder);
    const struct course_end end = {.total_seconds = record_number(record, "total_seconds"),
                                   .without_setup_seconds =
                                       record_number(record, "without_setup_seconds"),
                                   .training_seconds = record_number(record, "training_seconds"),
                                   .epochs_seconds = sums->seconds,
                                   .top1 = record_number(record, "top1"),
                                   .best_top1 = sums->best_top1,
                                   .plot = plot,
                                   .classes = classes.count,
                                   .of_class = classes.of_class,
                                   .confusion = classes.confusion};
    course_end(sink, counts->program, &end);
    free(classes.of_class);
    free(classes.confusion);
    free(classes.numbers);
}

/* ---- plots */

static bool plots_write(const struct record *record, const struct course_sums *sums,
                        const char *folder, struct error *error)
{
    const struct table *table = &record->epochs;
    char title[96], path[FILE_PATH];
    double *epoch = column_of(table, "epoch", 1, 1), *loss = column_of(table, "train_loss", 1, 0);
    double *train = column_of(table, "train_top1", 100, 0);
    double *test = column_of(table, "val_top1", 100, 0);
    const struct chart_series accuracies[] = {
        {.name = "Training Accuracy", .x = epoch, .y = train, .count = table->rows},
        {.name = "Test Accuracy", .x = epoch, .y = test, .count = table->rows}};
    const struct chart_series losses[] = {{.x = epoch, .y = loss, .count = table->rows}};
    const struct chart_series training[] = {{.x = epoch, .y = train, .count = table->rows}};
    snprintf(title, sizeof title, "Training and Test Accuracy. Total Train Time: %.2fs",
             sums->seconds);
    const struct chart_axis percent = {.label = "Accuracy (%)"};
    const struct chart accuracy = {.title = title,
                                   .x = {.label = "Epochs", .whole = true},
                                   .y = percent,
                                   .series_count = 2,
                                   .series = accuracies};
    const struct chart metrics[] = {{.title = "Training Loss",
                                     .x = {.label = "Epoch", .whole = true},
                                     .y = {.label = "Loss"},
                                     .series_count = 1,
                                     .series = losses},
                                    {.title = "Training Accuracy",
                                     .x = {.label = "Epoch", .whole = true},
                                     .y = percent,
                                     .series_count = 1,
                                     .series = training}};
    snprintf(path, sizeof path, "%s/accuracy_plot.png", folder);
    bool good = chart_png(&accuracy, path, PLOT_WIDTH, PLOT_HEIGHT, error);
    snprintf(path, sizeof path, "%s/training_metrics.png", folder);
    good = good && charts_png(metrics, 2, path, PLOT_WIDTH, PLOT_HEIGHT, error);
    free(epoch);
    free(loss);
    free(train);
    free(test);
    return good;
}

bool result_file_write(const struct record *record, const char *folder, struct error *error)
{
    char name[96], path[FILE_PATH];
    struct counts counts = {0};
    struct course_sums sums = {.best_top1 = NAN};
    struct atomic_file file;
    if (!result_file_name(record, name, sizeof name, error) || !counts_make(record, &counts, error))
        return false;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!atomic_file_open(&file, path, error))
        return false;
    const struct course_sink sink = {.line = line_put, .self = file.stream};
    course_start(&sink, counts.program);
    epochs_write(record, &counts, &sums, &sink);
    end_write(record, &counts, &sums, folder, &sink);
    return atomic_file_commit(&file, error) && plots_write(record, &sums, folder, error);
}
