// SPDX-License-Identifier: BSD-3-Clause
/* Metrics of each class against values computed by numpy:
 *   confusion = [[5, 1, 0, 0], [2, 3, 1, 0], [0, 0, 4, 0], [1, 0, 1, 0]]
 *   tp = diag; fp = columns - tp; fn = rows - tp; tn = all - tp - fp - fn
 * The last class is never predicted (precision 0 / 0). */
#include "runlog/evaluation.h"

#include <unistd.h>

#include "core/log.h"
#include "test.h"

static const int64_t matrix[4][4] = {{5, 1, 0, 0}, {2, 3, 1, 0}, {0, 0, 4, 0}, {1, 0, 1, 0}};

static struct evaluation evaluation_of_matrix(void)
{
    struct evaluation evaluation = {.samples = 18, .classes = 4};

    evaluation.confusion = malloc(sizeof matrix);
    assert_non_null(evaluation.confusion);
    memcpy(evaluation.confusion, matrix, sizeof matrix);
    return evaluation;
}

static void assert_metrics(const struct class_metrics *got, const double expected[5])
{
    const double values[5] = {got->one_vs_rest_accuracy, got->precision, got->recall, got->f1,
                              got->specificity};

    for (int i = 0; i < 5; i++)
        if (!(fabs(values[i] - expected[i]) < 1e-9))
            fail_msg("value %d is %.12g, not %.12g", i, values[i], expected[i]);
}

TEST(class_metrics_equal_numpy)
{
    /* one-vs-rest accuracy, precision, recall, F1, specificity */
    static const double expected[4][5] = {
        {0.777777777778, 0.625, 0.833333333333, 0.714285714286, 0.75},
        {0.777777777778, 0.75, 0.5, 0.6, 0.916666666667},
        {0.888888888889, 0.666666666667, 1.0, 0.8, 0.857142857143},
        {0.888888888889, 0.0, 0.0, 0.0, 1.0},
    };
    static const double macro[5] = {0.833333333333, 0.510416666667, 0.583333333333, 0.528571428571,
                                    0.880952380952};
    struct evaluation evaluation = evaluation_of_matrix();
    struct class_metrics metrics;

    for (int64_t i = 0; i < 4; i++) {
        evaluation_class(&evaluation, i, &metrics);
        assert_metrics(&metrics, expected[i]);
    }
    evaluation_macro(&evaluation, &metrics);
    assert_metrics(&metrics, macro);
    evaluation_free(&evaluation);
    assert_null(evaluation.confusion);
}

/* A perfect classifier of labels 1 and 2: class 0 has neither samples nor predictions. */
TEST(empty_classes_are_left_out)
{
    static const int64_t perfect[9] = {0, 0, 0, 0, 3, 0, 0, 0, 4};
    struct evaluation evaluation = {.samples = 7, .classes = 3};
    struct class_metrics metrics;

    evaluation.confusion = calloc(9, sizeof *evaluation.confusion);
    memcpy(evaluation.confusion, perfect, sizeof perfect);
    evaluation_macro(&evaluation, &metrics);
    assert_metrics(&metrics, (double[5]){1, 1, 1, 1, 1});
    evaluation.confusion[3] = 1; /* class 0 is predicted once */
    evaluation_macro(&evaluation, &metrics);
    assert_true(fabs(metrics.f1 - (2 * 0.75 / 1.75 + 1) / 3) < 1e-9);
    evaluation_free(&evaluation);
}

TEST(empty_evaluation_is_zero)
{
    struct evaluation evaluation = {.samples = 0, .classes = 2};
    struct class_metrics metrics;

    evaluation.confusion = calloc(4, sizeof *evaluation.confusion);
    evaluation_macro(&evaluation, &metrics);
    assert_metrics(&metrics, (double[5]){0});
    evaluation_free(&evaluation);
}

