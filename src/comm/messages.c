// SPDX-License-Identifier: BSD-3-Clause
/* Messages between ranks, and the collectives that need no reduction order of a ring. Small buffers
 * take log2(size) steps: along a binomial tree or, in an all-gather, by doubling. Large broadcasts
 * and point-to-point transfers use a chain in segments, so that a rank forwards one segment while
 * it receives the next. An all-to-all exchanges messages with one rank after the other. */
#include "comm/internal.h"

#include <string.h>

/* ---- lanes: messages to or from one rank, several in flight */

void lane_open(struct lane *lane, MPI_Comm communicator, int peer, int tag)
{
    *lane = (struct lane){.communicator = communicator, .peer = peer, .tag = tag};
}

bool lane_full(const struct lane *lane)
{
    return lane->posted - lane->done == LANE_WINDOW;
}

void lane_send(struct lane *lane, const void *data, int64_t bytes)
{
    MPI_CHECK(MPI_Isend(data, (int)bytes, MPI_BYTE, lane->peer, lane->tag, lane->communicator,
                        &lane->request[lane->posted % LANE_WINDOW]));
    lane->posted++;
}

void lane_receive(struct lane *lane, void *data, int64_t bytes)
{
    MPI_CHECK(MPI_Irecv(data, (int)bytes, MPI_BYTE, lane->peer, lane->tag, lane->communicator,
                        &lane->request[lane->posted % LANE_WINDOW]));
    lane->posted++;
}

bool lane_test(struct lane *lane)
{
    int over = 0;
    if (lane->done < lane->posted)
        MPI_CHECK(MPI_Test(&lane->request[lane->done % LANE_WINDOW], &over, MPI_STATUS_IGNORE));
    lane->done += over;
    return over != 0;
}

void lane_drain(struct lane *lane, struct idle *idle)
{
    while (lane->done < lane->posted)
        progress_idle(idle, lane_test(lane));
}

/* ---- binomial tree */

static void message_send(const struct comm_request *request, int to)
{
    struct lane lane;
    struct idle idle = {.request = request};
    lane_open(&lane, request->group->communicator, to, TAG_COLLECTIVE);
    lane_send(&lane, request->call.buffer,
              request->call.count * comm_type_size(request->call.type));
    lane_drain(&lane, &idle);
}

static void message_receive(const struct comm_request *request, int from, void *buffer)
{
    struct lane lane;
    struct idle idle = {.request = request};
    lane_open(&lane, request->group->communicator, from, TAG_COLLECTIVE);
    lane_receive(&lane, buffer, request->call.count * comm_type_size(request->call.type));
    lane_drain(&lane, &idle);
}

/* Reduce to rank 0, then broadcast, so that all ranks get the same bits. */
void tree_all_reduce(const struct comm_request *request, unsigned char *scratch)
{
    int rank = request->group->comm.rank, size = request->group->comm.size;
    for (int distance = 1; distance < size; distance *= 2) {
        if (rank & distance) {
            message_send(request, rank - distance);
            break;
        }
        if (rank + distance < size) {
            message_receive(request, rank + distance, scratch);
            combine(request->call.type, request->call.operation, request->call.buffer, scratch,
                    request->call.count);
        }
    }
    tree_broadcast(request, 0);
}

void tree_broadcast(const struct comm_request *request, int root)
{
    int size = request->group->comm.size;
    int position = (request->group->comm.rank - root + size) % size;
    int distance = 1;
    while (distance < size && !(position & distance))
        distance *= 2;
    if (position != 0)
        message_receive(request, (position - distance + root) % size, request->call.buffer);
    for (distance /= 2; distance > 0; distance /= 2)
        if (position + distance < size)
            message_send(request, (position + distance + root) % size);
}

/* Bruck's algorithm. scratch: the block of this rank, followed by the blocks received from the next
 * ranks; each step doubles their number. */
