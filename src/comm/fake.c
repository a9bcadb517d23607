// SPDX-License-Identifier: BSD-3-Clause
/* A group without other ranks: collectives behave as if all other ranks held zeros. Used by `plan`
 * and by tests of one process. Every collective is complete when it is started. */
#include "comm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config/option_types.h"

struct fake {
    struct comm comm; /* first: a struct comm of this backend is a fake */
    void *shared;     /* comm.h: share_memory; or NULL */
    size_t shared_bytes;
};

static struct comm_request *fake_all_reduce(struct comm *comm, void *buffer, int64_t count,
                                            enum comm_type type, enum comm_operation operation,
                                            struct event *after)
{
    (void)after;
    /* Zeros do not change a sum, but minima and maxima. */
    static const uint64_t zero = 0;
    int64_t width = comm_type_size(type);
    for (int64_t i = 0; comm->size > 1 && operation != COMM_SUM && i < count; i++)
        combine(type, operation, (unsigned char *)buffer + i * width, &zero, 1);
    return NULL;
}

static struct comm_request *fake_reduce_scatter(struct comm *comm, void *buffer, int64_t count,
                                                enum comm_type type, enum comm_operation operation,
                                                struct event *after)
{
    unsigned char *own = (unsigned char *)buffer + comm->rank * count * comm_type_size(type);
    return fake_all_reduce(comm, own, count, type, operation, after);
}

static struct comm_request *fake_all_gather(struct comm *comm, void *buffer, int64_t count,
                                            enum comm_type type, struct event *after)
{
    (void)after;
    int64_t block = count * comm_type_size(type);
    for (int rank = 0; rank < comm->size && block > 0; rank++)
        if (rank != comm->rank)
            memset((unsigned char *)buffer + rank * block, 0, (size_t)block);
    return NULL;
}

static struct comm_request *fake_receive(struct comm *comm, void *data, int64_t bytes, int from)
{
    (void)comm;
    (void)from;
    if (bytes > 0)
        memset(data, 0, (size_t)bytes);
    return NULL;
}

static struct comm_request *fake_broadcast(struct comm *comm, void *buffer, int64_t count,
                                           enum comm_type type, int root, struct event *after)
{
    (void)after;
    return root == comm->rank ? NULL
                              : fake_receive(comm, buffer, count * comm_type_size(type), root);
}

static struct comm_request *fake_all_to_all(struct comm *comm, const void *sent, int64_t stride,
                                            const int *parts, void *received, int64_t count,
                                            enum comm_type type, struct event *after)
{
    (void)after;
    const int64_t width = comm_type_size(type), block = count * width;
    const unsigned char *from = (const unsigned char *)sent + comm->rank * block;
    unsigned char *own = (unsigned char *)received + comm_parts_before(parts, comm->rank) * block;
    const int64_t bytes = comm_parts_before(parts, comm->size) * block;
    if (bytes > 0)
        memset(received, 0, (size_t)bytes);
    for (int part = 0; block > 0 && part < parts[comm->rank]; part++)
        memcpy(own + part * block, from + part * stride * width, (size_t)block);
    return NULL;
}

static struct comm_request *fake_send(struct comm *comm, const void *data, int64_t bytes, int to)
{
    (void)comm;
    (void)data;
    (void)bytes;
    (void)to;
    return NULL;
}

static void fake_wait(struct comm_request *request, struct stream *stream)
{
    (void)request;
    (void)stream;
}

static void fake_times(struct comm *comm, double *busy, double *exposed)
{
    (void)comm;
    *busy = *exposed = 0;
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

static void *fake_handle(struct comm *comm)
{
    (void)comm;
    return NULL;
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
    .all_reduce = fake_all_reduce,
    .reduce_scatter = fake_reduce_scatter,
    .all_gather = fake_all_gather,
    .broadcast = fake_broadcast,
    .all_to_all = fake_all_to_all,
    .send = fake_send,
    .receive = fake_receive,
    .wait = fake_wait,
    .times = fake_times,
    .split = fake_split,
    .split_node = fake_split_node,
    .set_transport = fake_set_transport,
    .describe_transport = fake_describe_transport,
    .share_memory = fake_share_memory,
    .release_memory = fake_release_memory,
    .handle = fake_handle,
    .close = fake_close,
};

struct comm *comm_fake_open(int rank, int size)
{
    struct fake *fake = malloc(sizeof *fake);
    ENSURE_MEMORY(fake != NULL, "no memory for a group of ranks");
    *fake = (struct fake){.comm = {.backend = &comm_fake, .rank = rank, .size = size}};
    return &fake->comm;
}
