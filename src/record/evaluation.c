// SPDX-License-Identifier: BSD-3-Clause
#include "record/evaluation.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/columns.h"
#include "base/log.h"
#include "base/text.h"
#include "options/option_types.h"

enum { LABEL_WIDTH = 16, CELL_WIDTH = 11, LABEL_SIZE = 24, OUTPUT_LABEL = 29, LINE_SIZE = 512 };

/* Limits of the log; result.json has all classes and outputs. */
enum { PRINTED_CLASSES = 100, PRINTED_MATRIX = 20, OUTPUTS_IN_TEXT = 4 };

/* clang-format off */
#define METRIC(name) {#name, COLUMN_NUMBER, offsetof(struct class_metrics, name), NULL},
static const struct column class_columns[] = {CLASS_METRICS(METRIC) COLUMNS_END},
    pixel_columns[] = {CLASS_METRICS(METRIC) METRIC(iou) COLUMNS_END},
    label_columns[] = {CLASS_METRICS(METRIC) METRIC(average_precision) COLUMNS_END};

#define ERROR(name) {#name, COLUMN_NUMBER, offsetof(struct output_errors, name), NULL},
static const struct column error_columns[] = {ERROR(output_loss) OUTPUT_ERRORS(ERROR) COLUMNS_END};
/* clang-format on */

enum {
    CLASS_VALUES = sizeof(struct class_metrics) / sizeof(double),
    CLASS_RATIOS = sizeof class_columns / sizeof class_columns[0] - 1,
    COLUMNS_OF_MODEL = 1 + offsetof(struct output_errors, persistence_rmse) / sizeof(double)
};

void evaluation_free(struct evaluation *evaluation)
{
    free(evaluation->confusion);
    free(evaluation->labels);
    free(evaluation->average_precision);
    free(evaluation->errors);
    evaluation->confusion = NULL;
    evaluation->labels = NULL;
    evaluation->average_precision = NULL;
    evaluation->errors = NULL;
}

