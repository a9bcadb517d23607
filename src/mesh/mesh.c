/* The two groups behind every strategy. Ranks of one shard group are consecutive, because launchers
 * put consecutive ranks on one node, where gathering is cheap. */
#include "mesh/mesh.h"

#include <stdio.h>
#include <string.h>

/* A fake's partners say nothing about their colors, so what it would get is said here. */
static struct comm *mesh_group(struct comm *world, int color, int rank, int size)
{
    if (strcmp(world->backend->name, "fake") == 0)
        return comm_fake_open(rank, size);
    struct comm *group = world->backend->split(world, color, rank);
    ENSURE(group->rank == rank && group->size == size, "the mesh's groups are not as planned");
    return group;
}

void mesh_split(struct mesh *mesh, struct comm *world, int shard)
{
    ENSURE(shard > 0 && world->size % shard == 0, "%d ranks cannot be cut into shards of %d",
           world->size, shard);
    *mesh = (struct mesh){.world = world};
    mesh->shard = mesh_group(world, world->rank / shard, world->rank % shard, shard);
    mesh->replica =
        mesh_group(world, world->rank % shard, world->rank / shard, world->size / shard);
    mesh->node = comm_split_node(world);
    mesh->node_count = comm_node_count(world, &mesh->node_index);
}

bool mesh_open(struct mesh *mesh, struct comm *world, const struct options *options,
               struct error *error)
{
    comm_set_timeout(options->mesh.timeout);
    switch ((enum strategy_choice)options->mesh.strategy) {
    case STRATEGY_DDP:
        mesh_split(mesh, world, 1);
        break;
    }
    mesh->reduce_compute = options->mesh.reduce == REDUCE_COMPUTE;
    enum transport_choice transport = (enum transport_choice)options->mesh.transport;
    mesh->shard->backend->set_transport(mesh->shard, transport, error);
    mesh->replica->backend->set_transport(mesh->replica, transport, error);
    if (comm_agree(world, error))
        return true;
    mesh_close(mesh);
    return false;
}

void mesh_close(struct mesh *mesh)
{
    mesh->node->backend->close(mesh->node);
    mesh->replica->backend->close(mesh->replica);
    mesh->shard->backend->close(mesh->shard);
    *mesh = (struct mesh){0};
}

void mesh_describe(const struct mesh *mesh, char *text, size_t size)
{
    int ranks = mesh->world->size;
    const char *strategy = mesh->shard->size == 1     ? "ddp"
                           : mesh->replica->size == 1 ? "fsdp"
                                                      : "hsdp";
    snprintf(text, size, "%s, %d rank%s on %d node%s: replica %d x shard %d", strategy, ranks,
             ranks == 1 ? "" : "s", mesh->node_count, mesh->node_count == 1 ? "" : "s",
             mesh->replica->size, mesh->shard->size);
}

void mesh_describe_transport(const struct mesh *mesh, char *text, size_t size)
{
    char part[2][256];
    mesh->shard->backend->describe_transport(mesh->shard, part[0], sizeof part[0]);
    mesh->replica->backend->describe_transport(mesh->replica, part[1], sizeof part[1]);
    if (mesh->shard->size > 1 && mesh->replica->size > 1)
        snprintf(text, size, "%s for shards, %s for replicas", part[0], part[1]);
    else
        snprintf(text, size, "%s", part[mesh->shard->size > 1 ? 0 : 1]);
}
