// SPDX-License-Identifier: BSD-3-Clause
/* Evaluation of a split: loss, accuracies, the confusion matrix and the metrics of each class. */
#ifndef VITTRAIN_RUNLOG_EVALUATION_H
#define VITTRAIN_RUNLOG_EVALUATION_H

#include <stdint.h>

#include "core/error.h"
#include "data/dataset.h"

/* One class against the rest; 0 / 0 is 0. The accuracy counts true negatives, so it is high for
 * rare classes; the share of a class that is recognised is its recall. */
struct class_metrics {
    double recall, precision, f1, specificity, one_vs_rest_accuracy;
};

struct evaluation {
    int64_t samples, classes; /* regression: 0 classes */
    double loss, top1, top5;  /* means; accuracies in [0, 1], NAN without classes */
    int64_t *confusion;       /* [classes, classes]: row = true class, column = predicted */
    double seconds;
    bool given_up; /* cancelled before its end: all other members are invalid */
};

void evaluation_free(struct evaluation *evaluation);
void evaluation_class(const struct evaluation *evaluation, int64_t class_number,
                      struct class_metrics *metrics);
/* Macro averages over the classes. */
void evaluation_macro(const struct evaluation *evaluation, struct class_metrics *metrics);

/* Log the table of classes (up to 100) and the confusion matrix (up to 20 classes). dataset: names
 * of the classes; NULL: numbers. */
void evaluation_print(const struct evaluation *evaluation, const struct dataset *dataset);

#endif
