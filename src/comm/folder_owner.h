// SPDX-License-Identifier: BSD-3-Clause
/* Finds out which nodes share a folder. A path alone does not show it: it may be on each node's own
 * disk. */
#ifndef VITTRAIN_COMM_FOLDER_OWNER_H
#define VITTRAIN_COMM_FOLDER_OWNER_H

#include "comm/comm.h"
#include "core/error.h"

/* Collective. Set *owner to the lowest number of a node (comm_node_count) that shares the folder
 * with this rank's node. A node that cannot create a file there shares it with none; on node 0 this
 * is an error of all ranks. */
MUST_CHECK bool folder_owner(struct comm *world, const char *path, int *owner, struct error *error);

#endif
