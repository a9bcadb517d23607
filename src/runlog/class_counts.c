// SPDX-License-Identifier: BSD-3-Clause
#include "runlog/class_counts.h"

#include <stdlib.h>
#include <string.h>

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
