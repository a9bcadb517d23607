// SPDX-License-Identifier: BSD-3-Clause
/* Jobs that lose a rank, for test_comm_death.sh:
 *   lost_ranks WAY                            the last rank (silent0: rank 0) dies or stops
 *   lost_ranks TRANSPORT RANKS_A_NODE COUNT   the last rank does not come to an all-reduce
 *   lost_ranks                                no rank is lost: the job ends between two heartbeats
 */
#include "comm/comm.h"
#include "comm/mpi_check.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "fake_network.h"
#include "options/options.h"

static struct comm *world;

/* One rank dies or does not come; the others wait for it. */
static int die(const char *way)
{
    const bool silent = strncmp(way, "silent", strlen("silent")) == 0;
    const bool chosen = world->rank == (strcmp(way, "silent0") == 0 ? 0 : world->size - 1);
    comm_barrier(world);
    if (chosen && strcmp(way, "kill") == 0)
        raise(SIGKILL);
    if (silent) {
        comm_set_heartbeat_timeout(1.5);
        sleep(1); /* until every rank has sent a heartbeat */
    }
    if (chosen && strcmp(way, "broken") == 0)
        MPI_CHECK(MPI_Send(NULL, 0, MPI_BYTE, world->size, 0, MPI_COMM_WORLD));
    if (strcmp(way, "broken") == 0)
        pause();
    if (chosen && strcmp(way, "fault") == 0)
        raise(SIGSEGV);
    if (chosen && strcmp(way, "ensure") == 0)
        ENSURE(world == NULL, "a condition of the test");
    comm_set_timeout(silent ? 0 : 0.5);
    if (chosen && (silent || strcmp(way, "stopped") == 0))
        raise(SIGSTOP);
    if (strcmp(way, "alone") == 0) {
        if (world->rank == 1)
            comm_receive(world, &(char){0}, 1, world->size - 1);
        pause();
    }
    comm_barrier(world);
    return 0;
}

/* The last rank does not come to two all-reduces that the others have started. */
static int stay_away(const char *transport, int ranks_a_node, int64_t count)
{
    struct error error = {0};
    struct options options = {0};
    char setting[64];
    static float buffer[1000000];
    snprintf(setting, sizeof setting, "mesh.transport=%s", transport);
    ENSURE(options_set(setting, &options, &error), "%s", error.text);
    network_set_nodes(ranks_a_node, false);
    enum transport_choice wanted = options.mesh.transport;
    ENSURE(world->backend->set_transport(world, wanted, &error), "%s", error.text);
    comm_all_reduce(world, buffer, count, COMM_FP32, COMM_SUM);
    comm_set_timeout(0.5);
    if (world->rank == world->size - 1)
        pause();
    int64_t small = 0;
    struct comm_request *first =
        comm_start_all_reduce(world, buffer, count, COMM_FP32, COMM_SUM, NULL);
    world->backend->wait(comm_start_all_reduce(world, &small, 1, COMM_INT64, COMM_SUM, NULL), NULL);
    world->backend->wait(first, NULL);
    return 0;
}

/* End while heartbeats are being sent: fake_network.c detects any that is not received. */
static int end_early(void)
{
    comm_set_heartbeat_timeout(20);
    usleep(210 * 1000);
    return 0;
}

int main(int argc, char **argv)
{
    struct error error = {0};
    if (!comm_world_open(&argc, &argv, &world, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    if (argc == 4)
        return stay_away(argv[1], atoi(argv[2]), atoi(argv[3]));
    int failed = argc > 1 ? die(argv[1]) : end_early();
    comm_world_close(world);
    return failed;
}
