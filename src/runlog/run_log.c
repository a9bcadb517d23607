// SPDX-License-Identifier: BSD-3-Clause
#include "runlog/run_log.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/run_options.h"
#include "core/clock.h"
#include "core/csv.h"
#include "runlog/evaluation.h"
#include "runlog/hparams.h"
#include "runlog/receipt.h"
#include "runlog/tensorboard.h"

static const char metrics_header[] =
    "epoch,step,split,loss,top1,top5,lr,grad_norm,images_per_second,step_seconds,data_seconds,"
    "compute_seconds,comm_seconds,exposed_comm_seconds,peak_share,elapsed_seconds,loss_scale,"
    "skipped_steps,forward_seconds,backward_seconds,reduce_seconds,update_seconds,miou,map,output,"
    "rmse,mae,bias,r2,persistence_rmse,persistence_mae,seconds,eval_seconds,data_share,next_lr";

enum { METRICS_MOST = 8 }; /* tags of evaluations in a set */
/* Columns of metrics.csv. */
enum { STEP_COLUMN = 1, SPLIT_COLUMN = 2, TOP1_COLUMN = 4, ELAPSED_COLUMN = 15 };

static const double flush_seconds = 5;

struct run_log {
    struct csv metrics, receipts;
    struct tensorboard *board;
    int tags;          /* enum tags_choice */
    double flushed_at; /* clock */
};

/* ---- TensorBoard tags */

struct tag {
    const char *name;
    const char *split; /* of the rows with this tag; NULL: end */
    size_t offset;     /* of a double in the row; EPOCH_NUMBER: the epoch */
    double factor;
};

enum { EPOCH_NUMBER = 0 };
_Static_assert(offsetof(struct metrics_row, epoch) == EPOCH_NUMBER, "epoch is the first member");

#define ROW(field) offsetof(struct metrics_row, field)

/* clang-format off */
static const struct tag vittrain_tags[] = {
    {"train/loss", "train", ROW(loss), 1},
    {"train/acc", "train", ROW(top1), 1},
    {"train/acc_top5", "train", ROW(top5), 1},
    {"val/loss", "val", ROW(loss), 1},
    {"val/acc", "val", ROW(top1), 1},
    {"val/acc_top5", "val", ROW(top5), 1},
    {"test/loss", "test", ROW(loss), 1},
    {"test/acc", "test", ROW(top1), 1},
    {"test/acc_top5", "test", ROW(top5), 1},
    {"lr", "train", ROW(rate), 1},
    {"grad_norm", "train", ROW(gradient_norm), 1},
    {"images_per_second", "train", ROW(images_per_second), 1},
    {"peak_share", "train", ROW(peak_share), 1},
    {"loss_scale", "train", ROW(loss_scale), 1},
    {"skipped_steps", "train", ROW(skipped_steps), 1},
    {"time/data", "train", ROW(data_seconds), 1},
    {"time/compute", "train", ROW(compute_seconds), 1},
    {"time/comm", "train", ROW(comm_seconds), 1},
    {"time/exposed_comm", "train", ROW(exposed_comm_seconds), 1},
    {0}};

/* Accuracies in percent; in training those of the epoch so far. */
static const struct tag imagenet_tags[] = {
    {"Loss/train", "train", ROW(loss), 1},
    {"acc1/train", "train", ROW(epoch_top1), 100},
    {"acc5/train", "train", ROW(epoch_top5), 100},
    {"Loss/val", "val", ROW(loss), 1},
    {"acc1/val", "val", ROW(top1), 100},
    {"acc5/val", "val", ROW(top5), 100},
    {"lr", "epoch", ROW(next_rate), 1},
    {0}};

static const struct tag lightning_tags[] = {
    {"train/loss_step", "train", ROW(loss), 1},
    {"train/acc_step", "train", ROW(top1), 1},
    {"epoch", "train", EPOCH_NUMBER, 1},
    {"val/loss", "val", ROW(loss), 1},
    {"val/acc", "val", ROW(top1), 1},
    {"val/acc_best", "val", ROW(best_top1), 1},
    {"hp_metric", "val", ROW(loss), 1},
    {"epoch", "val", EPOCH_NUMBER, 1},
    {"test/loss", "test", ROW(loss), 1},
    {"test/acc", "test", ROW(top1), 1},
    {"train/loss_epoch", "epoch", ROW(loss), 1},
    {"train/acc_epoch", "epoch", ROW(top1), 1},
    {"epoch", "epoch", EPOCH_NUMBER, 1},
    {0}};

