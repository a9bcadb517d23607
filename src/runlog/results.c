// SPDX-License-Identifier: BSD-3-Clause
/* loss, top1 and top5 of the last evaluation are at the top level; the rest is grouped in objects.
 */
#include "runlog/results.h"

#include <jansson.h>
#include <math.h>

#include "core/json_value.h"

static json_t *class_to_json(const struct evaluation *evaluation,
                             const struct class_metrics *metrics, const char *name)
{
    json_t *object = json_object();

    if (name != NULL)
        value_put(object, "name", value_name(name));
    value_put(object, "recall", value_number(metrics->recall));
    value_put(object, "precision", value_number(metrics->precision));
    value_put(object, "f1", value_number(metrics->f1));
    value_put(object, "specificity", value_number(metrics->specificity));
    value_put(object, "one_vs_rest_accuracy", value_number(metrics->one_vs_rest_accuracy));
    if (evaluation->pixels > 0)
        value_put(object, "iou", value_number(metrics->iou));
    if (evaluation->labels != NULL)
        value_put(object, "average_precision", value_number(metrics->average_precision));
    return object;
}

static json_t *outputs_to_json(const struct evaluation *evaluation, const struct dataset *dataset)
{
    json_t *outputs = json_array();
    for (int64_t i = 0; i < evaluation->outputs; i++) {
        const struct output_errors *errors = &evaluation->errors[i];
        json_t *object = json_object();
        char name[OUTPUT_NAME];
        evaluation_output_name(dataset, i, name);
        value_put(object, "name", value_name(name));
        value_put(object, "rmse", value_number(errors->rmse));
        value_put(object, "mae", value_number(errors->mae));
        value_put(object, "bias", value_number(errors->bias));
        value_put(object, "r2", value_number(errors->r2));
        value_put(object, "persistence_rmse", value_number(errors->persistence_rmse));
        value_put(object, "persistence_mae", value_number(errors->persistence_mae));
        value_append(outputs, object);
    }
    return outputs;
}

static json_t *confusion_to_json(const struct evaluation *evaluation)
{
    json_t *matrix = json_array();
    for (int64_t i = 0; i < evaluation->classes; i++) {
        json_t *row = json_array();
        for (int64_t j = 0; j < evaluation->classes; j++)
            value_append(row, json_integer(evaluation->confusion[i * evaluation->classes + j]));
        value_append(matrix, row);
    }
    return matrix;
}

static void evaluation_put(json_t *object, const struct evaluation *evaluation, const char *split,
                           const struct dataset *dataset)
{
    struct class_metrics macro;

    value_put(object, "split", value_text(split));
    value_put(object, "samples", json_integer(evaluation->samples));
    value_put(object, "loss", value_number(evaluation->loss));
    value_put(object, "top1", value_number(evaluation->top1));
    value_put(object, "top5", value_number(evaluation->top5));
    value_put(object, "evaluation_seconds", value_number(evaluation->seconds));
    if (evaluation->pixels > 0)
        value_put(object, "miou", value_number(evaluation->miou));
    if (evaluation->labels != NULL)
        value_put(object, "map", value_number(evaluation->map));
    if (evaluation->outputs > 0)
        value_put(object, "outputs", outputs_to_json(evaluation, dataset));
    if (evaluation->confusion == NULL || evaluation->classes == 0)
        return;
    evaluation_macro(evaluation, &macro);
    value_put(object, "macro", class_to_json(evaluation, &macro, NULL));
    json_t *classes = json_array();
    for (int64_t i = 0; i < evaluation->classes; i++) {
        struct class_metrics metrics;
        bool named = dataset != NULL && dataset->class_name != NULL && i < dataset->classes;
        evaluation_class(evaluation, i, &metrics);
        value_append(classes,
                     class_to_json(evaluation, &metrics, named ? dataset->class_name[i] : NULL));
    }
    value_put(object, "classes", classes);
    if (evaluation->labels == NULL)
        value_put(object, "confusion_matrix", confusion_to_json(evaluation));
}

void results_put_setup(json_t *object, const struct results *results)
{
    value_put(object, "name", value_text(results->name));
    value_put(object, "model", value_text(results->model));
    value_put(object, "parameters", value_count(results->parameters));
    value_put(object, "backend", value_text(results->backend));
    value_put(object, "precision", value_text(results->precision));
    value_put(object, "seed", json_integer(results->seed));
    value_put(object, "world_size", value_count(results->ranks));
    value_put(object, "nodes", value_count(results->nodes));
    value_put(object, "threads", value_count(results->threads));
    value_put(object, "global_batch", value_count(results->global_batch));
}

static void run_put(json_t *object, const struct results *results)
{
    value_put(object, "epochs", value_count(results->epochs));
    value_put(object, "steps", value_count(results->steps));
    value_put(object, "finished", json_boolean(!results->unfinished));
    value_put(object, "stop_reason", value_text(results->stop_reason));
    value_put(object, "total_seconds", value_number(results->total_seconds));
    value_put(object, "without_setup_seconds", value_number(results->without_setup_seconds));
    value_put(object, "training_seconds", value_number(results->training_seconds));
    value_put(object, "images_per_second", value_number(results->images_per_second));
}

static json_t *sensors_to_json(const struct monitor_summary *summary)
{
    static const char *const keys[] = {
        [SENSOR_LEVEL] = "mean", [SENSOR_PEAK] = "max", [SENSOR_LEAST] = "min"};
    json_t *object = json_object();

    value_put(object, "seconds", value_number(summary->seconds));
    value_put(object, "readings", value_count(summary->readings));
    value_put(object, "reading_seconds", value_number(summary->reading_seconds));
    for (int i = 0; i < SENSOR_COUNT; i++) {
        const enum sensor_kind kind = sensor_columns[i].kind;
        json_t *sensor = isnan(summary->value[i]) ? json_null() : json_object();
        value_put(object, sensor_columns[i].name, sensor);
        if (json_is_null(sensor))
            continue;
        value_put(sensor, keys[kind], value_number(summary->value[i]));
        if (kind == SENSOR_LEVEL)
            value_put(sensor, "max", value_number(summary->most[i]));
    }
    return object;
}

void results_put(json_t *object, const struct results *results, const struct dataset *dataset)
{
    json_t *train = json_object(), *best = json_object();

    run_put(object, results);
    value_put(train, "loss", value_number(results->train_loss));
    value_put(train, "top1", value_number(results->train_top1));
    value_put(train, "top5", value_number(results->train_top5));
    value_put(object, "train", train);
    value_put(best, "monitor", value_text(results->monitor));
    value_put(best, "value", value_number(results->best));
    value_put(best, "step", value_count(results->best_step));
    value_put(object, "best", best);
    if (results->evaluation != NULL)
        evaluation_put(object, results->evaluation, results->split, dataset);
    if (results->test != NULL) {
        json_t *test = json_object();
        evaluation_put(test, results->test, "test", dataset);
        value_put(test, "weights", value_text(results->test_weights));
        value_put(test, "step", value_count(results->test_step));
        value_put(object, "test", test);
    }
    value_put(object, "target_top1", value_number(results->target));
    value_put(object, "target_seconds", value_number(results->target_seconds));
    value_put(object, "sensors",
              results->sensors != NULL ? sensors_to_json(results->sensors) : json_null());
}

char *evaluation_to_text(const struct evaluation *evaluation, const char *split,
                         const struct dataset *dataset)
{
    json_t *object = json_object();

    evaluation_put(object, evaluation, split, dataset);
    return value_to_text(object);
}
