// SPDX-License-Identifier: BSD-3-Clause
/* The log book: a folder with the index README.md, one row per run, newest first, and found.csv,
 * the results of searches (commands/find.c). tools/report.py adds a page per run. Of the index only
 * the text between the marks `vittrain: begin` and `vittrain: end` is changed. Not collective. */
#ifndef VITTRAIN_RUNLOG_LOGBOOK_H
#define VITTRAIN_RUNLOG_LOGBOOK_H

#include <stdbool.h>

#include "core/error.h"

/* Create the folder, and lock it against other processes until the descriptor is closed. Where
 * locks are not supported, it is not locked. -1: ERROR_FILE. */
int logbook_lock(const char *logbook, struct error *error);

/* Return the text as a cell of a Markdown table, shortened to fit. */
enum { LOGBOOK_CELL = 256 };
const char *logbook_cell(const char *text, char cell[LOGBOOK_CELL]);

/* Add a row, "| FOLDER | ... |\n", to the index. again: the row of an earlier attempt in this
 * folder is removed. An index with other columns is renamed to README.md.old. ERROR_FILE: the index
 * cannot be written. */
MUST_CHECK bool logbook_add(const char *logbook, const char *row, bool again, struct error *error);

#endif
