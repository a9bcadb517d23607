// SPDX-License-Identifier: BSD-3-Clause
/* Groups of ranks (MPI communicators) and their collectives. Starting a collective returns a
 * request, like the MPI_Request of a non-blocking collective. The collective begins when the device
 * event `after` has completed and is complete when `wait` returns. All ranks of a group must start
 * the same collectives in the same order. Counts may be 0, and buffers larger than 2^31 bytes.
 * Reductions add in a fixed order: all ranks of the group get the same bits, and the same layout
 * gives the same bits in each run. */
#ifndef VITTRAIN_COMM_COMM_H
#define VITTRAIN_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "device/device.h"
#include "options/option_types.h"

/* 16-bit types are added in fp32, and each sum of two is rounded to nearest even; in fp16 a sum
 * beyond 65504 becomes infinite. Sums of INT64 are modulo 2^64. */
enum comm_type { COMM_BYTE, COMM_INT64, COMM_FP32, COMM_FP64, COMM_BF16, COMM_FP16 };
enum comm_operation { COMM_SUM, COMM_MIN, COMM_MAX };

/* Return the bytes of an element, and the name of the type in messages. */
int64_t comm_type_size(enum comm_type type);
const char *comm_type_name(enum comm_type type);

/* On the host: into[i] = into[i] (operation) from[i]. 16-bit types are added in fp32 and rounded to
 * nearest even. */
void combine(enum comm_type type, enum comm_operation operation, void *into, const void *from,
             int64_t count);

struct comm;
struct comm_request;

/* A collective or a transfer between two ranks. The buffer belongs to it until its request was
 * waited for. All except all-to-all are in place. Reduce-scatter: `buffer` [size * count]; rank r
 * gets the sum of all ranks' blocks r in its block r, the rest of the buffer is undefined.
 * All-gather: `buffer` [size * count]; rank r provides block r, all ranks get all blocks. */
enum comm_action {
    COMM_ALL_REDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_BROADCAST,
    COMM_ALL_TO_ALL, /* comm_start_all_to_all */
    COMM_SEND,       /* in order with the collectives of the group */
    COMM_RECEIVE
};
struct comm_call {
    enum comm_action action;
    union {
        void *buffer;
        const void *sent; /* send, all-to-all: only read */
    };
    int64_t count;
    enum comm_type type;
    enum comm_operation operation;
    int peer; /* root of a broadcast, or the other rank of a transfer */
    struct event *after;
    /* All-to-all. */
    void *received;
    int64_t stride;
    const int *parts;
};

/* An implementation of collectives. Buffers are host memory for MPI (mpi.c), device memory for NCCL
 * (cuda/comm_nccl.cu), which has no transfers between two ranks. */
struct comm_backend {
    /* Non-blocking; count > 0. The request may be NULL: nothing to wait for. */
    struct comm_request *(*start)(struct comm *comm, const struct comm_call *call);
    /* Wait for the collective and free the request; NULL is allowed. If the backend supports it and
     * `stream` is not NULL, the stream waits instead of the host. */
    void (*wait)(struct comm_request *request, struct stream *stream);
    /* Collective over `comm`. New groups: of the ranks with the same color, ordered by key, then
     * rank (MPI_Comm_split); of the ranks on the same node. `close` is not collective. */
    struct comm *(*split)(struct comm *comm, int color, int key);
    struct comm *(*split_node)(struct comm *comm);
    /* Collective over `comm`, before the first large collective. Select the transport of large
     * collectives (before the call: ring). auto selects the fastest one for the group's layout and
     * never fails. An impossible transport is an error on all ranks of the group; the caller
     * informs other groups (comm_agree over the world). */
    bool (*set_transport)(struct comm *comm, enum transport_choice wanted, struct error *error);
    /* Write "shared", "hierarchical (2 nodes x 4 ranks, shared inside)" or "ring (/dev/shm: ...)".
     */
    void (*describe_transport)(const struct comm *comm, char *text, size_t size);
    /* Collective over `comm`, after set_transport. Return memory that all ranks of the group read
     * and write, filled with zeros: `common` bytes, then an area of `each` bytes for each rank.
     * Large reductions and gathers whose buffer is in this rank's area copy nothing to slots: other
     * ranks read the buffer, and reductions write intermediate sums to it. Its offset in the area
     * must be the same on all ranks. NULL and an error on all ranks if they do not share memory or
     * /dev/shm has no room. A group has one such memory until release_memory or `close`, which are
     * not collective. This function, split, split_node and set_transport are NULL in backends for
     * device memory. */
    void *(*share_memory)(struct comm *comm, size_t common, size_t each, struct error *error);
    void (*release_memory)(struct comm *comm);
    /* Announce the memory of large collectives until `close`, so that the backend can register it.
     * At most one call. The function may be NULL. */
    void (*use_memory)(struct comm *comm, void *memory, size_t bytes);
    void (*close)(struct comm *comm);
};

