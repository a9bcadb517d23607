// SPDX-License-Identifier: BSD-3-Clause
/* The algorithm of each collective. Small buffers use the least number of messages (messages.c), or
 * shared memory without the communication thread (exchange.c, called by mpi.c). Large ones use the
 * group's transport: a ring of messages, shared memory within a node, or a hierarchy of both. The
 * number of successive messages of a ring grows with the ranks. So an all-reduce with small blocks
 * per rank that would use the ring uses halving_all_reduce (messages.c). The choice depends on the
 * layout of the ranks and on the available memory, never on a measurement, so that results are
 * reproducible bit for bit. */
#include "comm/internal.h"

#include <stdio.h>

#include "base/base.h"
#include "options/option_types.h"

int64_t stage_part(const struct stage *stage, int64_t block, int64_t first, int64_t count,
                   unsigned char **part)
{
    int64_t begin = block * stage->stride + first, end = begin + count;
    if (end > block * stage->stride + stage->block)
        end = block * stage->stride + stage->block;
    if (end > stage->total)
        end = stage->total;
    *part = stage->buffer + (begin < end ? begin : 0) * comm_type_size(stage->request->call.type);
    return begin < end ? end - begin : 0;
}

unsigned char *part_sent(const struct comm_request *request, int to, int part)
{
    const struct comm_call *call = &request->call;
    return (unsigned char *)call->buffer +
           (part * call->stride + to * call->count) * comm_type_size(call->type);
}

unsigned char *part_received(const struct comm_request *request, int64_t part)
{
    const struct comm_call *call = &request->call;
    return (unsigned char *)call->received + part * call->count * comm_type_size(call->type);
}

void transport_run_stage(const struct stage *stage)
{
    if (stage->group->comm.size == 1 || stage->total == 0)
        return;
    if (stage->group->window != NULL)
        shared_run(stage);
    else
        ring_run(stage);
}

/* ---- hierarchical: groups over several nodes with the same number of ranks on each
 *
 * The ranks of a node communicate first, which is cheap, so that each byte crosses the network once
 * per node. Across nodes each rank communicates with the ranks of the same local rank. All-reduce:
 * reduce-scatter inside, all-reduce across, all-gather inside. Reduce-scatter and all-gather keep
 * the position of each rank's block, so they process the nodes one by one: the blocks of the ranks
 * of one node are adjacent. */

static struct stage stage_inside(const struct comm_request *request, bool reduces)
{
    return (struct stage){.request = request,
                          .group = request->group->inside,
                          .buffer = request->call.buffer,
                          .reduces = reduces,
                          .gathers = !reduces};
}

static void all_reduce_run(const struct comm_request *request)
{
    struct stage stage = stage_inside(request, true);
    int64_t local_size = request->group->inside->comm.size,
            nodes = request->group->across->comm.size;
    stage.total = request->call.count;
    stage.block = stage.stride = round_up_division(request->call.count, local_size);
    transport_run_stage(&stage);
    struct stage across = {
        .request = request, .group = request->group->across, .reduces = true, .gathers = true};
    across.total =
        stage_part(&stage, request->group->inside->comm.rank, 0, stage.block, &across.buffer);
    across.block = across.stride = round_up_division(across.total, nodes);
    transport_run_stage(&across);
    stage.reduces = false;
    stage.gathers = true;
    transport_run_stage(&stage);
}

/* Process the blocks of the ranks of each node, one node after the other. */
static void blocks_run_inside(const struct comm_request *request, bool reduces)
{
    struct stage stage = stage_inside(request, reduces);
    int64_t local_size = request->group->inside->comm.size;
    stage.block = stage.stride = request->call.count;
    stage.total = request->call.count * local_size;
    for (int node = 0; node < request->group->across->comm.size; node++) {
        transport_run_stage(&stage);
        stage.buffer += stage.total * comm_type_size(request->call.type);
    }
}

/* Process the blocks of the ranks with this local rank, one on each node. */
static void blocks_run_across(const struct comm_request *request, bool reduces)
{
    const struct group *inside = request->group->inside;
    int64_t first = inside->comm.rank * request->call.count * comm_type_size(request->call.type);
    struct stage stage = {.request = request,
                          .group = request->group->across,
                          .buffer = (unsigned char *)request->call.buffer + first,
                          .block = request->call.count,
                          .stride = request->call.count * inside->comm.size,
                          .reduces = reduces,
                          .gathers = !reduces};
    stage.total = stage.stride * (stage.group->comm.size - 1) + stage.block;
    transport_run_stage(&stage);
}

void hierarchical_run(const struct comm_request *request)
{
    if (request->call.action == COMM_ALL_REDUCE) {
        all_reduce_run(request);
    } else if (request->call.action == COMM_REDUCE_SCATTER) {
        blocks_run_inside(request, true);
        blocks_run_across(request, true);
    } else {
        blocks_run_across(request, false);
        blocks_run_inside(request, false);
    }
}

/* ---- choice of the algorithm */

