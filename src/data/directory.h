/* Directories that ranks may or may not share: node-local disks look alike and are not the same. */
#ifndef VITTRAIN_DATA_DIRECTORY_H
#define VITTRAIN_DATA_DIRECTORY_H

#include "comm/comm.h"
#include "core/error.h"

/* Collective. Makes the directory on every node and finds out which nodes see the same one: *owner
 * is the lowest number of a node (as comm_node_count numbers them) that shares it with this rank's.
 * What is to be done once a file system is done by the first rank of node `owner`. On failure all
 * ranks get the same error. */
MUST_CHECK bool directory_owner(struct comm *world, const char *path, int *owner,
                                struct error *error);

#endif
