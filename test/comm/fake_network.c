// SPDX-License-Identifier: BSD-3-Clause
/* See fake_network.h. MPI promises an order only for messages between the same two ranks, so that
 * order is kept, and no other. */
#include "fake_network.h"

#include <mpi.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

enum { HELD = 64, TAG_BYTES = 2 /* the last tag of collectives */ };

/* A message that was sent as the program sees it. Its request is one that we complete ourselves. */
struct held {
    bool used, gone;
    MPI_Request handle, real;
    const void *data;
    int count, peer, tag;
    MPI_Datatype type;
    MPI_Comm comm;
    int64_t number;
    double due;
};

static struct {
    bool delays, mixed;
    int ranks_a_node;
    uint64_t state;
    int64_t sent;
    struct held held[HELD];
} network = {.state = 88172645463325252u};

int64_t network_sent(void)
{
    return network.sent;
}

void network_delay(bool on)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    network.state += (uint64_t)rank * 7919;
    network.delays = on;
}

void network_set_nodes(int ranks_a_node, bool mixed)
{
    network.ranks_a_node = ranks_a_node;
    network.mixed = mixed;
}

/* Below `limit`: xorshift. The communication thread is the only one that asks. */
static uint64_t draw(uint64_t limit)
{
    network.state ^= network.state << 13;
    network.state ^= network.state >> 7;
    network.state ^= network.state << 17;
    return (network.state >> 20) % limit;
}

static int nothing_query(void *extra, MPI_Status *status)
{
    (void)extra;
    MPI_Status_set_elements(status, MPI_BYTE, 0);
    MPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}

static int nothing_free(void *extra)
{
    (void)extra;
    return MPI_SUCCESS;
}

static int nothing_cancel(void *extra, int complete)
{
    (void)extra;
    (void)complete;
    return MPI_SUCCESS;
}

static bool is_next_to_its_peer(const struct held *message)
{
    for (int i = 0; i < HELD; i++) {
        const struct held *other = &network.held[i];
        if (other->used && !other->gone && other->number < message->number &&
            other->peer == message->peer && other->comm == message->comm)
            return false;
    }
    return true;
}

static void network_turn(void)
{
    double now = clock_now();
    for (int i = 0; i < HELD; i++) {
        struct held *message = &network.held[i];
        if (!message->used || message->gone || message->due > now || !is_next_to_its_peer(message))
            continue;
        PMPI_Isend(message->data, message->count, message->type, message->peer, message->tag,
                   message->comm, &message->real);
        message->gone = true;
    }
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    network.sent += tag <= TAG_BYTES; /* no heartbeat */
    if (!network.delays || tag > TAG_BYTES)
        return PMPI_Isend(data, count, type, peer, tag, comm, request);
    struct held *message = network.held;
    while (message < network.held + HELD && message->used)
        message++;
    ENSURE(message < network.held + HELD, "more messages under way than are ever posted");
    double late = draw(8) == 0 ? 3e-3 : 200e-6;
    *message = (struct held){.used = true,
                             .data = data,
                             .count = count,
                             .type = type,
                             .peer = peer,
                             .tag = tag,
                             .comm = comm,
                             .number = network.sent,
                             .due = clock_now() + late * (double)draw(1000) / 1000};
    PMPI_Grequest_start(nothing_query, nothing_free, nothing_cancel, NULL, &message->handle);
    *request = message->handle;
    return MPI_SUCCESS;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    if (!network.delays)
        return PMPI_Test(request, flag, status);
    network_turn();
    *flag = 0;
    if (draw(4) == 0)
        return MPI_SUCCESS;
    struct held *message = network.held;
    while (message < network.held + HELD && !(message->used && message->handle == *request))
        message++;
    if (message == network.held + HELD)
        return PMPI_Test(request, flag, status);
    if (message->gone)
        PMPI_Test(&message->real, flag, MPI_STATUS_IGNORE);
    if (*flag) {
        PMPI_Grequest_complete(message->handle);
        PMPI_Wait(request, status);
        message->used = false;
    }
    return MPI_SUCCESS;
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *part)
{
    int rank, size;
    if (network.ranks_a_node == 0)
        return PMPI_Comm_split_type(comm, type, key, info, part);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    int nodes = (size + network.ranks_a_node - 1) / network.ranks_a_node;
    return PMPI_Comm_split(comm, network.mixed ? rank % nodes : rank / network.ranks_a_node, key,
                           part);
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    struct timespec longer = *wanted;
    if (network.delays && draw(8) == 0)
        longer.tv_nsec += (long)draw(500 * 1000);
    return (int)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &longer, left);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    int left = 0;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, *comm, &left, MPI_STATUS_IGNORE);
    ENSURE(!left, "a communicator is freed before all its messages are received");
    return PMPI_Comm_free(comm);
}
