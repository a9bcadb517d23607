/* The mesh of ranks: replica x shard. Every strategy is two groups and a policy of when a unit is
 * gathered and freed; a group of one makes its collectives nothing. */
#ifndef VITTRAIN_MESH_MESH_H
#define VITTRAIN_MESH_MESH_H

#include "comm/comm.h"
#include "core/options.h"

struct mesh {
    struct comm *world;
    struct comm *replica; /* ranks that hold the same shard */
    struct comm *shard;   /* ranks that together hold one copy */
    struct comm *node;    /* ranks of this node */
    int node_count, node_index;
    bool free_after_use; /* units are gathered for each use (fsdp); false: gathered once a step */
    bool reduce_compute; /* gradients are added up in the compute type; false: in fp32 */
};

/* The groups for copies that are cut into `shard` parts, which consecutive ranks hold; `shard`
 * divides the number of ranks. Collective. */
void mesh_split(struct mesh *mesh, struct comm *world, int shard);

/* The mesh of mesh.strategy. Collective. */
bool mesh_open(struct mesh *mesh, struct comm *world, const struct options *options,
               struct error *error);
void mesh_close(struct mesh *mesh);

/* "ddp, 8 ranks on 2 nodes: replica 8 x shard 1" */
void mesh_describe(const struct mesh *mesh, char *text, size_t size);

/* How large collectives of the two groups go: "shared for shards, ring for replicas" */
void mesh_describe_transport(const struct mesh *mesh, char *text, size_t size);

#endif
