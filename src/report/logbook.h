/* The log book: a folder with one Markdown page per run, the index README.md with one row per run,
 * newest first, and found.csv (found.h). The program rewrites only the text between the marks
 * `vittrain: begin` and `vittrain: end`. */
#ifndef VITTRAIN_REPORT_LOGBOOK_H
#define VITTRAIN_REPORT_LOGBOOK_H

#include <stddef.h>

#include "core/error.h"
#include "report/record.h"

/* Create or update the run's page and the index. The page is named after the run folder; if another
 * run of that name has a page, the name is NAME-2.md, NAME-3.md, ... Concurrent writers lose
 * nothing. Not collective. ERROR_FILE: the folder cannot be
 * written. */
MUST_CHECK bool logbook_add(const char *logbook, const struct record *record, struct error *error);

#endif
