// SPDX-License-Identifier: BSD-3-Clause
/* Names in a run folder: its checkpoints (step-NNNNNNNN.h5), and the id of its folder for
 * checkpoints in memory. The only header of this module that `launch` includes. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_NAME_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { CHECKPOINT_NAME = 32 };

/* Set the name of the file of a step. */
void checkpoint_name(char name[CHECKPOINT_NAME], int64_t step);

/* Return the step of a path whose file name has this form, else -1. */
int64_t checkpoint_name_step(const char *path);

enum { MEMORY_ID = 17 }; /* 16 hexadecimal digits and a terminating NUL */

/* Read the id of the folders in memory from RUN/.memory, which exists while they may contain
 * checkpoints. Return false and set `id` to "" without a valid id of this folder; `unusable`, which
 * may be NULL: the file is damaged, or the run folder is a copy of another one. */
bool memory_id(const char *run, char id[MEMORY_ID], bool *unusable);

/* Write the id, and the inode of the run folder, to RUN/.memory; remove this file. */
MUST_CHECK bool memory_id_write(const char *run, const char *id, struct error *error);
void memory_id_remove(const char *run);

#endif
