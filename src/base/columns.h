// SPDX-License-Identifier: BSD-3-Clause
/* A table of columns describes the members of a struct. It serves CSV tables and JSON objects, so
 * that each value is named once. Tables end with COLUMNS_END. */
#ifndef VITTRAIN_BASE_COLUMNS_H
#define VITTRAIN_BASE_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/file.h"

struct json_t;

enum column_kind {
    COLUMN_NUMBER, /* double; NAN: unknown; in CSV tables whole numbers have all digits, others 9 */
    COLUMN_EXACT,  /* double, written to CSV tables with all digits */
    COLUMN_INTEGER, /* int64_t */
    COLUMN_TEXT     /* const char *; NULL: unknown */
};

struct column {
    const char *name;
    enum column_kind kind;
    size_t offset;   /* of the value in the struct */
    const char *tag; /* of TensorBoard; NULL: none */
};

/* A column with the name of its member. */
#define COLUMN(type, member_kind, member)                                                          \
    {                                                                                              \
        .name = #member, .kind = COLUMN_##member_kind, .offset = offsetof(struct type, member)     \
    }
#define COLUMNS_END                                                                                \
    {                                                                                              \
        .name = NULL                                                                               \
    }

/* For a macro LIST(ITEM) that names doubles: LIST(COLUMN_MEMBER) declares them as members. */
#define COLUMN_MEMBER(name) double name;

/* ---- Append-only CSV tables with one header line */

struct csv {
    FILE *stream;
    char path[FILE_PATH];
};

/* The rows of an existing table that stay when it is opened. */
enum { CSV_REMOVED = 3 };
struct csv_keep {
    int column;   /* of a number, from 0; rows with more than `last` are removed */
    int64_t last; /* 0: all rows are removed */
    /* Rows with exactly `last` are removed if their text in text_column is one of these. */
    int text_column;
    const char *removed[CSV_REMOVED]; /* the first NULL ends the list */
    bool sets_aside; /* a table with another header, as another version writes it, is renamed to
                        PATH.old; else it is an error */
};

/* Open a table for appending; create it with its header if it does not exist. In an existing table,
 * an incomplete last line and the rows that `keep` does not keep are removed; NULL: all rows are
 * removed. If only some rows are removed, the table is replaced atomically. Rows of a table that
 * lacks the last columns get empty cells. */
MUST_CHECK bool csv_open(struct csv *csv, const char *path, const char *header,
                         const struct csv_keep *keep, struct error *error);

/* Open a table for appending after another process of this node has opened it with csv_open. Rows
 * of several processes are not mixed if each process calls csv_flush after each row. */
MUST_CHECK bool csv_join(struct csv *csv, const char *path, struct error *error);

/* End a row, whose cells were written to the stream. Rows are buffered: a failed write may be
 * reported by a later row or by csv_flush. */
MUST_CHECK bool csv_end_row(struct csv *csv, struct error *error);

MUST_CHECK bool csv_flush(struct csv *csv, struct error *error);
void csv_close(struct csv *csv); /* no-op if not open */

/* Return the names, separated by commas; the caller frees the text. */
char *columns_header(const struct column *columns);

/* Open a CSV table with these columns (csv_open). */
MUST_CHECK bool columns_open(struct csv *csv, const char *path, const struct column *columns,
                             const struct csv_keep *keep, struct error *error);

/* Write a row of a CSV table. Unknown values are empty cells. Text with commas or quotes is quoted;
 * line ends in it become spaces. */
MUST_CHECK bool columns_write(const struct column *columns, const void *row, struct csv *csv,
                              struct error *error);

/* Add the values to a JSON object. */
void columns_to_json(const struct column *columns, const void *row, struct json_t *object);

/* ---- JSON values: jansson calls that abort when memory is short, and conversions to JSON */

/* Add a value; takes ownership of it. */
void value_put(struct json_t *object, const char *key, struct json_t *value);
void value_append(struct json_t *array, struct json_t *value);

/* Convert to JSON. NaN, infinity, a negative count and a NULL text become null. */
struct json_t *value_number(double value);
struct json_t *value_count(int64_t value);
struct json_t *value_text(const char *text);

/* Convert a name to a JSON string. In a name that is not valid UTF-8, as a folder's may be, each
 * non-ASCII byte becomes a question mark. */
struct json_t *value_name(const char *text);

/* Return the object as text, to be freed by the caller; frees the object. */
char *value_to_text(struct json_t *object);

#endif
