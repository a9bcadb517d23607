// SPDX-License-Identifier: BSD-3-Clause
/* Names of a run's checkpoints, step-NNNNNNNN.h5, and of the folder of those in memory. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_NAME_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHECKPOINT_NAME = 32 };

void checkpoint_name(char name[CHECKPOINT_NAME], int64_t step);

/* Return the step of a path that ends in such a name, else -1. */
int64_t checkpoint_name_step(const char *path);

enum { MEMORY_ID = 17 }; /* 16 hexadecimal digits and a zero */

/* Write the folder of a run on each node. `id`: see checkpoint_memory_id. */
void checkpoint_memory_folder(const char *id, char *path, size_t size);

/* Read the id of a run's folders in RUN/.memory; false if there is none, or if it is invalid. */
bool checkpoint_memory_id(const char *run, char id[MEMORY_ID]);

#endif
