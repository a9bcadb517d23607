// SPDX-License-Identifier: BSD-3-Clause
/* Functions built on the collectives of any backend: blocking calls, agreement on errors,
 * comparison, nodes. */
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "comm/internal.h"

static _Atomic int64_t rank_factor = 1;

void comm_set_rank_factor(int64_t factor)
{
    rank_factor = factor;
}

int64_t comm_scaled_ranks(int64_t ranks)
{
    return ranks * rank_factor;
}

/* Start a call with these members. */
#define START(comm, ...) call_start(comm, &(const struct comm_call){__VA_ARGS__})

static struct comm_request *call_start(struct comm *comm, const struct comm_call *call)
{
    ENSURE(call->count >= 0, "a collective has a negative count");
    return call->count == 0 ? NULL : comm->backend->start(comm, call);
}

struct comm_request *comm_start_all_reduce(struct comm *comm, void *buffer, int64_t count,
                                           enum comm_type type, enum comm_operation operation,
                                           struct event *after)
{
    return START(comm, COMM_ALL_REDUCE, {buffer}, count, type, operation, .after = after);
}

struct comm_request *comm_start_reduce_scatter(struct comm *comm, void *buffer, int64_t count,
                                               enum comm_type type, enum comm_operation operation,
                                               struct event *after)
{
    return START(comm, COMM_REDUCE_SCATTER, {buffer}, count, type, operation, .after = after);
}

struct comm_request *comm_start_all_gather(struct comm *comm, void *buffer, int64_t count,
                                           enum comm_type type, struct event *after)
{
    return START(comm, COMM_ALL_GATHER, {buffer}, count, type, .after = after);
}

struct comm_request *comm_start_broadcast(struct comm *comm, void *buffer, int64_t count,
                                          enum comm_type type, int root, struct event *after)
{
    return START(comm, COMM_BROADCAST, {buffer}, count, type, .peer = root, .after = after);
}

struct comm_request *comm_start_all_to_all(struct comm *comm, const void *sent, int64_t stride,
                                           const int *parts, void *received, int64_t count,
                                           enum comm_type type, struct event *after)
{
    if (comm_parts_before(parts, comm->size) == 0)
        return NULL;
    return START(comm, COMM_ALL_TO_ALL, {.sent = sent}, count, type, .after = after,
                 .received = received, .stride = stride, .parts = parts);
}

void comm_all_reduce(struct comm *comm, void *buffer, int64_t count, enum comm_type type,
                     enum comm_operation operation)
{
    comm->backend->wait(comm_start_all_reduce(comm, buffer, count, type, operation, NULL), NULL);
}

void comm_all_gather(struct comm *comm, void *buffer, int64_t count, enum comm_type type)
{
    comm->backend->wait(comm_start_all_gather(comm, buffer, count, type, NULL), NULL);
}

void comm_broadcast(struct comm *comm, void *buffer, int64_t count, enum comm_type type, int root)
{
    comm->backend->wait(comm_start_broadcast(comm, buffer, count, type, root, NULL), NULL);
}

char *comm_broadcast_text(struct comm *comm, const char *text, int root)
{
    int64_t size = comm->rank == root ? (int64_t)strlen(text) + 1 : 0;
    comm_broadcast(comm, &size, 1, COMM_INT64, root);
    char *copy = allocate((size_t)size, 1);
    if (comm->rank == root)
        memcpy(copy, text, (size_t)size);
    comm_broadcast(comm, copy, size, COMM_BYTE, root);
    return copy;
}

void comm_barrier(struct comm *comm)
{
    unsigned char nothing = 0;
    comm_all_reduce(comm, &nothing, 1, COMM_BYTE, COMM_SUM);
}

void comm_send(struct comm *comm, const void *data, size_t bytes, int to)
{
    comm->backend->wait(
        START(comm, COMM_SEND, {.sent = data}, (int64_t)bytes, COMM_BYTE, .peer = to), NULL);
}

