// SPDX-License-Identifier: BSD-3-Clause
/* Messages between ranks, and the collectives that use neither a ring nor shared memory. A binomial
 * tree and doubling (all-gather) take about log2(size) steps, halving and doubling (all-reduce)
 * twice as many. An all-to-all exchanges messages with one rank after another. */
#include "comm/internal.h"

#include <string.h>

#include "base/base.h"

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

/* ---- collectives */

/* One direction of an exchange; without a peer or bytes: none. */
struct flow {
    int peer;
    unsigned char *data;
    int64_t bytes;
};

/* Send and receive at the same time, in segments. */
static void transfer(const struct comm_request *request, struct flow from, struct flow to)
{
    const int tag = request->sequence > 0 ? TAG_COLLECTIVE : TAG_BYTES;
    const int64_t receives = round_up_division(from.bytes, SEGMENT_BYTES);
    const int64_t sends = round_up_division(to.bytes, SEGMENT_BYTES);
    struct lane in, out;
    struct idle idle = {.request = request};
    lane_open(&in, request->group->communicator, from.peer, tag);
    lane_open(&out, request->group->communicator, to.peer, tag);
    while (in.done < receives || out.done < sends) {
        while (in.posted < receives && !lane_full(&in)) {
            int64_t begin = in.posted * SEGMENT_BYTES;
            lane_receive(&in, from.data + begin, smaller(from.bytes - begin, SEGMENT_BYTES));
        }
        while (out.posted < sends && !lane_full(&out)) {
            int64_t begin = out.posted * SEGMENT_BYTES;
            lane_send(&out, to.data + begin, smaller(to.bytes - begin, SEGMENT_BYTES));
        }
        bool came = lane_test(&in), went = lane_test(&out);
        progress_idle(&idle, came || went);
    }
}

static const struct flow NONE;

/* The request's whole buffer. */
static struct flow whole(const struct comm_request *request, int peer)
{
    return (struct flow){peer, request->call.buffer, request_bytes(request)};
}

void message_run(const struct comm_request *request)
{
    const struct flow flow = whole(request, request->call.peer);
    if (request->call.action == COMM_SEND)
        transfer(request, NONE, flow);
    else
        transfer(request, flow, NONE);
}

/* Reduce to rank 0, then broadcast, so that all ranks get the same bits. */
void tree_all_reduce(const struct comm_request *request)
{
    int rank = request->group->comm.rank, size = request->group->comm.size;
    for (int distance = 1; distance < size; distance *= 2) {
        if (rank & distance) {
            transfer(request, NONE, whole(request, rank - distance));
            break;
        }
        if (rank + distance < size) {
            transfer(request,
                     (struct flow){rank + distance, request->scratch, request_bytes(request)},
                     NONE);
            combine(request->call.type, request->call.operation, request->call.buffer,
                    request->scratch, request->call.count);
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
        transfer(request, whole(request, (position - distance + root) % size), NONE);
    for (distance /= 2; distance > 0; distance /= 2)
        if (position + distance < size)
            transfer(request, NONE, whole(request, (position + distance + root) % size));
}

/* One step of halving_all_reduce, for the rank with this number of `power` ranks: exchange halves
 * of data [count] with the rank at `distance`, and add the received half to the kept half. Reduce
 * the kept half over larger distances. Then exchange the results. received [count]: scratch memory.
 */
static void halves_reduce(const struct comm_request *request, int number, int power, int distance,
                          unsigned char *data, int64_t count, unsigned char *received)
{
    const int extra = request->group->comm.size - power, other = number ^ distance;
    const int peer = other < extra ? 2 * other : other + extra;
    const int64_t width = comm_type_size(request->call.type), half = count / 2;
    const bool lower = (number & distance) == 0;
    const int64_t kept = lower ? half : count - half, given = count - kept;
    unsigned char *own = lower ? data : data + half * width;
    unsigned char *others = lower ? data + half * width : data;
    if (distance == power)
        return;
    transfer(request, (struct flow){peer, received, kept * width},
             (struct flow){peer, others, given * width});
    combine(request->call.type, request->call.operation, own, received, kept);
    halves_reduce(request, number, power, 2 * distance, own, kept, received);
    transfer(request, (struct flow){peer, others, given * width},
             (struct flow){peer, own, kept * width});
}

/* Recursive halving and doubling. The largest messages are between adjacent ranks, which share a
 * node. If the number of ranks is no power of two, the first ranks form pairs: the odd rank sends
 * its buffer to the even rank, which adds it and later sends the result back. The order of sums
 * depends on the number of ranks only; for a power of two it is that of tree_all_reduce. */
void halving_all_reduce(const struct comm_request *request)
{
    const struct comm_call *call = &request->call;
    const int rank = request->group->comm.rank, size = request->group->comm.size, pair = rank ^ 1;
    const int64_t bytes = request_bytes(request);
    OWNED unsigned char *received = allocate(1, (size_t)bytes);
    int power = 1;
    while (2 * power <= size)
        power *= 2;
    const bool paired = rank < 2 * (size - power);
    if (paired && rank % 2 == 1) {
        transfer(request, NONE, whole(request, pair));
        transfer(request, whole(request, pair), NONE);
        return;
    }
    if (paired) {
        transfer(request, (struct flow){pair, received, bytes}, NONE);
        combine(call->type, call->operation, call->buffer, received, call->count);
    }
    halves_reduce(request, paired ? rank / 2 : rank - (size - power), power, 1, call->buffer,
                  call->count, received);
    if (paired)
        transfer(request, NONE, whole(request, pair));
}

/* Bruck's algorithm. scratch: the block of this rank, followed by the blocks received from the next
 * ranks; each step doubles their number. */
void tree_all_gather(const struct comm_request *request)
{
    int rank = request->group->comm.rank, size = request->group->comm.size;
    int64_t block = request_bytes(request);
    OWNED unsigned char *large =
        size * block > SCRATCH_BYTES ? allocate((size_t)size, (size_t)block) : NULL;
    unsigned char *data = request->call.buffer, *scratch = large != NULL ? large : request->scratch;
    memcpy(scratch, data + rank * block, (size_t)block);
    for (int have = 1; have < size; have *= 2) {
        int64_t bytes = (have < size - have ? have : size - have) * block;
        transfer(request, (struct flow){(rank + have) % size, scratch + have * block, bytes},
                 (struct flow){(rank - have + size) % size, scratch, bytes});
    }
    memcpy(data + rank * block, scratch, (size_t)((size - rank) * block));
    memcpy(data, scratch + (size - rank) * block, (size_t)(rank * block));
}

/* Pairwise exchange: in step t each rank sends to the t-th rank after it and receives from the t-th
 * rank before it, one partial value after the other. */
void pairwise_all_to_all(const struct comm_request *request)
{
    const int rank = request->group->comm.rank, size = request->group->comm.size;
    const int *parts = request->call.parts;
    int64_t before = comm_parts_before(parts, rank); /* partial values of ranks below `from` */
    for (int step = 0; step < size; step++) {
        const int from = (rank - step + size) % size, to = (rank + step) % size;
        if (step > 0)
            before = (from < size - 1 ? before : comm_parts_before(parts, size)) - parts[from];
        for (int part = 0; part < parts[from] || part < parts[rank]; part++) {
            const struct flow in = {from, part_received(request, before + part),
                                    part < parts[from] ? request_bytes(request) : 0};
            const struct flow out = {to, part_sent(request, to, part),
                                     part < parts[rank] ? request_bytes(request) : 0};
            if (step == 0)
                memcpy(in.data, out.data, (size_t)out.bytes);
            else
                transfer(request, in, out);
        }
    }
}
