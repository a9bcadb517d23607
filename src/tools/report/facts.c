// SPDX-License-Identifier: BSD-3-Clause
/* A run that was interrupted has no result.json; its facts come from the CSV files. */
#include "tools/report/facts.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report/escape.h"

/* ---- numbers */

static double known(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

/* Return the last number in a column of metrics.csv; split NULL: of any split. */
static double metrics_last(const struct record *record, const char *split, const char *name)
{
    const struct table *metrics = &record->metrics;
    const int column = table_column(metrics, name), splits = table_column(metrics, "split");
    for (int64_t row = metrics->rows; row > 0; row--) {
        const double value = table_number(metrics, row - 1, column);
        if (!isnan(value) &&
            (split == NULL || strcmp(table_text(metrics, row - 1, splits), split) == 0))
            return value;
    }
    return NAN;
}

/* Return a metric of the last evaluation of the split. */
static double last_evaluation(const struct record *record, const char *split, const char *name)
{
    const char *result_split = record_text(record, "split");
    char path[32];
    snprintf(path, sizeof path, "%s.%s", split, name);
    const double value = record_number(record, path);
    if (!isnan(value))
        return value;
    return known(result_split != NULL && strcmp(result_split, split) == 0
                     ? record_number(record, name)
                     : NAN,
                 metrics_last(record, split, name));
}

static double best_val_top1(const struct record *record)
{
    const double best = table_facts(&record->epochs, "val_top1").most;
    const char *monitor = record_text(record, "best.monitor");
    return isnan(best) && monitor != NULL && strcmp(monitor, "top1") == 0
               ? record_number(record, "best.value")
               : best;
}

/* Mean over the outputs that have both errors, of the test split if it was evaluated. */
static double rmse_of_persistence(const struct record *record)
{
    const json_t *tested = record_value(record, "test.outputs");
    const json_t *outputs = tested != NULL ? tested : record_value(record, "outputs");
    double sum = 0, count = 0;
    for (size_t i = 0; i < json_array_size(outputs); i++) {
        const json_t *output = json_array_get(outputs, i);
        const double rmse = json_number_of(output, "rmse");
        const double persistence = json_number_of(output, "persistence_rmse");
        if (rmse > 0 && persistence > 0) {
            sum += rmse / persistence;
            count++;
        }
    }
    return count > 0 ? sum / count : (double)NAN;
}

bool facts_chosen_on_test(const struct record *record)
{
    return json_is_true(record_value(record, "chosen_on_test"));
}

static double macro_f1(const struct record *record)
{
    return known(record_number(record, "test.macro.f1"), record_number(record, "macro.f1"));
}

static double train_loss(const struct record *record)
{
    const struct table *epochs = &record->epochs; /* mean of the last epoch, as in result.json */
    const double last = table_number_at(epochs, epochs->rows - 1, "train_loss");
    return known(record_number(record, "train.loss"),
                 known(last, metrics_last(record, "train", "loss")));
}

static double epochs(const struct record *record)
{
    return known(record_number(record, "epochs"), (double)record->epochs.rows);
}

/* Return "10", or "3.5 of 10" if the run ended before its last step. */
static const char *epochs_text(const struct record *record, char text[FORMAT_TEXT])
{
    const double each = record_number(record, "steps_per_epoch");
    const double planned = record_number(record, "total_steps") / each;
    const double done =
        known(record_number(record, "steps"), metrics_last(record, NULL, "step")) / each;
    if (isnan(done) || isnan(planned))
        format_figure(text, FIGURE_COUNT, epochs(record));
    else if (done < planned)
        snprintf(text, FORMAT_TEXT, "%.6g of %.6g", floor(10 * done) / 10, ceil(10 * planned) / 10);
    else
        snprintf(text, FORMAT_TEXT, "%.6g", ceil(10 * planned) / 10);
    return text;
}

/* The highest rate of the schedule; optim.lr without run.json. */
static double learning_rate(const struct record *record)
{
    const char *option = record_option(record, "optim.lr");
    return known(record_number(record, "base_lr"), option == NULL ? NAN : strtod(option, NULL));
}

static double attempts(const struct record *record)
{
    return record_value(record, "parts") == NULL ? (double)NAN : record_attempts(record);
}

static double setup_seconds(const struct record *record)
{
    return record_number(record, "total_seconds") - record_number(record, "without_setup_seconds");
}

static double epoch_seconds(const struct record *record)
{
    return table_facts(&record->epochs, "seconds").mean;
}

static double evaluation_seconds(const struct record *record)
{
    return table_facts(&record->epochs, "eval_seconds").sum;
}

/* Seconds from the start of the run to the first evaluation that reached output.target. */
static double target_seconds(const struct record *record)
{
    const struct table *metrics = &record->metrics;
    const int split = table_column(metrics, "split"), top1 = table_column(metrics, "top1");
    const char *option = record_option(record, "output.target");
    const double target = option == NULL ? 0 : strtod(option, NULL);
    for (int64_t row = 0; target > 0 && row < metrics->rows; row++)
        if (strcmp(table_text(metrics, row, split), "val") == 0 &&
            table_number(metrics, row, top1) >= target)
            return table_number_at(metrics, row, "elapsed_seconds");
    return NAN;
}

static double rank_images_per_second(const struct record *record)
{
    return record_images_per_second(record) / record_number(record, "ranks");
}

/* Values that must be the same in two runs to compare their speed and, with of_scaling, their
 * scaling efficiency. */
static const struct condition {
    const char *key, *name;
    bool of_scaling; /* for scaling efficiency only */
} conditions[] = {{"model", "model", false},
                  {"parameters", "parameters", false},
                  {"trainable_parameters", "trainable parameters", false},
                  {"image", "image size", false},
                  {"backend", "backend", true},
                  {"precision", "precision", true}};

/* Return the first condition that the runs do not meet, or NULL. An unknown value equals all. */
static const struct condition *speed_differs(const struct record *record,
                                             const struct record *first, bool scaling)
{
    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++) {
        const json_t *value = record_value(record, conditions[i].key);
        const json_t *other = record_value(first, conditions[i].key);
        if (conditions[i].of_scaling <= scaling && value != NULL && other != NULL &&
            !json_equal(value, other))
            return &conditions[i];
    }
    return NULL;
}

