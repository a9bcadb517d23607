// SPDX-License-Identifier: BSD-3-Clause
/* Simulates a slow network between the tested code and MPI, and nodes: it replaces MPI_Isend,
 * MPI_Test, MPI_Comm_split_type and nanosleep through MPI's profiling interface. Link
 * fake_network.c into the test. A communicator may be freed only after all its messages have been
 * received. */
#ifndef VITTRAIN_TEST_FAKE_NETWORK_H
#define VITTRAIN_TEST_FAKE_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

/* Return the number of messages of collectives that this process has sent. */
int64_t network_sent(void);

/* While on, messages leave late and in a different order for different ranks, arrivals are noticed
 * late, and sleeps last longer. */
void network_delay(bool on);

/* Set the number of ranks of MPI_COMM_WORLD per simulated node: consecutive ranks or, if `mixed`,
 * round-robin. The last node may have fewer. 0: the real nodes. */
void network_set_nodes(int ranks_a_node, bool mixed);

#endif
