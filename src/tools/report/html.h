// SPDX-License-Identifier: BSD-3-Clause
/* The report: one HTML file about a run, or about several side by side. It is self-contained and
 * has no scripts. It has light and dark colours and adapts to phones and paper. */
#ifndef VITTRAIN_TOOLS_REPORT_HTML_H
#define VITTRAIN_TOOLS_REPORT_HTML_H

#include <stdio.h>

#include "core/error.h"
#include "tools/report/record.h"

/* Write the report atomically. ERROR_FILE. */
MUST_CHECK bool html_write(const struct record *records, int count, const char *path,
                           struct error *error);

/* ---- internal to html*.c */

struct page {
    FILE *stream;
    const struct record *records;
    int count;
};

extern const char html_style[];

/* Write the key figures: of one run side by side, of several as a table. */
void html_figures(const struct page *page);

/* Write the large curves of loss and accuracy. */
void html_curves(const struct page *page);

/* Write the confusion matrices that are visible at once, and misclassified images of one run. */
void html_errors(const struct page *page);

/* The contents of the sections. */
void html_summary(const struct page *page);
void html_details(const struct page *page);
void html_units(const struct page *page);
void html_ranks(const struct page *page);
void html_hardware(const struct page *page);
void html_classes(const struct page *page);
void html_decks(const struct page *page);
void html_trouble(const struct page *page);

/* Write markup, a text to be escaped, and markup. */
void html_text(const struct page *page, const char *before, const char *text, const char *after);

/* Begin and end a table in a box with a scroll bar. `name`: for screen readers. Tables whose cells
 * need no attributes are written as sheets instead (sheet.h). */
void html_table_begin(const struct page *page, const char *class, const char *name);
void html_table_end(const struct page *page);

/* Write one of the tables of run_tables.h for a run, if it has rows. Return true if it has rows. */
struct sheet;
bool html_table(const struct page *page, void (*fill)(struct sheet *, const struct record *),
                int run);

/* The letters of a run in charts and columns: A to Z, AA to AZ, BA, ... */
struct letters {
    char text[8];
};
struct letters html_letters(int run);

/* Write a heading with letter and name of the run; nothing if there is only one run. */
void html_run_title(const struct page *page, int run);

/* Write the coloured letter of a run. */
void html_key(const struct page *page, int run);

/* Write model, layout, data and state of a run in one line. */
void html_kind(const struct page *page, int run);

#endif