bool facts_difference(const struct record *record, const struct record *first,
                      char text[FACTS_DIFFERENCE])
{
    const struct condition *speed = speed_differs(record, first, false);
    const struct condition *differs = speed_differs(record, first, true);
    char values[2][64];
    if (differs == NULL)
        return false;
    for (int i = 0; i < 2; i++) {
        const json_t *value = record_value(i == 0 ? record : first, differs->key);
        if (json_is_string(value))
            snprintf(values[i], sizeof values[i], "%.60s", json_string_value(value));
        else
            format_figure(values[i], FIGURE_COUNT, json_number_value(value));
    }
    snprintf(text, FACTS_DIFFERENCE, "%s not compared with %.60s: %s %s, not %s",
             speed != NULL ? "speed" : "scaling efficiency", first->name, differs->name, values[0],
             values[1]);
    return true;
}

static double speed_up(const struct record *record, const struct record *first)
{
    return speed_differs(record, first, false) != NULL
               ? NAN
               : record_images_per_second(record) / record_images_per_second(first);
}

/* Speed-up divided by the ratio of the numbers of ranks. */
static double efficiency(const struct record *record, const struct record *first)
{
    return speed_differs(record, first, true) != NULL
               ? NAN
               : speed_up(record, first) * record_number(first, "ranks") /
                     record_number(record, "ranks");
}

static double planned_bytes(const struct record *record)
{
    return known(table_facts(&record->ranks, "planned_bytes").most,
                 record_number(record, "planned_bytes"));
}

static double peak_bytes(const struct record *record)
{
    return known(table_facts(&record->ranks, "peak_bytes").most,
                 known(record_number(record, "sensors.gpu_memory_used_bytes.max"),
                       known(record_number(record, "sensors.resident_bytes.max"),
                             table_facts(&record->monitor, "resident_bytes").most)));
}

