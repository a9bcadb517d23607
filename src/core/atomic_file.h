// SPDX-License-Identifier: BSD-3-Clause
/* Atomic replacement of small files: written to PATH.part, synced, renamed. */
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

/* Close the file and rename it to PATH. On failure PATH is unchanged and the part is removed. */
MUST_CHECK bool atomic_file_commit(struct atomic_file *file, struct error *error);

/* Remove the part; PATH is unchanged. */
void atomic_file_discard(struct atomic_file *file);

/* Write a whole file. */
MUST_CHECK bool atomic_file_write(const char *path, const char *text, struct error *error);

#endif
