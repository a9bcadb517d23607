/* What the files of this room share. The backend "mpi" is five things: groups (mpi.c), the queue of
 * tickets and the thread that runs them (progress.c), the transport of each group (transport.c),
 * the algorithms (ring.c, tree.c over messages, shared.c over memory, hierarchical.c over both),
 * and the watch that finds out who is missing (watch.c). */
#ifndef VITTRAIN_COMM_INTERNAL_H
#define VITTRAIN_COMM_INTERNAL_H

#include <stdatomic.h>

#include "comm/combine.h"
#include "comm/comm.h"
#include "comm/mpi_check.h"
#include "config/mesh_options.h"

extern const struct comm_backend comm_mpi, comm_fake;

enum { HOST_NAME = 64 };

struct group {
    struct comm comm; /* first: a struct comm of this backend is a group */
    MPI_Comm communicator;
    int *world_rank;         /* [size]: for messages */
    int64_t identity;        /* the same on all its ranks, of no other group */
    int64_t started;         /* collectives queued so far */
    _Atomic int64_t entered; /* the last collective that the communication thread began */
    /* transport.c: how large collectives go. */
    struct window *window; /* shared memory of a group within a node, or NULL */
    struct group *inside,
        *across;    /* hierarchical: ranks of this node, of this place on each node */
    bool by_node;   /* hierarchical: the ranks of a node follow each other */
    char note[192]; /* why auto did not take shared memory, or "" */
    struct group *next;
};

enum action {
    ACTION_ALL_REDUCE,
    ACTION_REDUCE_SCATTER,
    ACTION_ALL_GATHER,
    ACTION_BROADCAST,
    ACTION_SEND,
    ACTION_RECEIVE
};

struct ticket {
    struct ticket *next;
    struct group *group;
    enum action action;
    void *buffer;
    int64_t count;
    enum comm_type type;
    enum comm_operation operation;
    int peer; /* root, or the other rank */
    struct event *after;
    const char *what; /* of the watch: a collective of another backend; NULL: action says it */
    int64_t sequence; /* which collective of its group, from 1; 0: not a collective */
    double began;     /* clock_now() when the thread took it */
    bool over;
};

/* What an algorithm works on: one block a rank of `group`, some elements long, block b beginning at
 * element b * stride. What would lie behind `total` is not there, so the last blocks may be short
 * or empty. reduces: block r becomes the sum of all ranks', on rank r. gathers: then rank r's block
 * r goes to all. */
struct stage {
    const struct ticket *ticket; /* type and operation; what the watch speaks of */
    const struct group *group;
    unsigned char *buffer;
    int64_t block, stride, total; /* elements */
    bool reduces, gathers;
};

/* Elements first .. first + count - 1 of a block: where they lie, and how many of them there are.
 */
int64_t stage_part(const struct stage *stage, int64_t block, int64_t first, int64_t count,
                   unsigned char **part);

/* Messages on a group's own communicator. */
enum { TAG_COLLECTIVE = 1, TAG_BYTES = 2 };

/* progress.c: the queue. A ticket is run by the thread in the order of progress_start. */
void progress_open(void);
void progress_close(void);
struct ticket *progress_start(const struct ticket *ticket);
void progress_wait(struct ticket *ticket);
void progress_times(double *busy, double *exposed);

/* A turn of a loop that waits for messages: `moved` says whether anything came since the last turn.
 * Sleeps, the longer the longer nothing comes; ends the job at the timeout. */
struct idle {
    const struct ticket *ticket;
    int turns; /* since something came */
    unsigned moves;
    double since, next_watch;
};
void progress_idle(struct idle *idle, bool moved);

/* lane.c: messages to or from one rank, in order, up to LANE_WINDOW of them under way. */
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
/* Is the oldest message that was under way over? Then done has grown by one. */
bool lane_test(struct lane *lane);
/* Waits for all that is under way. */
void lane_drain(struct lane *lane, struct idle *idle);