/* Return the output of evaluation_print. */
static void print_to(char *text, size_t size, const struct evaluation *evaluation,
                     const struct dataset *dataset)
{
    FILE *file = tmpfile();
    int console = dup(STDOUT_FILENO);

    assert_non_null(file);
    fflush(stdout);
    assert_true(console >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    log_open(0, LOG_INFO);
    evaluation_print(evaluation, dataset, log_info);
    log_close();
    assert_true(dup2(console, STDOUT_FILENO) >= 0);
    close(console);
    rewind(file);
    size_t length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    fclose(file);
}

TEST(tables_are_printed)
{
    struct evaluation evaluation = evaluation_of_matrix();
    char *names[] = {"airplane", "a class with a very long name", "cat", "dog"};
    struct dataset dataset = {.classes = 4, .class_name = names};
    char text[8192];

    print_to(text, sizeof text, &evaluation, &dataset);
    assert_has(text, "airplane            0.8333    0.6250    0.7143      0.7500"
                     "               0.7778");
    assert_has(text, "a class with a v    0.5000");
    assert_has(text, "macro average       0.5833");
    assert_has(text, "airplane                5        1        0        0\n");
    print_to(text, sizeof text, &evaluation, NULL);
    assert_has(text, "\n3                   0.0000");
    evaluation_free(&evaluation);
}

TEST(outputs_are_printed)
{
    struct output_errors errors[2] = {{12.5, 9, -0.25, 0.75, 25, 20}, {1, 1, 0, 0, NAN, NAN}};
    struct evaluation evaluation = {.outputs = 2, .errors = errors};
    char text[8192];

    print_to(text, sizeof text, &evaluation, NULL);
    assert_has(text, "R2 persistence RMSE  persistence MAE");
    assert_has(text, "y0                      12.5           9       -0.25        0.75"
                     "               25               20\n");
    evaluation.errors = &errors[1];
    evaluation.outputs = 1;
    print_to(text, sizeof text, &evaluation, NULL);
    assert_null(strstr(text, "persistence"));
}

TEST(no_matrix_for_many_classes)
{
    struct evaluation evaluation = {.samples = 1, .classes = 150};
    char text[32768];

    evaluation.confusion = calloc(150 * 150, sizeof *evaluation.confusion);
    evaluation.confusion[0] = 1;
    print_to(text, sizeof text, &evaluation, NULL);
    assert_has(text, "150 classes in total");
    assert_null(strstr(text, "predicted"));
    evaluation_free(&evaluation);
}

/* The metrics of an evaluation in a line of the log. */
TEST(lines_have_the_metrics_of_their_task)
{
    struct output_errors errors[5] = {{.rmse = 2, .persistence_rmse = 4}, {.rmse = 1}};
    struct class_counts counts[2] = {{3, 4, 6, 10}, {0, 0, 0, 10}};
    char *names[] = {"u", "v"}, text[EVALUATION_TEXT];
    const struct dataset dataset = {.target = {.count = 2}, .target_name = names};
    struct evaluation evaluation = evaluation_of_matrix();

    evaluation.top1 = 0.25;
    evaluation.top5 = 1;
    evaluation_text(&evaluation, NULL, text);
    assert_string_equal(text, ", accuracy 25.00 % (top-5 100.00 %)");
    evaluation.pixels = 18;
    evaluation.miou = 0.5;
    evaluation_text(&evaluation, NULL, text);
    assert_string_equal(text, ", pixel accuracy 25.00 %, mean IoU 0.5000");
    evaluation_free(&evaluation);
    evaluation = (struct evaluation){.classes = 2, .top1 = 0.25, .labels = counts, .map = 0.75};
    evaluation_text(&evaluation, NULL, text);
    assert_string_equal(text, ", subset accuracy 25.00 %, macro F1 0.6000, mAP 0.7500");
    errors[1].persistence_rmse = NAN;
    evaluation = (struct evaluation){.outputs = 2, .errors = errors};
    evaluation_text(&evaluation, &dataset, text);
    assert_string_equal(text, ", RMSE u 2 (0.5 of persistence), v 1");
    char *shifted[] = {"temperature_of_the_surface@+720 12", "v"};
    const struct dataset shifted_dataset = {.target = {.count = 2}, .target_name = shifted};
    evaluation_text(&evaluation, &shifted_dataset, text);
    assert_has(text, ", RMSE temper..face@+720 12 2 (0.5");
    /* The longest text fits. */
    evaluation.outputs = 4;
    for (int i = 0; i < 4; i++)
        errors[i] = (struct output_errors){.rmse = 1.2342e200, .persistence_rmse = 1e-99};
    char *long_names[] = {"an output with a very long name", "an output with a very long name",
                          "an output with a very long name", "an output with a very long name"};
    const struct dataset long_dataset = {.target = {.count = 4}, .target_name = long_names};
    evaluation_text(&evaluation, &long_dataset, text);
    assert_has(text, ", an out..ry long name 1.234e+200 (1.23e+299 of persistence)");
    struct output_errors plain = {.rmse = 2, .r2 = 0.75, .persistence_rmse = NAN};
    const struct evaluation regression = {.outputs = 1, .errors = &plain};
    evaluation_text(&regression, &dataset, text);
    assert_string_equal(text, ", RMSE u 2, R2 0.7500");
    for (int i = 0; i < 5; i++)
        errors[i] = (struct output_errors){
            .rmse = i, .r2 = 0.1 * i, .persistence_rmse = 2, .persistence_mae = 2};
    evaluation.outputs = 5;
    evaluation_text(&evaluation, NULL, text);
    assert_string_equal(text, ", RMSE 1 of persistence (mean of 5 outputs)");
    errors[4].persistence_rmse = NAN;
    evaluation_text(&evaluation, NULL, text);
    assert_string_equal(text, ", R2 0.2000 (mean of 5 outputs)");
}

TEST_MAIN()
