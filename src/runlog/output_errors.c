// SPDX-License-Identifier: BSD-3-Clause
#include "runlog/output_errors.h"

#include <math.h>

#include "device/exact_sum.h"

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
        .persistence_rmse = sqrt(mean_of(&sums[SUM_PERSISTENCE_SQUARE], persistence_weight)),
        .persistence_mae = mean_of(&sums[SUM_PERSISTENCE_ABSOLUTE], persistence_weight)};
}
