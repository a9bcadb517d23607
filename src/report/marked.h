/* Text files with a generated part between two marks; the rest is written by people. */
#ifndef VITTRAIN_REPORT_MARKED_H
#define VITTRAIN_REPORT_MARKED_H

#include <stdbool.h>

#include "core/error.h"

/* Replace the text between the marks atomically. Without marks they are appended; a new or empty
 * file starts with `title`. Safe for concurrent writers. */
MUST_CHECK bool marked_replace(const char *path, const char *title, const char *text,
                               struct error *error);

/* True if the file has this text between its marks. */
bool marked_holds(const char *path, const char *text);

/* Return the whole file, to be freed by the caller; NULL: unreadable, or contains zero bytes. */
char *marked_read(const char *path);

#endif
