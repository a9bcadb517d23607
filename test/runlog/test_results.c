// SPDX-License-Identifier: BSD-3-Clause
/* Evaluations and sensors in result.json. */
#include <jansson.h>

#include "runlog/evaluation.h"
#include "runlog/monitor.h"

#include "test.h"

static int64_t confusion[4] = {3, 1, 2, 4};
static const struct evaluation evaluation = {.samples = 10,
                                             .classes = 2,
                                             .loss = 0.75,
                                             .top1 = 0.7,
                                             .top5 = 1,
                                             .confusion = confusion,
                                             .seconds = 0.5};

static json_t *parse(char *text)
{
    json_error_t problem;
    json_t *object = json_loads(text, 0, &problem);

    if (object == NULL)
        fail_msg("%s in: %s", problem.text, text);
    free(text);
    return object;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_number(value))
        fail_msg("%s is no number", key);
    return json_number_value(value);
}

TEST(sensors_follow_their_table)
{
    struct monitor_summary sensors = {.seconds = 60, .readings = 7, .reading_seconds = 1e-4};
    for (int i = 0; i < SENSOR_COUNT; i++)
        sensors.value[i] = sensors.most[i] = NAN;
    sensors.value[SENSOR_GPU_POWER] = 400.5;
    sensors.most[SENSOR_GPU_POWER] = 500;
    sensors.value[SENSOR_RESIDENT] = 1e9;
    sensors.value[SENSOR_NODE_AVAILABLE] = 2e9;
    json_t *all = monitor_summary_to_json(&sensors);
    assert_true(number(json_object_get(all, "gpu_power"), "mean") == 400.5);
    assert_true(number(json_object_get(all, "gpu_power"), "max") == 500);
    assert_true(number(json_object_get(all, "resident_bytes"), "max") == 1e9);
    assert_true(number(json_object_get(all, "node_available_bytes"), "min") == 2e9);
    assert_true(json_is_null(json_object_get(all, "gpu_busy")));
    assert_true(number(all, "readings") == 7);
    json_decref(all);
}

TEST(classes_and_matrix_are_written)
{
    char *names[] = {"cat", "\xe9t\xe9"}; /* the second is not UTF-8 */
    struct dataset dataset = {.classes = 2, .class_name = names};
    char *text = evaluation_to_text(&evaluation, "test", &dataset);
    assert_has(text, "\"confusion_matrix\": [\n  [3, 1],\n  [2, 4]\n ]");
    json_t *object = parse(text);
    const json_t *classes = json_object_get(object, "classes");
    const json_t *matrix = json_object_get(object, "confusion_matrix");
    const json_t *cat = json_array_get(classes, 0), *other = json_array_get(classes, 1);

    assert_int_equal(json_array_size(classes), 2);
    assert_string_equal(json_string_value(json_object_get(object, "split")), "test");
    assert_true(number(object, "samples") == 10 && number(object, "evaluation_seconds") == 0.5);
    assert_true(number(object, "loss") == 0.75 && number(object, "top1") == 0.7);
    assert_true(number(object, "top5") == 1);
    assert_string_equal(json_string_value(json_object_get(cat, "name")), "cat");
    assert_string_equal(json_string_value(json_object_get(other, "name")), "?t?");
    assert_true(number(cat, "recall") == 0.75);
    assert_true(number(cat, "precision") == 0.6);
    assert_true(number(cat, "one_vs_rest_accuracy") == 0.7);
    assert_true(fabs(number(cat, "f1") - 2.0 / 3) < 1e-8);
    assert_true(fabs(number(cat, "specificity") - 2.0 / 3) < 1e-8);
    assert_true(fabs(number(json_object_get(object, "macro"), "recall") - 17.0 / 24) < 1e-8);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(json_integer_value(json_array_get(json_array_get(matrix, i / 2), i % 2)),
                         confusion[i]);
    json_decref(object);
}

TEST(outputs_are_written)
{
    struct output_errors errors[2] = {{2, 1.5, -0.5, 0.25, 4, 3}, {1, 1, 0, 0, NAN, NAN}};
    char *names[] = {"u", "v"};
    const struct dataset dataset = {.target = {.count = 2}, .target_name = names};
    const struct evaluation regression = {
        .samples = 8, .top1 = NAN, .top5 = NAN, .outputs = 2, .errors = errors};
    json_t *object = parse(evaluation_to_text(&regression, "val", &dataset));
    const json_t *outputs = json_object_get(object, "outputs");
    const json_t *u = json_array_get(outputs, 0), *v = json_array_get(outputs, 1);
    assert_int_equal(json_array_size(outputs), 2);
    assert_string_equal(json_string_value(json_object_get(u, "name")), "u");
    assert_true(number(u, "rmse") == 2 && number(u, "mae") == 1.5 && number(u, "bias") == -0.5 &&
                number(u, "r2") == 0.25);
    assert_true(number(u, "persistence_rmse") == 4 && number(u, "persistence_mae") == 3);
    assert_true(json_is_null(json_object_get(v, "persistence_rmse")));
    assert_true(json_is_null(json_object_get(object, "top1")));
    assert_null(json_object_get(object, "classes"));
    json_decref(object);
}

TEST(a_segmentation_has_iou)
{
    struct evaluation segmentation = evaluation;
    segmentation.pixels = 10;
    segmentation.miou = 0.5;
    json_t *object = parse(evaluation_to_text(&segmentation, "val", NULL));
    const json_t *classes = json_object_get(object, "classes");
    assert_true(number(object, "miou") == 0.5);
    assert_true(number(json_array_get(classes, 0), "iou") == 0.5);
    assert_true(number(json_array_get(classes, 1), "one_vs_rest_accuracy") == 0.7);
    json_decref(object);
    object = parse(evaluation_to_text(&evaluation, "val", NULL));
    assert_null(json_object_get(object, "miou"));
    assert_null(json_object_get(json_array_get(json_object_get(object, "classes"), 0), "iou"));
    json_decref(object);
}

TEST(labels_have_no_matrix)
{
    struct class_counts counts[2] = {{3, 4, 6, 10}, {2, 5, 2, 10}};
    struct evaluation labels = evaluation;
    labels.labels = counts;
    json_t *object = parse(evaluation_to_text(&labels, "val", NULL));
    const json_t *classes = json_object_get(object, "classes");
    assert_true(number(json_array_get(classes, 0), "recall") == 0.75);
    assert_true(number(json_array_get(classes, 1), "precision") == 1);
    assert_null(json_object_get(object, "confusion_matrix"));
    json_decref(object);
}

TEST_MAIN()