static double busy(const struct record *record)
{
    return known(record_number(record, "sensors.gpu_busy.mean"),
                 known(record_number(record, "sensors.cores_busy.mean"),
                       table_facts(&record->monitor, "cores_busy").mean));
}

/* ---- texts */

static const char *status(const struct record *record, char text[FORMAT_TEXT])
{
    (void)text;
    return record_status(record);
}

static const char *reason(const struct record *record, char text[FORMAT_TEXT])
{
    char path[32];
    (void)text;
    snprintf(path, sizeof path, "parts.%d.error", record_attempts(record) - 1);
    const char *failure = record_text(record, path);
    return failure != NULL ? failure : record_text(record, "stop_reason");
}

static const char *started(const struct record *record, char text[FORMAT_TEXT])
{
    return format_stamp(text, record_text(record, "parts.0.started"));
}

static const char *data(const struct record *record, char text[FORMAT_TEXT])
{
    const char *root = record_option(record, "data.root");
    (void)text;
    return root != NULL && root[0] != '\0' ? root : record_option(record, "data.format");
}

static const char *tags(const struct record *record, char text[FORMAT_TEXT])
{
    const char *list = record_option(record, "run.tags");
    (void)text;
    return list != NULL && list[0] != '\0' ? list : NULL;
}

/* Describe the part of the data set that was used: "all", "25 %, at most 7 batches". */
static const char *data_used(const struct record *record, char text[FORMAT_TEXT])
{
    const char *options[] = {record_option(record, "debug.fraction"),
                             record_option(record, "debug.batches"),
                             record_option(record, "debug.overfit")};
    double value[3];
    for (int i = 0; i < 3; i++)
        value[i] = options[i] != NULL ? strtod(options[i], NULL) : NAN;
    if (isnan(value[0]) && isnan(value[1]))
        return NULL;
    char share[16] = "", batches[32] = "";
    if (value[0] < 1)
        snprintf(share, sizeof share, "%.3g %%", 100 * value[0]);
    if (value[2] > 0)
        snprintf(batches, sizeof batches, "the first %.6g batches", value[2]);
    else if (value[1] > 0)
        snprintf(batches, sizeof batches, "at most %.6g batches", value[1]);
    const bool any = share[0] != '\0' || batches[0] != '\0';
    snprintf(text, FORMAT_TEXT, "%s%s%s", any ? share : "all",
             share[0] != '\0' && batches[0] != '\0' ? ", " : "", batches);
    return text;
}

/* Return "random" or "pretrained (FILE)". */
static const char *initial_weights(const struct record *record, char text[FORMAT_TEXT])
{
    const char *init = record_option(record, "model.init");
    if (init == NULL)
        return NULL;
    if (init[0] == '\0' || strcmp(init, "none") == 0)
        return "random";
    const char *slash = strrchr(init, '/');
    snprintf(text, FORMAT_TEXT, "pretrained (%.30s)", slash != NULL ? slash + 1 : init);
    return text;
}

/* The measured rate divided by the peak rate. */
static double mfu(const struct record *record)
{
    return record_step_mean(record, "peak_share");
}

/* ---- the table */

#define RUN "What was run"
#define QUALITY "Quality"
#define TIME "Time"
#define SPEED "Speed"
#define USE "Memory and energy"

