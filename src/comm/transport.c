/* How the collectives of a group travel. What is small takes the least number of messages (tree.c).
 * What is large goes by the group's transport: a ring of messages, memory that the ranks of a node
 * share, or a hierarchy of the two. The choice depends on the layout and on what the machine
 * allows, never on a measurement: same layout, same bits. */
#include "comm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/mesh_options.h"

int64_t stage_part(const struct stage *stage, int64_t block, int64_t first, int64_t count,
                   unsigned char **part)
{
    int64_t begin = block * stage->stride + first, end = begin + count;
    if (end > block * stage->stride + stage->block)
        end = block * stage->stride + stage->block;
    if (end > stage->total)
        end = stage->total;
    *part = stage->buffer + (begin < end ? begin : 0) * comm_type_size(stage->ticket->type);
    return begin < end ? end - begin : 0;
}

void transport_run_stage(const struct stage *stage, unsigned char *scratch)
{
    if (stage->group->comm.size == 1 || stage->total == 0)
        return;
    if (stage->group->window != NULL)
        shared_run(stage);
    else
        ring_run(stage, scratch);
}

static void run_large(const struct ticket *ticket, unsigned char *scratch)
{
    int64_t size = ticket->group->comm.size;
    bool whole = ticket->action == ACTION_ALL_REDUCE;
    struct stage stage = {.ticket = ticket,
                          .group = ticket->group,
                          .buffer = ticket->buffer,
                          .total = whole ? ticket->count : ticket->count * size,
                          .reduces = ticket->action != ACTION_ALL_GATHER,
                          .gathers = ticket->action != ACTION_REDUCE_SCATTER};
    stage.block = stage.stride = (stage.total + size - 1) / size;
    transport_run_stage(&stage, scratch);
}

void transport_run(const struct ticket *ticket, unsigned char *scratch)
{
    const struct group *group = ticket->group;
    bool small = ticket->count * comm_type_size(ticket->type) <= SMALL_BYTES;
    if (ticket->action == ACTION_ALL_REDUCE && small)
        tree_all_reduce(ticket, scratch);
    else if (ticket->action == ACTION_BROADCAST && small)
        tree_broadcast(ticket, ticket->peer);
    else if (ticket->action == ACTION_BROADCAST && group->window != NULL)
        shared_broadcast(ticket);
    else if (ticket->action >= ACTION_BROADCAST)
        chain_run(ticket);
    else if (group->across != NULL && (group->by_node || ticket->action == ACTION_ALL_REDUCE))
        hierarchical_run(ticket, scratch);
    else
        run_large(ticket, scratch);
}

/* The groups of a hierarchy, when each node has as many ranks as the others; false: it has not. */
static bool hierarchy_open(struct group *group)
{
    struct comm *comm = &group->comm;
    int node, nodes = comm_node_count(comm, &node);
    struct comm *inside = comm_split_node(comm);
    struct comm *across = comm->backend->split(comm, inside->rank, comm->rank);
    int64_t unequal = inside->size * nodes != comm->size;
    int64_t mixed = node * inside->size + inside->rank != comm->rank;
    comm_all_reduce(comm, &unequal, 1, COMM_INT64, COMM_MAX);
    comm_all_reduce(comm, &mixed, 1, COMM_INT64, COMM_MAX);
    group->inside = (struct group *)inside;
    group->across = (struct group *)across;
    group->by_node = !mixed;
    if (!unequal)
        return true;
    transport_close(group);
    return false;
}

/* Shared memory for a group within a node, or the reason why there is none. */
static bool window_try(struct group *group, struct error *error)
{
    group->window = window_open(&group->comm, group->identity, error);
    return group->window != NULL;
}

static void note(struct group *group, const struct error *why)
{
    snprintf(group->note, sizeof group->note, "%.*s", (int)sizeof group->note - 1, why->text);
}

static bool set_over_nodes(struct group *group, int nodes, enum transport_choice wanted,
                           struct error *error)
{
    if (wanted == TRANSPORT_SHARED)
        return error_set(error, ERROR_USAGE,
                         "mesh.transport=shared: a group of %d ranks lies on %d nodes, which share "
                         "no memory: leave mesh.transport to auto, or set it to hierarchical",
                         group->comm.size, nodes);
    if (nodes == group->comm.size)
        return true; /* a rank a node: a ring is all there is */
    if (!hierarchy_open(group))
        return wanted == TRANSPORT_AUTO ||
               error_set(error, ERROR_USAGE,
                         "mesh.transport=hierarchical: a group of %d ranks lies on %d nodes that "
                         "have different numbers of them: start as many ranks on each node, or "
                         "leave mesh.transport to auto",
                         group->comm.size, nodes);
    struct error none = {0};
    if (group->inside->comm.size > 1 && !window_try(group->inside, &none))
        note(group, &none);
    return true;
}

static bool set_in_node(struct group *group, enum transport_choice wanted, struct error *error)
{
    struct error none = {0};
    if (window_try(group, &none))
        return true;
    note(group, &none);
    return wanted != TRANSPORT_SHARED ||
           error_set(error, ERROR_USAGE,
                     "mesh.transport=shared: %s: give the node or container more (docker run "
                     "--shm-size), or leave mesh.transport to auto",
                     none.text);
}

bool transport_set(struct comm *comm, enum transport_choice wanted, struct error *error)
{
    struct group *group = (struct group *)comm;
    transport_close(group);
    if (comm->size == 1 || wanted == TRANSPORT_RING)
        return true;
    int node, nodes = comm_node_count(comm, &node);
    return nodes == 1 ? set_in_node(group, wanted, error)
                      : set_over_nodes(group, nodes, wanted, error);
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