void comm_receive(struct comm *comm, void *data, size_t bytes, int from)
{
    comm->backend->wait(START(comm, COMM_RECEIVE, {data}, (int64_t)bytes, COMM_BYTE, .peer = from),
                        NULL);
}

/* Ranks that are `distance` apart form cycles. Along a cycle, ranks that send first alternate with
 * ranks that receive first, except that two ranks in a row may send first where the cycle passes
 * rank 0. Each cycle therefore has a rank that receives first, and the blocking calls cannot
 * deadlock. */
void comm_shift(struct comm *comm, const void *data, void *received, size_t bytes, int shift)
{
    const int ranks = comm->size, distance = 2 * shift <= ranks ? shift : ranks - shift;
    const int to = (comm->rank + shift) % ranks, from = (comm->rank + ranks - shift) % ranks;
    if (shift == 0) {
        memcpy(received, data, bytes);
    } else if (comm->rank / distance % 2 == 0) {
        comm_send(comm, data, bytes, to);
        comm_receive(comm, received, bytes, from);
    } else {
        comm_receive(comm, received, bytes, from);
        comm_send(comm, data, bytes, to);
    }
}

struct comm *comm_split_nodes(struct comm *comm, int *node_of, int *nodes)
{
    /* Lowest rank on a rank's node. */
    OWNED int64_t *first = allocate((size_t)comm->size, sizeof *first);
    struct comm *here = comm->backend->split_node(comm);
    first[comm->rank] = comm->rank;
    comm_all_reduce(here, &first[comm->rank], 1, COMM_INT64, COMM_MIN);
    comm_all_gather(comm, first, 1, COMM_INT64);
    *nodes = 0;
    for (int rank = 0; rank < comm->size; rank++)
        node_of[rank] = first[rank] == rank ? (*nodes)++ : node_of[first[rank]];
    return here;
}

int comm_node_count(struct comm *world, int *node)
{
    int nodes;
    OWNED int *node_of = allocate((size_t)world->size, sizeof *node_of);
    struct comm *here = comm_split_nodes(world, node_of, &nodes);
    *node = node_of[world->rank];
    here->backend->close(here);
    return nodes;
}

/* All ranks get the error of the lowest rank that has one. named: with a prefix that names the
 * rank. */
static bool error_agree(struct comm *comm, struct error *error, bool named)
{
    if (error->agreed)
        return false;
    int64_t from_last = error->kind != ERROR_NONE ? comm->size - comm->rank : 0;
    comm_all_reduce(comm, &from_last, 1, COMM_INT64, COMM_MAX);
    if (from_last == 0)
        return true;
    int reporter = comm->size - (int)from_last;
    if (comm->size > 1) {
        struct error agreed = *error;
        if (reporter == comm->rank && named)
            snprintf(agreed.text, sizeof agreed.text, "rank %d on %s: %.*s", comm->rank,
                     comm_host(), (int)sizeof agreed.text - HOST_NAME - 32, error->text);
        comm_broadcast(comm, &agreed, sizeof agreed, COMM_BYTE, reporter);
        *error = agreed;
    }
    error->agreed = true;
    return false;
}

bool comm_agree(struct comm *comm, struct error *error)
{
    return error_agree(comm, error, true);
}

bool comm_share_error(struct comm *comm, struct error *error)
{
    return error_agree(comm, error, false);
}

bool comm_same(struct comm *comm, const void *data, size_t bytes)
{
    int64_t own[2] = {crc32c_update(0, data, bytes), (int64_t)bytes};
    int64_t first[2] = {own[0], own[1]};
    comm_broadcast(comm, first, 2, COMM_INT64, 0);
    unsigned char different = own[0] != first[0] || own[1] != first[1];
    comm_all_reduce(comm, &different, 1, COMM_BYTE, COMM_MAX);
    return !different;
}
