/* A run's page of the log book, and its row of the index. */
#ifndef VITTRAIN_REPORT_PAGE_H
#define VITTRAIN_REPORT_PAGE_H

#include <stdio.h>

#include "report/format.h"
#include "report/record.h"

/* All between the marks, in Markdown. logbook: where found.csv lies, or NULL. */
void page_write(FILE *stream, const struct record *record, const char *logbook);

/* The head of the index's table, and a run's row without its first cell, the link. */
extern const char page_row_head[];
void page_row_write(FILE *stream, const struct record *record);

/* Universal time at which the run's first part began, by which the index is sorted and runs of one
 * name are told apart; "unknown". */
const char *page_started(const struct record *record);

/* Below: between page*.c. */

void page_figures_write(FILE *stream, const struct record *record);
void page_hardware_write(FILE *stream, const struct record *record);

/* As people read it; "": NAN. In a buffer of this call's own, one of several in turn. */
const char *page_figure(enum figure figure, double value);
const char *page_number(const char *format, double value);

/* A number of an object; NAN: it has none of that name. */
double page_number_at(const struct json_t *object, const char *key);

#endif
