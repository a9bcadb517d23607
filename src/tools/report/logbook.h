// SPDX-License-Identifier: BSD-3-Clause
/* The log book: a folder with one Markdown page per run, the index README.md with one row per run,
 * newest first, and found.csv, the results of
 * searches. The program rewrites only the text between the marks
 * `vittrain: begin` and `vittrain: end`. */
#ifndef VITTRAIN_TOOLS_REPORT_LOGBOOK_H
#define VITTRAIN_TOOLS_REPORT_LOGBOOK_H

#include <stdint.h>

#include "core/error.h"
#include "tools/report/record.h"

/* Create or update the run's page and the index. The page is named after the run folder; if another
 * run of that name has a page, the name is NAME-2.md, NAME-3.md, ... Concurrent writers lose
 * nothing. Not collective. ERROR_FILE: the folder cannot be
 * written. */
MUST_CHECK bool logbook_add(const char *logbook, const struct record *record, struct error *error);

/* A row of found.csv: the result of `find batch` or `find lr`. found_add adds date, host and
 * commit. */
struct found {
    const char *what;      /* "batch" or "lr" */
    const char *model;     /* model.name */
    int64_t image;         /* height of the model's images */
    const char *precision; /* "fp32", "bf16" or "fp16" */
    const char *strategy;  /* mesh.strategy */
    int ranks, nodes;
    double value;         /* the largest train.batch, or the learning rate */
    int64_t global_batch; /* at which the value was found */
    int64_t peak_bytes;   /* of a rank, with this value; -1: not measured */
    int64_t limit;        /* memory available to a rank, in bytes; -1: unknown */
    const char *detail;   /* a remark, for example the path of a plot; "": none */
};

/* Append a row; create the folder and the file if needed. Concurrent writers lose no rows. Not
 * collective. ERROR_FILE: not writable. */
MUST_CHECK bool found_add(const char *logbook, const struct found *found, struct error *error);

/* Return the newest row of `what` in found.csv for the record's model, image size, precision,
 * strategy and number of ranks; -1: none. */
int64_t found_newest(const struct table *table, const char *what, const struct record *record);

#endif
