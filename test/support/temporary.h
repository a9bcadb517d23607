// SPDX-License-Identifier: BSD-3-Clause
/* A directory for the files of one test program, removed at its end. */
#ifndef VITTRAIN_TEST_TEMPORARY_H
#define VITTRAIN_TEST_TEMPORARY_H

#include <stddef.h>

/* Create the directory (under $TMPDIR or /tmp) and return its path. */
const char *temporary_open(void);
void temporary_close(void);
void temporary_setup(void); /* the same without a result, for TEST_MAIN */

/* Create a file, or a directory and its parents, below it. The path is valid until the next call.
 */
const char *temporary_file(const char *name, const void *content, size_t bytes);
const char *temporary_directory(const char *name);

/* Write text to a file and create its parent directories. */
const char *temporary_write(const char *name, const char *text);

/* Return the text of a file, which the caller frees. The test fails if the file cannot be read. */
char *temporary_text(const char *name);

/* Return the path DIRECTORY/name, whether it exists or not. */
const char *temporary_path(const char *name);

#endif
