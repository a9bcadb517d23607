// SPDX-License-Identifier: BSD-3-Clause
#include "record/metrics.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/columns.h"
#include "options/options.h"
#include "record/evaluation.h"
#include "record/tensorboard.h"

enum { TAGS_MOST = 32, TAG_SIZE = 32 };

static const double flush_seconds = 5;

/* clang-format off */
#define ROW(member) offsetof(struct metrics_row, member)
#define METRIC_COLUMN(name, tag) {#name, COLUMN_NUMBER, ROW(name), tag},
#define ERROR_COLUMN(name) {#name, COLUMN_NUMBER, ROW(errors.name), NULL},
static const struct column metric_columns[] = {
    {"epoch", COLUMN_INTEGER, ROW(epoch), NULL},
    {"step", COLUMN_INTEGER, ROW(step), NULL},
    {"split", COLUMN_TEXT, ROW(split), NULL},
    STEP_METRICS(METRIC_COLUMN)
    {"output", COLUMN_TEXT, ROW(output), NULL},
    OUTPUT_ERRORS(ERROR_COLUMN)
    EPOCH_METRICS(METRIC_COLUMN)
    {"next_lr", COLUMN_EXACT, ROW(next_lr), NULL}, /* all digits: exports print them */
    {"output_loss", COLUMN_NUMBER, ROW(errors.output_loss), NULL},
    COLUMNS_END};
/* clang-format on */

enum { epoch_index, step_index, split_index };

/* ---- TensorBoard tags */

struct tag {
    char name[TAG_SIZE];
    const char *split; /* of the rows with this tag; NULL: end */
    size_t offset;     /* of a double in the row; EPOCH_NUMBER: the epoch */
    double factor;
};

enum { EPOCH_NUMBER = 0 };
_Static_assert(ROW(epoch) == EPOCH_NUMBER, "epoch is the first member");

struct metrics {
    struct csv metrics, receipts;
    struct tensorboard *board;
    struct tag tags[TAGS_MOST];
    int tag_set;       /* enum tags_choice */
    double flushed_at; /* clock */
};

/* clang-format off */
/* Accuracies in percent; in training those of the epoch so far. */
static const struct tag imagenet_tags[] = {
    {"Loss/train", "train", ROW(loss), 1},
    {"acc1/train", "train", ROW(epoch_top1), 100},
    {"acc5/train", "train", ROW(epoch_top5), 100},
    {"Loss/val", "val", ROW(loss), 1},
    {"acc1/val", "val", ROW(top1), 100},
    {"acc5/val", "val", ROW(top5), 100},
    {"lr", "epoch", ROW(next_lr), 1},
    {.split = NULL}};

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
    {.split = NULL}};

/* By output.tensorboard_tags. */
static const struct {
    const struct tag *tags; /* NULL: those of the columns */
    bool due_only;   /* only rows of complete log intervals have points */
    bool from_first; /* intervals end at the first step of an epoch and each multiple after it */
    int64_t shift;   /* step of a point less the completed steps: -1 counts steps from 0 */
} tag_sets[] = {
    [TAGS_VITTRAIN] = {NULL, false, false, 0},
    [TAGS_COURSE] = {NULL, false, false, 0},
    [TAGS_IMAGENET] = {imagenet_tags, true, true, 0},
    [TAGS_LIGHTNING] = {lightning_tags, true, false, -1}};
/* clang-format on */

/* Set the tags of the columns: "/loss" is train/loss, val/loss and test/loss. */
static void column_tags_set(struct tag tags[TAGS_MOST])
{
    static const char *const splits[] = {"train", "val", "test"};
    int count = 0;
    for (int split = 0; split < 3; split++)
        for (int i = 0; metric_columns[i].name != NULL; i++) {
            const char *name = metric_columns[i].tag;
            const bool of_split = name != NULL && name[0] == '/';
            if (name == NULL || (split > 0 && !of_split))
                continue;
            ENSURE(count + 1 < TAGS_MOST, "more than %d tags", TAGS_MOST);
            struct tag *tag = &tags[count++];
            *tag = (struct tag){
                .split = splits[split], .offset = metric_columns[i].offset, .factor = 1};
            snprintf(tag->name, TAG_SIZE, "%s%s", of_split ? splits[split] : "", name);
        }
}

static const struct tag *tags_of(const struct metrics *log)
{
    return tag_sets[log->tag_set].tags != NULL ? tag_sets[log->tag_set].tags : log->tags;
}

struct metrics_row metrics_row_empty(const char *split, int64_t epoch, int64_t step)
{
    const double empty = NAN;
    struct metrics_row row = {.epoch = epoch, .step = step, .split = split};
    for (int i = 0; metric_columns[i].name != NULL; i++)
        if (metric_columns[i].kind == COLUMN_NUMBER || metric_columns[i].kind == COLUMN_EXACT)
            memcpy((char *)&row + metric_columns[i].offset, &empty, sizeof empty);
    return row;
}

/* Write the points of a row that are not NAN. */
static bool points_write(struct metrics *log, const struct metrics_row *row, struct error *error)
{
    for (const struct tag *tag = tags_of(log); tag->split != NULL; tag++) {
        if (strcmp(tag->split, row->split) != 0)
            continue;
        const double value = tag->offset == EPOCH_NUMBER
                                 ? (double)row->epoch
                                 : *(const double *)((const char *)row + tag->offset);
        if (!isnan(value) &&
            !tensorboard_scalar(log->board, tag->name, row->step + tag_sets[log->tag_set].shift,
                                tag->factor * value, error))
            return false;
    }
    return true;
}

