// SPDX-License-Identifier: BSD-3-Clause
/* Counts of pixels and labels against numpy: argmax, add.at, and comparisons with 0. */
#include "runlog/class_counts.h"

#include "runlog/evaluation.h"
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

TEST(classes_that_do_not_occur_have_no_iou)
{
    int64_t confusion[CLASSES * CLASSES] = {57, 0, 80, 28, 0,  43, 0, 60, 22, 0, 44, 0, 58,
                                            22, 0, 45, 0,  60, 21, 0, 0,  0,  0, 0,  0};
    const struct evaluation evaluation = {
        .samples = 1, .classes = CLASSES, .pixels = 540, .confusion = confusion};
    struct class_metrics metrics;
    evaluation_class(&evaluation, 0, &metrics);
    assert_true(fabs(metrics.iou - 0.191919191919) < 1e-9);
    assert_true(fabs(metrics.one_vs_rest_accuracy - 300.0 / 540) < 1e-9);
    evaluation_class(&evaluation, 1, &metrics);
    assert_true(metrics.iou == 0);
    evaluation_class(&evaluation, 4, &metrics);
    assert_true(isnan(metrics.iou));
    evaluation_macro(&evaluation, &metrics);
    assert_true(fabs(metrics.iou - 0.11924803591470258) < 1e-9);
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

TEST(labels_have_metrics)
{
    struct class_counts counts[2] = {{80, 89, 94, 188}, {0, 0, 91, 189}};
    const struct evaluation evaluation = {.samples = 200, .classes = 2, .labels = counts};
    struct class_metrics metrics;
    evaluation_class(&evaluation, 0, &metrics);
    assert_true(fabs(metrics.precision - 80.0 / 94) < 1e-9);
    assert_true(fabs(metrics.recall - 80.0 / 89) < 1e-9);
    assert_true(fabs(metrics.f1 - 160.0 / 183) < 1e-9);
    evaluation_macro(&evaluation, &metrics);
    assert_true(fabs(metrics.f1 - 80.0 / 183) < 1e-9);
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

TEST_MAIN()