/* By output.tensorboard_tags. */
static const struct {
    const struct tag *tags;
    bool due_only;   /* only rows of complete log intervals have points */
    bool from_first; /* intervals end at the first step of an epoch and each multiple after it */
    int64_t shift;   /* step of a point less the completed steps: -1 counts steps from 0 */
} tag_sets[] = {
    [TAGS_VITTRAIN] = {vittrain_tags, false, false, 0},
    [TAGS_COURSE] = {vittrain_tags, false, false, 0},
    [TAGS_IMAGENET] = {imagenet_tags, true, true, 0},
    [TAGS_LIGHTNING] = {lightning_tags, true, false, -1}};
/* clang-format on */

static double value_at(const struct metrics_row *row, size_t offset)
{
    double value;
    memcpy(&value, (const char *)row + offset, sizeof value);
    return value;
}

struct metrics_row run_log_row(const char *split, int64_t epoch, int64_t step)
{
    const double empty = NAN;
    struct metrics_row row = {.epoch = epoch, .step = step, .split = split};
    for (size_t offset = ROW(loss); offset <= ROW(next_rate); offset += sizeof empty)
        memcpy((char *)&row + offset, &empty, sizeof empty);
    return row;
}

/* Write the points of a row that are not NAN. */
static bool points_write(struct run_log *log, const struct metrics_row *row, struct error *error)
{
    for (const struct tag *tag = tag_sets[log->tags].tags; tag->split != NULL; tag++) {
        if (strcmp(tag->split, row->split) != 0)
            continue;
        const double value =
            tag->offset == EPOCH_NUMBER ? (double)row->epoch : value_at(row, tag->offset);
        if (!isnan(value) &&
            !tensorboard_scalar(log->board, tag->name, row->step + tag_sets[log->tags].shift,
                                tag->factor * value, error))
            return false;
    }
    return true;
}

bool run_log_is_due(const struct output_options *options, int64_t step, int64_t epoch_step)
{
    const bool from_first = tag_sets[options->tensorboard_tags].from_first;
    return (from_first ? epoch_step - 1 : step) % options->log_every == 0;
}

/* ---- open */

static bool metrics_open(struct run_log *log, const char *folder,
                         const struct run_log_position *position, struct error *error)
{
    char path[FILE_PATH];
    struct csv_keep keep = {
        .column = STEP_COLUMN, .last = position->step, .text_column = SPLIT_COLUMN};
    size_t removed = 0;
    if (position->mid_epoch)
        keep.removed[removed++] = "epoch";
    if (position->unevaluated)
        keep.removed[removed++] = "val";
    if (position->untested)
        keep.removed[removed++] = "test";
    snprintf(path, sizeof path, "%s/metrics.csv", folder);
    return csv_reopen(&log->metrics, path, metrics_header, &keep, error);
}

struct run_log *run_log_open(const struct run_folder *folder, const struct output_options *options,
                             const struct run_log_position *position, struct error *error)
{
    struct run_log *log = allocate(1, sizeof *log);
    const int64_t step = position->step;
    log->tags = options->tensorboard_tags;
    bool good = !options->csv || metrics_open(log, folder->path, position, error);
    if (good && options->tensorboard) {
        /* A new run writes a purge, too: the folder may contain events of a killed attempt, and one
         * of TensorBoard's readers takes the first purge for the start of the run. */
        const int64_t first_purged = step == 0 ? 0 : step + 1 + tag_sets[log->tags].shift;
        log->board = tensorboard_open(folder->path, error);
        good = log->board != NULL && tensorboard_restart(log->board, first_purged, error);
    }
    if (good)
        return log;
    run_log_close(log);
    return NULL;
}

bool run_log_open_receipts(struct run_log *log, const struct run_folder *folder, const char *header,
                           int64_t step, bool writes, struct error *error)
{
    char path[FILE_PATH];
    snprintf(path, sizeof path, "%s/receipt.csv", folder->path);
    return (!writes && access(path, F_OK) != 0) ||
           csv_open(&log->receipts, path, header, RECEIPT_STEP, step, error);
}

/* ---- rows */

/* Write the columns from `first` to `last`, offsets in the row. */
static void columns_to_table(struct csv *csv, const struct metrics_row *row, size_t first,
                             size_t last)
{
    for (size_t offset = first; offset <= last; offset += sizeof(double))
        csv_number(csv, value_at(row, offset));
}

/* output: name of the output whose errors the row has, or "". */
static bool metrics_to_table(struct csv *csv, const struct metrics_row *row, const char *output,
                             struct error *error)
{
    char rate[32];
    snprintf(rate, sizeof rate, "%.17g", row->next_rate); /* all digits: exports print them */
    csv_integer(csv, row->epoch);
    csv_integer(csv, row->step);
    csv_text(csv, row->split);
    columns_to_table(csv, row, ROW(loss), ROW(map));
    csv_text(csv, output);
    columns_to_table(csv, row, ROW(errors), ROW(data_share));
    csv_text(csv, isnan(row->next_rate) ? "" : rate);
    return csv_end_row(csv, error);
}

