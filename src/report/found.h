/* What searches found: LOGBOOK/found.csv, a row for each `find batch` and `find lr`. The log book's
 * pages show the newest row about their model. */
#ifndef VITTRAIN_REPORT_FOUND_H
#define VITTRAIN_REPORT_FOUND_H

#include <stdint.h>

#include "core/error.h"
#include "report/table.h"

struct record;

/* A row. Date, host and commit are added by found_add. */
struct found {
    const char *what;      /* "batch" or "lr" */
    const char *model;     /* model.name */
    int64_t image;         /* the model's height and width */
    const char *precision; /* what was computed in: "fp32", "bf16", "fp16" */
    const char *strategy;  /* mesh.strategy */
    int ranks, nodes;
    double value;         /* the largest train.batch, or the learning rate */
    int64_t global_batch; /* that it is for */
    int64_t peak_bytes;   /* of a rank with it; -1: not measured */
    int64_t limit;        /* bytes a rank may have; -1: unknown */
    const char *detail;   /* for people, as the path of a plot; "": nothing */
};

/* Makes the folder and the table where they are missing. Rows of programs that write at once are
 * all there, also where a file system has no locks. ERROR_FILE: not writable. Local (rank 0). */
MUST_CHECK bool found_add(const char *logbook, const struct found *found, struct error *error);

/* The newest row of `what` for the record's model, image size, precision, strategy and ranks in a
 * table that was read from found.csv; -1: there is none. */
int64_t found_newest(const struct table *table, const char *what, const struct record *record);

#endif
