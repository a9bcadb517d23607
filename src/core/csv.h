/* Tables that grow by rows: comma-separated, one header line, numbers in C's format, an empty cell
 * where a number is unknown. */
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

/* Opens the table for more rows; makes it, with its header, where it is not. Of a table that is
 * there the rows with more than `last` in column `column` (from 0) are cut off, and a torn last
 * line; last 0 cuts all. A table with another header is an error. */
MUST_CHECK bool csv_open(struct csv *csv, const char *path, const char *header, int column,
                         int64_t last, struct error *error);

/* The cells of a row, one after another, then its end. Text with commas or quotes is quoted, ends
 * of lines in it become spaces. Rows are buffered: a failure (full disk) may only be seen by a
 * later row or by csv_flush. */
void csv_text(struct csv *csv, const char *text);
void csv_integer(struct csv *csv, int64_t value);
void csv_number(struct csv *csv, double value); /* NAN: an empty cell */
MUST_CHECK bool csv_end_row(struct csv *csv, struct error *error);

MUST_CHECK bool csv_flush(struct csv *csv, struct error *error);
void csv_close(struct csv *csv); /* nothing if not open */

#endif
