// SPDX-License-Identifier: BSD-3-Clause
/* A table of text cells, built once and written as HTML or as Markdown. */
#ifndef VITTRAIN_TOOLS_REPORT_SHEET_H
#define VITTRAIN_TOOLS_REPORT_SHEET_H

#include <stdio.h>

#include "tools/report/format.h"
#include "tools/report/record.h"

enum sheet_kind {
    SHEET_TEXT,
    SHEET_NUMBER, /* right-aligned */
    SHEET_SHARE,  /* a number in percent; HTML adds a bar */
    SHEET_CODE    /* fixed-width font in HTML */
};

struct sheet {
    const char *title, *class; /* class: of the HTML table */
    char note[128];            /* "": none */
    int columns;
    struct sheet_column {
        char name[48];
        enum sheet_kind kind;
    } * column;
    struct lines cells; /* row by row */
};

void sheet_column(struct sheet *sheet, const char *name, enum sheet_kind kind);

/* Add columns of one kind. The names end with NULL. */
void sheet_columns(struct sheet *sheet, enum sheet_kind kind, ...) __attribute__((sentinel));

/* Append a cell. Unknown values (NULL, NAN) become empty cells. */
void sheet_text(struct sheet *sheet, const char *text);
void sheet_figure(struct sheet *sheet, enum figure figure, double value);

int sheet_rows(const struct sheet *sheet);

/* Write the note and the table. The Markdown has the title as a heading; a table without rows is
 * not written at all. */
void sheet_html(const struct sheet *sheet, FILE *stream);
void sheet_markdown(const struct sheet *sheet, FILE *stream);

void sheet_free(struct sheet *sheet);

#endif
