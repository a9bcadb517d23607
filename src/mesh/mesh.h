/* The mesh of ranks: replica x shard. Every strategy is two groups and a policy of what stays whole
 * between its uses; a group of one makes its collectives nothing. */
#ifndef VITTRAIN_MESH_MESH_H
#define VITTRAIN_MESH_MESH_H

#include "comm/comm.h"
#include "config/mesh_options.h"

struct mesh {
    struct comm *world;
    struct comm *replica; /* ranks that hold the same shard */
    struct comm *shard;   /* ranks that together hold one copy */
    struct comm *node;    /* ranks of this node */
    /* The same ranks as replica and shard, for what lies in the device's memory: other groups where
     * that is a GPU's (mesh_use_device), else the same. */
    struct comm *replica_data, *shard_data;
    int node_count, node_index;
    const char *strategy; /* "fsdp" */
    /* Where the shard group has more than one rank: whole weights, whole gradients of a unit exist
     * only while they are used; false: of all units, all the time. */
    bool shard_weights, shard_gradients;
    bool reduce_compute; /* gradients are added up in the compute type; false: in fp32 */
    bool imagined;       /* the other ranks do not exist (mesh_imagine) */
};

/* "fsdp" */
const char *mesh_strategy_name(enum strategy_choice strategy);

/* The groups for copies that are cut into `shard` parts, which ranks hold that follow one another,
 * node by node; `shard` divides the number of ranks. Everything stays whole until the caller says
 * otherwise. Collective. */
void mesh_split(struct mesh *mesh, struct comm *world, int shard);

/* The mesh of mesh.strategy. Collective; a combination that cannot work is an error, the same on
 * all ranks. */
MUST_CHECK bool mesh_open(struct mesh *mesh, struct comm *world, const struct mesh_options *options,
                          struct error *error);

/* The mesh as rank `rank` of `ranks` would see it, `node_ranks` of them on a node, without the
 * others: for planning. Its world belongs to it. */
MUST_CHECK bool mesh_imagine(struct mesh *mesh, int rank, int ranks, int node_ranks,
                             const struct mesh_options *options, struct error *error);
void mesh_close(struct mesh *mesh);

/* Makes the groups for the memory of this device. Collective; an error is the same on all ranks. */
MUST_CHECK bool mesh_use_device(struct mesh *mesh, const struct device *device,
                                struct error *error);
/* What lies on the device lies in this memory, which must live until mesh_leave_device. */
void mesh_use_memory(struct mesh *mesh, void *memory, size_t bytes);
/* After recorded steps are closed, before memory and device are; nothing where no device is used.
 * Collective. */
void mesh_leave_device(struct mesh *mesh);

/* "hsdp, 8 ranks on 2 nodes: replica 2 x shard 4" */
void mesh_describe(const struct mesh *mesh, char *text, size_t size);

/* How large collectives of the two groups go: "shared for shards, ring for replicas"; on GPUs
 * "NCCL 2.28.9" */
void mesh_describe_transport(const struct mesh *mesh, char *text, size_t size);

#endif
