// SPDX-License-Identifier: BSD-3-Clause
/* Predict what a run needs on any number of ranks before it runs: memory, communication, the
 * largest batch that fits, time. Memory is measured by the code that allocates (session_measure) on
 * a mesh without real ranks. Only find_batch is collective. */
#ifndef VITTRAIN_PLAN_PLAN_H
#define VITTRAIN_PLAN_PLAN_H

#include "config/options.h"
#include "core/error.h"
#include "plan/machine.h"
#include "train/session.h"

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
    double data;                 /* seconds in which the step waits for images */
    double slowed;               /* extra seconds of operations that overlap with communication */
    double seconds;              /* of the step: operations + slowed + exposed + data */
};

/* The placement of the groups of a mesh on nodes. */
struct mesh_shape {
    struct group_shape shard, replica;
    int node_ranks; /* ranks that work on a node */
};

/* The shape of a mesh whose shard groups are consecutive ranks, node by node. */
struct mesh_shape mesh_shape(int ranks, int node_ranks, int shard);

/* Predict a step. If machine is NULL only operations are counted and all times are zero. Returns
 * false and sets the error if the machine's file lacks a speed that is needed; else the caller
 * calls step_prediction_close. */
MUST_CHECK bool step_predict(struct step_prediction *prediction, const struct step_script *script,
                             int units, const struct machine *machine,
                             const struct mesh_shape *mesh, struct error *error);

/* Add the time by which loading `samples` images takes longer than the step. */
void step_prediction_add_loading(struct step_prediction *prediction, const struct machine *machine,
                                 int64_t samples);

void step_prediction_close(struct step_prediction *prediction);

/* ---- Memory and traffic (plan.c) */

/* The run to plan. */
struct plan {
    struct options options; /* completed from the data (options_resolve) */
    int ranks, node_ranks;  /* node_ranks: ranks per node; the last node may have fewer */
    struct image_source source;
    size_t kept; /* bytes of the images of data.distinct in the memory of each rank */
    bool training;
};

/* Describe the run. Reads the size of the images and the number of classes from the data, unless
 * the format implies them. */
MUST_CHECK bool plan_open(struct plan *plan, const struct options *options, int ranks,
                          int node_ranks, struct error *error);

/* Return the plan with another strategy and its default mesh.shard, and with other
 * checkpoint_activations. If the strategy is that of the options, mesh.shard is kept. */
struct plan plan_with(const struct plan *plan, enum strategy_choice strategy,
                      enum checkpoint_activations_choice checkpoint_activations);

/* Open a session with the plan's options on a mesh without ranks, and measure its memory, also by
 * unit (session->memory.rows). The caller closes it, also on failure, and keeps the plan until
 * then. */
MUST_CHECK bool plan_session(const struct plan *plan, struct session *session, struct error *error);

/* Return the largest train.batch with which the session needs at most `room` bytes; 0: none.
 * Changes what is measured. */
int64_t plan_largest_batch(const struct plan *plan, struct session *session, size_t room);

/* Bytes that a rank sends per step in its groups, and those of them that are sent to other nodes.
 */
struct plan_traffic {
    double shard, replica, network;
};
MUST_CHECK bool plan_traffic(const struct plan *plan, struct plan_traffic *sent,
                             struct error *error);

/* Make the script of a training step. The caller closes script and session, also on failure. */
MUST_CHECK bool plan_script(const struct plan *plan, struct session *session,
                            struct step_script *script, struct error *error);

/* Predict a training step. machine may be NULL (step_predict). The caller closes the session, also
 * on failure, and on success the prediction. */
MUST_CHECK bool plan_predict(const struct plan *plan, const struct machine *machine,
                             struct session *session, struct step_prediction *prediction,
                             struct error *error);

/* ---- Tables of `vittrain plan` on standard output. */

/* Read the file of plan.cluster or plan.machine; *machine is NULL if neither is set. Fails if a
 * file is named and cannot be read. */
MUST_CHECK bool plan_machine_find(const struct options *options, const struct machine **machine,
                                  struct error *error);

/* Print the memory by unit and all strategies side by side. machine may be NULL. */
MUST_CHECK bool plan_memory_print(const struct plan *plan, const struct machine *machine,
                                  struct error *error);

/* Print the operations by unit and, if machine is not NULL, their times, images/s and the length of
 * epochs. Warns if the machine is not this one. */
MUST_CHECK bool plan_time_print(const struct plan *plan, const struct machine *machine,
                                struct error *error);

/* Print a prediction of the run on 1, 2, 4, ... 4096 ranks of a machine. */
void plan_cluster_print(const struct plan *plan, const struct machine *machine);

/* Write the kernels of one training step to a CSV file: one row per kernel, in the order in which a
 * GPU runs them. benchmarks/gpu_page compares them with a profile. */
MUST_CHECK bool plan_operations_write(const struct plan *plan, const char *path,
                                      struct error *error);

/* Find the largest batch that runs, by trials: each allocates everything that a run needs, runs a
 * step on synthetic images, or on samples of arrays, and measures the memory. */

struct batch_trial {
    int64_t batch; /* train.batch */
    bool fits;
    size_t planned; /* bytes of the rank that needs most: arena, loaders, libraries */
    size_t peak;    /* largest hardware_memory_peak of a rank; 0: the allocation failed */
    double seconds; /* of the step */
    int64_t image;  /* height in pixels */
    enum data_type compute;
    int nodes;
    struct error why; /* reason of a failed allocation */
};

struct batch_search {
    struct plan plan;
    struct comm *world;
    size_t limit;            /* bytes per rank, including libraries */
    int64_t planned;         /* largest train.batch by the plan */
    struct batch_trial best; /* batch 0: none fits */
};

/* Collective. Search for the largest batch and print each trial on rank 0. Returns false and sets
 * the error if no batch fits. */
MUST_CHECK bool find_batch(const struct options *options, struct comm *world,
                           struct batch_search *search, struct error *error);

/* Local. If a session did not fit into memory (session_shortage), add to the error the batch,
 * strategy or activation checkpointing with which it would fit. */
void fit_advise(struct error *error);

#endif
