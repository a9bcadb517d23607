// SPDX-License-Identifier: BSD-3-Clause
#include "core/launcher.h"

#include <stddef.h>
#include <stdlib.h>

/* The first row whose variable `rank` is set applies; the last row is for a process without a
 * launcher. */
static const struct launcher {
    const char *rank, *size, *local_size; /* names of environment variables; NULL: none */
    bool has_ranks, waits;
} launchers[] = {
    /* mpirun of Open MPI: sends SIGKILL one second after SIGTERM. */
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", true, false},
    /* srun --mpi=pmix */
    {"PMIX_RANK", NULL, NULL, true, true},
    /* mpirun of MPICH (Hydra); srun --mpi=pmi2, which does not set MPI_LOCALNRANKS */
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", true, true},
    /* A batch script of Slurm, or srun without MPI. */
    {"SLURM_PROCID", NULL, NULL, false, true},
    {NULL, NULL, NULL, false, false},
};

static const struct launcher *launcher_find(void)
{
    const struct launcher *launcher = launchers;
    while (launcher->rank != NULL && getenv(launcher->rank) == NULL)
        launcher++;
    return launcher;
}

static int variable_read(const char *variable)
{
    const char *value = variable != NULL ? getenv(variable) : NULL;
    return value != NULL ? atoi(value) : -1;
}

int launcher_rank(void)
{
    return variable_read(launcher_find()->rank);
}

int launcher_size(void)
{
    return variable_read(launcher_find()->size);
}

int launcher_local_size(void)
{
    return variable_read(launcher_find()->local_size);
}

bool launcher_has_ranks(void)
{
    return launcher_find()->has_ranks;
}

bool launcher_waits(void)
{
    return launcher_find()->waits;
}
