/* The two tables and the TensorBoard events of a run, from the same rows. */
#include "runlog/run_log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/clock.h"
#include "core/csv.h"
#include "runlog/run_log_tags.h"
#include "runlog/tensorboard.h"

static const char metrics_header[] =
    "epoch,step,split,loss,top1,top5,lr,grad_norm,images_per_second,step_seconds,data_seconds,"
    "compute_seconds,comm_seconds,exposed_comm_seconds,peak_share,elapsed_seconds,loss_scale,"
    "skipped_steps,forward_seconds,backward_seconds,reduce_seconds,update_seconds";
static const char epochs_header[] =
    "epoch,step,train_loss,train_top1,train_top5,val_loss,val_top1,val_top5,lr,seconds,"
    "eval_seconds,images_per_second,data_share";

/* In both tables. */
enum { STEP_COLUMN = 1 };

/* Whoever looks at the run while it goes waits no longer than this for a row. */
static const double flush_seconds = 5;

struct run_log {
    struct csv metrics, epochs;
    struct tensorboard *board;
    int style;         /* enum style_choice: whose tags */
    double flushed_at; /* clock */
};

static bool open_tables(struct run_log *log, const struct run_folder *folder, int64_t step,
                        bool inside, struct error *error)
{
    char path[FILE_PATH];

    snprintf(path, sizeof path, "%s/metrics.csv", folder->path);
    if (!csv_open(&log->metrics, path, metrics_header, STEP_COLUMN, step, error))
        return false;
    snprintf(path, sizeof path, "%s/epochs.csv", folder->path);
    return csv_open(&log->epochs, path, epochs_header, STEP_COLUMN, inside ? step - 1 : step,
                    error);
}

/* Also a run that begins again purges, since its folder may hold what a killed try left. */
static bool open_board(struct run_log *log, const struct run_folder *folder, int64_t step,
                       struct error *error)
{
    bool again = tensorboard_is_there(folder->path);

    log->board = tensorboard_open(folder->path, error);
    if (log->board == NULL)
        return false;
    int64_t first = step == 0 ? 0 : step + 1 + tags_shift(log->style); /* that is taken back */
    return !again || tensorboard_restart(log->board, first, error);
}

struct run_log *run_log_open(const struct run_folder *folder, const struct options *options,
                             int64_t step, bool inside, struct error *error)
{
    struct run_log *log = calloc(1, sizeof *log);

    ENSURE(log != NULL, "out of memory");
    log->style = options->output.style;
    if ((!options->output.csv || open_tables(log, folder, step, inside, error)) &&
        (!options->output.tensorboard || open_board(log, folder, step, error)))
        return log;
    run_log_close(log);
    return NULL;
}

static bool metrics_to_table(struct csv *csv, const struct metrics_row *row, struct error *error)
{
    csv_integer(csv, row->epoch);
    csv_integer(csv, row->step);
    csv_text(csv, row->split);
    csv_number(csv, row->loss);
    csv_number(csv, row->top1);
    csv_number(csv, row->top5);
    csv_number(csv, row->rate);
    csv_number(csv, row->gradient_norm);
    csv_number(csv, row->images_per_second);
    csv_number(csv, row->step_seconds);
    csv_number(csv, row->data_seconds);
    csv_number(csv, row->compute_seconds);
    csv_number(csv, row->comm_seconds);
    csv_number(csv, row->exposed_comm_seconds);
    csv_number(csv, row->peak_share);
    csv_number(csv, row->elapsed_seconds);
    csv_number(csv, row->loss_scale);
    csv_number(csv, row->skipped_steps);
    csv_number(csv, row->forward_seconds);
    csv_number(csv, row->backward_seconds);
    csv_number(csv, row->reduce_seconds);
    csv_number(csv, row->update_seconds);
    return csv_end_row(csv, error);
}

bool run_log_metrics(struct run_log *log, const struct metrics_row *row, struct error *error)
{
    if (log == NULL)
        return true;
    if ((log->metrics.stream != NULL && !metrics_to_table(&log->metrics, row, error)) ||
        (log->board != NULL && !tags_write_metrics(log->board, log->style, row, error)))
        return false;
    return clock_now() - log->flushed_at < flush_seconds || run_log_flush(log, error);
}

bool run_log_epoch(struct run_log *log, const struct epoch_row *row, struct error *error)
{
    if (log == NULL)
        return true;
    if (log->board != NULL && !tags_write_epoch(log->board, log->style, row, error))
        return false;
    if (log->epochs.stream == NULL)
        return true;
    struct csv *csv = &log->epochs;
    csv_integer(csv, row->epoch);
    csv_integer(csv, row->steps);
    csv_number(csv, row->train_loss);
    csv_number(csv, row->train_top1);
    csv_number(csv, row->train_top5);
    csv_number(csv, row->val_loss);
    csv_number(csv, row->val_top1);
    csv_number(csv, row->val_top5);
    csv_number(csv, row->rate);
    csv_number(csv, row->seconds);
    csv_number(csv, row->eval_seconds);
    csv_number(csv, row->images_per_second);
    csv_number(csv, row->data_share);
    return csv_end_row(csv, error);
}

bool run_log_point(struct run_log *log, const char *tag, int64_t step, double value,
                   struct error *error)
{
    return log->board == NULL || tensorboard_scalar(log->board, tag, step, value, error);
}

bool run_log_flush(struct run_log *log, struct error *error)
{
    if (log == NULL)
        return true;
    log->flushed_at = clock_now();
    return (log->metrics.stream == NULL || csv_flush(&log->metrics, error)) &&
           (log->epochs.stream == NULL || csv_flush(&log->epochs, error)) &&
           (log->board == NULL || tensorboard_flush(log->board, error));
}

void run_log_close(struct run_log *log)
{
    if (log == NULL)
        return;
    csv_close(&log->metrics);
    csv_close(&log->epochs);
    if (log->board != NULL)
        tensorboard_close(log->board);
    free(log);
}