struct comm {
    const struct comm_backend *backend;
    int rank, size;
    const struct device_backend *device; /* of the events `after`; NULL: there are none */
};

/* Return the number of partial values of the ranks below `rank` in an all-to-all. With `rank` equal
 * to the size of the group: of all ranks. */
static inline int64_t comm_parts_before(const int *parts, int rank)
{
    int64_t before = 0;
    for (int i = 0; i < rank; i++)
        before += parts[i];
    return before;
}

/* Start MPI (MPI_THREAD_MULTIPLE) and the communication thread, register MPI_Abort with
 * base/error.h, make fatal signals print rank and host, and return the group of all ranks. Without
 * a launcher: one rank, without MPI. comm_world_close is collective and finalizes MPI. */
MUST_CHECK bool comm_world_open(int *argc, char ***argv, struct comm **world, struct error *error);
void comm_world_close(struct comm *world);

/* True once this process was asked to stop gracefully (SIGUSR1; SIGTERM if launcher_waits()). Not
 * collective: the ranks must agree before they stop. */
bool comm_stop_wanted(void);

/* A collective that waits longer than this for data ends the job (exit code ERROR_PEER) with a
 * message of rank 0 that names the collective and the missing ranks, one or two heartbeats (1 s)
 * later. 0 (the initial value): never. */
void comm_set_timeout(double seconds);
double comm_timeout(void);

/* Heartbeat timeout: if a rank sends nothing for this long (node down, network cut, process
 * stopped), the job ends with a message that names the rank and its last status. 0 (the initial
 * value): never. Must be the same on all ranks. */
void comm_set_heartbeat_timeout(double seconds);

/* Rank 0 warns about each rank that makes no progress for at least `seconds` and ten times the
 * median step, while other ranks wait for it. Requires a heartbeat timeout. 0 (the initial value):
 * never. */
void comm_set_stall_warning(double seconds);

/* Limits that depend on the number of ranks use comm_scaled_ranks(ranks) = ranks * factor, so that
 * tests cross them on few ranks (debug.rank_factor). The initial factor is 1. */
void comm_set_rank_factor(int64_t factor);
int64_t comm_scaled_ranks(int64_t ranks);

/* For the NCCL backend, whose collectives do not use this group: record that this rank has started
 * collective `number`, from 1, so that rank 0 can find missing ranks. */
void comm_entered(struct comm *comm, int64_t number);

/* End the job because collective `number`, described by `what`, has taken `seconds`. why NULL: rank
 * 0 names the missing ranks, as at the timeout; else the error, and if several ranks call it, only
 * the lowest prints its message. It calls `before_end` before the end, which must return within
 * 2 s. */
void comm_give_up(struct comm *comm, int64_t number, const char *what, double seconds,
                  const char *why, void (*before_end)(void)) __attribute__((noreturn));

/* A group of `size` ranks of which only this one exists: collectives leave its buffers unchanged,
 * and the other ranks' memory of share_memory cannot be accessed. For `plan` and tests. */
struct comm *comm_fake_open(int rank, int size);

/* Start a collective. The result is for `wait`; NULL: nothing to wait for. */
struct comm_request *comm_start_all_reduce(struct comm *comm, void *buffer, int64_t count,
                                           enum comm_type type, enum comm_operation operation,
                                           struct event *after);
struct comm_request *comm_start_reduce_scatter(struct comm *comm, void *buffer, int64_t count,
                                               enum comm_type type, enum comm_operation operation,
                                               struct event *after);
struct comm_request *comm_start_all_gather(struct comm *comm, void *buffer, int64_t count,
                                           enum comm_type type, struct event *after);
struct comm_request *comm_start_broadcast(struct comm *comm, void *buffer, int64_t count,
                                          enum comm_type type, int root, struct event *after);
