/* A directory for one test program's files, gone at its end. */
#ifndef VITTRAIN_TEST_TEMPORARY_H
#define VITTRAIN_TEST_TEMPORARY_H

#include <stddef.h>

/* Makes it (under $TMPDIR or /tmp) and gives its path. */
const char *temporary_open(void);
void temporary_close(void);

/* The same as cmocka has it before and after tests that need no more. */
int temporary_setup(void **state);
int temporary_teardown(void **state);

/* Makes a file, or a directory with those above it, below it; the path lives until the next call.
 */
const char *temporary_file(const char *name, const void *content, size_t bytes);
const char *temporary_directory(const char *name);

/* The same of text, with the directories above it. */
const char *temporary_write(const char *name, const char *text);

/* The text of a file, which the caller frees; the test fails when it cannot be read. */
char *temporary_text(const char *name);

/* DIRECTORY/name, made or not. */
const char *temporary_path(const char *name);

#endif
