// SPDX-License-Identifier: BSD-3-Clause
/* Opens the two groups of the mesh. A shard group is on one node if it fits, because gathering is
 * cheap there: ranks are numbered node by node, in whatever order the launcher placed them. */
#include "mesh/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"

/* The strategies, apart from the sizes of their groups. */
static const struct strategy {
    const char *name;
    bool shards, within_node, shard_weights, shard_gradients;
} strategies[] = {
    [STRATEGY_DDP] = {.name = "ddp"},
    [STRATEGY_ZERO1] = {.name = "zero1", .shards = true},
    [STRATEGY_ZERO2] = {.name = "zero2", .shards = true, .shard_gradients = true},
    [STRATEGY_FSDP] = {.name = "fsdp",
                       .shards = true,
                       .shard_weights = true,
                       .shard_gradients = true},
    [STRATEGY_HSDP] = {.name = "hsdp",
                       .shards = true,
                       .within_node = true,
                       .shard_weights = true,
                       .shard_gradients = true},
};

/* This rank in a numbering of the ranks node by node. */
struct placement {
    int number;
    int node_first, node_end; /* numbers of the ranks on this rank's node: first, last + 1 */
    int node_ranks;           /* on each node; 0: differs between nodes */
    int fewest, most;         /* ranks on a node */
};

/* Open the group of this rank's node and find the placement of the ranks. Collective. */
static struct placement world_enter(struct mesh *mesh, struct comm *world)
{
    int size = world->size, rank = world->rank;
    int *node = allocate(2 * (size_t)size, sizeof *node), *ranks = node + size;
    *mesh = (struct mesh){.world = world};
    mesh->node = comm_split_nodes(world, node, &mesh->node_count);
    mesh->node_index = node[rank];
    struct placement placement = {.fewest = size};
    for (int other = 0; other < size; other++) {
        ranks[node[other]]++;
        placement.number += node[other] < node[rank] || (node[other] == node[rank] && other < rank);
        placement.node_first += node[other] < node[rank];
        placement.node_end += node[other] <= node[rank];
    }
    for (int number = 0; number < mesh->node_count; number++) {
        placement.fewest = ranks[number] < placement.fewest ? ranks[number] : placement.fewest;
        placement.most = ranks[number] > placement.most ? ranks[number] : placement.most;
    }
    placement.node_ranks = placement.fewest == placement.most ? placement.most : 0;
    free(node);
    return placement;
}

/* Returns the number of ranks in a shard group, or 0 and an error. */
static int shard_size(const struct mesh_options *options, int ranks,
                      const struct placement *placement, struct error *error)
{
    const struct strategy *strategy = &strategies[options->strategy];
    int shard = (int)options->shard;
    if (shard == 0 && strategy->within_node && placement->node_ranks == 0) {
        error_set(error, ERROR_USAGE,
                  "mesh.strategy=%s shards over the ranks of a node, but the nodes have %d to %d "
                  "ranks: start as many on each, or set mesh.shard",
                  strategy->name, placement->fewest, placement->most);
        return 0;
    }
    if (shard == 0)
        shard = !strategy->shards ? 1 : strategy->within_node ? placement->node_ranks : ranks;
    if (shard > 1 && !strategy->shards) {
        error_set(error, ERROR_USAGE,
                  "mesh.shard=%d, but mesh.strategy=%s does not shard: leave out mesh.shard, or "
                  "set mesh.strategy=hsdp",
                  shard, strategy->name);
        return 0;
    }
    if (ranks % shard != 0) {
        error_set(error, ERROR_USAGE,
                  "mesh.shard=%d does not divide the %d ranks: choose a divisor, or start another "
                  "number of ranks",
                  shard, ranks);
        return 0;
    }
    return shard;
}

const char *mesh_strategy_name(enum strategy_choice strategy)
{
    return strategies[strategy].name;
}

static void policy_set(struct mesh *mesh, const struct mesh_options *options,
                       const struct placement *placement)
{
    const struct strategy *strategy = &strategies[options->strategy];
    const bool shards = mesh->shard->size > 1;
    const int first = shards ? placement->number - mesh->shard->rank : 0;
    const int size = shards ? mesh->shard->size : mesh->world->size;
    mesh->one_node =
        size > 1 && first >= placement->node_first && first + size <= placement->node_end;
    mesh->strategy = strategy->name;
    mesh->shard_weights = strategy->shard_weights;
    mesh->shard_gradients = strategy->shard_gradients;
    mesh->reduce_compute = options->reduce == REDUCE_COMPUTE;
}

/* Collective. The group of `size` ranks in which this rank has number `rank`. */
static struct comm *mesh_group(struct comm *world, int color, int rank, int size)
{
    if (world->backend->simulated)
        return comm_fake_open(rank, size);
    struct comm *group = world->backend->split(world, color, rank);
    ENSURE(group->rank == rank && group->size == size, "a group of the mesh is not as planned");
    return group;
}

static void groups_open(struct mesh *mesh, int number, int shard)
{
    struct comm *world = mesh->world;
    mesh->shard = mesh_group(world, number / shard, number % shard, shard);
    mesh->replica = mesh_group(world, number % shard, number / shard, world->size / shard);
    mesh->shard_data = mesh->shard;
    mesh->replica_data = mesh->replica;
}

