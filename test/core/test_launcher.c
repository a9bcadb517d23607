// SPDX-License-Identifier: BSD-3-Clause
/* Rank and number of ranks in the environments of the launchers. */
#include "core/launcher.h"

#include "test.h"

static const struct {
    const char *set; /* "NAME=VALUE NAME=VALUE" */
    int rank, size, local_size;
    bool has_ranks, waits;
} environments[] = {
    {"", -1, -1, -1, false, false},
    /* Open MPI's mpirun, alone, in a batch script of Slurm, and as the program of srun. */
    {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_RANK=3", 3, 8,
     4, true, false},
    {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=4 SLURM_PROCID=0", 3,
     8, 4, true, false},
    {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 SLURM_PROCID=1 SLURM_STEP_ID=0 "
     "SLURM_STEP_NUM_TASKS=2",
     3, 8, -1, true, false},
    /* MPICH's mpirun, alone and in a batch script. */
    {"PMI_RANK=5 PMI_SIZE=6 MPI_LOCALNRANKS=2", 5, 6, 2, true, true},
    {"PMI_RANK=5 PMI_SIZE=6 MPI_LOCALNRANKS=2 SLURM_PROCID=0", 5, 6, 2, true, true},
    /* srun --mpi=pmix, srun --mpi=pmi2 */
    {"PMIX_RANK=7 SLURM_PROCID=7", 7, -1, -1, true, true},
    {"PMIX_RANK=7 SLURM_PROCID=7 SLURM_STEP_NUM_TASKS=9", 7, 9, -1, true, true},
    {"PMIX_RANK=0 FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1", 0, 1, -1, true, true},
    {"PMI_RANK=7 PMI_SIZE=9 SLURM_PROCID=7", 7, 9, -1, true, true},
    /* A batch script of 8 tasks; one task that srun starts in that job; two; two in a container
     * that gets only these variables. */
    {"SLURM_JOB_ID=3 SLURM_PROCID=0 SLURM_NTASKS=8", 0, -1, -1, false, true},
    {"SLURM_JOB_ID=3 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1", 0, 1,
     -1, false, true},
    {"SLURM_JOB_ID=3 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2", 0, 2,
     -1, true, true},
    {"SLURM_PROCID=0 SLURM_NTASKS=2", 0, 2, -1, true, true},
    {"SLURM_PROCID=1", 1, -1, -1, true, true},
    /* Launchers of MPI whose ranks have further variables if they belong to the MPI in use. */
    {"MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2", 0, 2, -1, true, false},
    {"MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", 1, 2, 2, true, false},
    {"JSM_NAMESPACE_RANK=1", 1, -1, -1, true, false},
    {"PALS_RANKID=1", 1, -1, -1, true, false},
    {"ALPS_APP_PE=1", 1, -1, -1, true, false},
    /* flux run and torchrun with several processes and with one. RANK alone may mean anything. */
    {"FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2", 0, 2, -1, true, false},
    {"FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1", 0, 1, -1, false, false},
    {"RANK=0 WORLD_SIZE=2", 0, 2, -1, true, false},
    {"RANK=0 WORLD_SIZE=1", 0, 1, -1, false, false},
    {"RANK=1", -1, -1, -1, false, false},
};

/* Set the variables and remove all others. */
static void environment_set(const char *set)
{
    char copy[256], *rest = copy;
    clearenv();
    snprintf(copy, sizeof copy, "%s", set);
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(word, '=');
        if (value == NULL)
            continue;
        *value++ = '\0';
        setenv(word, value, 1);
    }
}

TEST(each_launcher_is_recognised)
{
    for (size_t i = 0; i < sizeof environments / sizeof environments[0]; i++) {
        environment_set(environments[i].set);
        assert_int_equal(launcher_rank(), environments[i].rank);
        assert_int_equal(launcher_size(), environments[i].size);
        assert_int_equal(launcher_local_size(), environments[i].local_size);
        assert_int_equal(launcher_has_ranks(), environments[i].has_ranks);
        assert_int_equal(launcher_waits(), environments[i].waits);
    }
}

TEST_MAIN()
