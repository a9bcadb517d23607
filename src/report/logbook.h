/* The log book: a folder with a Markdown page a run, README.md as its index with a row a run,
 * newest first, and found.csv (found.h). What people write outside of the marks `vittrain: begin`
 * and `vittrain: end`, into pages and index, stays when these are made again. */
#ifndef VITTRAIN_REPORT_LOGBOOK_H
#define VITTRAIN_REPORT_LOGBOOK_H

#include <stddef.h>

#include "core/error.h"
#include "report/record.h"

/* Makes the run's page, or makes it anew, and the index. Pages are called as the run's folder; of
 * another run of that name there may be a page already, and then it is NAME-2.md, ... Programs that
 * do this at once lose nothing, also where the file system has no locks. ERROR_FILE: the folder
 * cannot be made or written. Local. */
MUST_CHECK bool logbook_add(const char *logbook, const struct record *record, struct error *error);

/* Below: for found.c. Keeps other programs out, for so long as they are patient; -1 where there are
 * no locks. The folder is there. */
int logbook_lock(const char *logbook);
void logbook_unlock(int lock);

#endif