void tree_all_gather(const struct comm_request *request, unsigned char *scratch)
{
    int rank = request->group->comm.rank, size = request->group->comm.size;
    int64_t block = request->call.count * comm_type_size(request->call.type);
    unsigned char *data = request->call.buffer;
    struct idle idle = {.request = request};
    memcpy(scratch, data + rank * block, (size_t)block);
    for (int have = 1; have < size; have *= 2) {
        struct lane in, out;
        int64_t bytes = (have < size - have ? have : size - have) * block;
        lane_open(&in, request->group->communicator, (rank + have) % size, TAG_COLLECTIVE);
        lane_open(&out, request->group->communicator, (rank - have + size) % size, TAG_COLLECTIVE);
        lane_receive(&in, scratch + have * block, bytes);
        lane_send(&out, scratch, bytes);
        lane_drain(&in, &idle);
        lane_drain(&out, &idle);
    }
    memcpy(data + rank * block, scratch, (size_t)((size - rank) * block));
    memcpy(data, scratch + (size - rank) * block, (size_t)(rank * block));
}

/* Find this rank's neighbours in the chain; -1: none. */
static void chain_ends(const struct comm_request *request, int *from, int *to)
{
    int rank = request->group->comm.rank, size = request->group->comm.size;
    *from = request->call.action == COMM_RECEIVE ? request->call.peer : -1;
    *to = request->call.action == COMM_SEND ? request->call.peer : -1;
    if (request->call.action == COMM_BROADCAST) {
        int position = (rank - request->call.peer + size) % size;
        *from = position > 0 ? (rank + size - 1) % size : -1;
        *to = position < size - 1 ? (rank + 1) % size : -1;
    }
}

void chain_run(const struct comm_request *request)
{
    int tag = request->call.action == COMM_BROADCAST ? TAG_COLLECTIVE : TAG_BYTES;
    int64_t bytes = request->call.count * comm_type_size(request->call.type);
    int64_t messages = (bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
    unsigned char *data = request->call.buffer;
    struct lane in, out;
    struct idle idle = {.request = request};
    int from, to;
    chain_ends(request, &from, &to);
    lane_open(&in, request->group->communicator, from, tag);
    lane_open(&out, request->group->communicator, to, tag);
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

/* ---- all-to-all */

/* Send this rank's blocks to rank `to` while those of rank `from` are received. */
static void blocks_exchange(const struct comm_request *request, int from, int to,
                            unsigned char *scratch)
{
    const int64_t width = comm_type_size(request->call.type), segment = SEGMENT_BYTES / width;
    int64_t going = request->call.parts[request->group->comm.rank] * request->call.count, coming;
    unsigned char *received = blocks_from(request, from, &coming);
    const int64_t sends = (going + segment - 1) / segment;
    const int64_t receives = (coming + segment - 1) / segment;
    struct lane in, out;
    struct idle idle = {.request = request};
    lane_open(&in, request->group->communicator, from, TAG_COLLECTIVE);
    lane_open(&out, request->group->communicator, to, TAG_COLLECTIVE);
    while (in.done < receives || out.done < sends) {
        while (in.posted < receives && !lane_full(&in)) {
            int64_t first = in.posted * segment, left = coming - first;
            lane_receive(&in, received + first * width, (left < segment ? left : segment) * width);
        }
        while (out.posted < sends && !lane_full(&out)) {
            unsigned char *slot = scratch + out.posted % LANE_WINDOW * SEGMENT_BYTES;
            int64_t count = blocks_copy(request, to, out.posted * segment, segment, slot);
            lane_send(&out, slot, count * width);
        }
        bool came = lane_test(&in), went = lane_test(&out);
        progress_idle(&idle, came || went);
    }
}

/* Pairwise exchange: in step t each rank sends to the t-th rank after it and receives from the t-th
 * rank before it. */
void pairwise_all_to_all(const struct comm_request *request, unsigned char *scratch)
{
    int rank = request->group->comm.rank, size = request->group->comm.size;
    int64_t count;
    unsigned char *own = blocks_from(request, rank, &count);
    blocks_copy(request, rank, 0, count, own);
    for (int step = 1; step < size; step++)
        blocks_exchange(request, (rank - step + size) % size, (rank + step) % size, scratch);
}
