/* The outcome of a run as JSON. loss, top1 and top5 of the last evaluation stand at the top, since
 * they are what most readers want; the rest is grouped below. */
#include "train/results.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Digits that tell two floats apart. */
enum { DIGITS = 9 };

/* Every jansson call that makes or stores something ends here: it only fails without memory. */
static void put(json_t *object, const char *key, json_t *value)
{
    ENSURE(value != NULL && json_object_set_new(object, key, value) == 0, "no memory for JSON");
}

static void append(json_t *array, json_t *value)
{
    ENSURE(value != NULL && json_array_append_new(array, value) == 0, "no memory for JSON");
}

/* JSON has no NaN and no infinity. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *count(int64_t value)
{
    return value >= 0 ? json_integer(value) : json_null();
}

json_t *results_name(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    char *plain = strdup(text);
    ENSURE(plain != NULL, "no memory for JSON");
    for (char *letter = plain; *letter != '\0'; letter++)
        if ((unsigned char)*letter >= 0x80)
            *letter = '?';
    value = json_string(plain);
    ENSURE(value != NULL, "no memory for JSON");
    free(plain);
    return value;
}

static json_t *text_or_null(const char *text)
{
    return text == NULL ? json_null() : results_name(text);
}

static json_t *class_to_json(const struct class_metrics *metrics, const char *name)
{
    json_t *object = json_object();

    if (name != NULL)
        put(object, "name", results_name(name));
    put(object, "accuracy", number(metrics->accuracy));
    put(object, "precision", number(metrics->precision));
    put(object, "recall", number(metrics->recall));
    put(object, "f1", number(metrics->f1));
    put(object, "specificity", number(metrics->specificity));
    return object;
}

static json_t *classes_to_json(const struct evaluation *evaluation, const struct dataset *dataset)
{
    json_t *array = json_array();

    for (int64_t i = 0; i < evaluation->classes; i++) {
        struct class_metrics metrics;
        bool named = dataset != NULL && dataset->class_name != NULL && i < dataset->classes;

        evaluation_class(evaluation, i, &metrics);
        append(array, class_to_json(&metrics, named ? dataset->class_name[i] : NULL));
    }
    return array;
}

static json_t *confusion_to_json(const struct evaluation *evaluation)
{
    json_t *rows = json_array();

    for (int64_t i = 0; i < evaluation->classes; i++) {
        json_t *row = json_array();

        for (int64_t j = 0; j < evaluation->classes; j++)
            append(row, json_integer(evaluation->confusion[i * evaluation->classes + j]));
        append(rows, row);
    }
    return rows;
}

static void put_evaluation(json_t *object, const struct evaluation *evaluation, const char *split,
                           const struct dataset *dataset)
{
    struct class_metrics macro;

    put(object, "split", text_or_null(split));
    put(object, "samples", json_integer(evaluation->samples));
    put(object, "loss", number(evaluation->loss));
    put(object, "top1", number(evaluation->top1));
    put(object, "top5", number(evaluation->top5));
    put(object, "evaluation_seconds", number(evaluation->seconds));
    if (evaluation->confusion == NULL || evaluation->classes == 0)
        return;
    evaluation_macro(evaluation, &macro);
    put(object, "macro", class_to_json(&macro, NULL));
    put(object, "classes", classes_to_json(evaluation, dataset));
    put(object, "confusion_matrix", confusion_to_json(evaluation));
}

static void put_run(json_t *object, const struct results *results)
{
    put(object, "name", text_or_null(results->name));
    put(object, "model", text_or_null(results->model));
    put(object, "parameters", count(results->parameters));
    put(object, "backend", text_or_null(results->backend));
    put(object, "precision", text_or_null(results->precision));
    put(object, "seed", json_integer(results->seed));
    put(object, "ranks", count(results->ranks));
    put(object, "nodes", count(results->nodes));
    put(object, "threads", count(results->threads));
    put(object, "global_batch", count(results->global_batch));
    put(object, "epochs", count(results->epochs));
    put(object, "steps", count(results->steps));
    put(object, "finished", json_boolean(!results->unfinished));
    put(object, "stop_reason", text_or_null(results->stop_reason));
    put(object, "total_seconds", number(results->total_seconds));
    put(object, "without_setup_seconds", number(results->without_setup_seconds));
    put(object, "training_seconds", number(results->training_seconds));
    put(object, "images_per_second", number(results->images_per_second));
}

static json_t *training_to_json(const struct results *results)
{
    json_t *object = json_object();

    put(object, "loss", number(results->train_loss));
    put(object, "top1", number(results->train_top1));
    put(object, "top5", number(results->train_top5));
    return object;
}

static json_t *best_to_json(const struct results *results)
{
    json_t *object = json_object();

    put(object, "monitor", text_or_null(results->monitor));
    put(object, "value", number(results->best));
    put(object, "step", count(results->best_step));
    return object;
}

static json_t *sensor_to_json(enum sensor_kind kind, double value, double most)
{
    static const char *const keys[] = {[SENSOR_LEVEL] = "mean",
                                       [SENSOR_PEAK] = "max",
                                       [SENSOR_LEAST] = "min",
                                       [SENSOR_COUNTER] = "total",
                                       [SENSOR_DURATION] = "max"};
    json_t *object = json_object();

    put(object, keys[kind], number(value));
    if (kind == SENSOR_LEVEL)
        put(object, "max", number(most));
    return object;
}

static json_t *sensors_to_json(const struct monitor_summary *summary, int64_t images)
{
    json_t *object = json_object();
    double joules = summary->joules;

    put(object, "seconds", number(summary->seconds));
    put(object, "readings", count(summary->readings));
    put(object, "reading_seconds", number(summary->reading_seconds));
    for (int i = 0; i < SENSOR_COUNT; i++)
        if (sensor_columns[i].kind != SENSOR_STATE)
            put(object, sensor_columns[i].name,
                isnan(summary->value[i])
                    ? json_null()
                    : sensor_to_json(sensor_columns[i].kind, summary->value[i], summary->most[i]));
    put(object, "energy_of", text_or_null(summary->joules_of));
    put(object, "energy_wh", number(joules / 3600));
    put(object, "images_per_joule", number((double)images / joules));
    return object;
}

/* Ends the object. */
static char *to_text(json_t *object)
{
    char *text = json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(DIGITS));

    ENSURE(text != NULL, "no memory for JSON");
    json_decref(object);
    return text;
}

char *results_to_text(const struct results *results, const struct dataset *dataset)
{
    json_t *object = json_object();

    put_run(object, results);
    put(object, "train", training_to_json(results));
    put(object, "best", best_to_json(results));
    if (results->evaluation != NULL)
        put_evaluation(object, results->evaluation, results->split, dataset);
    put(object, "sensors",
        results->sensors != NULL ? sensors_to_json(results->sensors, results->run_images)
                                 : json_null());
    return to_text(object);
}

char *evaluation_to_text(const struct evaluation *evaluation, const char *split,
                         const struct dataset *dataset)
{
    json_t *object = json_object();

    put_evaluation(object, evaluation, split, dataset);
    return to_text(object);
}

bool results_write(const struct run_folder *folder, const struct results *results,
                   const struct dataset *dataset, struct error *error)
{
    char *text = results_to_text(results, dataset);
    bool good = run_folder_write(folder, "result.json", text, error);

    free(text);
    return good;
}
