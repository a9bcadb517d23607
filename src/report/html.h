/* The report: one HTML file of a run, or of several side by side, that needs nothing but itself: no
 * network, no script. Light and dark, on paper and on a phone. */
#ifndef VITTRAIN_REPORT_HTML_H
#define VITTRAIN_REPORT_HTML_H

#include <stdio.h>

#include "core/error.h"
#include "report/record.h"

enum { HTML_RUNS_MOST = 26 }; /* they are called A to Z */

/* `count` from 1 to HTML_RUNS_MOST. Whole or not at all: ERROR_FILE. */
MUST_CHECK bool html_write(const struct record *records, int count, const char *path,
                           struct error *error);

/* ---- between html*.c: sections of the page. Each says so where nothing is known. */

struct page {
    FILE *stream;
    const struct record *records;
    int count;
};

void html_style(FILE *stream);
void html_summary(const struct page *page);
void html_curves(const struct page *page);
void html_steps(const struct page *page);
void html_memory(const struct page *page);
void html_hardware(const struct page *page);
void html_classes(const struct page *page);
void html_decks(const struct page *page);
void html_trouble(const struct page *page);

/* "A", "B": what a run is called in charts and columns; of a single run: its name is not needed. */
char html_letter(int run);

/* A heading with an anchor, and the section around what follows. */
void html_section(const struct page *page, const char *id, const char *title);
void html_section_end(const struct page *page);

/* "B: fsdp-2", where there are several runs; nothing for a single one. */
void html_run_title(const struct page *page, int run);

/* A table that scrolls in its own box when it is wider than its place. `name`: for those who do not
 * see it. */
void html_table_begin(const struct page *page, const char *class, const char *name);
void html_table_end(const struct page *page);

/* The cell of a run's column: "<th ...>A</th>" with its colour. */
void html_run_head(const struct page *page, int run);

/* A cell with escaped text. */
void html_cell(const struct page *page, const char *text);

#endif
