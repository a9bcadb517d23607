// SPDX-License-Identifier: BSD-3-Clause
/* Bytes of all ranks, joined in one copy per node. On a node whose ranks share memory, each rank
 * writes its part there, and the first one exchanges parts with other nodes. */
#include "comm/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/allocate.h"
#include "base/base.h"

enum { SHARED_LEAST = 1 << 20 /* smaller copies are not worth a segment */ };

/* Return the memory of the copy, shared by the ranks of `here` if possible. Collective over `here`.
 */
static void copy_open(struct comm *here, int64_t identity, int64_t bytes, struct joined_bytes *copy)
{
    const size_t size = (size_t)bytes, rank = (size_t)here->rank, ranks = (size_t)here->size;
    const struct segment_part parts[] = {{size * rank / ranks, size * (rank + 1) / ranks}, {0, 0}};
    struct error no_room = {0};
    *copy = (struct joined_bytes){.bytes = bytes};
    if (ranks > 1 && bytes >= SHARED_LEAST)
        copy->data = segment_open(here, identity, size, parts, &no_room);
    copy->is_mapped = copy->data != NULL;
    if (!copy->is_mapped)
        copy->data = allocate(size, 1);
}

/* Gather parts of at most `most` bytes. One all-gather of parts of equal size is faster than a
 * broadcast of each part while all of them are small. */
static void parts_gather(struct comm *comm, const void *part, int64_t most, const int64_t *begin,
                         struct joined_bytes *all)
{
    const int ranks = comm->size, own = comm->rank;
    *all =
        (struct joined_bytes){.data = allocate((size_t)(most * ranks), 1), .bytes = begin[ranks]};
    if (begin[own + 1] > begin[own])
        memcpy(all->data + own * most, part, (size_t)(begin[own + 1] - begin[own]));
    comm_all_gather(comm, all->data, most, COMM_BYTE);
    for (int rank = 1; rank < ranks; rank++)
        memmove(all->data + begin[rank], all->data + rank * most,
                (size_t)(begin[rank + 1] - begin[rank]));
}

/* Broadcast the parts among the ranks that own a copy. Adjacent parts of an owner are sent
 * together. owner[r]: the rank whose copy has the part of rank r. */
static void parts_exchange(struct comm *comm, const int64_t *owner, const int64_t *begin,
                           unsigned char *data)
{
    const bool owns = owner[comm->rank] == comm->rank;
    struct comm *owners = comm->backend->split(comm, owns ? 0 : 1, comm->rank);
    OWNED int *number = allocate((size_t)comm->size, sizeof *number); /* among the owners */
    for (int rank = 0, end, count = 0; rank < comm->size; rank = end) {
        for (end = rank; end < comm->size && owner[end] == owner[rank]; end++)
            number[end] = owner[end] == end ? count++ : number[owner[end]];
        if (owns)
            comm_broadcast(owners, data + begin[rank], begin[end] - begin[rank], COMM_BYTE,
                           number[rank]);
    }
    owners->backend->close(owners);
}

void comm_join(struct comm *comm, void *part, int64_t bytes, struct joined_bytes *all)
{
    *all = (struct joined_bytes){.data = part, .bytes = bytes};
    if (comm == NULL || comm->size == 1)
        return;
    const int ranks = comm->size;
    int64_t most = 0;
    OWNED int64_t *begin =
        allocate((size_t)ranks + 1, sizeof *begin); /* of the parts, then the end */
    begin[comm->rank + 1] = bytes;
    comm_all_gather(comm, begin + 1, 1, COMM_INT64);
    for (int rank = 0; rank < ranks; rank++) {
        most = larger(most, begin[rank + 1]);
        begin[rank + 1] += begin[rank];
    }
    if (most < SHARED_LEAST / ranks) {
        parts_gather(comm, part, most, begin, all);
        free(part);
        return;
    }
    OWNED int64_t *owner = allocate((size_t)ranks, sizeof *owner);
    struct comm *here = comm->backend->split_node(comm);
    copy_open(here, ((struct group *)here)->identity, begin[ranks], all);
    if (bytes > 0)
        memcpy(all->data + begin[comm->rank], part, (size_t)bytes);
    free(part);
    owner[comm->rank] = comm->rank;
    if (all->is_mapped)
        comm_broadcast(here, &owner[comm->rank], 1, COMM_INT64, 0);
    comm_all_gather(comm, owner, 1, COMM_INT64); /* the parts are written, too */
    parts_exchange(comm, owner, begin, all->data);
    comm_barrier(here);
    here->backend->close(here);
}

void comm_joined_free(struct joined_bytes *all)
{
    if (all->is_mapped)
        munmap(all->data, (size_t)all->bytes);
    else
        free(all->data);
    *all = (struct joined_bytes){0};
}

void comm_share_texts(struct comm *comm, char ***texts, int64_t *count)
{
    if (comm == NULL || comm->size == 1)
        return;
    struct joined_bytes all;
    struct byte_buffer own = {0};
    for (int64_t i = 0; comm->rank == 0 && i < *count; i++)
        byte_buffer_append(&own, (*texts)[i], strlen((*texts)[i]) + 1);
    comm_join(comm, own.data, (int64_t)own.count, &all);
    comm_broadcast(comm, count, 1, COMM_INT64, 0);
    if (comm->rank != 0 && *count > 0) {
        const char *from = (const char *)all.data;
        *texts = allocate((size_t)*count, sizeof **texts);
        for (int64_t i = 0; i < *count; i++, from += strlen(from) + 1)
            (*texts)[i] = allocate_copy(from);
    }
    comm_joined_free(&all);
}