/* clang-format off */
const struct fact fact_table[] = {
    {RUN, "Status", "ending", FIGURE_TEXT, .text = status},
    {RUN, "Reason", "reason", FIGURE_TEXT, .text = reason},
    {RUN, "Started", "started", FIGURE_TEXT, .text = started},
    {RUN, "Model", "model", FIGURE_TEXT, .path = "model", .option = "model.name"},
    {RUN, "Parameters", "parameters", FIGURE_COUNT, .path = "parameters"},
    {RUN, "Initial weights", "init", FIGURE_TEXT, .text = initial_weights},
    {RUN, "Tags", "tags", FIGURE_TEXT, .text = tags},
    {RUN, "Data", "data", FIGURE_TEXT, .text = data},
    {RUN, "Data used", "data_used", FIGURE_TEXT, .text = data_used},
    {RUN, "Training samples", "train_samples", FIGURE_COUNT, .path = "train_samples"},
    {RUN, "Validation samples", "val_samples", FIGURE_COUNT, .path = "val_samples"},
    {RUN, "Test samples", "test_samples", FIGURE_COUNT, .path = "test_samples"},
    {RUN, "Strategy", "strategy", FIGURE_TEXT, .path = "strategy", .option = "mesh.strategy"},
    {RUN, "Replicas", "replica", FIGURE_COUNT, .path = "replica"},
    {RUN, "Shards", "shard", FIGURE_COUNT, .path = "shard"},
    {RUN, "Transport", "transport", FIGURE_TEXT, .path = "transport"},
    {RUN, "Backend", "backend", FIGURE_TEXT, .path = "backend"},
    {RUN, "Device", "device", FIGURE_TEXT, .path = "parts.0.devices.0"},
    {RUN, "First host", "host", FIGURE_TEXT, .path = "parts.0.hosts.0"},
    {RUN, "Precision", "precision", FIGURE_TEXT, .path = "precision", .option = "train.precision"},
    {RUN, "Ranks", "ranks", FIGURE_COUNT, .path = "ranks"},
    {RUN, "Nodes", "nodes", FIGURE_COUNT, .path = "nodes"},
    {RUN, "Threads per rank", "threads", FIGURE_COUNT, .path = "threads"},
    {RUN, "Global batch", "global_batch", FIGURE_COUNT, .path = "global_batch"},
    {RUN, "Optimizer", "optimizer", FIGURE_TEXT, .option = "optim.name"},
    {RUN, "Learning rate", "learning_rate", FIGURE_NUMBER, .number = learning_rate},
    {RUN, "Schedule", "schedule", FIGURE_TEXT, .option = "schedule.name"},
    {RUN, "Epochs", "epochs", FIGURE_COUNT, .number = epochs, .text = epochs_text},
    {RUN, "Steps", "steps", FIGURE_COUNT, .path = "steps", .last = "step"},
    {RUN, "Skipped steps", "skipped_steps", FIGURE_COUNT, .last = "skipped_steps"},
    {RUN, "Attempts", "parts", FIGURE_COUNT, .number = attempts},
    {RUN, "Seed", "seed", FIGURE_COUNT, .path = "seed"},
    {RUN, "Version", "version", FIGURE_TEXT, .path = "parts.0.version"},
    {RUN, "Commit", "commit", FIGURE_TEXT, .path = "parts.0.commit"},
    {QUALITY, "Best validation top-1", "best_val_top1", FIGURE_SHARE, 1, .number = best_val_top1},
    {QUALITY, "Validation top-1", "val_top1", FIGURE_SHARE, 1, .split = "val", .metric = "top1"},
    {QUALITY, "Test top-1", "test_top1", FIGURE_SHARE, 1, .split = "test", .metric = "top1"},
    {QUALITY, "Validation mean IoU", "val_miou", FIGURE_SHARE, 1, .split = "val", .metric = "miou"},
    {QUALITY, "Test mean IoU", "test_miou", FIGURE_SHARE, 1, .split = "test", .metric = "miou"},
    {QUALITY, "Validation mAP", "val_map", FIGURE_SHARE, 1, .split = "val", .metric = "map"},
    {QUALITY, "Test mAP", "test_map", FIGURE_SHARE, 1, .split = "test", .metric = "map"},
    {QUALITY, "RMSE / persistence", "rmse_of_persistence", FIGURE_NUMBER, -1, .number = rmse_of_persistence},
    {QUALITY, "Macro F1", "macro_f1", FIGURE_SHARE, 1, .number = macro_f1},
    {QUALITY, "Validation loss", "val_loss", FIGURE_NUMBER, -1, .split = "val", .metric = "loss"},
    {QUALITY, "Test loss", "test_loss", FIGURE_NUMBER, -1, .split = "test", .metric = "loss"},
    {QUALITY, "Training loss", "train_loss", FIGURE_NUMBER, -1, .number = train_loss},
    {TIME, "Total time", "total_seconds", FIGURE_SECONDS, -1, .path = "total_seconds", .last = "elapsed_seconds"},
    {TIME, "Set-up time", "setup_seconds", FIGURE_SECONDS, -1, .number = setup_seconds},
    {TIME, "Time excluding set-up", "without_setup_seconds", FIGURE_SECONDS, -1, .path = "without_setup_seconds"},
    {TIME, "Training time", "training_seconds", FIGURE_SECONDS, -1, .path = "training_seconds"},
    {TIME, "Evaluation time", "evaluation_seconds", FIGURE_SECONDS, -1, .number = evaluation_seconds},
    {TIME, "Time per epoch", "epoch_seconds", FIGURE_SECONDS, -1, .number = epoch_seconds},
    {TIME, "Time to target accuracy", "target_seconds", FIGURE_SECONDS, -1, .number = target_seconds},
    {SPEED, "Images/s", "images_per_second", FIGURE_RATE, 1, .number = record_images_per_second},
    {SPEED, "Images/s per rank", "images_per_second_rank", FIGURE_RATE, 1, .number = rank_images_per_second},
    {SPEED, "Speed-up", "speed_up", FIGURE_RATIO, 1, .relative = speed_up},
    {SPEED, "Scaling efficiency", "efficiency", FIGURE_SHARE, 1, .relative = efficiency},
    {SPEED, "FLOPs per image", "flops_per_image", FIGURE_FLOPS, .path = "flops_per_image"},
    {SPEED, "Step time", "step_seconds", FIGURE_SECONDS, -1, .mean = "step_seconds"},
    {SPEED, "MFU", "peak_share", FIGURE_SHARE, 1, .number = mfu},
    {SPEED, "Waiting for data", "data_share", FIGURE_SHARE, -1, .share = "data_seconds"},
    {SPEED, "Waiting for communication", "exposed_comm_share", FIGURE_SHARE, -1, .share = "exposed_comm_seconds"},
    {SPEED, "Communication thread busy", "comm_share", FIGURE_SHARE, .share = "comm_seconds"},
    {SPEED, "Forward pass", "forward_share", FIGURE_SHARE, .share = "forward_seconds"},
    {SPEED, "Backward pass", "backward_share", FIGURE_SHARE, .share = "backward_seconds"},
    {SPEED, "Gradient reduction", "reduce_share", FIGURE_SHARE, .share = "reduce_seconds"},
    {SPEED, "Optimizer step", "update_share", FIGURE_SHARE, .share = "update_seconds"},
    {USE, "Planned memory per rank", "planned_bytes", FIGURE_BYTES, -1, .number = planned_bytes},
    {USE, "Peak memory per rank", "peak_bytes", FIGURE_BYTES, -1, .number = peak_bytes},
    {USE, "Utilization", "busy", FIGURE_SHARE, .number = busy},
    {USE, "Energy", "energy_wh", FIGURE_WATT_HOURS, -1, .path = "sensors.energy_wh"},
    {USE, "Energy measured of", "energy_of", FIGURE_TEXT, .path = "sensors.energy_of"},
    {USE, "Images per joule", "images_per_joule", FIGURE_NUMBER, 1, .path = "sensors.images_per_joule"},
    {USE, "GPU power", "gpu_power", FIGURE_WATTS, .path = "sensors.gpu_power.mean"},
    {USE, "CPU power", "cpu_power", FIGURE_WATTS, .path = "sensors.cpu_power.mean"},
};
/* clang-format on */
const int fact_count = sizeof fact_table / sizeof fact_table[0];

