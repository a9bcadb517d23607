/* The lines of PyTorch Lightning's rich console, without colours: the summary of the model, and the
 * progress bar as it stands at an epoch's end. Epochs count from 0. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/options.h"
#include "core/atomic_file.h"
#include "core/log.h"
#include "model/registry.h"
#include "runlog/style.h"

enum { NAME_WIDTH = 28, TYPE_WIDTH = 17, COUNT_WIDTH = 6, COUNT_SIZE = 40 };

/* Three figures and a letter: "87.5 M", "7.7 K", "349  ", "0  ". */
static const char *count_text(double count, char *text, size_t size)
{
    static const char letters[] = " KMBT";
    int group = 0;
    while (count >= 1000 && letters[group + 1] != '\0') {
        count /= 1000;
        group++;
    }
    if (group == 0 || count >= 100)
        snprintf(text, size, "%lld %c", (long long)count, letters[group]);
    else
        snprintf(text, size, "%.1f %c", count, letters[group]);
    return text;
}

/* A line of the table's frame; its corners are UTF-8 like all of it. */
static void frame_say(const char *left, const char *middle, const char *right, const char *stroke)
{
    static const int widths[] = {5, NAME_WIDTH + 2, TYPE_WIDTH + 2, COUNT_WIDTH + 2};
    char line[512];
    int used = snprintf(line, sizeof line, "%s", left);
    for (int column = 0; column < 4; column++) {
        for (int i = 0; i < widths[column]; i++)
            used += snprintf(line + used, sizeof line - (size_t)used, "%s", stroke);
        used +=
            snprintf(line + used, sizeof line - (size_t)used, "%s", column < 3 ? middle : right);
    }
    log_info("%s", line);
}

static void row_say(int number, const char *name, const char *type, int64_t count)
{
    char figure[COUNT_SIZE];
    count_text((double)count, figure, sizeof figure);
    if (count < 1000)
        figure[strcspn(figure, " ")] = '\0';
    log_info("\u2502 %-3d \u2502 %-*s \u2502 %-*s \u2502 %*s \u2502", number, NAME_WIDTH, name,
             TYPE_WIDTH, type, COUNT_WIDTH, figure);
}

static void table_say(const struct style_run *run)
{
    const struct model *model = run->model;
    char name[sizeof model->units[0].name + 8];
    frame_say("\u250f", "\u2533", "\u2513", "\u2501");
    log_info("\u2503     \u2503 %-*s \u2503 %-*s \u2503 %*s \u2503", NAME_WIDTH, "Name", TYPE_WIDTH,
             "Type", COUNT_WIDTH, "Params");
    frame_say("\u2521", "\u2547", "\u2529", "\u2501");
    row_say(0, "net", model_is_vit(run->options->model.name) ? "VisionTransformer" : "ConvNet",
            model_parameter_count(model));
    for (int u = 0; u < model->unit_count; u++) {
        snprintf(name, sizeof name, "net.%s", model->units[u].name);
        row_say(u + 1, name, "Unit", unit_parameter_count(&model->units[u]));
    }
    frame_say("\u2514", "\u2534", "\u2518", "\u2500");
}

static void start_say(const struct style_run *run)
{
    const struct model *model = run->model;
    char figure[COUNT_SIZE];
    double total = (double)model_parameter_count(model);
    double trained = (double)model_trainable_count(model);
    table_say(run);
    log_info("Trainable params: %-10s", count_text(trained, figure, sizeof figure));
    log_info("Non-trainable params: %-10s", count_text(total - trained, figure, sizeof figure));
    log_info("Total params: %-10s", count_text(total, figure, sizeof figure));
    /* Of four bytes each, in millions of bytes, cut off as the framework does. */
    log_info("Total estimated model params size (MB): %-10s",
             count_text(floor(total * 4 / 1e6), figure, sizeof figure));
}

/* Three decimals at most, as Python's round() prints them; nothing for NAN. */
static void metric_add(char *line, size_t size, const char *name, double value)
{
    char number[40];
    size_t used = strlen(line);
    if (!isnan(value))
        snprintf(line + used, size - used, " %s: %s", name,
                 style_number(round(value * 1000) / 1000, number, sizeof number));
}

static const char *hours_text(double seconds, char *text, size_t size)
{
    long long whole = (long long)seconds;
    snprintf(text, size, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
    return text;
}

static void epoch_say(const struct style_run *run, const struct style_epoch *epoch)
{
    static const char bar[] = "\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501"
                              "\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501"
                              "\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501";
    const struct epoch_row *row = epoch->row;
    double seconds = row->seconds + (epoch->evaluated ? row->eval_seconds : 0);
    long long batches =
        (long long)(run->epoch_steps + (epoch->evaluated ? run->validation_batches : 0));
    /* As wide as "Validation", as long as there are few epochs. */
    int digits = snprintf(NULL, 0, "%lld", (long long)row->epoch), padding = 5 - 2 * digits;
    char line[1024], hours[32];
    snprintf(line, sizeof line,
             "Epoch %lld%*s %s %lld/%lld %s \u2022 0:00:00 %.2fit/s loss: %.3g v_num: 0",
             (long long)row->epoch, padding > 0 ? padding : 0, "", bar, batches, batches,
             hours_text(seconds, hours, sizeof hours), seconds > 0 ? (double)batches / seconds : 0,
             epoch->last_loss);
    metric_add(line, sizeof line, "train/loss_step", epoch->last_loss);
    metric_add(line, sizeof line, "train/acc_step", epoch->last_top1);
    metric_add(line, sizeof line, "val/loss", row->val_loss);
    metric_add(line, sizeof line, "val/acc", row->val_top1);
    metric_add(line, sizeof line, "val/acc_best", epoch->best_top1);
    metric_add(line, sizeof line, "train/loss_epoch", row->train_loss);
    metric_add(line, sizeof line, "train/acc_epoch", row->train_top1);
    log_info("%s", line);
}

/* exec_time.log, also of a run that failed. */
static bool time_write(const char *folder, double seconds, struct error *error)
{
    char path[FILE_PATH], text[96], number[40];
    snprintf(path, sizeof path, "%s/exec_time.log", folder);
    snprintf(text, sizeof text, "'train' execution time: %s (s)",
             style_number(seconds, number, sizeof number));
    return atomic_file_write(path, text, error);
}

const struct style style_lightning = {
    .start = start_say, .begin = style_hparams_write, .epoch = epoch_say, .close = time_write};
