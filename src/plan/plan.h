// SPDX-License-Identifier: BSD-3-Clause
/* Predict what a run needs on any number of ranks before it runs: memory, communication, the
 * largest batch that fits, time. Memory is measured by the code that allocates (session_measure) on
 * a mesh without real ranks. Only find_batch is collective. */
#ifndef VITTRAIN_PLAN_PLAN_H
#define VITTRAIN_PLAN_PLAN_H

#include "config/options.h"
#include "core/error.h"
#include "plan/step_prediction.h"
#include "train/session.h"

/* The run to plan. */
struct plan {
    struct options options; /* completed from the data (options_resolve) */
    int ranks, node_ranks;  /* node_ranks: ranks per node; the last node may have fewer */
    struct image_source source;
    size_t kept; /* bytes of the images of data.distinct in the memory of each rank */
    bool training;
};

/* Needs of one strategy, per rank. */
struct plan_entry {
    enum strategy_choice strategy;
    enum checkpoint_activations_choice checkpoint_activations;
    struct error error; /* if set, the strategy is not possible and the members below are zero */
    int replica, shard; /* the mesh */
    enum data_type compute;
    int64_t batch;                   /* samples of a micro-batch */
    size_t by_class[MEMORY_CLASSES]; /* bytes of the arena */
    size_t arena, feeds;             /* bytes of the arena, and of batches loaded ahead (host) */
    size_t snapshot;                 /* bytes for checkpoints in the background (host) */
    size_t needs;                    /* bytes that must be free (session_needs) */
    size_t base;                     /* bytes that the process uses before it allocates */
    double sent_shard, sent_replica; /* bytes sent per step in the groups (plan_add_traffic) */
    double sent_network;             /* bytes of these that are sent to other nodes */
    int64_t largest_batch;           /* largest train.batch that fits; 0: none */
};

/* Describe the run. Reads the size of the images and the number of classes from the data, unless
 * the format implies them. */
MUST_CHECK bool plan_open(struct plan *plan, const struct options *options, int ranks,
                          int node_ranks, struct error *error);

/* Plan one strategy. If it is not that of the options, mesh.shard is ignored. room: bytes for
 * largest_batch; 0: do not compute it. */
void plan_make(const struct plan *plan, enum strategy_choice strategy,
               enum checkpoint_activations_choice checkpoint_activations, size_t room,
               struct plan_entry *entry);

/* Set the bytes that a training step sends. */
void plan_add_traffic(const struct plan *plan, struct plan_entry *entry);

/* The model and the mesh of a prediction. */
struct plan_details {
    double flops_per_image; /* of a training step */
    int64_t parameters;
    enum data_type compute;
    int64_t batch; /* per rank and step */
    int replica, shard;
    size_t needs;        /* session_needs */
    size_t shared_bytes; /* of /dev/shm for checkpoints in memory */
    char **unit_name;    /* [units] */
    int units;
};
void plan_details_close(struct plan_details *details);

/* Predict a training step with one strategy. machine may be NULL (step_predict), details too. On
 * success the caller closes prediction and details. */
MUST_CHECK bool plan_predict(const struct plan *plan, enum strategy_choice strategy,
                             enum checkpoint_activations_choice checkpoint_activations,
                             const struct machine *machine, struct step_prediction *prediction,
                             struct plan_details *details, struct error *error);

/* Make the script of a training step with the options' strategy. The caller closes script and
 * session, also on failure. */
MUST_CHECK bool plan_script(const struct plan *plan, struct session *session,
                            struct step_script *script, struct error *error);

/* Return the memory of the options' strategy by rows: ARENA_SHARED_ROW, then a row for each unit of
 * session->model. The caller frees the rows and closes the session. NULL on error. */
size_t (*plan_rows(const struct plan *plan, struct session *session,
                   struct error *error))[MEMORY_CLASSES];

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
