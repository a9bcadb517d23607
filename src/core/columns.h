// SPDX-License-Identifier: BSD-3-Clause
/* A table of columns describes the members of a struct. It serves CSV tables and JSON objects, so
 * that each value is named once. */
#ifndef VITTRAIN_CORE_COLUMNS_H
#define VITTRAIN_CORE_COLUMNS_H

#include <stddef.h>

#include "core/csv.h"

struct json_t;

enum column_kind {
    COLUMN_NUMBER,  /* double; NAN: unknown */
    COLUMN_EXACT,   /* double, written to CSV tables with all digits */
    COLUMN_WHOLE,   /* double that is a whole number; NAN: unknown */
    COLUMN_INTEGER, /* int64_t */
    COLUMN_TEXT     /* const char *; NULL: unknown */
};

struct column {
    const char *name;
    enum column_kind kind;
    size_t offset;   /* of the value in the struct */
    const char *tag; /* of TensorBoard; NULL: none */
};

/* For a macro LIST(ITEM) that names doubles: LIST(COLUMN_MEMBER) declares them as members. */
#define COLUMN_MEMBER(name) double name;

/* Return the names, separated by commas; the caller frees the text. */
char *columns_header(const struct column *columns, int count);

/* Add the values of `row` to a CSV row or to a JSON object. */
void columns_to_csv(const struct column *columns, int count, const void *row, struct csv *csv);
void columns_to_json(const struct column *columns, int count, const void *row,
                     struct json_t *object);

#endif
