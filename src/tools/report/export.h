// SPDX-License-Identifier: BSD-3-Clause
/* Exporters: the log lines and files of other training programs, made from a run's folder for
 * scripts that read them (docs/outputs.md). */
#ifndef VITTRAIN_TOOLS_REPORT_EXPORT_H
#define VITTRAIN_TOOLS_REPORT_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/error.h"
#include "tools/report/record.h"

/* Write the files of a format (enum report_format, not FORMAT_HTML) into the run's folder; each
 * file is replaced as a whole. An unfinished run gives the lines so far. Local. ERROR_FILE:
 * run.json lacks the batch, the ranks or the steps, or a file cannot be written. */
MUST_CHECK bool export_write(const struct record *record, int format, struct error *error);

/* Below: shared by export*.c. */

enum { EXPORT_PATH = sizeof(((struct record *)NULL)->path) + 128 };

/* Sums over the steps of the running epoch, from the rows of metrics.csv. */
struct export_sums {
    double steps, samples, loss, top1, top5; /* values times samples */
    double seconds, data_seconds;
};

/* A run, and the position of the exporter in it. */
struct export_run {
    const struct record *record;
    FILE *log;    /* FORMAT.log */
    FILE *result; /* the course's result file */
    const char *model;
    int64_t ranks, nodes, batch; /* batch: samples per rank and step */
    int64_t epochs, epoch_steps; /* of the whole run; of an epoch */

    int attempt;   /* index in "parts" of run.json */
    int64_t epoch; /* from 0; -1: none began in this attempt */
    int64_t epoch_step, epochs_done;
    struct export_sums sums;
    double last_loss, last_top1; /* of the newest row of metrics.csv */
    double best_top1, best_loss; /* of the evaluations; NAN: none */
    double epochs_seconds;       /* of the completed epochs, with evaluations */
    double elapsed;              /* elapsed_seconds of the newest row */
};

/* Callbacks in the order of the run; NULL: no output. */
struct export_format {
    const char *name; /* of the log, NAME.log; NULL: only `files` */
    /* Steps of an epoch between two lines if output.log_every has its default, for CNNs and ViTs;
     * from_first: counted from the epoch's first step, else multiples. */
    int64_t log_every, log_every_vit;
    bool from_first;
    /* resumed: the checkpoint; NULL: the run begins. */
    void (*attempt)(const struct export_run *run, const char *resumed);
    void (*epoch_begin)(const struct export_run *run);
    /* row: of metrics.csv, whose steps are in run->sums already. */
    void (*step)(const struct export_run *run, int64_t row);
    /* row: of epochs.csv; improved: run->best_top1 is from this epoch. */
    void (*epoch)(const struct export_run *run, int64_t row, bool improved);
    void (*checkpoint)(const struct export_run *run, const char *path);
    void (*end)(const struct export_run *run);
    bool (*files)(const struct export_run *run, struct error *error);
};

extern const struct export_format export_course;

/* A number of the current attempt in run.json; NAN if unknown. */
double export_attempt_number(const struct export_run *run, int attempt, const char *key);

/* A number as Python's repr() prints it: the fewest digits that read back, "0.05", "1e-05". */
const char *export_number(double value, char *text, size_t size);

#endif