void mesh_split(struct mesh *mesh, struct comm *world, int shard)
{
    ENSURE(shard > 0 && world->size % shard == 0, "cannot split %d ranks into shard groups of %d",
           world->size, shard);
    groups_open(mesh, world_enter(mesh, world).number, shard);
    mesh->strategy = "split";
}

bool mesh_open(struct mesh *mesh, struct comm *world, const struct mesh_options *options,
               struct error *error)
{
    comm_set_timeout(options->timeout);
    const struct placement placement = world_enter(mesh, world);
    int shard = shard_size(options, world->size, &placement, error);
    if (shard == 0) {
        mesh->node->backend->close(mesh->node);
        *mesh = (struct mesh){0};
        return false;
    }
    groups_open(mesh, placement.number, shard);
    policy_set(mesh, options, &placement);
    enum transport_choice transport = options->transport;
    mesh->shard->backend->set_transport(mesh->shard, transport, error);
    mesh->replica->backend->set_transport(mesh->replica, transport, error);
    if (comm_agree(world, error))
        return true;
    mesh_close(mesh);
    return false;
}

bool mesh_imagine(struct mesh *mesh, int rank, int ranks, int node_ranks,
                  const struct mesh_options *options, struct error *error)
{
    int rest = ranks % node_ranks;
    const int node_first = rank / node_ranks * node_ranks;
    struct placement placement = {.number = rank,
                                  .node_first = node_first,
                                  .node_end = node_first + node_ranks,
                                  .node_ranks = rest == 0 ? node_ranks : 0,
                                  .fewest = rest == 0 ? node_ranks : rest,
                                  .most = node_ranks};
    int shard = shard_size(options, ranks, &placement, error);
    if (shard == 0)
        return false;
    *mesh = (struct mesh){.world = comm_fake_open(rank, ranks),
                          .node = comm_fake_open(rank % node_ranks, node_ranks),
                          .node_count = (int)round_up_division(ranks, node_ranks),
                          .node_index = rank / node_ranks,
                          .imagined = true};
    groups_open(mesh, rank, shard);
    policy_set(mesh, options, &placement);
    return true;
}

/* Replaces a group by one of the same ranks for the device's memory. A group of one needs none. */
static bool group_open(struct comm *host, const struct device *device, struct comm **group,
                       struct error *error)
{
    struct comm *opened = host->size == 1 ? host : device->backend->comm_open(host, error);
    if (opened == NULL)
        return false;
    *group = opened;
    return true;
}

bool mesh_use_device(struct mesh *mesh, const struct device *device, struct error *error)
{
    if (mesh->imagined || device->backend->comm_open == NULL)
        return true;
    if (mesh->shard->size > 1 && mesh->replica->size > 1)
        device->backend->comm_keep_order(error);
    if (comm_agree(mesh->world, error) && group_open(mesh->shard, device, &mesh->shard_data, error))
        group_open(mesh->replica, device, &mesh->replica_data, error);
    return comm_agree(mesh->world, error);
}

static void group_use_memory(struct comm *group, void *memory, size_t bytes)
{
    if (group->backend->use_memory != NULL)
        group->backend->use_memory(group, memory, bytes);
}

void mesh_use_memory(struct mesh *mesh, void *memory, size_t bytes)
{
    group_use_memory(mesh->shard_data, memory, bytes);
    group_use_memory(mesh->replica_data, memory, bytes);
}

static void group_leave(struct comm **data, struct comm *host)
{
    if (*data != host)
        (*data)->backend->close(*data);
    *data = host;
}

void mesh_leave_device(struct mesh *mesh)
{
    group_leave(&mesh->replica_data, mesh->replica);
    group_leave(&mesh->shard_data, mesh->shard);
}

void mesh_close(struct mesh *mesh)
{
    mesh_leave_device(mesh);
    mesh->node->backend->close(mesh->node);
    mesh->replica->backend->close(mesh->replica);
    mesh->shard->backend->close(mesh->shard);
    if (mesh->imagined)
        mesh->world->backend->close(mesh->world);
    *mesh = (struct mesh){0};
}

void mesh_describe(const struct mesh *mesh, char *text, size_t size)
{
    int ranks = mesh->world->size;
    snprintf(text, size, "%s, %d rank%s on %d node%s: replica %d x shard %d", mesh->strategy, ranks,
             ranks == 1 ? "" : "s", mesh->node_count, mesh->node_count == 1 ? "" : "s",
             mesh->replica->size, mesh->shard->size);
}

void mesh_describe_transport(const struct mesh *mesh, char *text, size_t size)
{
    char part[2][256];
    mesh->shard_data->backend->describe_transport(mesh->shard_data, part[0], sizeof part[0]);
    mesh->replica_data->backend->describe_transport(mesh->replica_data, part[1], sizeof part[1]);
    if (mesh->shard->size > 1 && mesh->replica->size > 1 && strcmp(part[0], part[1]) != 0)
        snprintf(text, size, "%s for shards, %s for replicas", part[0], part[1]);
    else
        snprintf(text, size, "%s", part[mesh->shard->size > 1 ? 0 : 1]);
}
