/* PyTorch Lightning's rich console without colours: the model summary, and the progress bar at the
 * end of each epoch. Epochs count from 0. Also hparams.yaml and exec_time.log. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/atomic_file.h"
#include "report/export.h"

enum { NAME_WIDTH = 28, TYPE_WIDTH = 17, COUNT_WIDTH = 6, COUNT_SIZE = 40 };

/* ---- the model summary */

/* Three digits and a letter: "87.5 M", "7.7 K", "349  ", "0  ". */
static const char *count_text(double count, char *text, size_t size)
{
    static const char letters[] = " KMBT";
    int group = 0;
    for (; count >= 1000 && letters[group + 1] != '\0'; group++)
        count /= 1000;
    if (group == 0 || count >= 100)
        snprintf(text, size, "%.0f %c", floor(count), letters[group]);
    else
        snprintf(text, size, "%.1f %c", count, letters[group]);
    return text;
}

/* A horizontal line of the table's frame. */
static void frame_write(const struct export_run *run, const char *left, const char *middle,
                        const char *right, const char *stroke)
{
    static const int widths[] = {5, NAME_WIDTH + 2, TYPE_WIDTH + 2, COUNT_WIDTH + 2};
    for (int column = 0; column < 4; column++) {
        fputs(column == 0 ? left : middle, run->log);
        for (int i = 0; i < widths[column]; i++)
            fputs(stroke, run->log);
    }
    fprintf(run->log, "%s\n", right);
}

static void summary_row_write(const struct export_run *run, int64_t number, const char *name,
                              const char *type, double count)
{
    char figure[COUNT_SIZE];
    count_text(count, figure, sizeof figure);
    if (count < 1000)
        figure[strcspn(figure, " ")] = '\0';
    fprintf(run->log, "\u2502 %-3lld \u2502 %-*s \u2502 %-*s \u2502 %*s \u2502\n",
            (long long)number, NAME_WIDTH, name, TYPE_WIDTH, type, COUNT_WIDTH, figure);
}

static void lightning_attempt(const struct export_run *run, const char *resumed)
{
    const struct table *units = &run->record->units;
    const int unit = table_column(units, "unit");
    const double total = record_number(run->record, "parameters");
    const double trained = record_number(run->record, "trainable_parameters");
    char figure[COUNT_SIZE];
    (void)resumed;
    frame_write(run, "\u250f", "\u2533", "\u2513", "\u2501");
    fprintf(run->log, "\u2503     \u2503 %-*s \u2503 %-*s \u2503 %*s \u2503\n", NAME_WIDTH, "Name",
            TYPE_WIDTH, "Type", COUNT_WIDTH, "Params");
    frame_write(run, "\u2521", "\u2547", "\u2529", "\u2501");
    summary_row_write(run, 0, "net",
                      strncmp(run->model, "vit", 3) == 0 ? "VisionTransformer" : "ConvNet", total);
    for (int64_t row = 0; row < units->rows; row++) {
        char name[256];
        if (table_text(units, row, unit)[0] == '(') /* "(the step)" is no unit */
            continue;
        snprintf(name, sizeof name, "net.%s", table_text(units, row, unit));
        summary_row_write(run, row + 1, name, "Unit", export_cell(units, row, "parameters"));
    }
    frame_write(run, "\u2514", "\u2534", "\u2518", "\u2500");
    fprintf(run->log, "Trainable params: %-10s\n", count_text(trained, figure, sizeof figure));
    fprintf(run->log, "Non-trainable params: %-10s\n",
            count_text(total - trained, figure, sizeof figure));
    fprintf(run->log, "Total params: %-10s\n", count_text(total, figure, sizeof figure));
    fprintf(run->log, "Total estimated model params size (MB): %-10s\n",
            count_text(floor(total * 4 / 1e6), figure, sizeof figure)); /* fp32 */
}

/* ---- the progress bar */

/* Print a metric, rounded to three decimals as Python's round() does; nothing for NAN. */
static void metric_write(const struct export_run *run, const char *name, double value)
{
    char number[40];
    if (!isnan(value))
        fprintf(run->log, " %s: %s", name,
                export_number(round(value * 1000) / 1000, number, sizeof number));
}

static void lightning_epoch(const struct export_run *run, int64_t row, bool improved)
{
    const struct table *table = &run->record->epochs;
    const double val_steps = record_number(run->record, "val_steps");
    const double evaluation = export_cell(table, row, "eval_seconds");
    const double seconds =
        export_cell(table, row, "seconds") + (isnan(evaluation) ? 0 : evaluation);
    const long long whole = (long long)seconds;
    const long long batches =
        (long long)run->epoch_steps + (isnan(evaluation) || isnan(val_steps) ? 0 : (int)val_steps);
    /* Lightning pads to the width of "Validation". */
    const int digits = snprintf(NULL, 0, "%lld", (long long)run->epoch), padding = 5 - 2 * digits;
    (void)improved;
    fprintf(run->log, "Epoch %lld%*s ", (long long)run->epoch, padding > 0 ? padding : 0, "");
    for (int i = 0; i < 30; i++)
        fputs("\u2501", run->log);
    fprintf(run->log, " %lld/%lld %lld:%02lld:%02lld \u2022 0:00:00 %.2fit/s loss: %.3g v_num: 0",
            batches, batches, whole / 3600, whole / 60 % 60, whole % 60,
            seconds > 0 ? (double)batches / seconds : 0, run->last_loss);
    metric_write(run, "train/loss_step", run->last_loss);
    metric_write(run, "train/acc_step", run->last_top1);
    metric_write(run, "val/loss", export_cell(table, row, "val_loss"));
    metric_write(run, "val/acc", export_cell(table, row, "val_top1"));
    metric_write(run, "val/acc_best", run->best_top1);
    metric_write(run, "train/loss_epoch", export_cell(table, row, "train_loss"));
    metric_write(run, "train/acc_epoch", export_cell(table, row, "train_top1"));
    fputc('\n', run->log);
}

/* ---- files */

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
             export_number(export_attempt_seconds(run), number, sizeof number));
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

const struct export_format export_lightning = {.name = "lightning",
                                               .attempt = lightning_attempt,
                                               .epoch = lightning_epoch,
                                               .files = lightning_files};
