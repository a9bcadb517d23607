// SPDX-License-Identifier: BSD-3-Clause
#include "runlog/evaluation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/log.h"
#include "core/text.h"

enum { LABEL_WIDTH = 16, LABEL_SIZE = 24, LINE_SIZE = 512 };

/* Limits of the log; result.json has all classes. */
enum { PRINTED_CLASSES = 100, PRINTED_MATRIX = 20 };

void evaluation_free(struct evaluation *evaluation)
{
    free(evaluation->confusion);
    evaluation->confusion = NULL;
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

void evaluation_class(const struct evaluation *evaluation, int64_t class_number,
                      struct class_metrics *metrics)
{
    ENSURE(class_number >= 0 && class_number < evaluation->classes, "class %" PRId64 " of %" PRId64,
           class_number, evaluation->classes);
    const int64_t classes = evaluation->classes, samples = evaluation->samples;
    const int64_t right = evaluation->confusion[class_number * classes + class_number];
    int64_t actual = 0, predicted = 0;
    for (int64_t other = 0; other < classes; other++) {
        actual += evaluation->confusion[class_number * classes + other];
        predicted += evaluation->confusion[other * classes + class_number];
    }
    const int64_t true_negative = samples - actual - predicted + right;
    metrics->one_vs_rest_accuracy = ratio((double)(right + true_negative), (double)samples);
    metrics->precision = ratio((double)right, (double)predicted);
    metrics->recall = ratio((double)right, (double)actual);
    metrics->f1 =
        ratio(2 * metrics->precision * metrics->recall, metrics->precision + metrics->recall);
    metrics->specificity = ratio((double)true_negative, (double)(samples - actual));
}

void evaluation_macro(const struct evaluation *evaluation, struct class_metrics *metrics)
{
    struct class_metrics sum = {0};
    double classes = (double)evaluation->classes;

    for (int64_t number = 0; number < evaluation->classes; number++) {
        struct class_metrics one;
        evaluation_class(evaluation, number, &one);
        sum.one_vs_rest_accuracy += one.one_vs_rest_accuracy;
        sum.precision += one.precision;
        sum.recall += one.recall;
        sum.f1 += one.f1;
        sum.specificity += one.specificity;
    }
    *metrics =
        (struct class_metrics){.recall = ratio(sum.recall, classes),
                               .precision = ratio(sum.precision, classes),
                               .f1 = ratio(sum.f1, classes),
                               .specificity = ratio(sum.specificity, classes),
                               .one_vs_rest_accuracy = ratio(sum.one_vs_rest_accuracy, classes)};
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

static void print_metrics_row(const char *label, const struct class_metrics *metrics)
{
    log_info("%-*.*s %9.4f %9.4f %9.4f %11.4f %20.4f", LABEL_WIDTH, LABEL_WIDTH, label,
             metrics->recall, metrics->precision, metrics->f1, metrics->specificity,
             metrics->one_vs_rest_accuracy);
}

static void print_matrix(const struct evaluation *evaluation, const struct dataset *dataset)
{
    char line[LINE_SIZE], label[LABEL_SIZE];
    int used = snprintf(line, sizeof line, "%-*s", LABEL_WIDTH, "actual\\predicted");

    for (int64_t column = 0; column < evaluation->classes; column++) {
        class_label(dataset, column, label, sizeof label);
        used += snprintf(line + used, sizeof line - (size_t)used, " %8.8s", label);
    }
    log_info("%s", line);
    for (int64_t row = 0; row < evaluation->classes; row++) {
        class_label(dataset, row, label, sizeof label);
        used = snprintf(line, sizeof line, "%-*s", LABEL_WIDTH, label);
        for (int64_t column = 0; column < evaluation->classes; column++)
            used += snprintf(line + used, sizeof line - (size_t)used, " %8" PRId64,
                             evaluation->confusion[row * evaluation->classes + column]);
        log_info("%s", line);
    }
}

void evaluation_print(const struct evaluation *evaluation, const struct dataset *dataset)
{
    struct class_metrics metrics;
    char label[LABEL_SIZE];

    if (evaluation->classes == 0)
        return;
    log_info("%-*s %9s %9s %9s %11s %20s", LABEL_WIDTH, "class", "recall", "precision", "F1",
             "specificity", "one-vs-rest accuracy");
    for (int64_t number = 0; number < evaluation->classes && number < PRINTED_CLASSES; number++) {
        evaluation_class(evaluation, number, &metrics);
        class_label(dataset, number, label, sizeof label);
        print_metrics_row(label, &metrics);
    }
    if (evaluation->classes > PRINTED_CLASSES)
        log_info("... %" PRId64 " classes in total", evaluation->classes);
    evaluation_macro(evaluation, &metrics);
    print_metrics_row("macro average", &metrics);
    if (evaluation->classes <= PRINTED_MATRIX)
        print_matrix(evaluation, dataset);
}
