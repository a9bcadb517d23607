// SPDX-License-Identifier: BSD-3-Clause
/* Errors of a regression's output against values computed by numpy in float64:
 *   error = prediction - target, over targets that are not NaN, weighted by row
 *   r2 = 1 - sum(w * error^2) / sum(w * (target - average(target))^2), as scikit-learn's r2_score
 */
#include "runlog/output_errors.h"

#include "test.h"

enum { PLANES = 3, HEIGHT = 5, WIDTH = 7, ELEMENTS = HEIGHT * WIDTH };

static float predictions[PLANES][ELEMENTS], targets[PLANES][ELEMENTS],
    persistence[PLANES][ELEMENTS];

static void planes_fill(void)
{
    for (int i = 0; i < PLANES * ELEMENTS; i++) {
        const int plane = i / ELEMENTS, element = i % ELEMENTS;
        const float target = (float)(i * 53 % 97) * 0.25f + 250;
        predictions[plane][element] = (float)(i * 37 % 101 * 0.15 + 252.5);
        targets[plane][element] = i % 11 == 4 ? NAN : target;
        persistence[plane][element] = i % 13 == 6 ? NAN : target + 1 + (float)(i % 3);
    }
}

static struct output_plane plane_of(int number, const float *row_weights)
{
    return (struct output_plane){.height = HEIGHT,
                                 .width = WIDTH,
                                 .mean = 260,
                                 .predictions = predictions[number],
                                 .targets = targets[number],
                                 .persistence = persistence[number],
                                 .row_weights = row_weights};
}

static void assert_errors(const struct output_errors *got, const double expected[6])
{
    const double values[6] = {
        got->rmse, got->mae, got->bias, got->r2, got->persistence_rmse, got->persistence_mae};
    for (int i = 0; i < 6; i++)
        if (!(fabs(values[i] - expected[i]) < 1e-8))
            fail_msg("value %d is %.12g, not %.12g", i, values[i], expected[i]);
}

TEST(errors_equal_numpy)
{
    static const double expected[6] = {8.42770329695,   6.9352629009,  -2.79315795898,
                                       -0.420168811724, 2.17350820818, 2.01149425287};
    struct exact_sum sums[OUTPUT_SUMS] = {0};
    planes_fill();
    for (int i = 0; i < PLANES; i++) {
        const struct output_plane plane = plane_of(i, NULL);
        output_sums_add(sums, &plane);
    }
    const struct output_errors errors = output_errors_of(sums);
    assert_errors(&errors, expected);
}

TEST(rows_have_weights)
{
    static const float weights[HEIGHT] = {0.25f, 1, 1.5f, 1, 0.25f};
    static const double expected[6] = {8.45298422001,   6.98006568859, -2.71372571958,
                                       -0.398576063206, 2.19562941556, 2.0394265233};
    struct exact_sum sums[OUTPUT_SUMS] = {0};
    planes_fill();
    for (int i = 0; i < PLANES; i++) {
        const struct output_plane plane = plane_of(i, weights);
        output_sums_add(sums, &plane);
    }
    const struct output_errors errors = output_errors_of(sums);
    assert_errors(&errors, expected);
}

TEST(sums_of_ranks_have_the_same_bits)
{
    static const int order[2][PLANES] = {{0, 1, 2}, {2, 0, 1}};
    struct exact_sum sums[2][OUTPUT_SUMS] = {0}, rank[OUTPUT_SUMS];
    struct output_errors errors[2];
    planes_fill();
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < PLANES; i++) {
            const struct output_plane plane = plane_of(order[run][i], NULL);
            memset(rank, 0, sizeof rank);
            output_sums_add(rank, &plane);
            for (int sum = 0; sum < OUTPUT_SUMS; sum++)
                for (int word = 0; word < EXACT_WORDS; word++)
                    sums[run][sum].word[word] += rank[sum].word[word];
        }
        errors[run] = output_errors_of(sums[run]);
    }
    assert_memory_equal(&errors[0], &errors[1], sizeof errors[0]);
}

TEST(nothing_is_known_without_targets)
{
    struct exact_sum sums[OUTPUT_SUMS] = {0};
    struct output_plane plane = plane_of(0, NULL);
    for (int i = 0; i < ELEMENTS; i++)
        targets[0][i] = NAN;
    output_sums_add(sums, &plane);
    struct output_errors errors = output_errors_of(sums);
    assert_true(isnan(errors.rmse) && isnan(errors.mae) && isnan(errors.bias) && isnan(errors.r2) &&
                isnan(errors.persistence_rmse));
    targets[0][3] = 260;
    predictions[0][3] = 267.5f;
    plane.persistence = NULL;
    output_sums_add(sums, &plane);
    errors = output_errors_of(sums);
    assert_true(errors.rmse == 7.5 && errors.bias == 7.5);
    assert_true(isnan(errors.r2) && isnan(errors.persistence_rmse));
}

TEST(predictions_that_are_nan_are_not_hidden)
{
    struct exact_sum sums[OUTPUT_SUMS] = {0};
    planes_fill();
    predictions[0][0] = NAN;
    const struct output_plane plane = plane_of(0, NULL);
    output_sums_add(sums, &plane);
    assert_true(isnan(output_errors_of(sums).rmse));
}

TEST_MAIN()
