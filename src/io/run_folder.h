/* The folder that a run leaves: resolved deck, log, metrics.csv, epochs.csv, TensorBoard events,
 * checkpoints/, result.json. Only rank 0 makes and writes it; checkpoints follow checkpoint.h. */
#ifndef VITTRAIN_IO_RUN_FOLDER_H
#define VITTRAIN_IO_RUN_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "core/options.h"
#include "mesh/mesh.h"

struct run_folder {
    char path[OPTION_TEXT];
    char checkpoints[OPTION_TEXT + 16];
    bool resuming; /* it was there before and will be gone on with */
};

/* Collective. Decides and makes the folder: run.dir, else runs/NAME-DATE; with resume=auto and no
 * run.dir, the newest unfinished run of the same name and deck. On nodes with private disks it is
 * made on each. Unwritable: an error before anything starts. */
bool run_folder_open(struct run_folder *folder, struct mesh *mesh, const struct options *options,
                     struct error *error);

/* One row of metrics.csv: training over a log interval, or an evaluation. NAN: empty cell. */
struct metrics_row {
    int64_t epoch, step;
    const char *split; /* "train", "val", "test" */
    double loss, top1, top5;
    double rate, gradient_norm;
    double images_per_second, step_seconds;
    double data_seconds, compute_seconds, exposed_comm_seconds; /* mean of a step */
    double peak_share;     /* of the machine's peak FLOP/s */
    double elapsed_seconds; /* since the start of the run, all parts */
};

struct epoch_row {
    int64_t epoch, steps;
    double train_loss, train_top1, train_top5, val_loss, val_top1, val_top5;
    double rate, seconds, eval_seconds, images_per_second, data_share;
};

struct run_log; /* the writers of one run: rank 0 has one, others NULL */

/* Opens CSVs and TensorBoard; when going on with a run, rows beyond `step` are cut off, so that the
 * output of the parts reads as one run. */
struct run_log *run_log_open(const struct run_folder *folder, const struct options *options,
                             int64_t step, struct error *error);
bool run_log_metrics(struct run_log *log, const struct metrics_row *row, struct error *error);
bool run_log_epoch(struct run_log *log, const struct epoch_row *row, struct error *error);
bool run_log_flush(struct run_log *log, struct error *error);
void run_log_close(struct run_log *log);

/* Writes text to FOLDER/NAME through a .part file and rename. */
bool run_folder_write(const struct run_folder *folder, const char *name, const char *text,
                      struct error *error);

#endif
