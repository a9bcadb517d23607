/* Append-only CSV tables with one header line. An unknown number is an empty cell. */
#ifndef VITTRAIN_CORE_CSV_H
#define VITTRAIN_CORE_CSV_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/atomic_file.h"
#include "core/error.h"

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
