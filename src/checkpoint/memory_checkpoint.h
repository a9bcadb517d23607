// SPDX-License-Identifier: BSD-3-Clause
/* Checkpoints in memory: a restarted run resumes from the newest one if it is newer than those on
 * disk. Each node has a folder in /dev/shm, with one file for each of the two newest: a checkpoint
 * file (checkpoint_file.h) that has the pieces of the node's ranks and copies of the pieces of one
 * other node's; the rest is a hole. So the state of a lost node is on another one. The folder
 * outlives its processes. */
#ifndef VITTRAIN_CHECKPOINT_MEMORY_CHECKPOINT_H
#define VITTRAIN_CHECKPOINT_MEMORY_CHECKPOINT_H

#include "checkpoint/checkpoint.h"

struct memory_checkpoint;

/* What a run finds in the memory of its nodes. */
struct memory_found {
    char path[192]; /* of the newest complete checkpoint, on each node; "": none */
    int *sources;   /* checkpoint_target.sources; the caller frees it */
    int64_t step;
    int64_t reached; /* step that the run had begun when it ended; 0: unknown */
    int nodes;       /* number of nodes that had a file of it */
};

/* Collective. Find the newest complete checkpoint in the folders of that id after step `after`.
 * `node`: the ranks of this node. All checksums are verified. `report` gets one line for each that
 * was skipped. */
MUST_CHECK bool memory_find(const char *id, struct comm *world, struct comm *node, int64_t after,
                            struct memory_found *found, char *report, size_t report_size,
                            struct error *error);

/* Bytes of /dev/shm that a rank's part of both checkpoints takes, copies included: the largest of
 * any rank, as checkpoint_snapshot_bytes. Without the frames, which have less than a megabyte. */
size_t memory_checkpoint_bytes(const struct flat_model *flat);

/* Collective. Open the folder of the run in `run`, and write a new id to RUN/.memory if it has none
 * or `resumed` is NULL. Files other than `resumed`, a path of memory_find, are removed.
 * ERROR_MEMORY if a node has less free memory in /dev/shm than both checkpoints take. */
struct memory_checkpoint *memory_checkpoint_open(const char *run, const struct flat_model *flat,
                                                 const char *resumed, struct error *error);

/* Collective. Write a checkpoint in place of the older of the two. */
MUST_CHECK bool memory_checkpoint_write(struct memory_checkpoint *memory,
                                        const struct checkpoint_order *order, struct error *error);

/* Not collective. Note that this step begins. `memory` may be NULL. */
void memory_checkpoint_step(struct memory_checkpoint *memory, int64_t step);

/* Not collective. `removes`: also remove the folder. `memory` may be NULL. */
void memory_checkpoint_close(struct memory_checkpoint *memory, bool removes);

#endif
