/* Text files of which a part is made by this program, between two marks, and the rest by people. */
#ifndef VITTRAIN_REPORT_MARKED_H
#define VITTRAIN_REPORT_MARKED_H

#include <stdbool.h>

#include "core/error.h"

/* Replaces what lies between the marks; where there are none (any more), the marks and the text
 * come to the end. A new or empty file gets `title` first. The file is old or new, never half;
 * several programs may do it at once. */
MUST_CHECK bool marked_replace(const char *path, const char *title, const char *text,
                               struct error *error);

/* Does the file hold this text between its marks? */
bool marked_holds(const char *path, const char *text);

/* The whole file, which the caller frees; NULL: it cannot be read, or has zeros in it. */
char *marked_read(const char *path);

#endif
