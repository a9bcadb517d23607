/* How long a step will take: a rehearsed step on a machine's figures. Two queues are followed, what
 * the device computes and the collectives, one after the other as the communication thread runs
 * them; where the one needs the other's result it waits. */
#ifndef VITTRAIN_PLAN_FORECAST_H
#define VITTRAIN_PLAN_FORECAST_H

#include "plan/machine.h"

/* Seconds of a unit, or of a whole step. */
struct forecast_part {
    double flops[STEP_PHASES];   /* of a rank's step */
    double bytes;                /* that its operations read and write at least */
    double seconds[STEP_PHASES]; /* computing, as it would be alone */
    double communication;        /* of collectives that were started for it, alone */
    double exposed;              /* of it: waiting for collectives */
};

struct forecast {
    struct forecast_part *unit; /* [units + 1]: the last is of no unit; freed by forecast_close */
    int units;
    struct forecast_part step; /* all of it */
    double data;               /* seconds that the step waits for its images */
    double slowed;             /* seconds that computing took longer beside communication */
    double seconds;            /* of the step: computing + slowed + exposed + data */
};

/* How a mesh's groups lie on nodes. node_ranks: ranks that work on a node. */
struct forecast_mesh {
    struct group_shape shard, replica;
    int node_ranks;
};

/* Of a mesh of shard groups of ranks that follow one another, node by node. */
struct forecast_mesh forecast_mesh(int ranks, int node_ranks, int shard);

/* machine: NULL, times stay zero, operations are counted all the same.
 * false and an error: the machine's file lacks a speed that the step needs. */
MUST_CHECK bool forecast_make(struct forecast *forecast, const struct step_script *script,
                              int units, const struct machine *machine,
                              const struct forecast_mesh *mesh, struct error *error);
/* Loaders work ahead of the step: where they need longer for its samples, it waits. */
void forecast_load(struct forecast *forecast, const struct machine *machine, int64_t samples);

void forecast_close(struct forecast *forecast);

#endif
