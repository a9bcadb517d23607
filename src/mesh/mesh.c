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

/* Open the group of this rank's node. Return this rank's number in an order node by node, and set
 * *node_ranks to the ranks on each node, or to 0 if the nodes have different numbers. Collective.
 */
static int world_enter(struct mesh *mesh, struct comm *world, int *node_ranks)
{
    const int rank = world->rank;
    int *node = allocate((size_t)world->size, sizeof *node), number = 0;
    *mesh = (struct mesh){.world = world};
    mesh->node = comm_split_nodes(world, node, &mesh->node_count);
    for (int other = 0; other < world->size; other++)
        number += node[other] < node[rank] || (node[other] == node[rank] && other < rank);
    free(node);
    int64_t most = mesh->node->size;
    comm_all_reduce(world, &most, 1, COMM_INT64, COMM_MAX);
    *node_ranks = most * mesh->node_count == world->size ? (int)most : 0;
    return number;
}

/* Returns the number of ranks in a shard group, or 0 and an error. */
static int shard_size(const struct mesh_options *options, int ranks, int node_ranks,
                      struct error *error)
{
    const struct strategy *strategy = &strategies[options->strategy];
    int shard = (int)options->shard;
    if (shard == 0 && strategy->within_node && node_ranks == 0) {
        error_set(error, ERROR_USAGE,
                  "mesh.strategy=%s shards over the ranks of a node, but the nodes have different "
                  "numbers of ranks: start as many on each, or set mesh.shard",
                  strategy->name);
        return 0;
    }
    if (shard == 0)
        shard = !strategy->shards ? 1 : strategy->within_node ? node_ranks : ranks;
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

/* Collective. The group of `size` ranks in which this rank has number `rank`. */
static struct comm *mesh_group(const struct mesh *mesh, int color, int rank, int size)
{
    if (mesh->imagined)
        return comm_fake_open(rank, size);
    struct comm *group = mesh->world->backend->split(mesh->world, color, rank);
    ENSURE(group->rank == rank && group->size == size, "a group of the mesh is not as planned");
    return group;
}

/* Open the groups of the rank with this number, with shard groups of `shard` ranks, and set the
 * policy of the strategy. */
static void groups_open(struct mesh *mesh, const struct mesh_options *options, int number,
                        int shard)
{
    const struct strategy *strategy = &strategies[options->strategy];
    struct comm *world = mesh->world;
    mesh->shard = mesh_group(mesh, number / shard, number % shard, shard);
    mesh->replica = mesh_group(mesh, number % shard, number / shard, world->size / shard);
    mesh->shard_data = mesh->shard;
    mesh->replica_data = mesh->replica;
    const int first = shard > 1 ? number - mesh->shard->rank : 0;
    const int size = shard > 1 ? shard : world->size, node_first = number - mesh->node->rank;
    mesh->one_node =
        size > 1 && first >= node_first && first + size <= node_first + mesh->node->size;
    mesh->strategy = strategy->name;
    mesh->shard_weights = strategy->shard_weights;
    mesh->shard_gradients = strategy->shard_gradients;
    mesh->reduce_compute = options->reduce == REDUCE_COMPUTE;
}

bool mesh_open(struct mesh *mesh, struct comm *world, const struct mesh_options *options,
               struct error *error)
{
    int node_ranks;
    comm_set_timeout(options->timeout);
    const int number = world_enter(mesh, world, &node_ranks);
    const int shard = shard_size(options, world->size, node_ranks, error);
    if (shard == 0) {
        mesh->node->backend->close(mesh->node);
        *mesh = (struct mesh){0};
        return false;
    }
    groups_open(mesh, options, number, shard);
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
    const int shard = shard_size(options, ranks, ranks % node_ranks == 0 ? node_ranks : 0, error);
    if (shard == 0)
        return false;
    *mesh = (struct mesh){.world = comm_fake_open(rank, ranks),
                          .node = comm_fake_open(rank % node_ranks, node_ranks),
                          .node_count = (int)round_up_division(ranks, node_ranks),
                          .imagined = true};
    groups_open(mesh, options, rank, shard);
    return true;
}

bool mesh_use_device(struct mesh *mesh, const struct device *device, struct error *error)
{
    struct comm *const host[] = {mesh->shard, mesh->replica};
    struct comm **const data[] = {&mesh->shard_data, &mesh->replica_data};
    if (mesh->imagined || device->backend->comm_open == NULL)
        return true;
    if (mesh->shard->size > 1 && mesh->replica->size > 1)
        device->backend->comm_keep_order(error);
    for (int i = 0; i < 2; i++) {
        if (!comm_agree(mesh->world, error))
            return false;
        struct comm *opened =
            host[i]->size > 1 ? device->backend->comm_open(host[i], error) : host[i];
        if (opened != NULL)
            *data[i] = opened;
    }
    return comm_agree(mesh->world, error);
}

void mesh_use_memory(struct mesh *mesh, void *memory, size_t bytes)
{
    struct comm *const groups[] = {mesh->shard_data, mesh->replica_data};
    for (int i = 0; i < 2; i++)
        if (groups[i]->backend->use_memory != NULL)
            groups[i]->backend->use_memory(groups[i], memory, bytes);
}

void mesh_leave_device(struct mesh *mesh)
{
    struct comm *const host[] = {mesh->replica, mesh->shard};
    struct comm **const data[] = {&mesh->replica_data, &mesh->shard_data};
    for (int i = 0; i < 2; i++) {
        if (*data[i] != host[i])
            (*data[i])->backend->close(*data[i]);
        *data[i] = host[i];
    }
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
