// SPDX-License-Identifier: BSD-3-Clause
/* Predict what a run needs on any number of ranks before it runs: memory, communication, the
 * largest batch that fits, time. Memory is measured by the code that allocates (session_measure) on
 * a mesh without real ranks. */
#ifndef VITTRAIN_PLAN_PLAN_H
#define VITTRAIN_PLAN_PLAN_H

#include <stdio.h>

#include "base/error.h"
#include "device/count.h"
#include "options/options.h"
#include "train/session.h"

/* ---- Speeds of a machine (machine.c), read from a file: matrix products, memory, collectives
 * inside a node and between nodes. `vittrain bench device` and `bench comm` measure them; the file
 * of a cluster that is not available is written by hand from data sheets (input/clusters). Format:
 * docs/planning.md. */

/* Only the first three are measured; an all-to-all takes the times of a reduce-scatter. */
enum collective_action { ACTION_SUM, ACTION_SCATTER, ACTION_GATHER, ACTION_ALL_TO_ALL };
enum { COLLECTIVE_ACTIONS = ACTION_GATHER + 1 };

/* A collective of the mesh: all-reduce, reduce-scatter, all-gather or all-to-all. */
struct collective {
    enum collective_action action;
    bool replica; /* in the replica group; else in the shard group */
    double bytes; /* all-reduce: of the buffer; all-to-all: to each other rank; else: of one rank's
                     block */
};

enum { MACHINE_POINTS = 32, MACHINE_TEXT = 128, MACHINE_TYPES = TYPE_FP16 + 1 };

/* Measured values by size. Of an operation: speeds, in FLOP/s of matrix products, else bytes/s, by
 * the sizes of struct counted. Of a collective: seconds by machine_network_bytes, in increasing
 * order. */
struct measured {
    int count;
    struct measured_point {
        double size[3], value;
    } point[MACHINE_POINTS];
};

/* The network between the ranks of a node, or between nodes that use all their ranks. */
struct network {
    double latency;   /* seconds per message */
    double bandwidth; /* bytes/s: sent by a rank inside a node, by a node between nodes */
    struct measured measured[COLLECTIVE_ACTIONS];
    int members;  /* ranks or nodes during the measurement */
    double share; /* of the bandwidth that is left if all nodes communicate */
    /* The algorithms of NCCL (machine_collective_seconds): the latency of an all-reduce grows with
     * the logarithm of the members; else linearly. */
    bool tree;
    /* Relative speed, 0 to 1, of operations and of communication while they overlap. */
    double compute_speed, send_speed;
};

/* The file system that all nodes share. Times are predicted if operations and bandwidth are known.
 */
struct file_system {
    double operations; /* metadata operations/s for all ranks together; 0: unknown */
    double latency;    /* seconds of one of several consecutive operations; default 1 ms */
    double bandwidth;  /* bytes/s of a stripe; 0: unknown */
    int stripes;       /* of a file in the run folder; default 1 */
};

struct machine {
    char path[MACHINE_TEXT * 4];
    char date[MACHINE_TEXT], host[MACHINE_TEXT], commit[MACHINE_TEXT], device[MACHINE_TEXT];
    int node_ranks, nodes, threads;
    int shared_memory;       /* 1: the ranks of a node share weights and gradients, as on CPUs */
    double memory;           /* bytes per rank; 0: unknown */
    double watts;            /* of a node in training; 0: unknown */
    double images;           /* images/s that a rank's loaders prepare; 0: enough */
    double deviation;        /* relative standard deviation of a step's operations over the ranks */
    double launch;           /* seconds of overhead per operation */
    double memory_bandwidth; /* bytes/s, reads and writes */
    double flops[MACHINE_TYPES]; /* FLOP/s that matrix products reach; 0: unknown */
    double peak[MACHINE_TYPES];  /* FLOP/s of the data sheet; 0: unknown */
    double alone; /* speed of a rank on an otherwise idle node, relative to a fully used node */
    struct measured speed[MACHINE_TYPES][OPERATIONS];
    struct network inside, between;
    struct file_system files;
};

/* Read a file. An unknown key, an invalid number or a missing speed is an error of one line that
 * names the file, the line and the key. is_part: speeds may be missing, and the file, too. */
MUST_CHECK bool machine_read(struct machine *machine, const char *path, bool is_part,
                             struct error *error);

/* Write a file that machine_read reads as a part. */
void machine_write(const struct machine *machine, FILE *file);

/* Return the seconds of an operation on a rank if node_ranks ranks of its node work. INFINITY: the
 * speed of matrix products in its type is not known. */
double machine_operation_seconds(const struct machine *machine, const struct counted *counted,
                                 int node_ranks);

/* True if the speed of matrix products in this type is known. */
bool machine_multiplies(const struct machine *machine, enum data_type type);

/* A group of a mesh: `inside` ranks on each of `nodes` nodes. `groups` such groups use the same
 * nodes at the same time. */
struct group_shape {
    int inside, nodes, groups;
};

/* Return the seconds of a collective: a ring on one node, or a hierarchy of nodes (docs/mesh.md);
 * an all-to-all sends each block directly to its rank. INFINITY: the speed of a network is not
 * known.
 *
 * If `tree` is set between nodes, the latencies follow the model by which NCCL chooses algorithms
 * (src/graph/tuning.cc): an all-reduce is a tree of nodes. An all-gather or reduce-scatter is one
 * ring of all N ranks on n nodes, with n - 1 messages between and N - n inside nodes; if each node
 * has one rank, it is PAT (NCCL 2.23): log2(n) messages and 2.8 us per rank. NVLS and in-network
 * reductions are not modelled. */
