// SPDX-License-Identifier: BSD-3-Clause
/* Append-only CSV tables with one header line. An unknown number is an empty cell. */
#ifndef VITTRAIN_CORE_CSV_H
#define VITTRAIN_CORE_CSV_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/error.h"
#include "core/file.h"

struct csv {
    FILE *stream;
    bool row_begun;
    char path[FILE_PATH];
};

/* Open a table for appending; create it with its header if it does not exist. In an existing table,
 * rows with more than `last` in column `column` (from 0) and an incomplete last line are removed;
 * last=0 removes all rows. A table with another header is an error. */
MUST_CHECK bool csv_open(struct csv *csv, const char *path, const char *header, int column,
                         int64_t last, struct error *error);

/* Rename a table with another header, as another version writes it, to PATH.old. */
MUST_CHECK bool csv_set_aside(const char *path, const char *header, struct error *error);

/* The rows of an existing table that stay when it is opened. */
enum { CSV_REMOVED = 3 };
struct csv_keep {
    int column;   /* of a number, from 0; rows with more than `last` are removed */
    int64_t last; /* 0: all rows are removed */
    /* Rows with exactly `last` are removed if their text in text_column is one of these. */
    int text_column;
    const char *removed[CSV_REMOVED]; /* the first NULL ends the list */
};

/* As csv_open, with a choice of rows. */
MUST_CHECK bool csv_reopen(struct csv *csv, const char *path, const char *header,
                           const struct csv_keep *keep, struct error *error);

/* Write the cells of a row in order, then its end. Text with commas or quotes is quoted; line ends
 * in it become spaces. Rows are buffered: a failed write may be reported by a later row or by
 * csv_flush. */
void csv_text(struct csv *csv, const char *text);
void csv_integer(struct csv *csv, int64_t value);
void csv_number(struct csv *csv, double value); /* NAN: an empty cell */
MUST_CHECK bool csv_end_row(struct csv *csv, struct error *error);

MUST_CHECK bool csv_flush(struct csv *csv, struct error *error);
void csv_close(struct csv *csv); /* no-op if not open */

#endif
