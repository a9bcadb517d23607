// SPDX-License-Identifier: BSD-3-Clause
/* Counts of pixels and labels against numpy: argmax, add.at, and comparisons with 0. Errors of a
 * regression's output against values computed by numpy in float64:
 *   error = prediction - target, over targets that are not NaN, weighted by row
 *   r2 = 1 - sum(w * error^2) / sum(w * (target - average(target))^2), as scikit-learn's r2_score
 */
#include "record/scores.h"

#include "test.h"

enum { CLASSES = 5, PIXELS = 600, SAMPLES = 200, LABELS = 4 };

TEST(pixels_are_counted)
{
    static const int64_t expected[CLASSES][CLASSES] = {
        {57, 0, 80, 28, 0}, {43, 0, 60, 22, 0}, {44, 0, 58, 22, 0}, {45, 0, 60, 21, 0}};
    static float logits[CLASSES][PIXELS], targets[PIXELS];
    int64_t confusion[CLASSES][CLASSES] = {0};
    for (int i = 0; i < PIXELS; i++) {
        for (int k = 0; k < CLASSES; k++)
            logits[k][i] = k == CLASSES - 1 ? -1 : (float)(i * (17 + 6 * k) % 23);
        targets[i] = i % 10 == 3 ? NAN : (float)(i * 7 % 13 % 4);
    }
    confusion_add_pixels(confusion[0], CLASSES, logits[0], targets, PIXELS);
    assert_memory_equal(confusion, expected, sizeof expected);
}

TEST(the_lower_class_wins_a_tie)
{
    static const float logits[3][2] = {{1, 0}, {1, 2}, {0, 2}}, targets[2] = {2, 2};
    int64_t confusion[3][3] = {0};
    confusion_add_pixels(confusion[0], 3, logits[0], targets, 2);
    assert_int_equal(confusion[2][0], 1);
    assert_int_equal(confusion[2][1], 1);
}

TEST(labels_are_counted)
{
    static const struct class_counts expected[LABELS] = {
        {80, 89, 94, 188}, {70, 90, 89, 188}, {79, 89, 95, 189}, {0, 0, 91, 189}};
    struct class_counts counts[LABELS] = {0};
    struct sample_counts samples = {0};
    for (int n = 0; n < SAMPLES; n++) {
        float logits[LABELS], targets[LABELS];
        for (int k = 0; k < LABELS; k++) {
            const int i = n * LABELS + k;
            logits[k] = (float)(i * 29 % 61 - 30);
            targets[k] = i % 19 == 5 || n == 7 ? NAN : k < 3 && i * 29 % 61 + i * 13 % 40 > 50;
        }
        class_counts_add(counts, &samples, LABELS, logits, targets);
    }
    assert_memory_equal(counts, expected, sizeof expected);
    assert_int_equal(samples.right, 62);
    assert_int_equal(samples.counted, 199);
}

/* scikit-learn: average_precision_score([1, 0, 1, 0, 0, 1], [.9, .8, .8, .3, .8, .1]) */
TEST(average_precision_equals_scikit_learn)
{
    float scores[] = {-0.8f, 0.1f, NAN, 0.9f, -0.3f, 0.8f, -0.8f}, none[] = {-0.5f, NAN};
    assert_true(fabs(average_precision(scores, 7) - 0.6666666666666666) < 1e-15);
    assert_true(isnan(average_precision(none, 2)));
    assert_true(label_score(0, 1) == 0.5f && label_score(0, 0) == -0.5f);
    assert_true(isnan(label_score(0, NAN)));
}

/* ---- errors of outputs */

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

TEST(errors_equal_numpy)
{
    static const float weights[HEIGHT] = {0.25f, 1, 1.5f, 1, 0.25f};
    static const double expected[2][6] = {{8.42770329695, 6.9352629009, -2.79315795898,
                                           -0.420168811724, 2.17350820818, 2.01149425287},
                                          {8.45298422001, 6.98006568859, -2.71372571958,
                                           -0.398576063206, 2.19562941556, 2.0394265233}};
    planes_fill();
    for (int weighted = 0; weighted < 2; weighted++) {
        struct exact_sum sums[OUTPUT_SUMS] = {0};
        for (int i = 0; i < PLANES; i++) {
            const struct output_plane plane = plane_of(i, weighted ? weights : NULL);
            output_sums_add(sums, &plane);
        }
        const struct output_errors errors = output_errors_of(sums);
        const double values[6] = {
            errors.rmse,           errors.mae, errors.bias, errors.r2, errors.persistence_rmse,
            errors.persistence_mae};
        for (int i = 0; i < 6; i++)
            if (!(fabs(values[i] - expected[weighted][i]) < 1e-8))
                fail_msg("value %d is %.12g, not %.12g", i, values[i], expected[weighted][i]);
    }
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

/* numpy.mean of the losses of (prediction - 260) / 8 with (target - 260) / 8, as torch's mse_loss,
 * l1_loss and huber_loss. */
TEST(losses_of_outputs_equal_torch)
{
    static const float weights[HEIGHT] = {0.25f, 1, 1.5f, 1, 0.25f};
    static const double expected[2][3] = {{1.10978410720916, 0.866907862613076, 0.484362862436666},
                                          {1.11645222224533, 0.872508211073527, 0.488231977481757}};
    planes_fill();
    for (int weighted = 0; weighted < 2; weighted++)
        for (int kind = 0; kind < 3; kind++) {
            struct exact_sum sums[OUTPUT_SUMS] = {0};
            for (int i = 0; i < PLANES; i++) {
                struct output_plane plane = plane_of(i, weighted ? weights : NULL);
                output_sums_add(sums, &plane);
                float normalised[ELEMENTS];
                for (int n = 0; n < ELEMENTS; n++)
                    normalised[n] = (predictions[i][n] - 260) / 8;
                plane.predictions = normalised;
                output_loss_add(sums, &plane, 8, TRAIN_LOSS_SQUARED + kind);
            }
            const double loss = output_errors_of(sums).output_loss;
            if (!(fabs(loss - expected[weighted][kind]) < 1e-7))
                fail_msg("loss %d is %.12g, not %.12g", kind, loss, expected[weighted][kind]);
        }
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
                isnan(errors.persistence_rmse) && isnan(errors.output_loss));
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
