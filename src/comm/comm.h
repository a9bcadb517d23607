/* Groups of ranks and what they do together. A collective is started on a group and gives a ticket;
 * it begins when `after` (a device event) is done and is over when the ticket is waited for:
 * blocking = start + wait. All ranks of a group must start the same collectives in the same order.
 * Counts may be 0 or beyond 2^31 bytes. Reductions add in a fixed order: same layout, same bits,
 * and every rank of the group gets the same bits. */
#ifndef VITTRAIN_COMM_COMM_H
#define VITTRAIN_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/mesh_options.h"
#include "core/error.h"
#include "device/device.h"

/* Numbers of 16 bits are added in fp32, and each sum of two is rounded to nearest even; in fp16 one
 * beyond 65504 becomes infinite. */
enum comm_type { COMM_BYTE, COMM_INT64, COMM_FP32, COMM_FP64, COMM_BF16, COMM_FP16 };
enum comm_operation { COMM_SUM, COMM_MIN, COMM_MAX };

struct comm;
struct ticket;

/* A way of doing collectives. Buffers are host memory for "mpi" and "fake", device memory for
 * "nccl" (cuda/comm_nccl.cu). */
struct comm_backend {
    const char *name;
    bool simulated; /* the other ranks do not exist, so a split cannot know their colors */
    /* All are non-blocking; the buffers belong to the collective until its ticket was waited for.
     * The ticket is NULL when there was nothing to do (a group of one, a count of 0).
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
    struct ticket *(*broadcast)(struct comm *comm, void *buffer, int64_t count, enum comm_type type,
                                int root, struct event *after);
    /* Bytes between two ranks; they take their turn among the collectives of the group. */
    struct ticket *(*send)(struct comm *comm, const void *data, int64_t bytes, int to);
    struct ticket *(*receive)(struct comm *comm, void *data, int64_t bytes, int from);
    /* Frees the ticket (NULL is over already). The caller's thread sleeps until the collective is
     * over; stream, when not NULL, waits instead of the host where the backend can. */
    void (*wait)(struct ticket *ticket, struct stream *stream);
    /* Seconds that this process's collectives took so far, and that `wait` really waited. */
    void (*times)(struct comm *comm, double *busy, double *exposed);
    /* New groups, collective over `comm`: of the ranks with one color, in the order of key, then
     * rank; of the ranks that share a node. Closed by `close`, which is local. */
    struct comm *(*split)(struct comm *comm, int color, int key);
    struct comm *(*split_node)(struct comm *comm);
    /* Collective over `comm`, before anything large is started on it: how large collectives go,
     * from now on (until then: ring). auto takes what is fastest on the group's layout and never
     * fails. A transport that the layout or the machine does not allow is an error, which all ranks
     * of the group get; the caller lets other groups know (comm_agree over the world). */
    bool (*set_transport)(struct comm *comm, enum transport_choice wanted, struct error *error);
    /* "shared", "hierarchical (2 nodes x 4 ranks, shared inside)", "ring (/dev/shm: ...)" */
    void (*describe_transport)(const struct comm *comm, char *text, size_t size);
    void *(*handle)(struct comm *comm);
    /* Large collectives will be on this memory, until `close`: what is faster for it. Called once
     * at most; NULL: makes no difference. */
    void (*use_memory)(struct comm *comm, void *memory, size_t bytes);
    void (*close)(struct comm *comm);
};

struct comm {
    const struct comm_backend *backend;
    int rank, size;
};

/* Starts MPI (MPI_THREAD_MULTIPLE) and the communication thread, registers MPI_Abort with
 * core/error.h, makes fatal signals name rank and host, and gives the group of all ranks. Without
 * mpirun: one rank. comm_world_close ends MPI. */
MUST_CHECK bool comm_world_open(int *argc, char ***argv, struct comm **world, struct error *error);
void comm_world_close(struct comm *world);