const struct fact *fact_find(const char *key)
{
    for (int i = 0; i < fact_count; i++)
        if (strcmp(fact_table[i].key, key) == 0)
            return &fact_table[i];
    ENSURE(false, "no fact %s", key);
    return NULL;
}

double fact_number(const struct fact *fact, const struct record *record, const struct record *first)
{
    if (fact->figure == FIGURE_TEXT)
        return NAN;
    if (fact->number != NULL)
        return fact->number(record);
    if (fact->relative != NULL)
        return fact->relative(record, first);
    if (fact->mean != NULL)
        return record_step_mean(record, fact->mean);
    if (fact->share != NULL)
        return record_step_mean(record, fact->share) / record_step_mean(record, "step_seconds");
    if (fact->split != NULL)
        return last_evaluation(record, fact->split, fact->metric);
    return known(fact->path != NULL ? record_number(record, fact->path) : NAN,
                 fact->last != NULL ? metrics_last(record, NULL, fact->last) : NAN);
}

const char *fact_text(const struct fact *fact, const struct record *record,
                      const struct record *first, char text[FORMAT_TEXT])
{
    if (fact->figure != FIGURE_TEXT && fact->text == NULL) {
        format_figure(text, fact->figure, fact_number(fact, record, first));
        return text;
    }
    const char *value = fact->text != NULL   ? fact->text(record, text)
                        : fact->path != NULL ? record_text(record, fact->path)
                                             : NULL;
    if (value == NULL && fact->option != NULL)
        value = record_option(record, fact->option);
    return value == NULL || value[0] == '\0' ? "-" : value;
}