bool run_log_metrics(struct run_log *log, const struct metrics_row *row, struct error *error)
{
    if (log == NULL)
        return true;
    if (log->metrics.stream != NULL && !metrics_to_table(&log->metrics, row, "", error))
        return false;
    if (log->board != NULL && (row->due || !tag_sets[log->tags].due_only) &&
        !points_write(log, row, error))
        return false;
    return clock_now() - log->flushed_at < flush_seconds || run_log_flush(log, error);
}

bool run_log_targets(struct run_log *log, const struct metrics_row *row,
                     const struct evaluation *evaluation, const struct dataset *dataset,
                     struct error *error)
{
    char name[OUTPUT_NAME], tag[OUTPUT_NAME + 16];
    if (log == NULL)
        return true;
    const double means[] = {row->miou, row->map};
    for (int i = 0; i < 2; i++) {
        snprintf(tag, sizeof tag, "%s/%s", row->split, i == 0 ? "miou" : "map");
        if (!isnan(means[i]) && !run_log_point(log, tag, row->step, means[i], error))
            return false;
    }
    for (int64_t i = 0; i < evaluation->outputs; i++) {
        struct metrics_row one = run_log_row(row->split, row->epoch, row->step);
        one.errors = evaluation->errors[i];
        evaluation_output_name(dataset, i, name);
        snprintf(tag, sizeof tag, "%s/rmse/%s", row->split, name);
        if (log->metrics.stream != NULL && !metrics_to_table(&log->metrics, &one, name, error))
            return false;
        if (!isnan(one.errors.rmse) && !run_log_point(log, tag, row->step, one.errors.rmse, error))
            return false;
    }
    return true;
}

bool run_log_receipt(struct run_log *log, const struct receipt *receipt, int columns,
                     struct error *error)
{
    if (log == NULL)
        return true;
    for (int column = 0; column < columns; column++) {
        char cell[RECEIPT_CELL];
        receipt_cell(receipt, column, cell);
        csv_text(&log->receipts, cell);
    }
    csv_text(&log->receipts, receipt->grains);
    return csv_end_row(&log->receipts, error);
}

bool run_log_point(struct run_log *log, const char *tag, int64_t step, double value,
                   struct error *error)
{
    return log->board == NULL || tensorboard_scalar(log->board, tag, step, value, error);
}

bool run_log_options(struct run_log *log, const struct options *options, struct error *error)
{
    const char *metrics[METRICS_MOST + 1] = {NULL};
    int count = 0;
    if (log == NULL || log->board == NULL)
        return true;
    for (const struct tag *tag = tag_sets[log->tags].tags; tag->split != NULL; tag++)
        if ((strcmp(tag->split, "val") == 0 || strcmp(tag->split, "test") == 0) &&
            tag->offset != EPOCH_NUMBER && count < METRICS_MOST)
            metrics[count++] = tag->name;
    return hparams_write(log->board, options, metrics, error);
}

bool run_log_finish(struct run_log *log, struct error *error)
{
    return log == NULL || log->board == NULL ||
           (hparams_finish(log->board, error) && tensorboard_flush(log->board, error));
}

bool run_log_flush(struct run_log *log, struct error *error)
{
    if (log == NULL)
        return true;
    log->flushed_at = clock_now();
    return (log->metrics.stream == NULL || csv_flush(&log->metrics, error)) &&
           (log->receipts.stream == NULL || csv_flush(&log->receipts, error)) &&
           (log->board == NULL || tensorboard_flush(log->board, error));
}

void run_log_close(struct run_log *log)
{
    if (log == NULL)
        return;
    csv_close(&log->metrics);
    csv_close(&log->receipts);
    if (log->board != NULL)
        tensorboard_close(log->board);
    free(log);
}

double run_log_seconds_to(const struct run_folder *folder, double target)
{
    char path[FILE_PATH], *line = NULL;
    size_t size = 0;
    double seconds = NAN;
    snprintf(path, sizeof path, "%s/metrics.csv", folder->path);
    FILE *file = fopen(path, "re");
    while (file != NULL && isnan(seconds) && getline(&line, &size, file) >= 0) {
        char *cells[ELAPSED_COLUMN + 1] = {0}, *rest = line;
        for (int column = 0; column <= ELAPSED_COLUMN && rest != NULL; column++)
            cells[column] = strsep(&rest, ",\n");
        if (cells[ELAPSED_COLUMN] != NULL && strcmp(cells[SPLIT_COLUMN], "val") == 0 &&
            cells[TOP1_COLUMN][0] != '\0' && strtod(cells[TOP1_COLUMN], NULL) >= target)
            seconds = strtod(cells[ELAPSED_COLUMN], NULL);
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return seconds;
}
