// SPDX-License-Identifier: BSD-3-Clause
#include "record/scores.h"

#include <stdlib.h>
#include <string.h>

#include "device/exact_sum.h"

/* ---- classes */

/* Pixels whose logits are compared together, so that they stay in the cache. */
enum { PIXEL_BLOCK = 256 };

/* Set the class with the largest logit of `count` pixels. */
static void classes_predict(const float *logits, int64_t classes, int64_t pixels, int64_t count,
                            int32_t *predicted)
{
    float largest[PIXEL_BLOCK];
    memcpy(largest, logits, (size_t)count * sizeof *largest);
    memset(predicted, 0, (size_t)count * sizeof *predicted);
    for (int64_t number = 1; number < classes; number++) {
        const float *plane = logits + number * pixels;
        for (int64_t i = 0; i < count; i++) {
            const float value = plane[i], best = largest[i];
            const int32_t larger = value > best;
            predicted[i] += larger * ((int32_t)number - predicted[i]);
            largest[i] = value > best ? value : best;
        }
    }
}

void confusion_add_pixels(int64_t *confusion, int64_t classes, const float *logits,
                          const float *targets, int64_t pixels)
{
    int32_t predicted[PIXEL_BLOCK];
    for (int64_t first = 0; first < pixels; first += PIXEL_BLOCK) {
        const int64_t count = pixels - first < PIXEL_BLOCK ? pixels - first : PIXEL_BLOCK;
        classes_predict(logits + first, classes, pixels, count, predicted);
        for (int64_t i = 0; i < count; i++)
            if (!isnan(targets[first + i]))
                confusion[(int64_t)targets[first + i] * classes + predicted[i]]++;
    }
}

void class_counts_add(struct class_counts *counts, struct sample_counts *samples, int64_t classes,
                      const float *logits, const float *targets)
{
    int64_t wrong = 0, counted = 0;
    for (int64_t i = 0; i < classes; i++) {
        if (isnan(targets[i]))
            continue;
        const int actual = targets[i] > 0.5f, predicted = logits[i] > 0;
        counts[i].right += actual & predicted;
        counts[i].actual += actual;
        counts[i].predicted += predicted;
        counts[i].counted++;
        counted++;
        wrong += actual != predicted;
    }
    samples->counted += counted > 0;
    samples->right += counted > 0 && wrong == 0;
}

/* Order scores by probability, in descending order. */
static int scores_compare(const void *one, const void *other)
{
    const float left = fabsf(*(const float *)one), right = fabsf(*(const float *)other);
    return (left < right) - (left > right);
}

double average_precision(float *scores, int64_t count)
{
    int64_t samples = 0, right = 0, before = 0;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        if (!isnan(scores[i]))
            scores[samples++] = scores[i];
    qsort(scores, (size_t)samples, sizeof *scores, scores_compare);
    for (int64_t i = 0; i < samples; i++) {
        right += !signbit(scores[i]);
        if (i + 1 < samples && scores_compare(&scores[i], &scores[i + 1]) == 0)
            continue;
        sum += (double)(right - before) * (double)right / (double)(i + 1);
        before = right;
    }
    return sum / (double)right;
}

/* ---- outputs of a regression */

/* Sums over the elements of a row, and of a plane with the rows' weights. */
struct row_sums {
    double count, error, absolute, square, target, target_square;
    double persistence_count, persistence_absolute, persistence_square;
};

static void row_add(struct row_sums *plane, const struct row_sums *row, double weight)
{
    double *sums = (double *)plane;
    const double *added = (const double *)row;
    for (size_t i = 0; i < sizeof *row / sizeof *added; i++)
        sums[i] += weight * added[i];
}

static void row_sum(struct row_sums *row, const struct output_plane *plane, int64_t first)
{
    const float *predictions = plane->predictions + first, *targets = plane->targets + first;
    for (int64_t x = 0; x < plane->width; x++) {
        const bool present = !isnan(targets[x]);
        const double target = present ? (double)targets[x] - plane->mean : 0;
        const double error = present ? (double)predictions[x] - (double)targets[x] : 0;
        row->count += present;
        row->error += error;
        row->absolute += fabs(error);
        row->square += error * error;
        row->target += target;
        row->target_square += target * target;
    }
}

