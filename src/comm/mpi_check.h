// SPDX-License-Identifier: BSD-3-Clause
/* Check of MPI's return codes (MPI_ERRORS_RETURN is set). An error of MPI ends the job. */
#ifndef VITTRAIN_COMM_MPI_CHECK_H
#define VITTRAIN_COMM_MPI_CHECK_H

#include <mpi.h>

#define MPI_CHECK(call) mpi_check(call, #call, __FILE__, __LINE__)
/* Return if `result` is MPI_SUCCESS; otherwise print the call, its place and the error, and abort.
 */
void mpi_check(int result, const char *call, const char *file, int line);

#endif
