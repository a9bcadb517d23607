// SPDX-License-Identifier: BSD-3-Clause
/* Rank and number of ranks in the environments of the launchers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/launcher.h"

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_RANK",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_PROCID"};

enum { VARIABLES = sizeof variables / sizeof variables[0] };

static const struct {
    const char *value[VARIABLES]; /* NULL: not set */
    int rank, size, local_size;
    bool has_ranks, waits;
} environments[] = {
    {{0}, -1, -1, -1, false, false},
    /* Open MPI's mpirun, alone and in a batch script of Slurm; MPICH's mpirun in both. */
    {{"3", "8", "4", "3"}, 3, 8, 4, true, false},
    {{"3", "8", "4", "3", NULL, NULL, NULL, "0"}, 3, 8, 4, true, false},
    {{NULL, NULL, NULL, NULL, "5", "6", "2"}, 5, 6, 2, true, true},
    {{NULL, NULL, NULL, NULL, "5", "6", "2", "0"}, 5, 6, 2, true, true},
    /* srun --mpi=pmix, srun --mpi=pmi2, a batch script. */
    {{NULL, NULL, NULL, "7", NULL, NULL, NULL, "7"}, 7, -1, -1, true, true},
    {{NULL, NULL, NULL, NULL, "7", "9", NULL, "7"}, 7, 9, -1, true, true},
    {{NULL, NULL, NULL, NULL, NULL, NULL, NULL, "0"}, 0, -1, -1, false, true},
};

static void each_launcher_is_recognised(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof environments / sizeof environments[0]; i++) {
        for (int v = 0; v < VARIABLES; v++)
            if (environments[i].value[v] != NULL)
                setenv(variables[v], environments[i].value[v], 1);
            else
                unsetenv(variables[v]);
        assert_int_equal(launcher_rank(), environments[i].rank);
        assert_int_equal(launcher_size(), environments[i].size);
        assert_int_equal(launcher_local_size(), environments[i].local_size);
        assert_int_equal(launcher_has_ranks(), environments[i].has_ranks);
        assert_int_equal(launcher_waits(), environments[i].waits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_launcher_is_recognised),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
