// SPDX-License-Identifier: BSD-3-Clause
/* Checkpoints in memory. A restarted run resumes from the newest one if it is newer than those on
 * disk. Each node has a folder in /dev/shm with the two newest checkpoints. Each is a checkpoint
 * file (checkpoint_file.h) with the pieces of the node's ranks and copies of the pieces of another
 * node's ranks; the rest is a hole. The state of a lost node is therefore on another node. The
 * folder remains when the processes end. */
#ifndef VITTRAIN_CHECKPOINT_MEMORY_CHECKPOINT_H
#define VITTRAIN_CHECKPOINT_MEMORY_CHECKPOINT_H

#include "checkpoint/checkpoint.h"
#include "comm/comm.h"

struct memory_checkpoint;

/* The checkpoint that a run finds in the memory of its nodes. */
struct memory_found {
    char path[192]; /* of the newest complete checkpoint, the same on each node; "": none */
    int64_t step;
    int64_t reached; /* step that the run had begun when it ended; 0: unknown */
    bool exists;     /* some node has a folder with this id */
};

/* Collective. Find the newest complete checkpoint in the folders with this id. All checksums are
 * verified, and the file of each node gets the pieces that its ranks read on this mesh, so that
 * checkpoint_read can use it with WRITERS_ALL. Checkpoints that are skipped are logged. */
MUST_CHECK bool memory_find(const char *id, const struct mesh *mesh, struct memory_found *found,
                            struct error *error);

/* Bytes in /dev/shm for the two checkpoints of one rank, with the copies on another node: the
 * largest value of any rank (checkpoint_divide). The frames, less than 1 MB, are not
 * counted. */
size_t memory_checkpoint_bytes(const struct flat_model *flat);

/* Return the smallest number of steps between two checkpoints with which these take at most 1 % of
 * the time of the steps, from the seconds of a checkpoint and of a step. */
double memory_checkpoint_interval(double checkpoint, double step);

/* Collective, before the first step. Create the run's folder in /dev/shm on each node. It has a new
 * id, so that a later start cannot use older checkpoints on nodes that are not in this job. The
 * folder of the earlier attempt is removed, but the checkpoint from which the run has resumed stays
 * until the second one is written; so are folders of killed runs that no run can resume from.
 * Without `writes` and `resumed` only remove. Return NULL on failure, after which the earlier
 * folder still exists; ERROR_MEMORY if /dev/shm of a node has too little free memory for two
 * checkpoints.
 * - run: the run folder.
 * - resumed: the file in memory that the run resumed from (memory_found.path), or "".
 * - writes: checkpoints will be written. */
struct memory_checkpoint *memory_checkpoint_open(const char *run, const struct flat_model *flat,
                                                 const char *resumed, bool writes,
                                                 struct error *error);

/* Collective. Write a checkpoint to a new file or, from the third one on, over the older of the two
 * files. After a failure no more can be written: close `memory`. */
MUST_CHECK bool memory_checkpoint_write(struct memory_checkpoint *memory,
                                        const struct checkpoint_order *order, struct error *error);

/* Not collective. Store the number of the step that begins, on the first rank of each node.
 * `memory` may be NULL. */
void memory_checkpoint_step(struct memory_checkpoint *memory, int64_t step);

/* Not collective. Close the files and free `memory`, which may be NULL. `removes`: also remove the
 * folder and RUN/.memory. */
void memory_checkpoint_close(struct memory_checkpoint *memory, bool removes);

/* Not collective. Describe the folders in /dev/shm of this node that runs of this user have left
 * and no process holds: "PATH (0.8 MB, of RUN), ...". "": none. */
void memory_folders_list(char *text, size_t size);

#endif