/* The algorithms; scratch is SCRATCH_BYTES. */
enum { SEGMENT_BYTES = 1 << 20, SCRATCH_BYTES = LANE_WINDOW * SEGMENT_BYTES };
/* Up to this size the number of messages matters, not their length. */
enum { SMALL_BYTES = 32 << 10 };
void ring_run(const struct stage *stage, unsigned char *scratch);
void tree_all_reduce(const struct ticket *ticket, unsigned char *scratch);
void tree_broadcast(const struct ticket *ticket, int root);
void chain_run(const struct ticket *ticket);
/* Of a group with a window. */
void shared_run(const struct stage *stage);
void shared_broadcast(const struct ticket *ticket);
/* Reductions and gathers of a group over several nodes. */
void hierarchical_run(const struct ticket *ticket, unsigned char *scratch);

/* window.c: memory that the ranks of a group within a node share. Marks of all ranks, then each
 * rank's area: slots of a chunk each, and slots for its own block's part of a chunk. */
enum { WINDOW_SLOTS = 4, WINDOW_CHUNK = 512 << 10 };
/* How many chunks a rank has copied in, added up, copied out, each on a cache line of its own. */
struct marks {
    _Alignas(64) _Atomic uint64_t copied;
    _Alignas(64) _Atomic uint64_t reduced;
    _Alignas(64) _Atomic uint64_t gathered;
};
struct window {
    unsigned char *memory;
    size_t bytes, marks_bytes, area_bytes, part_bytes;
    int size, rank;
    uint64_t chunks; /* of all collectives so far; the same on all ranks */
};
/* Collective. NULL and an error, on all ranks, where there is no room. */
struct window *window_open(struct comm *comm, int64_t identity, struct error *error);
void window_close(struct window *window);

/* transport.c: runs a ticket, a stage, by the transport of its group. */
void transport_run(const struct ticket *ticket, unsigned char *scratch);
void transport_run_stage(const struct stage *stage, unsigned char *scratch);
MUST_CHECK bool transport_set(struct comm *comm, enum transport_choice wanted, struct error *error);
void transport_describe(const struct comm *comm, char *text, size_t size);
void transport_close(struct group *group);

/* watch.c: ranks ask each other where they are, over a communicator of their own. watch_turn
 * answers what has been asked (`current`: what this rank is in, or NULL); watch_check ends the job
 * when the ticket has waited too long. */
void watch_open(int rank);
void watch_close(void);
void watch_turn(const struct ticket *current);
void watch_check(const struct ticket *ticket, double waited);

/* mpi.c: the last collective that this rank started in the group with that identity; 0 if the rank
 * is not in such a group. */
int64_t groups_entered(int64_t identity);
int world_size(void);

/* mpi.c: end the job with ERROR_PEER after its cause has been printed. Ends at least this process
 * within seconds. */
void failure_end(void) __attribute__((noreturn));
/* True once this rank has printed why it ends the job. */
bool failure_is_reported(void);

/* heartbeat.c: finds ranks that have stopped sending, over the communicator of watch.c
 * (comm_set_heartbeat_timeout). heartbeat_turn may be called by any thread, often; it costs nothing
 * when no message is due. */
void heartbeat_open(MPI_Comm communicator, int rank, int size);
void heartbeat_close(void);
void heartbeat_turn(double now);
/* Print the silent ranks when the launcher ends the job before the timeout. */
void heartbeat_report_silent(void);

/* signals.c. Call before MPI starts: block SIGUSR1 and SIGTERM in this thread and all threads
 * that it creates, and start the thread that waits for them. */
void signals_open(void);
/* Make SIGSEGV and other faults print rank and host before they end the process. */
void signals_report_faults(int rank, const char *host);
/* End this process after that time with ERROR_PEER, even if all its threads hang. */
void signals_end_after(unsigned seconds);

#endif
