// SPDX-License-Identifier: BSD-3-Clause
/* Find the largest batch that runs, by trials: each allocates everything that a run needs, runs a
 * step on synthetic images, or on samples of arrays, and measures the memory. */
#ifndef VITTRAIN_PLAN_FIND_BATCH_H
#define VITTRAIN_PLAN_FIND_BATCH_H

#include "plan/plan.h"

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

#endif
