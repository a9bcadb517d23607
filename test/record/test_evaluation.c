// SPDX-License-Identifier: BSD-3-Clause
/* Metrics of each class against values computed by numpy:
 *   confusion = [[5, 1, 0, 0], [2, 3, 1, 0], [0, 0, 4, 0], [1, 0, 1, 0]]
 *   tp = diag; fp = columns - tp; fn = rows - tp; tn = all - tp - fp - fn
 * The last class is never predicted (precision 0 / 0). Then what is printed and written of the
 * evaluation of each task. */
#include "record/evaluation.h"

#include "test.h"

static int64_t matrix[] = {5, 1, 0, 0, 2, 3, 1, 0, 0, 0, 4, 0, 1, 0, 1, 0};
static struct class_counts label_counts[2] = {{3, 4, 6, 10}, {0, 0, 0, 10}};
static double precisions[2] = {0.75, NAN};
static struct output_errors errors[5] = {{12.5, 9, -0.25, 0.75, 25, 20, 0.5},
                                         {1, 1, 0, 0, NAN, NAN, 1}};
static char *class_names[] = {"airplane", "a class with a very long name", "c\xe9t", "dog"};
static char *output_names[] = {"u", "v"};

static const struct dataset images = {.classes = 4, .class_name = class_names};
static const struct dataset arrays = {.target = {.count = 2}, .target_name = output_names};

static const struct evaluation classes = {
    .samples = 18, .classes = 4, .loss = 0.75, .top1 = 0.25, .top5 = 1, .confusion = matrix};
static const struct evaluation pixels = {
    .samples = 2, .classes = 4, .pixels = 18, .top1 = 0.25, .miou = 0.5, .confusion = matrix};
static const struct evaluation labels = {.samples = 10,
                                         .classes = 2,
                                         .top1 = 0.25,
                                         .map = 0.75,
                                         .confusion = matrix,
                                         .labels = label_counts,
                                         .average_precision = precisions};
static const struct evaluation outputs = {
    .samples = 8, .top1 = NAN, .top5 = NAN, .outputs = 2, .errors = errors};

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
    struct class_metrics metrics;
    for (int64_t i = 0; i < 4; i++) {
        evaluation_class(&classes, i, &metrics);
        assert_metrics(&metrics, expected[i]);
    }
    evaluation_macro(&classes, &metrics);
    assert_metrics(&metrics, macro);
}

/* A perfect classifier of labels 1 and 2: class 0 has neither samples nor predictions. */
TEST(empty_classes_are_left_out)
{
    int64_t perfect[9] = {0, 0, 0, 0, 3, 0, 0, 0, 4}, zeros[9] = {0};
    const struct evaluation three = {.samples = 7, .classes = 3, .confusion = perfect};
    const struct evaluation none = {.classes = 3, .confusion = zeros};
    struct class_metrics metrics;
    evaluation_class(&three, 0, &metrics);
    assert_true(isnan(metrics.iou));
    evaluation_macro(&three, &metrics);
    assert_metrics(&metrics, (double[5]){1, 1, 1, 1, 1});
    assert_true(metrics.iou == 1);
    perfect[3] = 1; /* class 0 is predicted once */
    evaluation_macro(&three, &metrics);
    assert_true(fabs(metrics.f1 - (2 * 0.75 / 1.75 + 1) / 3) < 1e-9);
    evaluation_macro(&none, &metrics);
    assert_metrics(&metrics, (double[5]){0});
}

static char printed[32768];

__attribute__((format(printf, 1, 2))) static void line_keep(const char *format, ...)
{
    const size_t used = strlen(printed);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(printed + used, sizeof printed - used - 1, format, arguments);
    va_end(arguments);
    strcat(printed, "\n");
}

static const char *print(const struct evaluation *evaluation, const struct dataset *dataset)
{
    printed[0] = '\0';
    evaluation_print(evaluation, dataset, line_keep);
    return printed;
}

TEST(tables_are_printed)
{
    static int64_t large[150 * 150] = {1};
    const struct evaluation many = {.samples = 1, .classes = 150, .confusion = large};
    const struct evaluation plain = {.outputs = 1, .errors = &errors[1]};
    const char *text = print(&classes, &images);
    assert_has(text, "class                 recall   precision          f1 specificity "
                     "one_vs_rest_accuracy\nairplane              0.8333      0.6250      0.7143 "
                     "     0.7500               0.7778\na class with a v");
    assert_has(text, "macro average         0.5833");
    assert_has(text, "airplane                5        1        0        0\n");
    assert_has(print(&classes, NULL), "\n3                      0.000");
    assert_has(print(&labels, NULL), "average_precision\n");
    text = print(&outputs, NULL);
    assert_has(
        text,
        "r2 persistence_rmse persistence_mae\ny0                    0.5000       12.50       9.000 "
        "    -0.2500      0.7500            25.00           20.00\n");
    assert_null(strstr(print(&plain, NULL), "persistence"));
    assert_has(print(&many, NULL), "150 classes in total");
    assert_null(strstr(printed, "predicted"));
}

