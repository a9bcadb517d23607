// SPDX-License-Identifier: BSD-3-Clause
/* The launcher that started this process, as its environment variables and its ancestors show. */
#ifndef VITTRAIN_BASE_LAUNCHER_H
#define VITTRAIN_BASE_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>

/* Rank of this process, number of ranks, and number of ranks on this node. -1: no launcher, or one
 * that does not report it. */
int launcher_rank(void);
int launcher_size(void);
int launcher_local_size(void);

/* True in a process that must be one of the ranks of an MPI job: its launcher starts MPI jobs, or
 * has started several processes. False in a batch script of Slurm. */
bool launcher_has_ranks(void);

/* True if SIGTERM asks for a graceful stop: the launcher then waits until the process has ended.
 * False without a launcher. */
bool launcher_waits(void);

/* True for mpirun and srun, which forward SIGUSR1 to the ranks. */
bool launcher_forwards(const char *program);

/* Describe why this process counts as launched: "SLURM_PROCID=1", "child of mpirun". */
void launcher_describe(char *text, size_t size);

/* True if the program is an mpirun: also mpirun.openmpi, mpiexec.hydra. */
bool launcher_is_mpirun(const char *program);

#endif
