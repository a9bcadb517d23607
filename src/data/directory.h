// SPDX-License-Identifier: BSD-3-Clause
/* Finds out which nodes share a directory; node-local disks have the same paths. */
#ifndef VITTRAIN_DATA_DIRECTORY_H
#define VITTRAIN_DATA_DIRECTORY_H

#include "comm/comm.h"
#include "core/error.h"

/* Collective. Create the directory on each node and find the nodes that share it: *owner is the
 * lowest node number (comm_node_count) that shares it with this rank's node. The first rank of node
 * `owner` then does the work for its file system. On failure all ranks get the same error. */
MUST_CHECK bool directory_owner(struct comm *world, const char *path, int *owner,
                                struct error *error);

#endif
