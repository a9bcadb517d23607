// SPDX-License-Identifier: BSD-3-Clause
/* Predict the time of a step from its script and a machine's speeds. Two queues are simulated: the
 * device's operations, and the collectives, which the communication thread runs one after another.
 * A queue waits if it needs a result of the other. */
#ifndef VITTRAIN_PLAN_STEP_PREDICTION_H
#define VITTRAIN_PLAN_STEP_PREDICTION_H

#include "plan/machine.h"

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

#endif
