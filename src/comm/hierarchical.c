/* Collectives of a group over several nodes with as many ranks on each: inside the node first,
 * where it is cheap, so that each byte crosses the network once a node. Rank p of a node works
 * across nodes with the ranks of the same place p on the others. All-reduce: reduce-scatter inside,
 * all-reduce across, all-gather inside. Reduce-scatter and all-gather keep the place of every
 * rank's block, so they are taken node by node: the blocks of one node's ranks lie together. */
#include "comm/internal.h"

static struct stage stage_inside(const struct ticket *ticket, bool reduces)
{
    return (struct stage){.ticket = ticket,
                          .group = ticket->group->inside,
                          .buffer = ticket->buffer,
                          .reduces = reduces,
                          .gathers = !reduces};
}

static void all_reduce_run(const struct ticket *ticket, unsigned char *scratch)
{
    struct stage stage = stage_inside(ticket, true);
    int64_t places = ticket->group->inside->comm.size, nodes = ticket->group->across->comm.size;
    stage.total = ticket->count;
    stage.block = stage.stride = (ticket->count + places - 1) / places;
    transport_run_stage(&stage, scratch);
    struct stage across = {
        .ticket = ticket, .group = ticket->group->across, .reduces = true, .gathers = true};
    across.total =
        stage_part(&stage, ticket->group->inside->comm.rank, 0, stage.block, &across.buffer);
    across.block = across.stride = (across.total + nodes - 1) / nodes;
    transport_run_stage(&across, scratch);
    stage.reduces = false;
    stage.gathers = true;
    transport_run_stage(&stage, scratch);
}

/* The blocks of all ranks of each node, one node after the other. */
static void blocks_run_inside(const struct ticket *ticket, bool reduces, unsigned char *scratch)
{
    struct stage stage = stage_inside(ticket, reduces);
    int64_t places = ticket->group->inside->comm.size;
    stage.block = stage.stride = ticket->count;
    stage.total = ticket->count * places;
    for (int node = 0; node < ticket->group->across->comm.size; node++) {
        transport_run_stage(&stage, scratch);
        stage.buffer += stage.total * comm_type_size(ticket->type);
    }
}

/* The blocks of this rank's place, one on each node. */
static void blocks_run_across(const struct ticket *ticket, bool reduces, unsigned char *scratch)
{
    const struct group *inside = ticket->group->inside;
    int64_t first = inside->comm.rank * ticket->count * comm_type_size(ticket->type);
    struct stage stage = {.ticket = ticket,
                          .group = ticket->group->across,
                          .buffer = (unsigned char *)ticket->buffer + first,
                          .block = ticket->count,
                          .stride = ticket->count * inside->comm.size,
                          .reduces = reduces,
                          .gathers = !reduces};
    stage.total = stage.stride * (stage.group->comm.size - 1) + stage.block;
    transport_run_stage(&stage, scratch);
}

void hierarchical_run(const struct ticket *ticket, unsigned char *scratch)
{
    if (ticket->action == ACTION_ALL_REDUCE) {
        all_reduce_run(ticket, scratch);
    } else if (ticket->action == ACTION_REDUCE_SCATTER) {
        blocks_run_inside(ticket, true, scratch);
        blocks_run_across(ticket, true, scratch);
    } else {
        blocks_run_across(ticket, false, scratch);
        blocks_run_inside(ticket, false, scratch);
    }
}