const char *fact_cell(const struct fact *fact, const struct record *record,
                      const struct record *first, char text[FORMAT_TEXT])
{
    const char *value = fact_text(fact, record, first, text);
    return strcmp(value, "-") == 0 ? "" : value;
}

bool fact_is_known(const struct fact *fact, const struct record *records, int count)
{
    char text[FORMAT_TEXT];
    if (count == 1 && fact->relative != NULL)
        return false;
    for (int i = 0; i < count; i++)
        if (strcmp(fact_text(fact, &records[i], &records[0], text), "-") != 0)
            return true;
    return false;
}

bool fact_is_best(const struct fact *fact, const struct record *records, int count, int run)
{
    const double own = fact_number(fact, &records[run], &records[0]);
    const struct fact *steps = fact_find("steps");
    const double own_steps = fact_number(steps, &records[run], &records[0]);
    bool differs = false;
    if (fact->better == 0 || isnan(own))
        return false;
    for (int i = 0; i < count; i++) {
        const double other = fact_number(fact, &records[i], &records[0]);
        if (isnan(other))
            continue;
        if ((other - own) * fact->better > 0 ||
            (strcmp(fact->group, QUALITY) != 0 &&
             speed_differs(&records[i], &records[run], false) != NULL) ||
            (strcmp(fact->group, TIME) == 0 &&
             fact_number(steps, &records[i], &records[0]) != own_steps))
            return false;
        differs = differs || other != own;
    }
    return differs;
}

/* ---- writers */

void facts_markdown(const struct record *record, FILE *stream)
{
    char text[FORMAT_TEXT];
    fputs("| |", stream);
    markdown_cell(stream, record->name);
    fputs("\n|---|---:|\n", stream);
    for (int k = 0; k < fact_count; k++) {
        if (!fact_is_known(&fact_table[k], record, 1))
            continue;
        fprintf(stream, "| %s |", fact_table[k].name);
        markdown_cell(stream, fact_cell(&fact_table[k], record, record, text));
        fputc('\n', stream);
    }
}

void facts_csv(const struct record *records, int count, FILE *stream)
{
    char text[FORMAT_TEXT];
    fputs("run", stream);
    for (int k = 0; k < fact_count; k++)
        fprintf(stream, ",%s", fact_table[k].key);
    fputc('\n', stream);
    for (int i = 0; i < count; i++) {
        escape_csv(stream, records[i].name);
        for (int k = 0; k < fact_count; k++) {
            const struct fact *fact = &fact_table[k];
            const double number = fact_number(fact, &records[i], &records[0]);
            fputc(',', stream);
            if (!isnan(number))
                fprintf(stream, "%.9g", number);
            if (fact->figure != FIGURE_TEXT)
                continue;
            const char *value = fact_text(fact, &records[i], &records[0], text);
            if (strcmp(value, "-") != 0)
                escape_csv(stream, value);
        }
        fputc('\n', stream);
    }
}
