/* Groups of ranks and what they do together. A collective is started on a group and gives a ticket;
 * it begins when `after` (a device event) is done and is over when the ticket is waited for:
 * blocking = start + wait. All ranks of a group must start the same collectives in the same order.
 * Counts may be 0 or beyond 2^31 bytes. Reductions add in a fixed order: same layout, same bits, and
 * every rank of the group gets the same bits. */
#ifndef VITTRAIN_COMM_COMM_H
#define VITTRAIN_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "device/device.h"

enum comm_type { COMM_BYTE, COMM_INT64, COMM_FP32, COMM_FP64, COMM_BF16 };
enum comm_operation { COMM_SUM, COMM_MIN, COMM_MAX };

struct comm;
struct ticket;

/* A way of doing collectives. Buffers are host memory for "mpi" and "fake". */
struct comm_backend {
    const char *name;
    /* All are non-blocking; the buffers belong to the collective until its ticket was waited for.
     * all_reduce: in place. reduce_scatter: `count` elements a rank, the sum of block r of every
     * rank's buffer [size * count] lies in block r of rank r's buffer, the rest of the buffer is
     * undefined. all_gather: block r of `buffer` [size * count] is rank r's, filled in by all.
     * broadcast: from rank `root`. */
    struct ticket *(*all_reduce)(struct comm *comm, void *buffer, int64_t count,
                                 enum comm_type type, enum comm_operation operation,
                                 struct event *after);
    struct ticket *(*reduce_scatter)(struct comm *comm, void *buffer, int64_t count,
                                     enum comm_type type, enum comm_operation operation,
                                     struct event *after);
    struct ticket *(*all_gather)(struct comm *comm, void *buffer, int64_t count,
                                 enum comm_type type, struct event *after);
    struct ticket *(*broadcast)(struct comm *comm, void *buffer, int64_t count,
                                enum comm_type type, int root, struct event *after);
    /* Frees the ticket. The caller's thread sleeps until the collective is over; stream, when not
     * NULL, waits instead of the host where the backend can. */
    void (*wait)(struct ticket *ticket, struct stream *stream);
    /* Seconds that this process's collectives took so far, and that `wait` really waited. */
    void (*times)(struct comm *comm, double *busy, double *exposed);
    struct comm *(*split)(struct comm *comm, int color, int key);
    void (*close)(struct comm *comm);
};

struct comm {
    const struct comm_backend *backend;
    int rank, size;
};

/* Starts MPI (MPI_THREAD_MULTIPLE), registers MPI_Abort with core/error.h, and gives the group of
 * all ranks. Without mpirun: one rank. comm_world_close ends MPI. */
bool comm_world_open(int *argc, char ***argv, struct comm **world, struct error *error);
void comm_world_close(struct comm *world);

/* The world as `size` ranks would see it from `rank`, without partners: collectives leave buffers as
 * if all other ranks held zeros. For planning and tests. */
struct comm *comm_fake_open(int rank, int size);

/* Started and waited for. */
void comm_all_reduce(struct comm *comm, void *buffer, int64_t count, enum comm_type type,
                     enum comm_operation operation);
void comm_all_gather(struct comm *comm, void *buffer, int64_t count, enum comm_type type);
void comm_broadcast(struct comm *comm, void *buffer, int64_t count, enum comm_type type, int root);
void comm_barrier(struct comm *comm);

/* The ranks that share this rank's node, and one rank of each node (color: rank within the node). */
struct comm *comm_split_node(struct comm *comm);

/* Collective: how many nodes there are, and which this rank is on (nodes numbered by their lowest
 * rank). */
int comm_node_count(struct comm *world, int *node);

/* Collective. Where any rank's error is set, all ranks get the error of the lowest such rank, with
 * "rank R on HOST: " in front when there is more than one rank, and false. Only rank 0 should print
 * it. The way a user's mistake becomes one message and one exit code. */
bool comm_agree(struct comm *comm, struct error *error);

/* Collective: are these bytes the same on all ranks? */
bool comm_same(struct comm *comm, const void *data, size_t bytes);

/* Bytes between two ranks, blocking, any size (checkpoints of node-private disks). */
void comm_send(struct comm *comm, const void *data, size_t bytes, int to);
void comm_receive(struct comm *comm, void *data, size_t bytes, int from);

/* The MPI communicator behind a group, for parallel HDF5; a `MPI_Comm *`, NULL for a fake. */
void *comm_handle(struct comm *comm);

const char *comm_host(void);

#endif
