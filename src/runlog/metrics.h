/* What is known after a split was evaluated: loss, shares of right answers, the confusion matrix
 * and what follows from it for each class. */
#ifndef VITTRAIN_RUNLOG_METRICS_H
#define VITTRAIN_RUNLOG_METRICS_H

#include <stdint.h>

#include "core/error.h"
#include "data/dataset.h"

struct class_metrics {
    double accuracy, precision, recall, f1, specificity; /* one against the rest; 0 for 0 / 0 */
};

struct evaluation {
    int64_t samples, classes; /* of a regression: 0 classes */
    double loss, top1, top5;  /* means: of losses, of right answers in [0, 1] (NAN: no classes) */
    int64_t *confusion;       /* [classes, classes]: row = true class, column = predicted */
    double seconds;
    bool given_up; /* before its end: none of this is known */
};

void evaluation_free(struct evaluation *evaluation);
void evaluation_class(const struct evaluation *evaluation, int64_t class_number,
                      struct class_metrics *metrics);
/* Macro averages over the classes. */
void evaluation_macro(const struct evaluation *evaluation, struct class_metrics *metrics);

/* Prints the per-class table (of up to 100 classes) and the confusion matrix (of up to 20) to the
 * log. dataset names the classes; NULL: numbers. */
void evaluation_print(const struct evaluation *evaluation, const struct dataset *dataset);

#endif
