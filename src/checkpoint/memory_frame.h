// SPDX-License-Identifier: BSD-3-Clause
/* Shared by memory_checkpoint.c and memory_find.c. */
#ifndef VITTRAIN_CHECKPOINT_MEMORY_FRAME_H
#define VITTRAIN_CHECKPOINT_MEMORY_FRAME_H

#include "checkpoint/checkpoint_file.h"
#include "comm/comm.h"

/* File in the folder in memory: the number of the step that began last, an int64_t. */
#define MEMORY_REACHED "reached"

/* Link in the folder in memory to the run folder. */
#define MEMORY_RUN "run"

/* True if `path` is a folder of this user to which no other user has access. */
bool memory_folder_is_own(const char *path);

/* Collective. Copy the frame, all bytes outside of the vectors, from the file of rank `root` to the
 * files of the other ranks. A rank with descriptor -1 has no file. `contents` is read only on rank
 * `root`. */
MUST_CHECK bool memory_frame_share(struct comm *world, int root,
                                   const struct checkpoint_contents *contents, int descriptor,
                                   const char *path, struct error *error);

#endif
