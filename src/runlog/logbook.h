// SPDX-License-Identifier: BSD-3-Clause
/* The log book: a folder with the index README.md, one row per run, newest first, and found.csv,
 * the results of searches. tools/report.py adds a page per run. Only the text between the marks
 * `vittrain: begin` and `vittrain: end` of the index is changed. Runs that end at the same time
 * lose no rows. Not collective. */
#ifndef VITTRAIN_RUNLOG_LOGBOOK_H
#define VITTRAIN_RUNLOG_LOGBOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

/* Return the text as a cell of a Markdown table, shortened to fit. */
enum { LOGBOOK_CELL = 256 };
const char *logbook_cell(const char *text, char cell[LOGBOOK_CELL]);

/* Add a row, "| FOLDER | ... |\n", to the index. again: the row of an earlier attempt in this
 * folder is removed. ERROR_FILE: the index cannot be written. */
MUST_CHECK bool logbook_add(const char *logbook, const char *row, bool again, struct error *error);

/* A row of found.csv: the result of `find batch` or `find lr`. */
struct found {
    const char *what;      /* "batch" or "lr" */
    const char *model;     /* model.name */
    int64_t image;         /* height of the model's images */
    const char *precision; /* "fp32", "bf16" or "fp16" */
    const char *strategy;  /* mesh.strategy */
    int ranks, nodes;
    double value;         /* the largest train.batch, or the learning rate */
    int64_t global_batch; /* at which the value was found */
    double peak_bytes;    /* of a rank, with this value; NAN: not measured */
    double limit;         /* memory available to a rank, in bytes; NAN: unknown */
    const char *detail;   /* a remark, for example the path of a table; "": none */
};

/* Append a row with date, host and commit. ERROR_FILE: it cannot be written. */
MUST_CHECK bool found_add(const char *logbook, const struct found *found, struct error *error);

#endif
