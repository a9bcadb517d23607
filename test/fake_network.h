/* A bad network between the tested code and the real MPI, and nodes that are none: the program's
 * calls of MPI_Isend, MPI_Test, MPI_Comm_split_type and nanosleep come here first (MPI's profiling
 * interface). Link fake_network.c into the test. */
#ifndef VITTRAIN_TEST_FAKE_NETWORK_H
#define VITTRAIN_TEST_FAKE_NETWORK_H

#include <stdbool.h>

/* From now on: messages leave late, those to one rank before or after those to another; what has
 * arrived is not seen at once; sleeps last longer. */
void network_delay(bool on);

/* From now on groups see nodes of so many ranks of MPI_COMM_WORLD, which follow each other or,
 * `mixed`, are dealt out in turn; the last may have fewer. 0: the real ones. */
void network_set_nodes(int ranks_a_node, bool mixed);

#endif
