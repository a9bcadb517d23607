/* The table of `vittrain plan` with plan.cluster. */
#ifndef VITTRAIN_PLAN_PLAN_CLUSTER_H
#define VITTRAIN_PLAN_PLAN_CLUSTER_H

#include "plan/plan.h"

/* Print a prediction of the run on 1, 2, 4, ... 4096 ranks of a machine. Not collective. */
void plan_cluster_print(const struct plan *plan, const struct machine *machine);

#endif