/* Rank r provides parts[r] partial values in `sent`, `stride` elements apart, each [size * count].
 * Rank b gets block b of every partial value of every rank: `received` [sum of parts * count],
 * ordered by rank, then by number of the partial value. It can then add them in an order that does
 * not depend on the number of ranks. `sent` is unchanged; the buffers do not overlap. `parts`
 * [size] has the same values on all ranks, may contain 0, and must not change before `wait`
 * returns. With one rank `wait` copies the values, on its stream; the stream may be NULL if the
 * buffers are in host memory. */
struct comm_request *comm_start_all_to_all(struct comm *comm, const void *sent, int64_t stride,
                                           const int *parts, void *received, int64_t count,
                                           enum comm_type type, struct event *after);

/* Blocking collectives. */
void comm_all_reduce(struct comm *comm, void *buffer, int64_t count, enum comm_type type,
                     enum comm_operation operation);
void comm_all_gather(struct comm *comm, void *buffer, int64_t count, enum comm_type type);
void comm_broadcast(struct comm *comm, void *buffer, int64_t count, enum comm_type type, int root);
/* Return a copy of rank `root`'s text on all ranks; `text` is ignored on others. The caller frees
 * it.
 */
char *comm_broadcast_text(struct comm *comm, const char *text, int root);
void comm_barrier(struct comm *comm);

/* Total seconds of this process's collectives in host memory (busy) and of waiting for them
 * (exposed). */
void comm_times(double *busy, double *exposed);

/* Collective: return the group of the ranks on this rank's node, the node of each rank in
 * node_of[size] and the number of nodes. Nodes are numbered in the order of their lowest ranks. */
struct comm *comm_split_nodes(struct comm *comm, int *node_of, int *nodes);

/* Collective: return the number of nodes, and this rank's node in *node. */
int comm_node_count(struct comm *world, int *node);

/* Collective. If the error of any rank is set, all ranks get the error of the lowest such rank,
 * prefixed by "rank R on HOST: " if there are several ranks, and false. Returns false at once if
 * the error was agreed on before. Only rank 0 should print it. Turns a user's mistake into one
 * message and one exit code. */
bool comm_agree(struct comm *comm, struct error *error);

/* As comm_agree, without the prefix: for faults that only one rank looks for, or texts that name
 * the rank. */
bool comm_share_error(struct comm *comm, struct error *error);

/* Collective: true if these bytes are equal on all ranks (compared by CRC32C). */
bool comm_same(struct comm *comm, const void *data, size_t bytes);

/* Blocking transfer of any size between two ranks. */
void comm_send(struct comm *comm, const void *data, size_t bytes, int to);
void comm_receive(struct comm *comm, void *data, size_t bytes, int from);

/* Collective. Send `data` to rank + shift and receive `received` from rank - shift, modulo the
 * number of ranks. 0 <= shift < number of ranks. Blocking. The number of transfers in series does
 * not grow with the number of ranks. */
void comm_shift(struct comm *comm, const void *data, void *received, size_t bytes, int shift);

/* Bytes that all ranks can read. Initialize with zeros. */
struct joined_bytes {
    unsigned char *data;
    int64_t bytes;
    bool is_mapped; /* the ranks of the node share the copy: do not write to it */
};

/* Collective. Join the parts of all ranks in the order of ranks. If they are large and shared
 * memory has room, the ranks of a node share one copy. `part` was allocated with malloc; this
 * function takes it over. comm NULL: one rank. comm_joined_free is not collective. */
void comm_join(struct comm *comm, void *part, int64_t bytes, struct joined_bytes *all);
void comm_joined_free(struct joined_bytes *all);

/* Collective. Copy the texts of rank 0 to all ranks. On other ranks the arguments are output: the
 * table and each text are allocated. comm NULL: one rank. */
void comm_share_texts(struct comm *comm, char ***texts, int64_t *count);

/* Bytes of /dev/shm that the transport `shared` needs for that number of ranks on a node. */
size_t comm_shared_bytes(int ranks);

/* The communicator of a group of "mpi" as an `MPI_Comm *`; MPI_COMM_NULL without a launcher. */
void *comm_handle(struct comm *comm);

const char *comm_host(void);

/* Host name of a rank of the world. */
const char *comm_host_of(int rank);

#endif
