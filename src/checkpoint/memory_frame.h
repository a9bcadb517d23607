// SPDX-License-Identifier: BSD-3-Clause
/* Shared by memory_checkpoint.c and memory_find.c. */
#ifndef VITTRAIN_CHECKPOINT_MEMORY_FRAME_H
#define VITTRAIN_CHECKPOINT_MEMORY_FRAME_H

#include "checkpoint/checkpoint_file.h"
#include "comm/comm.h"

/* File in the folder of a run: the step that began last, as an int64_t. */
#define MEMORY_REACHED "reached"

/* True if it is a folder that only this user can use. */
bool memory_folder_is_own(const char *path);

/* Collective. Copy everything except the vectors from the file of rank `root` to those of other
 * ranks; a rank whose descriptor is -1 writes none. The contents are used on rank `root`. */
MUST_CHECK bool memory_frame_share(struct comm *world, int root,
                                   const struct checkpoint_contents *contents, int descriptor,
                                   const char *path, struct error *error);

#endif
