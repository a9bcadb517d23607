// SPDX-License-Identifier: BSD-3-Clause
#include "rank_tests.h"

#include "base/log.h"
#include "hdf5/hdf5_open.h"
#include "temporary.h"

struct comm *world;
char shared_folder[256];

void fixture_world_open(int *argc, char ***argv)
{
    hdf5_library_open();
    if (!comm_world_open(argc, argv, &world, &error)) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    comm_set_timeout(60); /* a rank whose test fails must not block the others */
    log_open(world->rank, LOG_QUIET);
}

void shared_folder_make(void)
{
    if (world->rank == 0)
        snprintf(shared_folder, sizeof shared_folder, "%s", temporary_open());
    comm_broadcast(world, shared_folder, sizeof shared_folder, COMM_BYTE, 0);
}

void shared_folder_remove(void)
{
    comm_barrier(world);
    if (world->rank == 0)
        temporary_close();
}