static void persistence_sum(struct row_sums *row, const struct output_plane *plane, int64_t first)
{
    const float *persistence = plane->persistence + first, *targets = plane->targets + first;
    for (int64_t x = 0; x < plane->width; x++) {
        const double difference = (double)persistence[x] - (double)targets[x];
        const bool present = !isnan(difference);
        const double error = present ? difference : 0;
        row->persistence_count += present;
        row->persistence_absolute += fabs(error);
        row->persistence_square += error * error;
    }
}

static void signed_add(struct exact_sum sums[2], double value)
{
    exact_add(&sums[value < 0], fabs(value));
}

void output_sums_add(struct exact_sum sums[OUTPUT_SUMS], const struct output_plane *plane)
{
    struct row_sums all = {0};
    for (int64_t y = 0; y < plane->height; y++) {
        struct row_sums row = {0};
        row_sum(&row, plane, y * plane->width);
        if (plane->persistence != NULL)
            persistence_sum(&row, plane, y * plane->width);
        row_add(&all, &row, plane->row_weights != NULL ? (double)plane->row_weights[y] : 1);
    }
#pragma omp critical(output_sums)
    {
        exact_add(&sums[SUM_WEIGHT], all.count);
        signed_add(&sums[SUM_ERROR_ABOVE], all.error);
        exact_add(&sums[SUM_ABSOLUTE], all.absolute);
        exact_add(&sums[SUM_SQUARE], all.square);
        signed_add(&sums[SUM_TARGET_ABOVE], all.target);
        exact_add(&sums[SUM_TARGET_SQUARE], all.target_square);
        exact_add(&sums[SUM_PERSISTENCE_WEIGHT], all.persistence_count);
        exact_add(&sums[SUM_PERSISTENCE_ABSOLUTE], all.persistence_absolute);
        exact_add(&sums[SUM_PERSISTENCE_SQUARE], all.persistence_square);
    }
}

static double element_loss(enum train_loss_choice loss, double error)
{
    const double size = fabs(error), square = size * size;
    return loss == TRAIN_LOSS_ABSOLUTE  ? size
           : loss == TRAIN_LOSS_SQUARED ? square
           : size < 1                   ? 0.5 * square
                                        : size - 0.5;
}

void output_loss_add(struct exact_sum sums[OUTPUT_SUMS], const struct output_plane *plane,
                     double std, enum train_loss_choice loss)
{
    const float *predictions = plane->predictions, *targets = plane->targets;
    double all = 0;
    for (int64_t y = 0; y < plane->height; y++) {
        double row = 0;
        for (int64_t i = y * plane->width; i < (y + 1) * plane->width; i++) {
            const double target = ((double)targets[i] - plane->mean) / std;
            row += isnan(target) ? 0 : element_loss(loss, (double)predictions[i] - target);
        }
        all += row * (plane->row_weights != NULL ? (double)plane->row_weights[y] : 1);
    }
#pragma omp critical(output_sums)
    exact_add(&sums[SUM_LOSS], all);
}

static double mean_of(const struct exact_sum *sum, double weight)
{
    return weight > 0 ? exact_sum_value(sum) / weight : (double)NAN;
}

struct output_errors output_errors_of(const struct exact_sum sums[OUTPUT_SUMS])
{
    const double weight = exact_sum_value(&sums[SUM_WEIGHT]);
    const double persistence_weight = exact_sum_value(&sums[SUM_PERSISTENCE_WEIGHT]);
    const double square = mean_of(&sums[SUM_SQUARE], weight);
    const double target =
        mean_of(&sums[SUM_TARGET_ABOVE], weight) - mean_of(&sums[SUM_TARGET_BELOW], weight);
    const double variance = mean_of(&sums[SUM_TARGET_SQUARE], weight) - target * target;
    return (struct output_errors){
        .rmse = sqrt(square),
        .mae = mean_of(&sums[SUM_ABSOLUTE], weight),
        .bias = mean_of(&sums[SUM_ERROR_ABOVE], weight) - mean_of(&sums[SUM_ERROR_BELOW], weight),
        .r2 = variance > 0 ? 1 - square / variance : (double)NAN,
        .output_loss = mean_of(&sums[SUM_LOSS], weight),
        .persistence_rmse = sqrt(mean_of(&sums[SUM_PERSISTENCE_SQUARE], persistence_weight)),
        .persistence_mae = mean_of(&sums[SUM_PERSISTENCE_ABSOLUTE], persistence_weight)};
}
