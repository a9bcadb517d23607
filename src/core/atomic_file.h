/* Small files that are either old or new, never half: written to PATH.part, synced, renamed. */
#ifndef VITTRAIN_CORE_ATOMIC_FILE_H
#define VITTRAIN_CORE_ATOMIC_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "core/error.h"

/* Bytes of a path: a folder given as an option and a name in it. */
enum { FILE_PATH = 1152 };

struct atomic_file {
    FILE *stream; /* write here */
    char path[FILE_PATH], part[FILE_PATH + 8];
};

MUST_CHECK bool atomic_file_open(struct atomic_file *file, const char *path, struct error *error);

/* Ends the file: on success PATH is the new content, on disk; on failure PATH is as it was and the
 * part is gone. */
MUST_CHECK bool atomic_file_commit(struct atomic_file *file, struct error *error);

/* Gives up: PATH is as it was. */
void atomic_file_discard(struct atomic_file *file);

/* All at once. */
MUST_CHECK bool atomic_file_write(const char *path, const char *text, struct error *error);

#endif
