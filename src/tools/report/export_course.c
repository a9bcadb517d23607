// SPDX-License-Identifier: BSD-3-Clause
/* The course project's programs on CIFAR-10: a small CNN, a deep CNN and a ViT. Accuracies are
 * printed in percent, epochs count from 1. The result file (BATCH_EPOCHS_NODES_GPUS.txt) has the
 * lines from the start of training on. */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/atomic_file.h"
#include "tools/report/chart.h"
#include "tools/report/export.h"

enum { PLOT_WIDTH = 1200, PLOT_HEIGHT = 500 };

enum program { CNN_A, CNN_B, VIT };

static enum program program_of(const struct export_run *run)
{
    if (strncmp(run->model, "cnn_a", 5) == 0)
        return CNN_A;
    return strncmp(run->model, "vit", 3) == 0 ? VIT : CNN_B;
}

/* Print to the log and to the result file. */
static void both_print(const struct export_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void both_print(const struct export_run *run, const char *format, ...)
{
    FILE *const files[] = {run->log, run->result};
    for (int i = 0; i < 2; i++) {
        va_list arguments;
        va_start(arguments, format);
        vfprintf(files[i], format, arguments);
        va_end(arguments);
    }
}

/* ---- start */

static void processes_write(const struct export_run *run, enum program program)
{
    static const struct {
        const char *title, *mark, *single;
    } texts[] = {
        [CNN_A] = {"Process info:", " ", "----- Running in single-GPU mode -----"},
        [CNN_B] = {" Starting distributed training with:", "       - ",
                   "[INFO] Running in single-GPU mode"},
        [VIT] = {"Starting distributed training with:", " ", "Running in single GPU mode"}};
    const char *mark = texts[program].mark;
    if (run->ranks == 1)
        fprintf(run->log, "%s\n", texts[program].single);
    else
        fprintf(run->log, "%s\n%sGlobal rank: 0\n%sLocal rank: 0\n%sWorld size: %lld\n",
                texts[program].title, mark, mark, mark, (long long)run->ranks);
}

static void resumed_write(const struct export_run *run, enum program program, const char *resumed)
{
    const char *monitor = record_option(run->record, "checkpoint.monitor");
    const long long epochs = (long long)run->epochs_done;
    double seconds = run->elapsed; /* of the earlier attempts, without set-up */
    if (resumed == NULL) {
        both_print(run, "%s\n",
                   program == VIT ? "No checkpoint found, starting fresh training"
                                  : "No checkpoint found. Starting training from scratch");
        return;
    }
    if (program == VIT) {
        fprintf(run->log, "Loading checkpoint from %s\nResuming training from epoch %lld\n",
                resumed, epochs);
        return;
    }
    for (int i = 0; i < run->attempt; i++)
        seconds -= export_attempt_number(run, i, "setup_seconds");
    fprintf(run->log,
            "Loaded %lld previous train accuracy records\n"
            "Loaded %lld previous test accuracy records\n",
            epochs, epochs);
    if (!isnan(run->best_top1) && (monitor == NULL || strcmp(monitor, "top1") == 0))
        fprintf(run->log, "Previous best accuracy: %.4f%%\n", 100 * run->best_top1);
    fprintf(run->log,
            "Previous total training time: %.2f seconds\nLoaded model from %s\n"
            "Continuing training from epoch %lld\n",
            seconds, resumed, epochs);
}

static void course_attempt(const struct export_run *run, const char *resumed)
{
    static const char *const titles[] = {[CNN_A] = "--- Starting training with:---",
                                         [CNN_B] = "Starting training with:",
                                         [VIT] = "Starting Vision Transformer training with:"};
    const enum program program = program_of(run);
    const char *backend = record_text(run->record, "backend");
    char rate[40];
    processes_write(run, program);
    if (program != VIT)
        resumed_write(run, program, resumed);
    fprintf(run->log, "%s\n Number of epochs: %lld\n Batch size: %lld\n", titles[program],
            (long long)run->epochs, (long long)run->batch);
    if (program != VIT)
        fprintf(run->log, " Total steps per epoch: %lld\n", (long long)run->epoch_steps);
    fprintf(run->log, " Learning rate: %s\n",
            export_number(record_number(run->record, "base_lr"), rate, sizeof rate));
    if (program == VIT)
        fprintf(run->log, " Image size: %.0f\n", record_number(run->record, "image"));
    else
        fprintf(run->log, " Starting from epoch: %lld\n", (long long)run->epochs_done);
    fprintf(run->log, " Device: %s\n",
            backend != NULL && strcmp(backend, "cpu") != 0 ? "cuda:0" : "cpu");
    if (run->ranks > 1)
        fprintf(run->log, " Distributed training enabled with %lld processes\n",
                (long long)run->ranks);
    if (program == VIT)
        resumed_write(run, program, resumed);
}

/* ---- epochs */

static void course_epoch_begin(const struct export_run *run)
{
    const enum program program = program_of(run);
    if (run->ranks > 1 && program != VIT)
        fprintf(run->log, "%sSet epoch %lld for distributed sampler\n",
                program == CNN_B ? "[INFO] " : "", (long long)run->epoch);
}

static void course_step(const struct export_run *run, int64_t row)
{
    char accuracy[32] = "";
    (void)row;
    if (program_of(run) == VIT)
        snprintf(accuracy, sizeof accuracy, ", Acc: %.2f%%",
                 100 * run->sums.top1 / run->sums.samples);
    both_print(run, "Epoch [%lld/%lld], Step [%lld/%lld], Loss: %.4f%s\n",
               (long long)run->epoch + 1, (long long)run->epochs, (long long)run->epoch_step,
               (long long)run->epoch_steps, run->last_loss, accuracy);
}

static void course_epoch(const struct export_run *run, int64_t row, bool improved)
{
    const struct table *table = &run->record->epochs;
    const double train = 100 * table_number_at(table, row, "train_top1");
    const double test = 100 * table_number_at(table, row, "val_top1");
    const double seconds = table_number_at(table, row, "seconds");
    const double evaluation = table_number_at(table, row, "eval_seconds");
    if (program_of(run) == VIT) {
        both_print(run, "Epoch [%lld/%lld], Loss: %.4f, Accuracy: %.2f%%, Time: %.2fs\n",
                   (long long)run->epoch + 1, (long long)run->epochs,
                   table_number_at(table, row, "train_loss"), train, seconds);
        return;
    }
    both_print(
        run,
        "Epoch %lld completed in %.2f seconds\nTrain Accuracy: %.2f%%, Test Accuracy: %.2f%%\n"
        "Total training time so far: %.2f seconds\n",
        (long long)run->epoch + 1, seconds + (isnan(evaluation) ? 0 : evaluation), train, test,
        run->epochs_seconds);
    if (improved)
        both_print(run, "New best accuracy: %.2f%%\n", test);
}

static void course_checkpoint(const struct export_run *run, const char *path)
{
    if (program_of(run) == VIT)
        fprintf(run->log, "Saved checkpoint to %s\n", path);
}

/* ---- end */

/* The name of a class, or its number; short_name: CIFAR-10's "plane" and "car". */
static const char *class_name(const struct export_run *run, size_t i, bool short_name, char *number)
{
    const json_t *class = json_array_get(record_value(run->record, "classes"), i);
    const char *name = json_text_of(class, "name");
    if (name == NULL) {
        snprintf(number, 24, "%zu", i);
        return number;
    }
    if (short_name && strcmp(name, "airplane") == 0)
        return "plane";
    return short_name && strcmp(name, "automobile") == 0 ? "car" : name;
}

static void classes_write(const struct export_run *run)
{
    static const struct {
        const char *title, *key;
    } metrics[] = {{"Accuracy", "one_vs_rest_accuracy"},
                   {"Precision", "precision"},
                   {"Recall", "recall"},
                   {"F1-score", "f1"},
                   {"Specificity", "specificity"}};
    const json_t *classes = record_value(run->record, "classes");
    const bool short_name = program_of(run) != VIT;
    char number[24];
    if (json_array_size(classes) == 0)
        return;
    both_print(run, "\nMetrics for each class:\n------------------------\n");
    for (size_t i = 0; i < json_array_size(classes); i++) {
        const json_t *class = json_array_get(classes, i);
        both_print(run, "\nClass: %s\n", class_name(run, i, short_name, number));
        for (size_t m = 0; m < sizeof metrics / sizeof metrics[0]; m++)
            both_print(run, "%s: %.4f\n", metrics[m].title,
                       fmax(record_class_metric(class, metrics[m].key), 0));
    }
}

/* Columns are as wide as short names need; longer names are cut. */
static void matrix_write(const struct export_run *run)
{
    const json_t *matrix = record_value(run->record, "confusion_matrix");
    const size_t classes = json_array_size(matrix);
    char number[24];
    if (classes == 0)
        return;
    both_print(run,
               "\nConfusion Matrix:\n----------------\nPredicted \u2192\nActual \u2193\n      ");
    for (size_t i = 0; i < classes; i++)
        both_print(run, "%-7.31s", class_name(run, i, true, number));
    for (size_t i = 0; i < classes; i++) {
        const json_t *row = json_array_get(matrix, i);
        both_print(run, "\n%-6.31s", class_name(run, i, true, number));
        for (size_t j = 0; j < classes; j++)
            both_print(run, "%7lld", (long long)json_integer_value(json_array_get(row, j)));
    }
    both_print(run, "\n");
}

static void course_end(const struct export_run *run)
{
    const struct record *record = run->record;
    const double training = record_number(record, "training_seconds");
    const enum program program = program_of(run);
    both_print(run, "Training completed in %.2f seconds\n",
               program == VIT ? training : record_number(record, "without_setup_seconds"));
    both_print(run, "%s\n", program == VIT ? "Evaluating on test set..." : "Finished Training");
    classes_write(run);
    if (program == VIT)
        both_print(run, "\nOverall Accuracy: %.4f\n", record_number(record, "top1"));
    if (program == CNN_B) {
        both_print(run, "Training plots saved to %s/accuracy_plot.png\n", record->path);
        if (!isnan(run->best_top1))
            both_print(run, "Best test accuracy: %.2f%%\n", 100 * run->best_top1);
        both_print(run, "Total training time: %.2f seconds\n", run->epochs_seconds);
    }
    matrix_write(run);
    if (program == VIT)
        both_print(
            run,
            "Total training time: %.2f seconds\nTraining time (excluding setup): %.2f seconds\n",
            record_number(record, "total_seconds"), training);
}

/* ---- plots */

static bool course_files(const struct export_run *run, struct error *error)
{
    const struct table *table = &run->record->epochs;
    char title[96], path[EXPORT_PATH];
    double *epoch = allocate((size_t)table->rows * 4 + 1, sizeof *epoch);
    double *loss = epoch + table->rows, *train = loss + table->rows, *test = train + table->rows;
    for (int64_t row = 0; row < table->rows; row++) {
        epoch[row] = table_number_at(table, row, "epoch") + 1;
        loss[row] = table_number_at(table, row, "train_loss");
        train[row] = 100 * table_number_at(table, row, "train_top1");
        test[row] = 100 * table_number_at(table, row, "val_top1");
    }
    const struct chart_series accuracies[] = {
        {.name = "Training Accuracy", .x = epoch, .y = train, .count = table->rows},
        {.name = "Test Accuracy", .x = epoch, .y = test, .count = table->rows}};
    const struct chart_series losses[] = {{.x = epoch, .y = loss, .count = table->rows}};
    const struct chart_series training[] = {{.x = epoch, .y = train, .count = table->rows}};
    snprintf(title, sizeof title, "Training and Test Accuracy. Total Train Time: %.2fs",
             run->epochs_seconds);
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
    snprintf(path, sizeof path, "%s/accuracy_plot.png", run->record->path);
    bool good = chart_png(&accuracy, 1, path, PLOT_WIDTH, PLOT_HEIGHT, error);
    snprintf(path, sizeof path, "%s/training_metrics.png", run->record->path);
    good = good && chart_png(metrics, 2, path, PLOT_WIDTH, PLOT_HEIGHT, error);
    free(epoch);
    return good;
}

const struct export_format export_course = {.name = "course",
                                            .log_every = 512,
                                            .log_every_vit = 100,
                                            .attempt = course_attempt,
                                            .epoch_begin = course_epoch_begin,
                                            .step = course_step,
                                            .epoch = course_epoch,
                                            .checkpoint = course_checkpoint,
                                            .end = course_end,
                                            .files = course_files};
