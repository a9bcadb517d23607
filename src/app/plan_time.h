/* What `plan` says of time (plan_time.c: of one layout, plan_cluster.c: of 1 to 4096 ranks). */
#ifndef VITTRAIN_APP_PLAN_TIME_H
#define VITTRAIN_APP_PLAN_TIME_H

#include "plan/plan.h"

struct options;

/* What the times go by: the file of plan.machine or plan.cluster; NULL where there is none. An
 * error where one is named and cannot be read. */
MUST_CHECK bool plan_machine_find(const struct options *options, const struct machine **machine,
                                  struct error *error);

/* Operations by unit of the options' own way; with a machine also times, what of the communication
 * is hidden, images a second, epochs. Said where the machine is not this one. */
MUST_CHECK bool plan_time_print(const struct plan *plan, const struct machine *machine,
                                struct error *error);

/* The table of plan.cluster. */
MUST_CHECK bool plan_cluster_print(const struct plan *plan, const struct machine *machine,
                                   struct error *error);

/* Write the kernels of one step of the options' own way to a CSV file: a row a kernel, in order. */
MUST_CHECK bool plan_operations_write(const struct plan *plan, const char *path,
                                      struct error *error);

/* Samples of an epoch, where the data are there; else 0. */
int64_t plan_epoch_samples(const struct options *options);

#endif
