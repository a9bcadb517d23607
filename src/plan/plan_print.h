// SPDX-License-Identifier: BSD-3-Clause
/* Tables of `vittrain plan` on standard output. Not collective: one rank calls these. */
#ifndef VITTRAIN_PLAN_PLAN_PRINT_H
#define VITTRAIN_PLAN_PLAN_PRINT_H

#include "plan/plan.h"

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

#endif
