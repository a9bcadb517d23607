// SPDX-License-Identifier: BSD-3-Clause
/* Walks through metrics.csv and epochs.csv in the order of the steps and calls the format for each
 * attempt, epoch, row and checkpoint. Here are also the format of PyTorch's ImageNet example, and
 * the files of the Lightning-Hydra template. */
#include "tools/report/export.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint_name.h"
#include "config/command_options.h"
#include "config/run_options.h"
#include "core/atomic_file.h"
#include "core/text.h"

/* ---- numbers */

double export_attempt_number(const struct export_run *run, int attempt, const char *key)
{
    char path[64];
    snprintf(path, sizeof path, "parts.%d.%s", attempt, key);
    return record_number(run->record, path);
}

const char *export_number(double value, char *text, size_t size)
{
    enum { MOST_DIGITS = 17 };
    char scientific[40];
    int digits = 0;
    if (!isfinite(value)) {
        snprintf(text, size, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return text;
    }
    do
        snprintf(scientific, sizeof scientific, "%.*e", digits, value);
    while (++digits < MOST_DIGITS && strtod(scientific, NULL) != value);
    int exponent = atoi(strchr(scientific, 'e') + 1);
    if (exponent < -4 || exponent >= 16)
        snprintf(text, size, "%s", scientific);
    else
        snprintf(text, size, "%.*f", digits - 1 - exponent > 1 ? digits - 1 - exponent : 1, value);
    return text;
}

/* ---- PyTorch's ImageNet example: meters as "value (average)", separated by tabs; epochs and
 * batches count from 0 */

static void imagenet_step(const struct export_run *run, int64_t row)
{
    const struct table *table = &run->record->metrics;
    const struct export_sums *sums = &run->sums;
    const int digits = snprintf(NULL, 0, "%lld", (long long)run->epoch_steps);
    fprintf(run->log,
            "Epoch: [%lld][%*lld/%lld]\tTime %6.3f (%6.3f)\tData %6.3f (%6.3f)\t"
            "Loss %.4e (%.4e)\tAcc@1 %6.2f (%6.2f)\tAcc@5 %6.2f (%6.2f)\n",
            (long long)run->epoch, digits, (long long)run->epoch_step - 1,
            (long long)run->epoch_steps, table_number_at(table, row, "step_seconds"),
            sums->seconds / sums->steps, table_number_at(table, row, "data_seconds"),
            sums->data_seconds / sums->steps, run->last_loss, sums->loss / sums->samples,
            100 * run->last_top1, 100 * sums->top1 / sums->samples,
            100 * table_number_at(table, row, "top5"), 100 * sums->top5 / sums->samples);
}

static void imagenet_epoch(const struct export_run *run, int64_t row, bool improved)
{
    const struct table *table = &run->record->epochs;
    const double loss = table_number_at(table, row, "val_loss");
    const double top1 = 100 * table_number_at(table, row, "val_top1");
    const double top5 = 100 * table_number_at(table, row, "val_top5");
    double steps = record_number(run->record, "val_steps");
    char rate[40];
    (void)improved;
    steps = steps >= 1 ? steps : 1;
    if (!isnan(loss)) {
        /* One line for the evaluation's last batch, with the means as its values. */
        double seconds = table_number_at(table, row, "eval_seconds") / steps;
        fprintf(run->log,
                "Test: [%.0f/%.0f]\tTime %6.3f (%6.3f)\tLoss %.4e (%.4e)\tAcc@1 %6.2f (%6.2f)\t"
                "Acc@5 %6.2f (%6.2f)\n * Acc@1 %.3f Acc@5 %.3f\n",
                steps - 1, steps, seconds, seconds, loss, loss, top1, top1, top5, top5, top1, top5);
    }
    fprintf(run->log, "lr: [%s]\n",
            export_number(table_number_at(table, row, "next_lr"), rate, sizeof rate));
}

static const struct export_format export_imagenet = {.name = "imagenet",
                                                     .log_every = 50,
                                                     .log_every_vit = 50,
                                                     .from_first = true,
                                                     .step = imagenet_step,
                                                     .epoch = imagenet_epoch};

/* ---- the Lightning-Hydra template: exec_time.log and hparams.yaml, no lines */

/* Print an option's value as YAML: numbers and switches as such, all else in quotes. */
static void yaml_write(FILE *file, const char *text)
{
    char *end;
    const double number = strtod(text, &end);
    if (strcmp(text, "on") == 0 || strcmp(text, "off") == 0) {
        fprintf(file, "%s\n", strcmp(text, "on") == 0 ? "true" : "false");
    } else if (end != text && *end == '\0' && isfinite(number) && strpbrk(text, "xX") == NULL) {
        /* YAML 1.1 needs a point in numbers with an exponent: 1.0e-05. */
        const size_t digits = strcspn(text, "e");
        const bool whole = text[digits] == 'e' && memchr(text, '.', digits) == NULL;
        fprintf(file, "%.*s%s%s\n", (int)digits, text, whole ? ".0" : "", text + digits);
    } else {
        fputc('\'', file);
        for (const char *c = text; *c != '\0'; c++)
            fprintf(file, *c == '\'' ? "''" : "%c", *c);
        fputs("'\n", file);
    }
}

/* Wall time of the newest attempt, with set-up; NAN if unknown. */
static double attempt_seconds(const struct export_run *run)
{
    double seconds = export_attempt_number(run, record_attempts(run->record) - 1, "seconds");
    return isnan(seconds) ? record_number(run->record, "total_seconds") : seconds;
}

static bool lightning_files(const struct export_run *run, struct error *error)
{
    const struct record *record = run->record;
    const double total = record_number(record, "parameters");
    const double trained = record_number(record, "trainable_parameters");
    char path[EXPORT_PATH], text[96], number[40];
    const char *section = "";
    struct atomic_file file = {0};
    snprintf(path, sizeof path, "%s/exec_time.log", record->path);
    snprintf(text, sizeof text, "'train' execution time: %s (s)",
             export_number(attempt_seconds(run), number, sizeof number));
    if (!atomic_file_write(path, text, error))
        return false;
    snprintf(path, sizeof path, "%s/hparams.yaml", record->path);
    if (!atomic_file_open(&file, path, error))
        return false;
    for (int i = 0; i < record->deck_count; i++) {
        const char *key = record->deck[i].key;
        const size_t dot = strcspn(key, ".");
        if (strncmp(section, key, dot + 1) != 0)
            fprintf(file.stream, "%.*s:\n", (int)dot, key);
        section = key;
        fprintf(file.stream, "  %s: ", key + dot + 1);
        yaml_write(file.stream, record->deck[i].value);
    }
    fprintf(file.stream,
            "model/params/total: %.0f\nmodel/params/trainable: %.0f\n"
            "model/params/non_trainable: %.0f\n",
            total, trained, total - trained);
    return atomic_file_commit(&file, error);
}

static const struct export_format export_lightning = {.files = lightning_files};

static const struct export_format *const formats[] = {[FORMAT_COURSE] = &export_course,
                                                      [FORMAT_IMAGENET] = &export_imagenet,
                                                      [FORMAT_LIGHTNING] = &export_lightning};

/* ---- the walk */

static bool run_open(struct export_run *run, const struct record *record, struct error *error)
{
    static const char *const keys[] = {"global_batch", "ranks", "nodes", "total_steps",
                                       "steps_per_epoch"};
    enum { EPOCHS_MOST = 1000000 };
    const char *model = record_text(record, "model");
    double of[5];
    for (int i = 0; i < 5; i++) {
        of[i] = record_number(record, keys[i]);
        if (!(of[i] >= 1 && of[i] <= 1e15))
            return error_set(error, ERROR_FILE,
                             "cannot export %s: neither run.json nor result.json has %s",
                             record->path, keys[i]);
    }
    if (of[3] > EPOCHS_MOST * of[4])
        return error_set(error, ERROR_FILE, "cannot export %s: total_steps=%g is too large",
                         record->path, of[3]);
    *run = (struct export_run){.record = record,
                               .model = model != NULL ? model : "",
                               .ranks = (int64_t)of[1],
                               .nodes = (int64_t)of[2],
                               .batch = (int64_t)ceil(of[0] / of[1]),
                               .epochs = (int64_t)ceil(of[3] / of[4]),
                               .epoch_steps = (int64_t)of[4],
                               .attempt = -1,
                               .best_top1 = NAN,
                               .best_loss = NAN};
    return true;
}

/* Steps between two lines: output.log_every, or the format's own number if that is the default and
 * an epoch is long enough. */
static int64_t steps_between(const struct export_run *run, const struct export_format *format)
{
    const char *text = record_option(run->record, "output.log_every");
    const bool vit = strncmp(run->model, "vit", 3) == 0;
    const int64_t own = vit ? format->log_every_vit : format->log_every;
    const int64_t every = text != NULL && atoll(text) > 0 ? atoll(text) : LOG_EVERY_DEFAULT;
    if (every > run->epoch_steps)
        return run->epoch_steps + 1;
    return every == LOG_EVERY_DEFAULT && own <= run->epoch_steps ? own : every;
}

static void checkpoint_path(const struct export_run *run, double step, char path[EXPORT_PATH])
{
    char name[CHECKPOINT_NAME];
    checkpoint_name(name, (int64_t)step);
    snprintf(path, EXPORT_PATH, "%s/checkpoints/%s", run->record->path, name);
}

/* Begin all attempts that started before `step`. */
static void attempts_begin(struct export_run *run, const struct export_format *format, double step)
{
    while (export_attempt_number(run, run->attempt + 1, "from_step") < step) {
        char key[64], path[EXPORT_PATH];
        const double from = export_attempt_number(run, ++run->attempt, "from_step");
        snprintf(key, sizeof key, "parts.%d.resumed_from", run->attempt);
        const char *resumed = record_text(run->record, key);
        if (resumed == NULL && from > 0) { /* run.json of an older version */
            checkpoint_path(run, from, path);
            resumed = path;
        }
        run->epochs_done = (int64_t)from / run->epoch_steps;
        run->epoch = -1;
        if (format->attempt != NULL)
            format->attempt(run, resumed);
    }
}

/* Print the line of a checkpoint if one was due at this step: by checkpoint.every, for the best
 * evaluation, or at the end of the attempt. */
static void checkpoint_write(const struct export_run *run, const struct export_format *format,
                             double step, bool best)
{
    const char *option = record_option(run->record, "checkpoint.every");
    const double epochs = option != NULL ? atof(option) : 1;
    const double every = fmax(1, nearbyint(epochs * (double)run->epoch_steps));
    char path[EXPORT_PATH];
    if (format->checkpoint == NULL ||
        !((epochs > 0 && (best || fmod(step, every) == 0)) ||
          step == export_attempt_number(run, run->attempt, "to_step")))
        return;
    checkpoint_path(run, step, path);
    format->checkpoint(run, path);
}

/* Add a row of metrics.csv, and print its line if it is the first one at or after a multiple of
 * `every` steps. */
static void row_write(struct export_run *run, const struct export_format *format, int64_t row,
                      int64_t epoch, int64_t epoch_step, int64_t every)
{
    const struct table *table = &run->record->metrics;
    if (epoch != run->epoch) {
        run->epoch = epoch;
        run->epoch_step = 0;
        run->sums = (struct export_sums){0};
        if (format->epoch_begin != NULL)
            format->epoch_begin(run);
    }
    const int64_t before = run->epoch_step, offset = format->from_first ? every - 1 : 0;
    const double steps = (double)(epoch_step - before);
    const double seconds = steps * table_number_at(table, row, "step_seconds");
    const double samples = seconds * table_number_at(table, row, "images_per_second");
    run->epoch_step = epoch_step;
    run->last_loss = table_number_at(table, row, "loss");
    run->last_top1 = table_number_at(table, row, "top1");
    run->elapsed = table_number_at(table, row, "elapsed_seconds");
    run->sums.steps += steps;
    run->sums.samples += samples;
    run->sums.loss += samples * run->last_loss;
    run->sums.top1 += samples * run->last_top1;
    run->sums.top5 += samples * table_number_at(table, row, "top5");
    run->sums.seconds += seconds;
    run->sums.data_seconds += steps * table_number_at(table, row, "data_seconds");
    if (format->step != NULL && (epoch_step + offset) / every > (before + offset) / every)
        format->step(run, row);
}

static void epoch_write(struct export_run *run, const struct export_format *format, int64_t row)
{
    const struct table *table = &run->record->epochs;
    const char *monitor = record_option(run->record, "checkpoint.monitor");
    const double loss = table_number_at(table, row, "val_loss");
    const double top1 = table_number_at(table, row, "val_top1");
    const double evaluation = table_number_at(table, row, "eval_seconds");
    const bool improved = !isnan(top1) && !(run->best_top1 >= top1);
    const bool lower = !isnan(loss) && !(run->best_loss <= loss);
    run->best_top1 = improved ? top1 : run->best_top1;
    run->best_loss = lower ? loss : run->best_loss;
    run->epoch = (int64_t)table_number_at(table, row, "epoch");
    run->epochs_seconds +=
        table_number_at(table, row, "seconds") + (isnan(evaluation) ? 0 : evaluation);
    if (format->epoch != NULL)
        format->epoch(run, row, improved);
    const bool best = monitor == NULL || strcmp(monitor, "top1") == 0 ? improved
                      : strcmp(monitor, "loss") == 0                  ? lower
                                                                      : false;
    checkpoint_write(run, format, table_number_at(table, row, "step"), best);
}

static void run_walk(struct export_run *run, const struct export_format *format)
{
    const struct table *rows = &run->record->metrics, *epochs = &run->record->epochs;
    const int split = table_column(rows, "split");
    const int64_t every = format->step != NULL ? steps_between(run, format) : 1;
    int64_t done = 0; /* rows of epochs.csv */
    for (int64_t row = 0; row <= rows->rows; row++) {
        const bool at_end = row == rows->rows;
        const double step = at_end ? INFINITY : table_number_at(rows, row, "step");
        const double epoch = at_end ? 0 : table_number_at(rows, row, "epoch");
        const double epoch_step = step - epoch * (double)run->epoch_steps;
        if (!at_end && (strcmp(table_text(rows, row, split), "train") != 0 ||
                        !(epoch >= 0 && epoch < (double)run->epochs && epoch_step >= 1 &&
                          epoch_step <= (double)run->epoch_steps)))
            continue; /* an evaluation, or a damaged row */
        for (; done < epochs->rows && !(table_number_at(epochs, done, "step") >= step); done++)
            if (table_number_at(epochs, done, "epoch") >= 0)
                epoch_write(run, format, done);
        if (at_end)
            break;
        attempts_begin(run, format, step);
        row_write(run, format, row, (int64_t)epoch, (int64_t)epoch_step, every);
        if (done == epochs->rows || table_number_at(epochs, done, "step") != step)
            checkpoint_write(run, format, step, false);
    }
    if (run->record->result != NULL && format->end != NULL)
        format->end(run);
}

bool export_write(const struct record *record, int format, struct error *error)
{
    struct export_run run;
    struct text_stream lines[2];
    char path[EXPORT_PATH];
    if (!run_open(&run, record, error))
        return false;
    run.log = text_stream_open(&lines[0]);
    run.result = text_stream_open(&lines[1]);
    run_walk(&run, formats[format]);
    char *log = text_stream_close(&lines[0]), *result = text_stream_close(&lines[1]);
    bool good = true;
    if (formats[format]->name != NULL) {
        snprintf(path, sizeof path, "%s/%s.log", record->path, formats[format]->name);
        good = atomic_file_write(path, log, error);
    }
    if (good && formats[format] == &export_course) {
        snprintf(path, sizeof path, "%s/%lld_%lld_%lld_%lld.txt", record->path,
                 (long long)run.batch, (long long)run.epochs, (long long)run.nodes,
                 (long long)run.ranks);
        good = atomic_file_write(path, result, error);
    }
    good = good && (formats[format]->files == NULL || formats[format]->files(&run, error));
    free(log);
    free(result);
    return good;
}
