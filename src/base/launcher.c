// SPDX-License-Identifier: BSD-3-Clause
#include "base/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

/* The first row whose variable `rank` is set applies. The launchers of MPI come first because an
 * mpirun may run inside the job of another launcher, whose variables its ranks inherit. */
static const struct launcher {
    const char *rank, *size, *local_size; /* names of environment variables; NULL: none */
    bool mpi;                             /* starts MPI jobs, also of one rank */
    bool waits;
} launchers[] = {
    /* mpirun of Open MPI: sends SIGKILL one second after SIGTERM. */
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", true, false},
    /* srun --mpi=pmix */
    {"PMIX_RANK", NULL, NULL, true, true},
    /* mpirun of MPICH (Hydra); srun --mpi=pmi2, which does not set MPI_LOCALNRANKS */
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", true, true},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", true, false},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MPI_LOCALNRANKS", true, false},
    /* jsrun, mpiexec of PALS, aprun */
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_SIZE", true, false},
    {"PALS_RANKID", NULL, NULL, true, false},
    {"ALPS_APP_PE", NULL, NULL, true, false},
    /* Launchers of any programs, also of one process: flux run, torchrun, srun without MPI. */
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", NULL, false, false},
    {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", false, false},
    {"SLURM_PROCID", NULL, NULL, false, true},
};

enum { LAUNCHERS = sizeof launchers / sizeof launchers[0], NAME_SIZE = 32 };

static int variable_read(const char *variable)
{
    const char *value = variable != NULL ? getenv(variable) : NULL;
    return value != NULL ? atoi(value) : -1;
}

/* Return the launcher that set the variables of this process, or NULL. */
static const struct launcher *launcher_find(void)
{
    for (int i = 0; i < LAUNCHERS; i++) {
        /* RANK counts only together with WORLD_SIZE: other programs set it, too. */
        bool generic = strcmp(launchers[i].rank, "RANK") == 0;
        if (getenv(launchers[i].rank) != NULL && (!generic || getenv(launchers[i].size) != NULL))
            return &launchers[i];
    }
    return NULL;
}

/* Number of tasks of the job step, -1 if this process is not one of them. A batch script has the
 * number of tasks of its job, but is a single process. */
static int slurm_size(void)
{
    bool batch = getenv("SLURM_JOB_ID") != NULL && getenv("SLURM_STEP_ID") == NULL;
    int size = variable_read("SLURM_STEP_NUM_TASKS");
    return batch ? -1 : size >= 0 ? size : variable_read("SLURM_NTASKS");
}

int launcher_rank(void)
{
    const struct launcher *launcher = launcher_find();
    return launcher != NULL ? variable_read(launcher->rank) : -1;
}

int launcher_size(void)
{
    const struct launcher *launcher = launcher_find();
    if (launcher == NULL)
        return -1;
    if (launcher->size != NULL)
        return variable_read(launcher->size);
    const int size = slurm_size();
    /* Flux's PMIx plugin sets PMIX_RANK, too. */
    return size >= 0 || getenv("FLUX_TASK_RANK") == NULL ? size : variable_read("FLUX_JOB_SIZE");
}

int launcher_local_size(void)
{
    const struct launcher *launcher = launcher_find();
    return launcher != NULL ? variable_read(launcher->local_size) : -1;
}

bool launcher_is_mpirun(const char *program)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun"};
    const char *name = text_base_name(program);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

bool launcher_forwards(const char *program)
{
    return launcher_is_mpirun(program) || strcmp(text_base_name(program), "srun") == 0;
}

/* Find an mpirun, or its daemon on another node, among the ancestors of this process. Without the
 * variables (env -i, a container with a clean environment) it is the only sign of a launcher. */
static bool ancestor_find(char name[NAME_SIZE])
{
    static const char *const daemons[] = {"orted", "prted", "hydra_pmi_proxy"};
    unsigned long long process = (unsigned long long)getppid();
    bool found = false;
    while (!found && process > 1) {
        OWNED char *path = allocate_text("/proc/%llu/comm", process);
        OWNED char *status = allocate_text("/proc/%llu/status", process);
        OWNED char *text = text_file_read(path, NULL);
        if (text == NULL || !text_file_number(status, "PPid:", &process))
            return false;
        snprintf(name, NAME_SIZE, "%.*s", (int)strcspn(text, "\n"), text);
        found = launcher_is_mpirun(name);
        for (size_t i = 0; i < sizeof daemons / sizeof daemons[0]; i++)
            found = found || strcmp(name, daemons[i]) == 0;
    }
    return found;
}

bool launcher_has_ranks(void)
{
    char name[NAME_SIZE];
    const struct launcher *launcher = launcher_find();
    if (launcher == NULL)
        return ancestor_find(name);
    return launcher->mpi || launcher_rank() > 0 || launcher_size() > 1;
}

bool launcher_waits(void)
{
    const struct launcher *launcher = launcher_find();
    return launcher != NULL && launcher->waits;
}

void launcher_describe(char *text, size_t size)
{
    char name[NAME_SIZE];
    const struct launcher *launcher = launcher_find();
    text[0] = '\0';
    if (launcher != NULL)
        snprintf(text, size, "%s=%s", launcher->rank, getenv(launcher->rank));
    else if (ancestor_find(name))
        snprintf(text, size, "child of %s", name);
}
