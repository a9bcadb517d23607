// SPDX-License-Identifier: BSD-3-Clause
/* Shared by the tests of collectives: types and operations with their MPI equivalents, values whose
 * sums are exact in every type and order, and MPI's results. */
#ifndef VITTRAIN_TEST_COMM_FIXTURE_H
#define VITTRAIN_TEST_COMM_FIXTURE_H

#include <mpi.h>

#include "comm/comm.h"

enum { COMM_TYPES = 6, COMM_OPERATIONS = 3 };

struct comm_test_type {
    enum comm_type type;
    size_t size;
    MPI_Datatype mpi; /* 16-bit types: the type of the widened values */
};
extern const struct comm_test_type comm_types[COMM_TYPES];

struct comm_test_operation {
    enum comm_operation operation;
    MPI_Op mpi;
};
extern const struct comm_test_operation comm_operations[COMM_OPERATIONS];

/* Sum of `wrong` over all ranks. */
int all_wrong(int64_t wrong);

/* Return `count` small values in a buffer that the caller frees. */
void *buffer_open(enum comm_type type, int64_t count, int rank, unsigned salt);

/* Return values whose sum depends on the order of addition. The caller frees them. */
float *noise_open(int rank, int64_t count);

/* Collective. True if the bits differ from rank 0's. */
bool differs_from_root(const float *values, int64_t count);

/* MPI's all-reduce in place. `type` is an index into comm_types. */
void reference_reduce(int type, void *buffer, int64_t count, MPI_Op operation, MPI_Comm comm);

#endif
