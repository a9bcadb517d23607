// SPDX-License-Identifier: BSD-3-Clause
/* Shared by the files of this module. The backend "mpi" consists of groups (mpi.c), the queue of
 * requests and the communication thread (comm_thread.c), the choice of the algorithm (transport.c),
 * the algorithms (ring.c, messages.c, shared.c and exchange.c), the heartbeats (heartbeat.c) and
 * the table that names silent, missing and stalled ranks (heartbeat_table.c). */
#ifndef VITTRAIN_COMM_INTERNAL_H
#define VITTRAIN_COMM_INTERNAL_H

#include <stdatomic.h>

#include "comm/comm.h"
#include "comm/mpi_check.h"
#include "options/option_types.h"

struct report;

extern const struct comm_backend comm_mpi;

enum { HOST_NAME = 64 };

struct group {
    struct comm comm; /* first: a struct comm of this backend is a group */
    MPI_Comm communicator;
    int64_t identity;        /* unique to the group, equal on all its ranks */
    int64_t started;         /* collectives queued so far */
    _Atomic int64_t entered; /* the last collective that the communication thread started */
    _Atomic int64_t posted;  /* the last collective that exchange.c started */
    /* Transport of large collectives (transport.c). */
    struct window *window;           /* shared memory of a group within a node, or NULL */
    unsigned char *node_memory;      /* of share_memory, or NULL */
    size_t common_bytes, area_bytes; /* its sizes: the common part, the area of one rank */
    struct group *inside, *across;   /* hierarchical: ranks of this node; of this local rank */
    bool by_node;                    /* hierarchical: the ranks of a node are consecutive */
    char note[192];                  /* why auto does not use shared memory, or "" */
    struct group *next;
};

struct comm_request {
    struct comm_request *next;
    struct group *group;
    struct comm_call call;
    const char *what;       /* description of another backend's collective; NULL: see `call` */
    int64_t sequence;       /* number of the collective in its group, from 1; 0: not a collective */
    double began;           /* clock_now() when the communication thread started it */
    uint64_t number;        /* of the exchange (exchange.c), from 1; 0: not an exchange */
    unsigned char *scratch; /* SCRATCH_BYTES of the communication thread */
    bool done;
};

static inline int64_t request_bytes(const struct comm_request *request)
{
    return request->call.count * comm_type_size(request->call.type);
}

/* Input of an algorithm: one block per rank of `group`, `block` elements long; block b begins at
 * element b * stride. The buffer ends after `total` elements, so the last blocks may be short or
 * empty. reduces: block r is reduced to rank r. gathers: afterwards block r is sent from rank r to
 * all ranks. */
struct stage {
    const struct comm_request *request; /* type and operation; named in error messages */
    const struct group *group;
    unsigned char *buffer;
    int64_t block, stride, total; /* elements */
    bool reduces, gathers;
};

/* Return how many of the elements first .. first + count - 1 of a block exist, and their address.
 */
int64_t stage_part(const struct stage *stage, int64_t block, int64_t first, int64_t count,
                   unsigned char **part);

/* All-to-all: return the address of partial value `part` that this rank sends to rank `to`, or of
 * received partial value `part`. Received ones are ordered by rank. */
unsigned char *part_sent(const struct comm_request *request, int to, int part);
unsigned char *part_received(const struct comm_request *request, int64_t part);

/* Tags on a group's communicator. */
enum { TAG_COLLECTIVE = 1, TAG_BYTES = 2 };

/* comm_thread.c: the communication thread runs requests in the order of progress_start. */
void progress_open(void);
void progress_close(void);
struct comm_request *progress_start(const struct comm_request *request);
void progress_wait(struct comm_request *request);
/* Return a copy of a request that is not queued; progress_release frees it. */
struct comm_request *progress_request(const struct comm_request *request);
void progress_release(struct comm_request *request);
/* All-to-all in a group of one rank: copy on the stream, or on the host if it is NULL. */
void progress_copy(const struct comm_request *request, struct stream *stream);
/* Wait for the event `after` of a request. */
void progress_wait_event(const struct comm_request *request);
/* Add time in which the calling thread waited for other ranks to the busy and exposed times. */
void progress_count(double seconds);

/* Call in each iteration of a loop that waits for messages; moved: data arrived since the last
 * call. Sleeps longer the longer nothing arrives; ends the job at the timeout. */
struct idle {
    const struct comm_request *request;
    int turns; /* calls since data arrived */
    unsigned moves;
    double since, now;
};
void progress_idle(struct idle *idle, bool moved);
/* Sleep for a moment, except in the first calls. Return true after a sleep. */
bool idle_sleep(struct idle *idle);

/* messages.c: messages to or from one rank, in order, up to LANE_WINDOW in flight. */
enum { LANE_WINDOW = 4 };
struct lane {
    MPI_Comm communicator;
    int peer, tag;
    int64_t posted, done;
    MPI_Request request[LANE_WINDOW];
};
void lane_open(struct lane *lane, MPI_Comm communicator, int peer, int tag);
bool lane_full(const struct lane *lane);
void lane_send(struct lane *lane, const void *data, int64_t bytes);
void lane_receive(struct lane *lane, void *data, int64_t bytes);
/* True if the oldest message in flight has completed; increments lane->done. */
bool lane_test(struct lane *lane);

