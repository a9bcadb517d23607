/* A directory for one test program's files, gone at its end. */
#ifndef VITTRAIN_TEST_TEMPORARY_H
#define VITTRAIN_TEST_TEMPORARY_H

#include <stddef.h>

/* Makes it (under $TMPDIR or /tmp) and gives its path. */
const char *temporary_open(void);
void temporary_close(void);

/* Makes a file, or a directory with those above it, below it; the path lives until the next call. */
const char *temporary_file(const char *name, const void *content, size_t bytes);
const char *temporary_directory(const char *name);

/* The text of a file, which the caller frees; the test fails when it cannot be read. */
char *temporary_text(const char *name);

/* DIRECTORY/name, made or not. */
const char *temporary_path(const char *name);

#endif
