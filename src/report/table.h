/* A CSV that a run left, read as a whole. Tolerant: columns that another version did not write are
 * empty, a torn last line is left out, cells that a person's program put into quotes are read. */
#ifndef VITTRAIN_REPORT_TABLE_H
#define VITTRAIN_REPORT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

struct table {
    int columns;
    int64_t rows;
    char **names; /* [columns] */
    char **cells; /* [rows][columns], "" where empty */
    char **texts; /* the files that the cells lie in */
    int text_count;
    bool torn; /* the last line was left out */
};

/* False: there is no such file, or none that can be read (ERROR_FILE); the table is empty then, and
 * all of the functions below work. */
MUST_CHECK bool table_read(struct table *table, const char *path, struct error *error);
void table_free(struct table *table);

/* Puts the rows of `more` after the table's own, column by name, and frees `more`: columns that
 * only one of them has are kept. */
void table_join(struct table *table, struct table *more);

/* The column of that name; -1: this table has none. */
int table_column(const struct table *table, const char *name);

/* NAN, "": an empty cell, column -1, no number. */
double table_number(const struct table *table, int64_t row, int column);
const char *table_text(const struct table *table, int64_t row, int column);

/* Of all numbers of a column; NAN: there are none. */
struct column_facts {
    double least, most, mean, sum;
};
struct column_facts table_facts(const struct table *table, const char *name);

#endif
