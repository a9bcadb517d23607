/* Text files that people may have touched: read whole or line by line, and only where they are
 * files. To open a pipe, which may lie where a file is looked for, would be to wait for ever. */
#ifndef VITTRAIN_CORE_TEXT_FILE_H
#define VITTRAIN_CORE_TEXT_FILE_H

#include <stddef.h>
#include <stdio.h>

/* To read; NULL and errno (EISDIR, or EINVAL for pipes and devices) where that cannot be done. */
FILE *text_file_open(const char *path);

/* The whole file with a zero behind it, which the caller frees; NULL and errno where it cannot be
 * read. `length`, which may be NULL: of the file, which may have zeros in it. */
char *text_file_read(const char *path, size_t *length);

#endif