/* Does whoever started this process give it time after SIGTERM (srun, a batch script), or is it
 * killed a second later (mpirun)? Only in the first case SIGTERM asks for a stop; else it ends the
 * process, as it does without a launcher. */
bool comm_launcher_waits(void);

/* Has this process been asked to stop gracefully (SIGUSR1; SIGTERM where the launcher waits)? Of
 * this rank alone: the ranks have yet to agree. Stays true. */
bool comm_stop_wanted(void);

/* A collective that waits longer than this for others ends the job (exit code ERROR_PEER) with a
 * message that names the collective and the ranks that have not come. 0, the start: never. */
void comm_set_timeout(double seconds);
double comm_timeout(void);

/* Heartbeat timeout: if a rank sends nothing for this long (node down, network cut, process
 * stopped), the job ends with a message that names the rank and its last status. 0 (the initial
 * value): never. Must be the same on all ranks. */
void comm_set_heartbeat_timeout(double seconds);

/* For a backend of another room (the GPU's), which has such a group for itself to ask about
 * collectives that go another way: this rank has come to its collective `number`, from 1. */
void comm_entered(struct comm *comm, int64_t number);

/* Ends the job as the timeout does, because of collective `number`, `what` it is, that has taken
 * `seconds`. why: NULL, which names the ranks that have not come; or what went wrong. Of several
 * ranks that call it only the lowest prints its message. That rank calls `before_end` between the
 * message and the end; it must return within 0.4 s. */
void comm_give_up(struct comm *comm, int64_t number, const char *what, double seconds,
                  const char *why, void (*before_end)(void)) __attribute__((noreturn));

/* Whose events `after` are; before this is called `after` must be NULL. */
void comm_set_device(const struct device_backend *device);

/* The world as `size` ranks would see it from `rank`, without partners: collectives leave buffers
 * as if all other ranks held zeros. For planning and tests. */
struct comm *comm_fake_open(int rank, int size);

/* Started and waited for. */
void comm_all_reduce(struct comm *comm, void *buffer, int64_t count, enum comm_type type,
                     enum comm_operation operation);
void comm_all_gather(struct comm *comm, void *buffer, int64_t count, enum comm_type type);
void comm_broadcast(struct comm *comm, void *buffer, int64_t count, enum comm_type type, int root);
/* Return rank `root`'s text on all ranks, where it is not looked at; the caller frees it. */
char *comm_broadcast_text(struct comm *comm, const char *text, int root);
void comm_barrier(struct comm *comm);

/* The ranks that share this rank's node. Collective. */
struct comm *comm_split_node(struct comm *comm);

/* Collective: how many nodes there are, and which this rank is on (nodes numbered by their lowest
 * rank). */
int comm_node_count(struct comm *world, int *node);

/* Collective. Where any rank's error is set, all ranks get the error of the lowest such rank, with
 * "rank R on HOST: " in front when there is more than one rank, and false; of an error that was
 * agreed on before, false at once. Only rank 0 should print it. The way a user's mistake becomes
 * one message and one exit code. */
bool comm_agree(struct comm *comm, struct error *error);

/* Collective: are these bytes the same on all ranks (as far as a CRC32C tells)? */
bool comm_same(struct comm *comm, const void *data, size_t bytes);

/* Bytes between two ranks, blocking, any size (checkpoints of node-private disks). */
void comm_send(struct comm *comm, const void *data, size_t bytes, int to);
void comm_receive(struct comm *comm, void *data, size_t bytes, int from);

/* Bytes of /dev/shm that so many ranks of a node take to send through shared memory. */
size_t comm_shared_bytes(int ranks);

/* The MPI communicator behind a group, for parallel HDF5; a `MPI_Comm *`, NULL for a fake. */
void *comm_handle(struct comm *comm);

const char *comm_host(void);

/* The host of a rank of the world. */
const char *comm_host_of(int rank);

#endif
