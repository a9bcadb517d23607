// SPDX-License-Identifier: BSD-3-Clause
/* The table of a sweep's trials in CSV. The reader is tolerant: missing columns are empty, an
 * incomplete last line is skipped, quoted cells are accepted. */
#ifndef VITTRAIN_TOOLS_SWEEP_TABLE_H
#define VITTRAIN_TOOLS_SWEEP_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

struct table {
    int columns;
    int64_t rows;
    char **names; /* [columns] */
    char **cells; /* [rows][columns], "" where empty */
    char *text;   /* the content of the file; the cells point into it */
};

/* Read a file. ERROR_FILE: missing or unreadable; the table is then empty but valid. */
MUST_CHECK bool table_read(struct table *table, const char *path, struct error *error);
void table_free(struct table *table);

/* Return the index of the column; -1: none. */
int table_column(const struct table *table, const char *name);

/* Return a cell by the index or the name of its column; NAN or "" for an empty cell, a missing
 * column or a text that is not a number. */
double table_number(const struct table *table, int64_t row, int column);
const char *table_text(const struct table *table, int64_t row, int column);
double table_number_at(const struct table *table, int64_t row, const char *name);
const char *table_text_at(const struct table *table, int64_t row, const char *name);

#endif