static void run_large(const struct comm_request *request)
{
    int64_t size = request->group->comm.size;
    bool whole = request->call.action == COMM_ALL_REDUCE;
    struct stage stage = {.request = request,
                          .group = request->group,
                          .buffer = request->call.buffer,
                          .total = whole ? request->call.count : request->call.count * size,
                          .reduces = request->call.action != COMM_ALL_GATHER,
                          .gathers = request->call.action != COMM_REDUCE_SCATTER};
    stage.block = stage.stride = (stage.total + size - 1) / size;
    transport_run_stage(&stage);
}

void transport_run(const struct comm_request *request)
{
    const struct group *group = request->group;
    const int64_t bytes = request_bytes(request), ranks = comm_scaled_ranks(group->comm.size);
    const bool small = bytes <= SMALL_BYTES, ring = group->window == NULL && group->across == NULL;
    if (request->call.action == COMM_ALL_TO_ALL && group->window != NULL)
        shared_all_to_all(request);
    else if (request->call.action == COMM_ALL_TO_ALL)
        pairwise_all_to_all(request);
    else if (request->call.action == COMM_ALL_REDUCE && small)
        tree_all_reduce(request);
    else if (request->call.action == COMM_BROADCAST)
        tree_broadcast(request, request->call.peer);
    else if (request->call.action == COMM_ALL_GATHER && group->window == NULL &&
             bytes <= SMALL_BLOCK)
        tree_all_gather(request);
    else if (request->call.action == COMM_ALL_REDUCE && ring && bytes <= ranks * HALVING_BLOCK)
        halving_all_reduce(request);
    else if (request->call.action >= COMM_SEND)
        message_run(request);
    else if (group->across != NULL && (group->by_node || request->call.action == COMM_ALL_REDUCE))
        hierarchical_run(request);
    else
        run_large(request);
}

bool transport_set(struct comm *comm, enum transport_choice wanted, struct error *error)
{
    struct group *group = (struct group *)comm;
    struct error own = {0}, no_room = {0};
    bool equal = true, by_node = true; /* equal: all nodes have the same number of ranks */
    int nodes;
    transport_close(group);
    if (comm->size == 1 || wanted == TRANSPORT_RING)
        return true;
    OWNED int *node_of = allocate((size_t)comm->size, sizeof *node_of);
    OWNED int *ranks = allocate((size_t)comm->size, sizeof *ranks); /* of each node */
    struct comm *inside = comm_split_nodes(comm, node_of, &nodes);
    for (int rank = 0; rank < comm->size; rank++)
        ranks[node_of[rank]]++;
    for (int rank = 0; rank < comm->size; rank++) {
        equal = equal && ranks[node_of[rank]] == ranks[0];
        by_node = by_node && node_of[rank] == rank / ranks[0];
    }
    if (nodes > 1 && wanted == TRANSPORT_SHARED)
        error_set(&own, ERROR_USAGE,
                  "mesh.transport=shared: a group of %d ranks spans %d nodes, which share "
                  "no memory; use mesh.transport=auto or hierarchical",
                  comm->size, nodes);
    else if (!equal && wanted != TRANSPORT_AUTO)
        error_set(&own, ERROR_USAGE,
                  "mesh.transport=hierarchical: a group of %d ranks spans %d nodes with "
                  "different numbers of ranks; start the same number on each node, or use "
                  "mesh.transport=auto",
                  comm->size, nodes);
    /* With one rank per node only a ring is possible. */
    if (nodes > 1 && equal && inside->size > 1 && own.kind == ERROR_NONE) {
        group->inside = (struct group *)inside;
        group->across = (struct group *)comm->backend->split(comm, inside->rank, comm->rank);
        group->by_node = by_node;
    } else {
        inside->backend->close(inside);
    }
    struct group *shares = nodes == 1 ? group : group->inside; /* or NULL */
    if (shares != NULL)
        shares->window = window_open(&shares->comm, shares->identity, &no_room);
    snprintf(group->note, sizeof group->note, "%.*s", (int)sizeof group->note - 1, no_room.text);
    if (no_room.kind != ERROR_NONE && wanted == TRANSPORT_SHARED)
        error_set(&own, ERROR_USAGE,
                  "mesh.transport=shared: %s; enlarge /dev/shm (docker run --shm-size) or use "
                  "mesh.transport=auto",
                  group->note);
    return own.kind == ERROR_NONE || error_set(error, own.kind, "%s", own.text);
}

void transport_describe(const struct comm *comm, char *text, size_t size)
{
    const struct group *group = (const struct group *)comm;
    const char *open = group->note[0] != '\0' ? " (" : "", *end = open[0] != '\0' ? ")" : "";
    if (group->across != NULL)
        snprintf(text, size, "hierarchical (%d nodes x %d ranks, %s inside%s%s)",
                 group->across->comm.size, group->inside->comm.size,
                 group->inside->window != NULL ? "shared" : "ring", open[0] != '\0' ? ": " : "",
                 group->note);
    else
        snprintf(text, size, "%s%s%s%s", group->window != NULL ? "shared" : "ring", open,
                 group->note, end);
}

void transport_close(struct group *group)
{
    if (group->inside != NULL)
        group->inside->comm.backend->close(&group->inside->comm);
    if (group->across != NULL)
        group->across->comm.backend->close(&group->across->comm);
    window_close(group->window);
    group->inside = group->across = NULL;
    group->window = NULL;
    group->note[0] = '\0';
}