bool metrics_is_due(const struct output_options *options, int64_t step, int64_t epoch_step)
{
    const bool from_first = tag_sets[options->tensorboard_tags].from_first;
    return (from_first ? epoch_step - 1 : step) % options->log_every == 0;
}

/* ---- open */

struct metrics *metrics_open(const struct run_folder *folder, const struct output_options *options,
                             const struct metrics_position *position, struct error *error)
{
    struct metrics *log = allocate(1, sizeof *log);
    const int64_t step = position->step;
    struct csv_keep keep = {.column = step_index, .last = step, .text_column = split_index};
    size_t removed = 0;
    log->tag_set = options->tensorboard_tags;
    column_tags_set(log->tags);
    if (position->mid_epoch)
        keep.removed[removed++] = "epoch";
    if (position->unevaluated)
        keep.removed[removed++] = "val";
    if (position->untested)
        keep.removed[removed++] = "test";
    OWNED char *path = allocate_text("%s/metrics.csv", folder->path);
    bool good = columns_open(&log->metrics, path, metric_columns, &keep, error);
    if (good && options->tensorboard) {
        /* A new run writes a purge, too: the folder may contain events of a killed attempt, and one
         * of TensorBoard's readers takes the first purge for the start of the run. */
        const int64_t first_purged = step == 0 ? 0 : step + 1 + tag_sets[log->tag_set].shift;
        log->board = tensorboard_open(folder->path, error);
        good = log->board != NULL && tensorboard_restart(log->board, first_purged, error);
    }
    if (good)
        return log;
    metrics_close(log);
    return NULL;
}

bool metrics_open_receipts(struct metrics *log, const struct run_folder *folder, const char *header,
                           int64_t step, bool writes, struct error *error)
{
    OWNED char *path = allocate_text("%s/receipt.csv", folder->path);
    return (!writes && access(path, F_OK) != 0) ||
           csv_open(&log->receipts, path, header, &(struct csv_keep){.last = step}, error);
}

/* ---- rows */

bool metrics_write_row(struct metrics *log, const struct metrics_row *row, struct error *error)
{
    if (log == NULL)
        return true;
    const bool has_points = log->board != NULL && (row->due || !tag_sets[log->tag_set].due_only);
    if (!columns_write(metric_columns, row, &log->metrics, error) ||
        (has_points && !points_write(log, row, error)))
        return false;
    return clock_now() - log->flushed_at < flush_seconds || metrics_flush(log, error);
}

bool metrics_write_targets(struct metrics *log, const struct metrics_row *row,
                           const struct evaluation *evaluation, const struct dataset *dataset,
                           struct error *error)
{
    char name[OUTPUT_NAME], tag[OUTPUT_NAME + 16];
    if (log == NULL)
        return true;
    const double means[] = {row->miou, row->map};
    for (int i = 0; i < 2; i++) {
        snprintf(tag, sizeof tag, "%s/%s", row->split, i == 0 ? "miou" : "map");
        if (!isnan(means[i]) && !metrics_write_point(log, tag, row->step, means[i], error))
            return false;
    }
    for (int64_t i = 0; i < evaluation->outputs; i++) {
        struct metrics_row one = metrics_row_empty(row->split, row->epoch, row->step);
        one.errors = evaluation->errors[i];
        one.output = name;
        evaluation_output_name(dataset, i, name);
        snprintf(tag, sizeof tag, "%s/rmse/%s", row->split, name);
        if (!columns_write(metric_columns, &one, &log->metrics, error))
            return false;
        if (!isnan(one.errors.rmse) &&
            !metrics_write_point(log, tag, row->step, one.errors.rmse, error))
            return false;
    }
    return true;
}

bool metrics_write_receipt(struct metrics *log, const char *line, struct error *error)
{
    if (log == NULL)
        return true;
    fputs(line, log->receipts.stream);
    return csv_end_row(&log->receipts, error);
}

bool metrics_write_point(struct metrics *log, const char *tag, int64_t step, double value,
                         struct error *error)
{
    return log->board == NULL || tensorboard_scalar(log->board, tag, step, value, error);
}

bool metrics_write_options(struct metrics *log, const struct options *options, struct error *error)
{
    const char *metrics[TAGS_MOST + 1] = {NULL};
    int count = 0;
    if (log == NULL || log->board == NULL)
        return true;
    for (const struct tag *tag = tags_of(log); tag->split != NULL; tag++)
        if ((strcmp(tag->split, "val") == 0 || strcmp(tag->split, "test") == 0) &&
            tag->offset != EPOCH_NUMBER)
            metrics[count++] = tag->name;
    return hparams_write(log->board, options, metrics, error);
}

bool metrics_finish(struct metrics *log, struct error *error)
{
    return log == NULL || log->board == NULL ||
           (hparams_finish(log->board, error) && tensorboard_flush(log->board, error));
}

bool metrics_flush(struct metrics *log, struct error *error)
{
    if (log == NULL)
        return true;
    log->flushed_at = clock_now();
    return csv_flush(&log->metrics, error) &&
           (log->receipts.stream == NULL || csv_flush(&log->receipts, error)) &&
           (log->board == NULL || tensorboard_flush(log->board, error));
}

void metrics_close(struct metrics *log)
{
    if (log == NULL)
        return;
    csv_close(&log->metrics);
    csv_close(&log->receipts);
    if (log->board != NULL)
        tensorboard_close(log->board);
    free(log);
}
