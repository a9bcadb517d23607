// SPDX-License-Identifier: BSD-3-Clause
/* The launcher that started this process, as its environment variables show. */
#ifndef VITTRAIN_CORE_LAUNCHER_H
#define VITTRAIN_CORE_LAUNCHER_H

#include <stdbool.h>

/* Rank of this process, number of ranks, and number of ranks on this node. -1: no launcher, or one
 * that does not report it. */
int launcher_rank(void);
int launcher_size(void);
int launcher_local_size(void);

/* True in a process that mpirun or srun has started for MPI. False in a batch script of Slurm. */
bool launcher_has_ranks(void);

/* True if SIGTERM asks for a graceful stop: the launcher then waits until the process has ended.
 * False without a launcher. */
bool launcher_waits(void);

#endif