double evaluation_monitored(const struct evaluation *evaluation, int monitor)
{
    const double values[] = {[MONITOR_LOSS] = evaluation->loss, [MONITOR_TOP1] = evaluation->top1,
                             [MONITOR_TOP5] = evaluation->top5, [MONITOR_MIOU] = evaluation->miou,
                             [MONITOR_MAP] = evaluation->map,   [MONITOR_NONE] = evaluation->top1};
    return values[monitor];
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

void evaluation_class(const struct evaluation *evaluation, int64_t class_number,
                      struct class_metrics *metrics)
{
    const int64_t classes = evaluation->classes;
    ENSURE(class_number >= 0 && class_number < classes, "class %" PRId64 " of %" PRId64,
           class_number, classes);
    struct class_counts counts = {.counted = evaluation->pixels > 0 ? evaluation->pixels
                                                                    : evaluation->samples};
    if (evaluation->labels != NULL) {
        counts = evaluation->labels[class_number];
    } else {
        counts.right = evaluation->confusion[class_number * classes + class_number];
        for (int64_t other = 0; other < classes; other++) {
            counts.actual += evaluation->confusion[class_number * classes + other];
            counts.predicted += evaluation->confusion[other * classes + class_number];
        }
    }
    const double right = (double)counts.right, actual = (double)counts.actual;
    const double predicted = (double)counts.predicted, samples = (double)counts.counted;
    const double true_negative = samples - actual - predicted + right;
    metrics->one_vs_rest_accuracy = ratio(right + true_negative, samples);
    metrics->precision = ratio(right, predicted);
    metrics->recall = ratio(right, actual);
    metrics->f1 =
        ratio(2 * metrics->precision * metrics->recall, metrics->precision + metrics->recall);
    metrics->specificity = ratio(true_negative, samples - actual);
    metrics->iou = right / (actual + predicted - right);
    metrics->average_precision = evaluation->average_precision != NULL
                                     ? evaluation->average_precision[class_number]
                                     : (double)NAN;
}

void evaluation_macro(const struct evaluation *evaluation, struct class_metrics *metrics)
{
    double *sums = (double *)metrics, counts[CLASS_VALUES] = {0};
    *metrics = (struct class_metrics){0};
    for (int64_t number = 0; number < evaluation->classes; number++) {
        struct class_metrics one;
        const double *values = (const double *)&one;
        evaluation_class(evaluation, number, &one);
        for (int i = 0; i < CLASS_VALUES && !isnan(one.iou); i++) {
            counts[i] += !isnan(values[i]);
            sums[i] += isnan(values[i]) ? 0 : values[i];
        }
    }
    for (int i = 0; i < CLASS_VALUES; i++)
        sums[i] = i < CLASS_RATIOS ? ratio(sums[i], counts[i]) : sums[i] / counts[i];
}

void evaluation_output_name(const struct dataset *dataset, int64_t output, char text[OUTPUT_NAME])
{
    if (dataset != NULL && dataset->target_name != NULL && output < dataset->target.count)
        text_shorten(dataset->target_name[output], text, OUTPUT_NAME);
    else
        snprintf(text, OUTPUT_NAME, "y%" PRId64, output);
    text_remove_control(text);
}

const char *evaluation_number(double value, int digits, char text[NUMBER_TEXT])
{
    snprintf(text, NUMBER_TEXT, "%.*f", digits, value);
    return isnan(value) ? "-" : text;
}

/* Return the RMSE as a multiple of that of persistence; NAN if that is 0 or not known. */
static double persistence_ratio(const struct output_errors *errors)
{
    return errors->persistence_rmse > 0 ? errors->rmse / errors->persistence_rmse : (double)NAN;
}

static const char *ratio_text(double ratio, char text[NUMBER_TEXT])
{
    snprintf(text, NUMBER_TEXT, "%.3g", ratio);
    return isnan(ratio) ? "-" : text;
}

/* Write the errors of a few outputs, or the mean over all. */
static void errors_write(const struct evaluation *evaluation, const struct dataset *dataset,
                         FILE *stream)
{
    const int64_t outputs = evaluation->outputs;
    char name[OUTPUT_NAME], label[OUTPUT_LABEL], number[NUMBER_TEXT];
    double r2 = 0, ratios = 0, known = 0, compared = 0;
    bool persists = true;
    for (int64_t i = 0; i < outputs; i++) {
        const struct output_errors *errors = &evaluation->errors[i];
        const double ratio = persistence_ratio(errors);
        if (isnan(errors->rmse))
            continue;
        known++;
        r2 += errors->r2;
        persists = persists && !isnan(errors->persistence_rmse);
        ratios += isnan(ratio) ? 0 : ratio;
        compared += !isnan(ratio);
    }
    if (known == 0) {
        fputs(", no targets", stream);
        return;
    }
    for (int64_t i = 0; i < outputs && outputs <= OUTPUTS_IN_TEXT; i++) {
        const struct output_errors *errors = &evaluation->errors[i];
        evaluation_output_name(dataset, i, name);
        text_shorten(name, label, sizeof label);
        snprintf(number, sizeof number, "%.4g", errors->rmse);
        fprintf(stream, ", %s%s %s", i == 0 ? "RMSE " : "", label,
                isnan(errors->rmse) ? "(no targets)" : number);
        if (!isnan(errors->persistence_rmse))
            fprintf(stream, " (%s of persistence)", ratio_text(persistence_ratio(errors), number));
    }
    if (outputs > OUTPUTS_IN_TEXT && persists)
        fprintf(stream, ", RMSE %s of persistence (mean of %.0f outputs)",
                ratio_text(ratios / compared, number), compared);
    else if (outputs > OUTPUTS_IN_TEXT)
        fprintf(stream, ", R2 %s (mean of %.0f outputs)", evaluation_number(r2 / known, 4, number),
                known);
    else if (compared == 0)
        fprintf(stream, ", %sR2 %s", outputs > 1 ? "mean " : "",
                evaluation_number(r2 / known, 4, number));
}

char *evaluation_text(const struct evaluation *evaluation, const struct dataset *dataset)
{
    struct text_stream text;
    struct class_metrics macro;
    char number[NUMBER_TEXT];
    FILE *stream = text_stream_open(&text);
    if (evaluation->errors != NULL) {
        errors_write(evaluation, dataset, stream);
    } else if (evaluation->classes > 0 && isnan(evaluation->top1)) {
        fputs(", no targets", stream);
    } else if (evaluation->pixels > 0) {
        fprintf(stream, ", pixel accuracy %.2f %%, mean IoU %.4f", 100 * evaluation->top1,
                evaluation->miou);
    } else if (evaluation->labels != NULL) {
        evaluation_macro(evaluation, &macro);
        fprintf(stream, ", subset accuracy %.2f %%, macro F1 %.4f, mAP %s", 100 * evaluation->top1,
                macro.f1, evaluation_number(evaluation->map, 4, number));
    } else if (evaluation->classes > 0) {
        fprintf(stream, ", accuracy %.2f %% (top-5 %.2f %%)", 100 * evaluation->top1,
                100 * evaluation->top5);
    }
    return text_stream_close(&text);
}

void evaluation_log(const char *name, const struct evaluation *evaluation,
                    const struct dataset *dataset, int digits, const char *remark)
{
    char loss[NUMBER_TEXT], *text = evaluation_text(evaluation, dataset);
    log_info("%s: loss %s%s on %lld samples%s", name,
             evaluation_number(evaluation->loss, digits, loss), text,
             (long long)evaluation->samples, remark);
    free(text);
}

/* The name of a class, or its number if the data set has no names. */
static void class_label(const struct dataset *dataset, int64_t number, char *text, size_t size)
{
    if (dataset != NULL && dataset->class_name != NULL && number < dataset->classes)
        snprintf(text, size, "%s", dataset->class_name[number]);
    else
        snprintf(text, size, "%" PRId64, number);
    text_remove_control(text);
}

/* Print the label, in `width` characters, and at most `most` columns of a row. row: NULL prints the
 * names of the columns. */
static void print_row(evaluation_printer *print, int width, const char *label,
                      const struct column *columns, int most, const void *row)
{
    char line[LINE_SIZE], number[NUMBER_TEXT];
    int used = snprintf(line, sizeof line, "%-*.*s", width, width, label);
    for (int i = 0; i < most && columns[i].name != NULL; i++) {
        const int length = (int)strlen(columns[i].name);
        const double value =
            row != NULL ? *(const double *)((const char *)row + columns[i].offset) : 0;
        snprintf(number, sizeof number, "%#.4g", value);
        used += snprintf(line + used, sizeof line - (size_t)used, " %*s",
                         length > CELL_WIDTH ? length : CELL_WIDTH,
                         row == NULL    ? columns[i].name
                         : isnan(value) ? ""
                                        : number);
    }
    print("%s", line);
}

static void print_matrix(evaluation_printer *print, const struct evaluation *evaluation,
                         const struct dataset *dataset)
{
    char line[LINE_SIZE], label[LABEL_SIZE];
    int used = snprintf(line, sizeof line, "%-*s", LABEL_WIDTH, "actual\\predicted");

    for (int64_t column = 0; column < evaluation->classes; column++) {
        class_label(dataset, column, label, sizeof label);
        used += snprintf(line + used, sizeof line - (size_t)used, " %8.8s", label);
    }
    print("%s", line);
    for (int64_t row = 0; row < evaluation->classes; row++) {
        class_label(dataset, row, label, sizeof label);
        used = snprintf(line, sizeof line, "%-*s", LABEL_WIDTH, label);
        for (int64_t column = 0; column < evaluation->classes; column++)
            used += snprintf(line + used, sizeof line - (size_t)used, " %8" PRId64,
                             evaluation->confusion[row * evaluation->classes + column]);
        print("%s", line);
    }
}

static void print_errors(evaluation_printer *print, const struct evaluation *evaluation,
                         const struct dataset *dataset)
{
    char name[OUTPUT_NAME], label[OUTPUT_LABEL];
    int columns = COLUMNS_OF_MODEL, width = LABEL_WIDTH;
    for (int64_t i = 0; i < evaluation->outputs; i++)
        if (!isnan(evaluation->errors[i].persistence_rmse))
            columns = INT_MAX;
    for (int64_t i = 0; i < evaluation->outputs && i < PRINTED_CLASSES; i++) {
        evaluation_output_name(dataset, i, name);
        text_shorten(name, label, sizeof label);
        width = (int)strlen(label) > width ? (int)strlen(label) : width;
    }
    print_row(print, width, "output", error_columns, columns, NULL);
    for (int64_t i = 0; i < evaluation->outputs && i < PRINTED_CLASSES; i++) {
        evaluation_output_name(dataset, i, name);
        text_shorten(name, label, sizeof label);
        print_row(print, width, label, error_columns, columns, &evaluation->errors[i]);
    }
    if (evaluation->outputs > PRINTED_CLASSES)
        print("... %" PRId64 " outputs in total", evaluation->outputs);
}

static const struct column *columns_of(const struct evaluation *evaluation)
{
    return evaluation->labels != NULL ? label_columns
           : evaluation->pixels > 0   ? pixel_columns
                                      : class_columns;
}

void evaluation_print(const struct evaluation *evaluation, const struct dataset *dataset,
                      evaluation_printer *print)
{
    if (evaluation->errors != NULL)
        print_errors(print, evaluation, dataset);
    if (evaluation->errors != NULL || evaluation->classes == 0)
        return;
    const struct column *columns = columns_of(evaluation);
    struct class_metrics metrics;
    char label[LABEL_SIZE];
    print_row(print, LABEL_WIDTH, "class", columns, INT_MAX, NULL);
    for (int64_t number = 0; number < evaluation->classes && number < PRINTED_CLASSES; number++) {
        evaluation_class(evaluation, number, &metrics);
        class_label(dataset, number, label, sizeof label);
        print_row(print, LABEL_WIDTH, label, columns, INT_MAX, &metrics);
    }
    if (evaluation->classes > PRINTED_CLASSES)
        print("... %" PRId64 " classes in total", evaluation->classes);
    evaluation_macro(evaluation, &metrics);
    print_row(print, LABEL_WIDTH, "macro average", columns, INT_MAX, &metrics);
    if (evaluation->classes <= PRINTED_MATRIX && evaluation->labels == NULL)
        print_matrix(print, evaluation, dataset);
}

/* ---- result.json */

/* Return a row; name NULL: without a name. */
static json_t *row_to_json(const struct column *columns, const void *row, const char *name)
{
    json_t *object = json_object();
    if (name != NULL)
        value_put(object, "name", value_name(name));
    columns_to_json(columns, row, object);
    return object;
}

void evaluation_to_json(const struct evaluation *evaluation, const char *split,
                        const struct dataset *dataset, json_t *object)
{
    const struct column *columns = columns_of(evaluation);
    const int64_t count = evaluation->classes;
    struct class_metrics metrics;
    value_put(object, "split", value_text(split));
    value_put(object, "samples", json_integer(evaluation->samples));
    value_put(object, "loss", value_number(evaluation->loss));
    value_put(object, "top1", value_number(evaluation->top1));
    value_put(object, "top5", value_number(evaluation->top5));
    value_put(object, "evaluation_seconds", value_number(evaluation->seconds));
    if (evaluation->pixels > 0)
        value_put(object, "miou", value_number(evaluation->miou));
    if (evaluation->labels != NULL)
        value_put(object, "map", value_number(evaluation->map));
    if (evaluation->outputs > 0) {
        json_t *outputs = json_array();
        for (int64_t i = 0; i < evaluation->outputs; i++) {
            char name[OUTPUT_NAME];
            evaluation_output_name(dataset, i, name);
            value_append(outputs, row_to_json(error_columns, &evaluation->errors[i], name));
        }
        value_put(object, "outputs", outputs);
    }
    if (evaluation->confusion == NULL || count == 0)
        return;
    json_t *classes = json_array(), *matrix = json_array();
    for (int64_t i = 0; i < count; i++) {
        const bool named = dataset != NULL && dataset->class_name != NULL && i < dataset->classes;
        json_t *row = json_array();
        evaluation_class(evaluation, i, &metrics);
        value_append(classes,
                     row_to_json(columns, &metrics, named ? dataset->class_name[i] : NULL));
        for (int64_t j = 0; j < count; j++)
            value_append(row, json_integer(evaluation->confusion[i * count + j]));
        value_append(matrix, row);
    }
    evaluation_macro(evaluation, &metrics);
    value_put(object, "macro", row_to_json(columns, &metrics, NULL));
    value_put(object, "classes", classes);
    if (evaluation->labels == NULL)
        value_put(object, "confusion_matrix", json_incref(matrix));
    json_decref(matrix);
}

char *evaluation_to_text(const struct evaluation *evaluation, const char *split,
                         const struct dataset *dataset)
{
    json_t *object = json_object();
    evaluation_to_json(evaluation, split, dataset, object);
    return value_to_text(object);
}
