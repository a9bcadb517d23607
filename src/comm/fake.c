// SPDX-License-Identifier: BSD-3-Clause
/* A group without other ranks: collectives behave as if all other ranks held zeros. Used by `plan`
 * and by tests of one process. Every collective is complete when it is started. */
#include "comm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "options/option_types.h"

struct fake {
    struct comm comm; /* first: a struct comm of this backend is a fake */
    void *shared;     /* comm.h: share_memory; or NULL */
    size_t shared_bytes;
};

/* Zeros do not change a sum, but minima and maxima. */
static void zeros_combine(const struct comm *comm, const struct comm_call *call,
                          unsigned char *buffer)
{
    static const uint64_t zero = 0;
    const int64_t width = comm_type_size(call->type);
    for (int64_t i = 0; comm->size > 1 && call->operation != COMM_SUM && i < call->count; i++)
        combine(call->type, call->operation, buffer + i * width, &zero, 1);
}

static void parts_copy(const struct comm *comm, const struct comm_call *call)
{
    const int64_t width = comm_type_size(call->type), block = call->count * width;
    const int64_t before = comm_parts_before(call->parts, comm->rank);
    const unsigned char *from = (const unsigned char *)call->sent + comm->rank * block;
    unsigned char *received = call->received;
    memset(received, 0, (size_t)(comm_parts_before(call->parts, comm->size) * block));
    for (int part = 0; part < call->parts[comm->rank]; part++)
        memcpy(received + (before + part) * block, from + part * call->stride * width,
               (size_t)block);
}

static struct comm_request *fake_start(struct comm *comm, const struct comm_call *call)
{
    const int64_t block = call->count * comm_type_size(call->type);
    unsigned char *buffer = call->buffer;
    switch (call->action) {
    case COMM_ALL_REDUCE:
        zeros_combine(comm, call, buffer);
        break;
    case COMM_REDUCE_SCATTER:
        zeros_combine(comm, call, buffer + comm->rank * block);
        break;
    case COMM_ALL_GATHER:
        for (int rank = 0; rank < comm->size; rank++)
            if (rank != comm->rank)
                memset(buffer + rank * block, 0, (size_t)block);
        break;
    case COMM_BROADCAST:
    case COMM_RECEIVE:
        if (call->peer != comm->rank)
            memset(buffer, 0, (size_t)block);
        break;
    case COMM_ALL_TO_ALL:
        parts_copy(comm, call);
        break;
    case COMM_SEND:
        break;
    }
    return NULL;
}

static void fake_wait(struct comm_request *request, struct stream *stream)
{
    (void)request;
    (void)stream;
}

/* The other ranks have color 0 and key 0. */
static struct comm *fake_split(struct comm *comm, int color, int key)
{
    if (color != 0)
        return comm_fake_open(0, 1);
    return comm_fake_open(key > 0 ? comm->size - 1 : key < 0 ? 0 : comm->rank, comm->size);
}

static struct comm *fake_split_node(struct comm *comm)
{
    return comm_fake_open(comm->rank, comm->size);
}

static bool fake_set_transport(struct comm *comm, enum transport_choice wanted, struct error *error)
{
    (void)comm;
    (void)wanted;
    (void)error;
    return true;
}

static void fake_describe_transport(const struct comm *comm, char *text, size_t size)
{
    (void)comm;
    snprintf(text, size, "none");
}

/* Addresses of the common part and of the areas up to this rank's, which plans do not access. */
static void *fake_share_memory(struct comm *comm, size_t common, size_t each, struct error *error)
{
    struct fake *fake = (struct fake *)comm;
    const size_t bytes = common + each * ((size_t)comm->rank + 1);
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        error_set(error, ERROR_MEMORY, "no address space of %zu bytes", bytes);
        return NULL;
    }
    fake->shared_bytes = bytes;
    return fake->shared = memory;
}

static void fake_release_memory(struct comm *comm)
{
    struct fake *fake = (struct fake *)comm;
    if (fake->shared != NULL)
        munmap(fake->shared, fake->shared_bytes);
    fake->shared = NULL;
}

static void fake_close(struct comm *comm)
{
    fake_release_memory(comm);
    free(comm);
}

const struct comm_backend comm_fake = {
    .name = "fake",
    .simulated = true,
    .start = fake_start,
    .wait = fake_wait,
    .split = fake_split,
    .split_node = fake_split_node,
    .set_transport = fake_set_transport,
    .describe_transport = fake_describe_transport,
    .share_memory = fake_share_memory,
    .release_memory = fake_release_memory,
    .close = fake_close,
};

struct comm *comm_fake_open(int rank, int size)
{
    struct fake *fake = malloc(sizeof *fake);
    ENSURE_MEMORY(fake != NULL, "no memory for a group of ranks");
    *fake = (struct fake){.comm = {.backend = &comm_fake, .rank = rank, .size = size}};
    return &fake->comm;
}
