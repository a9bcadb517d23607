// SPDX-License-Identifier: BSD-3-Clause
/* Nodes that share a folder are found by a test: each node creates a file there and looks for the
 * files of the others. Names, devices and mount tables are not reliable. */
#include "comm/folder_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/durable.h"

static void probe_path(char path[PATH_MAX], const char *folder, int64_t job, int node)
{
    snprintf(path, PATH_MAX, "%.4000s/.probe-%llx-%d", folder, (unsigned long long)job, node);
}

static bool probe_create(const char *path, struct error *error)
{
    const int probe = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (probe < 0)
        return durable_failed(error, "create", path, errno);
    close(probe);
    return true;
}

bool folder_owner(struct comm *world, const char *path, int *owner, struct error *error)
{
    int nodes, *node_of = malloc((size_t)world->size * sizeof *node_of);
    ENSURE_MEMORY(node_of != NULL, "no memory to count nodes");
    struct comm *neighbours = comm_split_nodes(world, node_of, &nodes);
    const int node = node_of[world->rank];
    free(node_of);
    /* A number that is unique to this job and the same on all ranks. */
    int64_t job = (int64_t)(clock_wall() * 1e6) ^ ((int64_t)getpid() << 40), found = node;
    comm_broadcast(world, &job, 1, COMM_INT64, 0);
    char own[PATH_MAX], other[PATH_MAX];
    probe_path(own, path, job, node);
    const bool leads = neighbours->rank == 0;
    struct error failure = {.kind = ERROR_NONE};
    const bool made = leads && probe_create(own, &failure);
    if (failure.kind != ERROR_NONE && node == 0)
        *error = failure;
    const bool good = comm_agree(world, error);
    if (good && made)
        for (found = 0; found < node; found++) {
            probe_path(other, path, job, (int)found);
            if (access(other, F_OK) == 0)
                break;
        }
    comm_broadcast(neighbours, &found, 1, COMM_INT64, 0);
    comm_barrier(world); /* all ranks have looked */
    if (made)
        unlink(own);
    neighbours->backend->close(neighbours);
    *owner = (int)found;
    return good;
}