/* The algorithms. */
enum { SEGMENT_BYTES = 1 << 20, SCRATCH_BYTES = LANE_WINDOW * SEGMENT_BYTES };
/* Up to this size latency dominates, so algorithms minimise the number of messages. The statistics
 * of a batch norm of 2048 channels are 32,776 bytes. */
enum {
    SMALL_BYTES = 40 << 10,
    SMALL_BLOCK = 1 << 10,  /* per rank, in an all-gather */
    HALVING_BLOCK = 4 << 10 /* per rank, in an all-reduce that would use the ring */
};
void ring_run(const struct stage *stage);
void tree_all_reduce(const struct comm_request *request);
void tree_broadcast(const struct comm_request *request, int root);
void tree_all_gather(const struct comm_request *request);
void halving_all_reduce(const struct comm_request *request);
void pairwise_all_to_all(const struct comm_request *request);
void message_run(const struct comm_request *request);
/* For groups with a window. */
void shared_run(const struct stage *stage);
void shared_all_to_all(const struct comm_request *request);

/* exchange.c: small all-reduces of a group with a window, without the communication thread. Only
 * one thread of a process may start and wait for those of a group. */
bool exchange_fits(const struct comm_request *request);
struct comm_request *exchange_start(const struct comm_request *request);
void exchange_wait(struct comm_request *request);

/* shared_segment.c: memory that the ranks of a group within a node share. Layout: the counters of
 * all ranks, then one area per rank with WINDOW_SLOTS slots of a chunk each, followed by slots for
 * the rank's own part of a chunk and EXCHANGE_SLOTS slots of SMALL_BYTES for exchanges. */
enum { WINDOW_SLOTS = 4, WINDOW_CHUNK = 512 << 10, EXCHANGE_SLOTS = 4 };
/* A rank counts the chunks that it has copied in, reduced and copied out, and the exchanges that it
 * has posted and read, on separate cache lines. */
enum window_step { CHUNK_COPIED, CHUNK_REDUCED, CHUNK_GATHERED, POSTED, READ, WINDOW_STEPS };
struct window_counter {
    _Alignas(64) _Atomic uint64_t value;
};
struct window {
    unsigned char *memory;
    size_t bytes, counters_bytes, area_bytes, part_bytes;
    int size, rank;
    uint64_t chunks; /* of all collectives so far; equal on all ranks */
    /* Exchanges that this rank has started and finished; the requests of those in progress. */
    uint64_t started, finished;
    struct comm_request *exchange[EXCHANGE_SLOTS];
};

static inline unsigned char *window_area(const struct window *window, int rank)
{
    return window->memory + window->counters_bytes + window->area_bytes * (size_t)rank;
}

/* Publish that this rank has done `number` of these steps. */
void window_count(const struct window *window, enum window_step step, uint64_t number);
/* True if all ranks have done `number` of these steps. */
bool window_reached(const struct window *window, enum window_step step, uint64_t number);

/* Collective. NULL and an error on all ranks if /dev/shm has no room. */
struct window *window_open(struct comm *comm, int64_t identity, struct error *error);
void window_close(struct window *window);
/* Collective. Return `bytes` bytes of shared memory, filled with zeros. This rank allocates these
 * two parts of it. NULL and an error on all ranks if /dev/shm has no room. munmap releases it. */
struct segment_part {
    size_t begin, end;
};
void *segment_open(struct comm *comm, int64_t identity, size_t bytes,
                   const struct segment_part parts[2], struct error *error);

/* transport.c: run a request, or a stage, with the transport of its group. */
void transport_run(const struct comm_request *request);
void transport_run_stage(const struct stage *stage);
MUST_CHECK bool transport_set(struct comm *comm, enum transport_choice wanted, struct error *error);
void transport_describe(const struct comm *comm, char *text, size_t size);
void transport_close(struct group *group);

/* mpi.c: write the groups of several ranks into a report. */
void groups_report(struct report *report);

/* mpi.c: end the job with ERROR_PEER after its cause has been printed. Ends at least this process
 * within seconds. */
void failure_end(void) __attribute__((noreturn));

/* heartbeat.c: the communication thread calls heartbeat_turn often; it costs nothing when nothing
 * is due. current: the request in progress, which has waited for data for so many seconds, or NULL.
 * Opening is collective over MPI_COMM_WORLD, and so is closing if it is open. */
void heartbeat_open(int rank, int size);
void heartbeat_close(void);
void heartbeat_turn(const struct comm_request *current, double waited, double now);
/* Another thread waits for this request since `began`; NULL: no longer. One thread at a time. A
 * request of another backend stays until the job ends. */
void heartbeat_show(const struct comm_request *request);

/* signals.c. Call before MPI starts: block SIGUSR1 and SIGTERM in this thread and all threads
 * that it creates, and start the thread that waits for them. watches_parent: the thread ends this
 * process if its parent, the launcher, ends before signals_parent_release. */
void signals_open(bool watches_parent);
void signals_parent_release(void);
/* Make SIGSEGV and other faults print rank and host before they end the process. */
void signals_report_faults(int rank, const char *host);

#endif
