/* A run's page in the log book, and its row of the index. */
#ifndef VITTRAIN_REPORT_PAGE_H
#define VITTRAIN_REPORT_PAGE_H

#include <stdio.h>

#include "report/record.h"

/* Write the generated part of the page as Markdown. `logbook`: the folder with found.csv. */
void page_write(FILE *stream, const struct record *record, const char *logbook);

/* The index: its head with the line below, and a run's row behind the cell with the link. */
void page_row_head(FILE *stream);
void page_row_write(FILE *stream, const struct record *record);

#endif
