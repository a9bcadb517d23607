// SPDX-License-Identifier: BSD-3-Clause
/* Metrics of predictions: counts of classes, of the pixels of a segmentation and of labels that do
 * not exclude each other; errors of one output of a regression. */
#ifndef VITTRAIN_RECORD_SCORES_H
#define VITTRAIN_RECORD_SCORES_H

#include <math.h>
#include <stdint.h>

#include "base/columns.h"
#include "device/operations.h"
#include "options/option_types.h"

/* One class against the rest. */
struct class_counts {
    int64_t right;     /* true and predicted */
    int64_t actual;    /* true */
    int64_t predicted; /* predicted */
    int64_t counted;   /* all */
};

/* Samples with labels, and those of them whose labels are all predicted right. */
struct sample_counts {
    int64_t right, counted;
};

/* Return the predicted class of a pixel: that of the largest logit, and the lowest class if several
 * are equal. logits: of the pixel and class 0; those of the next class are `pixels` further. */
static inline int64_t pixel_class(const float *logits, int64_t classes, int64_t pixels)
{
    int64_t best = 0;
    for (int64_t i = 1; i < classes; i++)
        if (logits[i * pixels] > logits[best * pixels])
            best = i;
    return best;
}

/* Add the pixels of a sample to a confusion matrix [classes, classes]. logits: [classes, pixels],
 * whose predictions are those of pixel_class. targets: class numbers; NaN: not counted. */
void confusion_add_pixels(int64_t *confusion, int64_t classes, const float *logits,
                          const float *targets, int64_t pixels);

/* Add the labels of a sample to the counts of each class. A label is predicted if its probability
 * is above 0.5. targets: 0 or 1; NaN: not counted. */
void class_counts_add(struct class_counts *counts, struct sample_counts *samples, int64_t classes,
                      const float *logits, const float *targets);

/* Return the probability of one of several labels: the sigmoid of the model's output. */
static inline float label_probability(float output)
{
    return 1 / (1 + expf(-output));
}

/* Return the score of a label for average_precision: its probability, with a negative sign if the
 * target is 0; NaN if the target is missing. */
static inline float label_score(float output, float target)
{
    return isnan(target) ? target : copysignf(label_probability(output), target - 0.5f);
}

/* Return the average precision of a label: the sum of (R(t) - R(t')) * P(t) over the distinct
 * probabilities t in descending order, where t' precedes t. P(t) and R(t) are precision and recall
 * if samples of probability t or more are predicted. NaN scores are not counted. Return NAN if no
 * sample has the label. Sort the scores. */
double average_precision(float *scores, int64_t count);

/* Errors of one output of a regression: root mean square, absolute, mean and relative to the
 * variance. The sums depend neither on the order nor on the number of ranks (device/exact_sum.h).
 */

/* Columns of metrics.csv and keys of result.json: root of the mean squared error, mean absolute
 * error, mean of prediction - target, 1 - squared error / variance of the target, and the errors of
 * the input as the prediction. */
#define OUTPUT_ERRORS(ERROR)                                                                       \
    ERROR(rmse) ERROR(mae) ERROR(bias) ERROR(r2) ERROR(persistence_rmse) ERROR(persistence_mae)

/* In the units of the target; r2 and output_loss have none. NAN: not known. */
struct output_errors {
    OUTPUT_ERRORS(COLUMN_MEMBER)
    double output_loss; /* mean train.loss of normalised values, without train.weights */
};

/* Weighted sums over the elements whose target is not missing. A quantity of both signs has two
 * sums: one of the planes whose sum is positive, one of those whose sum is negative. */
enum output_sum {
    SUM_WEIGHT,
    SUM_ERROR_ABOVE,
    SUM_ERROR_BELOW,
    SUM_ABSOLUTE,
    SUM_SQUARE,
    SUM_TARGET_ABOVE, /* target - output_plane.mean */
    SUM_TARGET_BELOW,
    SUM_TARGET_SQUARE,
    SUM_LOSS,
    SUM_PERSISTENCE_WEIGHT,
    SUM_PERSISTENCE_ABSOLUTE,
    SUM_PERSISTENCE_SQUARE,
    OUTPUT_SUMS
};

/* One output of one sample. */
struct output_plane {
    int64_t height, width;
    double mean;              /* near the mean of the target, for less rounding */
    const float *predictions; /* [height, width] */
    const float *targets;     /* [height, width]; NaN: missing */
    const float *persistence; /* [height, width]: the same variable in the input; or NULL */
    const float *row_weights; /* [height]; or NULL: 1 */
};

/* Thread-safe. Add all sums but SUM_LOSS. */
void output_sums_add(struct exact_sum sums[OUTPUT_SUMS], const struct output_plane *plane);
/* Thread-safe. Add SUM_LOSS. The predictions are normalised with the plane's mean and this standard
 * deviation, the targets are not. */
void output_loss_add(struct exact_sum sums[OUTPUT_SUMS], const struct output_plane *plane,
                     double std, enum train_loss_choice loss);
struct output_errors output_errors_of(const struct exact_sum sums[OUTPUT_SUMS]);

#endif
