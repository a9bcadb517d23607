/* For all who call MPI themselves: its errors come back to us (MPI_ERRORS_RETURN), so the result of
 * every call is looked at. What fails in MPI cannot be mended here and ends the job. */
#ifndef VITTRAIN_COMM_MPI_CHECK_H
#define VITTRAIN_COMM_MPI_CHECK_H

#include <mpi.h>

#define MPI_CHECK(call) mpi_check(call, #call, __FILE__, __LINE__)
/* Returns where `result` is MPI_SUCCESS; else says which call failed, where and why, and aborts. */
void mpi_check(int result, const char *call, const char *file, int line);

#endif
