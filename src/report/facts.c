/* Of a run that was cut there is no result.json: what its tables tell is said instead. */
#include "report/facts.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- of tables */

static bool is_split(const struct table *table, int64_t row, const char *split)
{
    return strcmp(table_text(table, row, table_column(table, "split")), split) == 0;
}

/* The last of a column of metrics.csv; NAN: none. */
static double metrics_last(const struct record *record, const char *split, const char *name)
{
    const int column = table_column(&record->metrics, name);
    for (int64_t row = record->metrics.rows; row > 0; row--) {
        const double value = table_number(&record->metrics, row - 1, column);
        if (!isnan(value) && (split == NULL || is_split(&record->metrics, row - 1, split)))
            return value;
    }
    return NAN;
}

/* The mean of a column over the steps of training, or its share of a step's duration. */
static double metrics_mean(const struct record *record, const char *name, bool share)
{
    const double mean = record_step_mean(record, name);
    return share ? mean / record_step_mean(record, "step_seconds") : mean;
}

static double known(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

static bool result_is_of(const struct record *record, const char *split)
{
    const char *of = record_text(record, "split");
    return of != NULL && strcmp(of, split) == 0;
}

/* What the last evaluation of the split said. */
static double last_evaluation(const struct record *record, const char *split, const char *name)
{
    char path[32];
    snprintf(path, sizeof path, "%s.%s", split, name);
    const double result = result_is_of(record, split) ? record_number(record, name) : NAN;
    return known(record_number(record, path), known(result, metrics_last(record, split, name)));
}

/* ---- numbers */

#define NUMBER(name) static double name(const struct record *record, const struct record *first)

NUMBER(steps)
{
    (void)first;
    return known(record_number(record, "steps"), metrics_last(record, NULL, "step"));
}

NUMBER(parts)
{
    const struct json_t *list = record_value(record, "parts");
    (void)first;
    return list == NULL ? NAN : (double)json_array_size(list);
}

NUMBER(epochs)
{
    (void)first;
    return known(record_number(record, "epochs"), (double)record->epochs.rows);
}

/* The best of all evaluations while training. */
NUMBER(best_accuracy)
{
    (void)first;
    const double best = table_facts(&record->epochs, "val_top1").most;
    const char *monitor = record_text(record, "best.monitor");
    if (isnan(best) && monitor != NULL && strcmp(monitor, "top1") == 0)
        return record_number(record, "best.value");
    return best;
}

NUMBER(validation_accuracy)
{
    (void)first;
    return last_evaluation(record, "val", "top1");
}

NUMBER(validation_loss)
{
    (void)first;
    return last_evaluation(record, "val", "loss");
}

NUMBER(test_accuracy)
{
    (void)first;
    return last_evaluation(record, "test", "top1");
}

NUMBER(test_loss)
{
    (void)first;
    return last_evaluation(record, "test", "loss");
}

NUMBER(macro_f1)
{
    (void)first;
    return known(record_number(record, "test.macro.f1"), record_number(record, "macro.f1"));
}

NUMBER(training_loss)
{
    (void)first;
    const struct table *epochs = &record->epochs; /* means of an epoch, as result.json has it */
    const double last = table_number(epochs, epochs->rows - 1, table_column(epochs, "train_loss"));
    return known(record_number(record, "train.loss"),
                 known(last, metrics_last(record, "train", "loss")));
}

NUMBER(total_seconds)
{
    (void)first;
    return known(record_number(record, "total_seconds"),
                 metrics_last(record, NULL, "elapsed_seconds"));
}

NUMBER(setup_seconds)
{
    (void)first;
    return record_number(record, "total_seconds") - record_number(record, "without_setup_seconds");
}

NUMBER(epoch_seconds)
{
    (void)first;
    return table_facts(&record->epochs, "seconds").mean;
}

NUMBER(evaluation_seconds)
{
    (void)first;
    return table_facts(&record->epochs, "eval_seconds").sum;
}

NUMBER(target_seconds)
{
    const char *target = record_option(record, "output.target");
    (void)first;
    return target == NULL || strtod(target, NULL) <= 0
               ? NAN
               : record_seconds_to(record, "top1", strtod(target, NULL));
}

NUMBER(images_per_second)
{
    (void)first;
    return record_images_per_second(record);
}

NUMBER(images_per_second_rank)
{
    return images_per_second(record, first) / record_number(record, "ranks");
}

NUMBER(speed_up)
{
    return record == first && first != NULL
               ? 1
               : images_per_second(record, first) / images_per_second(first, first);
}

/* Of the speed-up that so many more ranks could have brought. */
NUMBER(efficiency)
{
    return speed_up(record, first) * record_number(first, "ranks") / record_number(record, "ranks");
}

NUMBER(step_seconds)
{
    (void)first;
    return metrics_mean(record, "step_seconds", false);
}

NUMBER(peak_share)
{
    (void)first;
    return metrics_mean(record, "peak_share", false);
}

NUMBER(data_share)
{
    (void)first;
    return metrics_mean(record, "data_seconds", true);
}

NUMBER(waiting_share)
{
    (void)first;
    return metrics_mean(record, "exposed_comm_seconds", true);
}

NUMBER(planned_bytes)
{
    (void)first;
    return known(table_facts(&record->ranks, "planned_bytes").most,
                 record_number(record, "planned_bytes"));
}

NUMBER(peak_bytes)
{
    (void)first;
    return known(table_facts(&record->ranks, "peak_bytes").most,
                 known(record_number(record, "sensors.gpu_memory_used_bytes.max"),
                       known(record_number(record, "sensors.resident_bytes.max"),
                             table_facts(&record->monitor, "resident_bytes").most)));
}

NUMBER(energy)
{
    (void)first;
    return record_number(record, "sensors.energy_wh");
}

NUMBER(busy)
{
    (void)first;
    return known(record_number(record, "sensors.gpu_busy.mean"),
                 known(record_number(record, "sensors.cores_busy.mean"),
                       table_facts(&record->monitor, "cores_busy").mean));
}

/* ---- texts */

#define TEXT(name) static const char *name(const struct record *record, char text[FORMAT_TEXT])

const char *record_ending(const struct record *record)
{
    const struct json_t *parts = record_value(record, "parts");
    const struct json_t *last =
        json_array_size(parts) > 0 ? json_array_get(parts, json_array_size(parts) - 1) : NULL;
    if (json_is_string(json_object_get(last, "error")))
        return "failed";
    if (record->result == NULL || (last != NULL && !json_is_string(json_object_get(last, "ended"))))
        return "cut off, or still running";
    const struct json_t *finished = record_value(record, "finished");
    if (finished != NULL && json_is_false(finished))
        return "stopped before its end";
    return "finished";
}

TEXT(ending)
{
    (void)text;
    return record_ending(record);
}

/* 2026-11-21 14:03, universal time, as run.json has it to the millisecond. */
TEXT(started)
{
    const char *said = record_text(record, "parts.0.started");
    if (said == NULL || strlen(said) < 16)
        return said;
    snprintf(text, FORMAT_TEXT, "%.10s %.5s", said, said + 11);
    return text;
}

TEXT(strategy)
{
    (void)text;
    return record_option(record, "mesh.strategy");
}

TEXT(data)
{
    (void)text;
    const char *root = record_option(record, "data.root");
    return root != NULL && root[0] != '\0' ? root : record_option(record, "data.format");
}

TEXT(precision)
{
    (void)text;
    const char *said = record_text(record, "precision");
    return said != NULL ? said : record_option(record, "train.precision");
}

TEXT(model)
{
    (void)text;
    const char *said = record_text(record, "model");
    return said != NULL ? said : record_option(record, "model.name");
}

#define RUN "What was run"
#define QUALITY "Quality"
#define TIME "Time"
#define SPEED "Speed"
#define USE "Memory and energy"

const struct fact fact_table[] = {
    {RUN, "Ended", "ending", FIGURE_TEXT, .text = ending},
    {RUN, "Started", "started", FIGURE_TEXT, .text = started},
    {RUN, "Model", "model", FIGURE_TEXT, .text = model},
    {RUN, "Parameters", "parameters", FIGURE_COUNT, .path = "parameters"},
    {RUN, "Data", "data", FIGURE_TEXT, .text = data},
    {RUN, "Strategy", "strategy", FIGURE_TEXT, .text = strategy},
    {RUN, "Computes on", "backend", FIGURE_TEXT, .path = "backend"},
    {RUN, "Device", "device", FIGURE_TEXT, .path = "parts.0.devices.0"},
    {RUN, "First host", "host", FIGURE_TEXT, .path = "parts.0.hosts.0"},
    {RUN, "Precision", "precision", FIGURE_TEXT, .text = precision},
    {RUN, "Ranks", "ranks", FIGURE_COUNT, .path = "ranks"},
    {RUN, "Nodes", "nodes", FIGURE_COUNT, .path = "nodes"},
    {RUN, "Threads of a rank", "threads", FIGURE_COUNT, .path = "threads"},
    {RUN, "Global batch", "global_batch", FIGURE_COUNT, .path = "global_batch"},
    {RUN, "Epochs", "epochs", FIGURE_COUNT, .number = epochs},
    {RUN, "Steps", "steps", FIGURE_COUNT, .number = steps},
    {RUN, "Times started", "parts", FIGURE_COUNT, .number = parts},
    {RUN, "Seed", "seed", FIGURE_COUNT, .path = "seed"},
    {RUN, "Commit", "commit", FIGURE_TEXT, .path = "parts.0.commit"},
    {QUALITY, "Best accuracy, validation", "best_val_top1", FIGURE_SHARE, .number = best_accuracy,
     .better = 1},
    {QUALITY, "Last accuracy, validation", "val_top1", FIGURE_SHARE, .number = validation_accuracy,
     .better = 1},
    {QUALITY, "Accuracy, test", "test_top1", FIGURE_SHARE, .number = test_accuracy, .better = 1},
    {QUALITY, "Macro F1", "macro_f1", FIGURE_SHARE, .number = macro_f1, .better = 1},
    {QUALITY, "Last loss, validation", "val_loss", FIGURE_NUMBER, .number = validation_loss,
     .better = -1},
    {QUALITY, "Loss, test", "test_loss", FIGURE_NUMBER, .number = test_loss, .better = -1},
    {QUALITY, "Last loss, training", "train_loss", FIGURE_NUMBER, .number = training_loss,
     .better = -1},
    {TIME, "Total", "total_seconds", FIGURE_SECONDS, .number = total_seconds, .better = -1},
    {TIME, "Before the first step", "setup_seconds", FIGURE_SECONDS, .number = setup_seconds,
     .better = -1},
    {TIME, "Without that", "without_setup_seconds", FIGURE_SECONDS, .path = "without_setup_seconds",
     .better = -1},
    {TIME, "Without evaluation, too", "training_seconds", FIGURE_SECONDS,
     .path = "training_seconds", .better = -1},
    {TIME, "Evaluation", "evaluation_seconds", FIGURE_SECONDS, .number = evaluation_seconds,
     .better = -1},
    {TIME, "Training, an epoch", "epoch_seconds", FIGURE_SECONDS, .number = epoch_seconds,
     .better = -1},
    {TIME, "To the target accuracy", "target_seconds", FIGURE_SECONDS, .number = target_seconds,
     .better = -1},
    {SPEED, "Images a second", "images_per_second", FIGURE_RATE, .number = images_per_second,
     .better = 1},
    {SPEED, "Of a rank", "images_per_second_rank", FIGURE_RATE, .number = images_per_second_rank,
     .better = 1},
    {SPEED, "Speed-up", "speed_up", FIGURE_RATIO, .number = speed_up, .better = 1},
    {SPEED, "Efficiency of a rank", "efficiency", FIGURE_SHARE, .number = efficiency, .better = 1},
    {SPEED, "Work, an image", "flops_per_image", FIGURE_FLOPS, .path = "flops_per_image"},
    {SPEED, "A step", "step_seconds", FIGURE_SECONDS, .number = step_seconds, .better = -1},
    {SPEED, "Share of the peak", "peak_share", FIGURE_SHARE, .number = peak_share, .better = 1},
    {SPEED, "Waiting for data", "data_share", FIGURE_SHARE, .number = data_share, .better = -1},
    {SPEED, "Waiting for ranks", "exposed_comm_share", FIGURE_SHARE, .number = waiting_share,
     .better = -1},
    {USE, "Planned, a rank", "planned_bytes", FIGURE_BYTES, .number = planned_bytes, .better = -1},
    {USE, "Peak, a rank", "peak_bytes", FIGURE_BYTES, .number = peak_bytes, .better = -1},
    {USE, "Busy", "busy", FIGURE_SHARE, .number = busy},
    {USE, "Energy", "energy_wh", FIGURE_WATT_HOURS, .number = energy, .better = -1},
    {USE, "Images a joule", "images_per_joule", FIGURE_NUMBER, .path = "sensors.images_per_joule",
     .better = 1},
    {USE, "GPU power", "gpu_power", FIGURE_WATTS, .path = "sensors.gpu_power.mean"},
    {USE, "Processor power", "cpu_power", FIGURE_WATTS, .path = "sensors.cpu_power.mean"},
};
const int fact_count = sizeof fact_table / sizeof fact_table[0];

double fact_number(const struct fact *fact, const struct record *record, const struct record *first)
{
    if (fact->figure == FIGURE_TEXT)
        return NAN;
    return fact->number != NULL ? fact->number(record, first) : record_number(record, fact->path);
}

const char *fact_text(const struct fact *fact, const struct record *record,
                      const struct record *first, char text[FORMAT_TEXT])
{
    if (fact->figure != FIGURE_TEXT) {
        format_figure(text, fact->figure, fact_number(fact, record, first));
        return text;
    }
    const char *said =
        fact->text != NULL ? fact->text(record, text) : record_text(record, fact->path);
    return said == NULL || said[0] == '\0' ? "-" : said;
}

const struct fact *fact_find(const char *key)
{
    for (int i = 0; i < fact_count; i++)
        if (strcmp(fact_table[i].key, key) == 0)
            return &fact_table[i];
    ENSURE(false, "no fact %s", key);
    return NULL;
}

bool fact_is_known(const struct fact *fact, const struct record *records, int count)
{
    char text[FORMAT_TEXT];
    if (count == 1 && (fact->number == speed_up || fact->number == efficiency))
        return false;
    for (int i = 0; i < count; i++)
        if (strcmp(fact_text(fact, &records[i], &records[0], text), "-") != 0)
            return true;
    return false;
}

bool fact_is_best(const struct fact *fact, const struct record *records, int count, int run)
{
    const double own = fact_number(fact, &records[run], &records[0]);
    const double own_steps = steps(&records[run], NULL);
    bool differs = false;
    if (fact->better == 0 || isnan(own))
        return false;
    for (int i = 0; i < count; i++) {
        const double other = fact_number(fact, &records[i], &records[0]);
        if (isnan(other))
            continue;
        if ((other - own) * fact->better > 0 ||
            (strcmp(fact->group, TIME) == 0 && steps(&records[i], NULL) != own_steps))
            return false;
        differs = differs || other != own;
    }
    return differs;
}
