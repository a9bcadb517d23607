/* Small messages go along a binomial tree: log2(size) messages after one another instead of the
 * ring's size. Large ones that are not added up (broadcast, bytes between two ranks) go along a
 * chain, in segments, so that a rank passes on the first while the next ones come. */
#include "comm/internal.h"

static void message_send(const struct ticket *ticket, int to)
{
    struct lane lane;
    struct idle idle = {.ticket = ticket};
    lane_open(&lane, ticket->group->communicator, to, TAG_COLLECTIVE);
    lane_send(&lane, ticket->buffer, ticket->count * comm_type_size(ticket->type));
    lane_drain(&lane, &idle);
}

static void message_receive(const struct ticket *ticket, int from, void *buffer)
{
    struct lane lane;
    struct idle idle = {.ticket = ticket};
    lane_open(&lane, ticket->group->communicator, from, TAG_COLLECTIVE);
    lane_receive(&lane, buffer, ticket->count * comm_type_size(ticket->type));
    lane_drain(&lane, &idle);
}

/* To rank 0 and back. Always added up there, so that all ranks get the same bits. */
void tree_all_reduce(const struct ticket *ticket, unsigned char *scratch)
{
    int rank = ticket->group->comm.rank, size = ticket->group->comm.size;
    for (int distance = 1; distance < size; distance *= 2) {
        if (rank & distance) {
            message_send(ticket, rank - distance);
            break;
        }
        if (rank + distance < size) {
            message_receive(ticket, rank + distance, scratch);
            combine(ticket->type, ticket->operation, ticket->buffer, scratch, ticket->count);
        }
    }
    tree_broadcast(ticket, 0);
}

void tree_broadcast(const struct ticket *ticket, int root)
{
    int size = ticket->group->comm.size;
    int place = (ticket->group->comm.rank - root + size) % size;
    int distance = 1;
    while (distance < size && !(place & distance))
        distance *= 2;
    if (place != 0)
        message_receive(ticket, (place - distance + root) % size, ticket->buffer);
    for (distance /= 2; distance > 0; distance /= 2)
        if (place + distance < size)
            message_send(ticket, (place + distance + root) % size);
}

/* The neighbours in the chain, -1 for none. */
static void chain_ends(const struct ticket *ticket, int *from, int *to)
{
    int rank = ticket->group->comm.rank, size = ticket->group->comm.size;
    *from = ticket->action == ACTION_RECEIVE ? ticket->peer : -1;
    *to = ticket->action == ACTION_SEND ? ticket->peer : -1;
    if (ticket->action == ACTION_BROADCAST) {
        int place = (rank - ticket->peer + size) % size;
        *from = place > 0 ? (rank + size - 1) % size : -1;
        *to = place < size - 1 ? (rank + 1) % size : -1;
    }
}

void chain_run(const struct ticket *ticket)
{
    int tag = ticket->action == ACTION_BROADCAST ? TAG_COLLECTIVE : TAG_BYTES;
    int64_t bytes = ticket->count * comm_type_size(ticket->type);
    int64_t messages = (bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
    unsigned char *data = ticket->buffer;
    struct lane in, out;
    struct idle idle = {.ticket = ticket};
    int from, to;
    chain_ends(ticket, &from, &to);
    lane_open(&in, ticket->group->communicator, from, tag);
    lane_open(&out, ticket->group->communicator, to, tag);
    if (from < 0)
        in.posted = in.done = messages;
    if (to < 0)
        out.posted = out.done = messages;
    while (in.done < messages || out.done < messages) {
        while (in.posted < messages && !lane_full(&in)) {
            int64_t begin = in.posted * SEGMENT_BYTES, left = bytes - begin;
            lane_receive(&in, data + begin, left < SEGMENT_BYTES ? left : SEGMENT_BYTES);
        }
        while (out.posted < in.done && !lane_full(&out)) {
            int64_t begin = out.posted * SEGMENT_BYTES, left = bytes - begin;
            lane_send(&out, data + begin, left < SEGMENT_BYTES ? left : SEGMENT_BYTES);
        }
        bool came = lane_test(&in), went = lane_test(&out);
        progress_idle(&idle, came || went);
    }
}
