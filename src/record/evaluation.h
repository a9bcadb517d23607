// SPDX-License-Identifier: BSD-3-Clause
/* Evaluation of a split: loss, accuracies, the confusion matrix, the metrics of each class, and the
 * errors of each output of a regression. */
#ifndef VITTRAIN_RECORD_EVALUATION_H
#define VITTRAIN_RECORD_EVALUATION_H

#include <stdint.h>

#include "base/columns.h"
#include "base/error.h"
#include "data/dataset.h"
#include "record/scores.h"

/* One class against the rest; 0 / 0 is 0. The accuracy counts true negatives, so it is high for
 * rare classes; the share of a class that is recognised is its recall. */
#define CLASS_METRICS(METRIC)                                                                      \
    METRIC(recall) METRIC(precision) METRIC(f1) METRIC(specificity) METRIC(one_vs_rest_accuracy)

struct class_metrics {
    CLASS_METRICS(COLUMN_MEMBER)
    double iou;               /* NAN if the class is neither true nor predicted anywhere */
    double average_precision; /* of labels; NAN if no sample has the label */
};

struct evaluation {
    int64_t samples, classes; /* regression: 0 classes */
    int64_t counted;          /* samples that have targets */
    int64_t pixels;           /* segmentation: number of pixels that have a class; else 0 */
    double loss;              /* mean over the counted samples; NAN if there are none */
    /* Accuracies in [0, 1], NAN without classes. top1: share of the samples, of the pixels of a
     * segmentation, or of the samples whose labels are all right. top5: NAN for the latter two. */
    double top1, top5;
    double miou;                  /* segmentation: mean IoU of the classes that occur; else NAN */
    int64_t *confusion;           /* [classes, classes]: row = true class, column = predicted */
    struct class_counts *labels;  /* [classes] if labels do not exclude each other; else NULL */
    double *average_precision;    /* [classes] if `labels` is not NULL; else NULL */
    double map;                   /* mean of the average precisions that are not NAN; else NAN */
    int64_t outputs;              /* of a regression */
    struct output_errors *errors; /* [outputs] */
    double seconds;
    bool given_up; /* cancelled before its end: all other members are invalid */
};

void evaluation_free(struct evaluation *evaluation);
void evaluation_class(const struct evaluation *evaluation, int64_t class_number,
                      struct class_metrics *metrics);
/* Set the macro averages: means over the classes that occur, as labels or as predictions; of
 * average precision over those with labels. */
void evaluation_macro(const struct evaluation *evaluation, struct class_metrics *metrics);

/* Return the metric that `monitor` (enum monitor_choice) selects; for MONITOR_NONE the accuracy. */
double evaluation_monitored(const struct evaluation *evaluation, int monitor);

/* Write a number with `digits` decimals, or "-" for NAN. Return the text. */
enum { NUMBER_TEXT = 32 };
const char *evaluation_number(double value, int digits, char text[NUMBER_TEXT]);

/* Return the main metrics for a line of the log, ", accuracy 60.00 % (top-5 95.00 %)"; the caller
 * frees the text. */
char *evaluation_text(const struct evaluation *evaluation, const struct dataset *dataset);

/* Log one evaluation: "NAME: loss 1.2, accuracy 60.00 % (top-5 95.00 %) on 500 samplesREMARK".
 * digits: decimals of the loss. */
void evaluation_log(const char *name, const struct evaluation *evaluation,
                    const struct dataset *dataset, int digits, const char *remark);

/* Write the name of an output, or "y" and its number if the data set has no names. */
enum { OUTPUT_NAME = 64 };
void evaluation_output_name(const struct dataset *dataset, int64_t output, char text[OUTPUT_NAME]);

/* A function of log.h. */
typedef void evaluation_printer(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Log the table of classes (up to 100) and the confusion matrix (up to 20 classes), or the table of
 * outputs (up to 100). dataset: names of classes and outputs; NULL: numbers. */
void evaluation_print(const struct evaluation *evaluation, const struct dataset *dataset,
                      evaluation_printer *print);

/* Add an evaluation to an object of result.json: loss, top1 and top5 at the top level, the rest in
 * objects. dataset: names of classes and outputs; NULL: no names. */
void evaluation_to_json(const struct evaluation *evaluation, const char *split,
                        const struct dataset *dataset, struct json_t *object);

/* Return the JSON text of one evaluation, for commands without a run; the caller frees it. */
char *evaluation_to_text(const struct evaluation *evaluation, const char *split,
                         const struct dataset *dataset);

#endif
