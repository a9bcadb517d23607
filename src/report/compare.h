/* Runs side by side, as text: Markdown to paste, CSV for other programs. */
#ifndef VITTRAIN_REPORT_COMPARE_H
#define VITTRAIN_REPORT_COMPARE_H

#include <stdio.h>

#include "report/record.h"

/* A column a run, a row for each fact that is known of any. */
void compare_markdown(const struct record *records, int count, FILE *stream);

/* A row a run, a column for each fact, all of them always; numbers in C's format, times in seconds,
 * memory in bytes, shares from 0 to 1. */
void compare_csv(const struct record *records, int count, FILE *stream);

#endif
