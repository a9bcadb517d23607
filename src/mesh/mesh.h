// SPDX-License-Identifier: BSD-3-Clause
/* The mesh of ranks: replica x shard. A strategy is the sizes of these two groups, and whether
 * weights and gradients stay whole between their uses. Collectives of a group of one do nothing. */
#ifndef VITTRAIN_MESH_MESH_H
#define VITTRAIN_MESH_MESH_H

#include "comm/comm.h"
#include "options/options.h"

struct mesh {
    struct comm *world;
    struct comm *replica; /* the ranks that hold the same shard */
    struct comm *shard;   /* the ranks that together hold one copy of the model */
    struct comm *node;    /* the ranks of this node */
    /* The groups for collectives on the device's memory: of the same ranks as replica and shard. On
     * GPUs they are groups of their own (mesh_use_device), else `replica` and `shard`. */
    struct comm *replica_data, *shard_data;
    int node_count;
    const char *strategy; /* "fsdp" */
    /* If the shard group has more than one rank: true if the whole weights, the whole gradient of a
     * unit exist only during their use. */
    bool shard_weights, shard_gradients;
    /* The ranks of the shard group (of the world, if shards have one rank) are on one node, and
     * there are several. */
    bool one_node;
    bool reduce_compute; /* gradients are reduced in the compute type, else in fp32 */
    bool imagined;       /* the other ranks do not exist (mesh_imagine) */
};

/* Returns "fsdp" for STRATEGY_FSDP. */
const char *mesh_strategy_name(enum strategy_choice strategy);

/* Opens the mesh of mesh.strategy. Ranks are numbered node by node. Collective; an error is the
 * same on all ranks. */
MUST_CHECK bool mesh_open(struct mesh *mesh, struct comm *world, const struct mesh_options *options,
                          struct error *error);

/* Opens the mesh of rank `rank` of `ranks` ranks that do not exist, `node_ranks` on each node: for
 * planning. mesh_close closes its world, too. Local. */
MUST_CHECK bool mesh_imagine(struct mesh *mesh, int rank, int ranks, int node_ranks,
                             const struct mesh_options *options, struct error *error);
void mesh_close(struct mesh *mesh);

/* Opens the groups for the memory of this device. Collective; an error is the same on all ranks. */
MUST_CHECK bool mesh_use_device(struct mesh *mesh, const struct device *device,
                                struct error *error);
/* Registers the device memory that collectives use. It must live until mesh_leave_device. */
void mesh_use_memory(struct mesh *mesh, void *memory, size_t bytes);
/* Closes the groups for the device's memory. Call it after recorded steps are closed and before
 * memory and device are. Collective. */
void mesh_leave_device(struct mesh *mesh);

/* Writes "hsdp, 8 ranks on 2 nodes: replica 2 x shard 4". */
void mesh_describe(const struct mesh *mesh, char *text, size_t size);

/* Writes the transport of large collectives: "shared for shards, ring for replicas", or on GPUs
 * "NCCL 2.28.9". */
void mesh_describe_transport(const struct mesh *mesh, char *text, size_t size);

#endif