static void assert_line(const struct evaluation *evaluation, const struct dataset *dataset,
                        const char *expected)
{
    OWNED char *text = evaluation_text(evaluation, dataset);
    assert_string_equal(text, expected);
}

TEST(lines_have_the_metrics_of_their_task)
{
    char *long_name[] = {"temperature_of_the_surface@+720 12"};
    const struct dataset long_names = {.target = {.count = 1}, .target_name = long_name};
    struct output_errors many[5] = {{.rmse = 2, .r2 = 0.75, .persistence_rmse = NAN}};
    struct evaluation regression = {.outputs = 1, .errors = many};
    assert_line(&classes, NULL, ", accuracy 25.00 % (top-5 100.00 %)");
    assert_line(&pixels, NULL, ", pixel accuracy 25.00 %, mean IoU 0.5000");
    assert_line(&labels, NULL, ", subset accuracy 25.00 %, macro F1 0.6000, mAP 0.7500");
    assert_line(&outputs, &arrays, ", RMSE u 12.5 (0.5 of persistence), v 1");
    assert_line(&regression, &arrays, ", RMSE u 2, R2 0.7500");
    assert_line(&regression, &long_names, ", RMSE temperatu..e_surface@+720 12 2, R2 0.7500");
    for (int i = 0; i < 5; i++)
        many[i] = (struct output_errors){.rmse = i, .r2 = 0.1 * i, .persistence_rmse = 2};
    regression.outputs = 5;
    assert_line(&regression, NULL, ", RMSE 1 of persistence (mean of 5 outputs)");
    many[4].persistence_rmse = NAN;
    assert_line(&regression, NULL, ", R2 0.2000 (mean of 5 outputs)");
    many[0].rmse = NAN;
    regression.outputs = 2;
    assert_line(&regression, &arrays,
                ", RMSE u (no targets) (- of persistence), v 1 (0.5 of "
                "persistence)");
    regression.outputs = 1;
    assert_line(&regression, &arrays, ", no targets");
}

/* result.json has these lines of an evaluation, and not those. */
TEST(results_have_the_metrics_of_their_task)
{
    const struct {
        const struct evaluation *evaluation;
        const struct dataset *dataset;
        const char *has[8], *lacks[3];
    } cases[] = {
        {&classes,
         &images,
         {"\"split\": \"val\"", "\"samples\": 18", "\"top1\": 0.25", "\"name\": \"c?t\"",
          "\"recall\": 0.833333333", "\"confusion_matrix\": [\n  [5, 1, 0, 0],\n  [2, 3, 1, 0]",
          "\"macro\": {\n  \"recall\": 0.583333333"},
         {"\"iou\"", "\"average_precision\"", "\"outputs\""}},
        {&pixels,
         NULL,
         {"\"miou\": 0.5", "\"iou\": 0.555555556", "\"confusion_matrix\""},
         {"\"name\"", "\"map\"", "\"average_precision\""}},
        {&labels,
         NULL,
         {"\"map\": 0.75", "\"recall\": 0.75", "\"average_precision\": 0.75",
          "\"average_precision\": null"},
         {"\"confusion_matrix\"", "\"iou\"", "\"miou\""}},
        {&outputs,
         &arrays,
         {"\"top1\": null",
          "\"outputs\": [\n  {\n   \"name\": \"u\",\n   \"output_loss\": 0.5,\n   \"rmse\": "
          "12.5,\n   \"mae\": 9.0,\n   "
          "\"bias\": -0.25,\n   \"r2\": 0.75,\n   \"persistence_rmse\": 25.0,\n   "
          "\"persistence_mae\": 20.0\n  }",
          "\"persistence_mae\": null"},
         {"\"classes\"", "\"macro\"", "\"confusion_matrix\""}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OWNED char *text = evaluation_to_text(cases[i].evaluation, "val", cases[i].dataset);
        for (int k = 0; k < 8 && cases[i].has[k] != NULL; k++)
            assert_has(text, cases[i].has[k]);
        for (int k = 0; k < 3; k++)
            assert_null(strstr(text, cases[i].lacks[k]));
    }
}

TEST_MAIN()
