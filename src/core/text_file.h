// SPDX-License-Identifier: BSD-3-Clause
/* Reading of regular files only: opening a pipe of that name could block forever. */
#ifndef VITTRAIN_CORE_TEXT_FILE_H
#define VITTRAIN_CORE_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Open a file for reading and set its size. Return its descriptor, or -1 and errno (EISDIR; EINVAL
 * for pipes and devices) on failure. */
int text_file_descriptor(const char *path, int64_t *bytes);

/* Return the whole file, zero-terminated and freed by the caller; NULL and errno on failure,
 * also ENOMEM. `length` may be NULL; the file may contain zeros. */
char *text_file_read(const char *path, size_t *length);

/* Read the first number that follows `word` at the start of a line ("MemAvailable: 123 kB"); if the
 * word is empty, the first number at the start of a line. Return false if no line has one. */
bool text_file_number(const char *path, const char *word, unsigned long long *number);

#endif