double machine_collective_seconds(const struct machine *machine,
                                  const struct collective *collective,
                                  const struct group_shape *shape);

/* Return the bytes that `members` members of a ring send each; keys the measured times. */
double machine_network_bytes(const struct collective *collective, int members);

/* ---- The script of a training step (step_prediction.c): each device operation and each
 * collective, in the order in which step_rehearse queues them on an imagined mesh. Predictions of a
 * strategy's time therefore follow the code that runs it. */

enum script_event_kind {
    EVENT_OPERATION,
    EVENT_START, /* a collective is queued */
    EVENT_WAIT   /* the stream waits for its result */
};

struct script_event {
    enum script_event_kind kind;
    enum step_phase phase;
    int unit;                     /* -1: none; WAIT: the unit that runs */
    struct counted counted;       /* OPERATION */
    int number;                   /* START, WAIT: of the collective, from 0 */
    struct collective collective; /* START */
};

struct step_script {
    struct script_event *event;
    int count, capacity, collectives;
};

/* Records a step of a session from session_imagine, for training, after session_measure. The
 * session can only be closed afterwards. */
void step_script_make(struct step_script *script, struct session *session,
                      const struct image_source *source);
void step_script_close(struct step_script *script);

/* ---- The time of a step, from its script and a machine's speeds (step_prediction.c). Two queues
 * are simulated: the device's operations, and the collectives, which the communication thread runs
 * one after another. A queue waits if it needs a result of the other. */

/* Work and times of a unit, or of a whole step, on one rank. */
struct unit_prediction {
    double flops[STEP_PHASES];
    double bytes;                /* least memory traffic of the operations */
    double seconds[STEP_PHASES]; /* of operations without concurrent communication */
    double communication;        /* seconds of collectives without concurrent operations */
    double exposed;              /* seconds in which operations wait for collectives */
};

struct step_prediction {
    struct unit_prediction *unit; /* [units + 1]: the last is for work outside of units */
    int units;
    struct unit_prediction step; /* sum */
    double data;        /* seconds in which the step waits for images; set by plan_predict */
    double slowed;      /* extra seconds of operations that overlap with communication */
    double stragglers;  /* seconds of waiting for the slowest rank; set by plan_predict */
    double seconds;     /* of the step: operations + slowed + exposed + data + stragglers */
    struct error lacks; /* a needed speed that the machine's file lacks: the times are not valid */
    /* Bytes that a rank sends in its groups, and those of them that are sent to other nodes; set by
     * plan_predict. */
    double sent_shard, sent_replica, sent_network;
};

/* The placement of the groups of a mesh on nodes. */
struct mesh_shape {
    struct group_shape shard, replica;
    int node_ranks; /* ranks that work on a node */
};

/* The shape of a mesh whose shard groups are consecutive ranks, node by node. */
struct mesh_shape mesh_shape(int ranks, int node_ranks, int shard);

/* Predict a step. If machine is NULL, operations are counted and all times are zero. The caller
 * calls step_prediction_close. */
void step_predict(struct step_prediction *prediction, const struct step_script *script, int units,
                  const struct machine *machine, const struct mesh_shape *mesh);

void step_prediction_close(struct step_prediction *prediction);

/* ---- Memory and traffic (plan.c) */

/* The run to plan. */
struct plan {
    struct options options; /* completed from the data (options_resolve) */
    int ranks, node_ranks;  /* node_ranks: ranks per node; the last node may have fewer */
    struct image_source source;
    size_t kept;   /* bytes of the images of data.distinct in the memory of each rank */
    bool training; /* with gradients and optimizer state */
};

/* Describe a training run. Reads the size of the images and the number of classes from the data,
 * unless the format implies them. */
MUST_CHECK bool plan_open(struct plan *plan, const struct options *options, int ranks,
                          int node_ranks, struct error *error);

/* Return the plan with another strategy and its default mesh.shard, and with other
 * checkpoint_activations. If the strategy is that of the options, mesh.shard is kept. */
struct plan plan_with(const struct plan *plan, enum strategy_choice strategy,
                      enum checkpoint_activations_choice checkpoint_activations);

/* Open a session with the plan's options on a mesh without ranks, and measure its memory, also by
 * unit (session->memory.rows). The caller closes it, also on failure. */
MUST_CHECK bool plan_session(const struct plan *plan, struct session *session, struct error *error);

/* Return the largest train.batch with which a rank needs at most `room` bytes; 0: none. session:
 * that of the plan. */
int64_t plan_largest_batch(const struct plan *plan, struct session *session, size_t room);

/* Predict a training step of the plan's session, which can only be closed afterwards. machine may
 * be NULL (step_predict). The caller closes the prediction. */
struct step_prediction plan_predict(const struct plan *plan, const struct machine *machine,
                                    struct session *session);

/* ---- Files (run_files.c): the load of the shared file system. */

enum file_phase { FILES_START, FILES_CHECKPOINT, FILES_WEIGHTS, FILES_RESUME, FILE_PHASES };

/* Sums over all ranks. */
struct file_work {
    const char *phase;
    double operations;  /* metadata operations */
    double consecutive; /* the part of them that rank 0 does one after another */
    double bytes;       /* written or read */
    double ranks;       /* that access files */
    double seconds;
};

/* Predict the work of the phases of a run with the plan's session, from the division of checkpoints
 * among the ranks (checkpoint.h). The machine's file system must be known. */
void plan_files(const struct plan *plan, const struct session *session,
                const struct machine *machine, struct file_work work[FILE_PHASES]);

/* Local. If a session did not fit into memory (session_shortage), add to the error the batch,
 * strategy or activation checkpointing with which it would fit. */
void fit_advise(struct error *error);

#endif
