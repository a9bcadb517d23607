// SPDX-License-Identifier: BSD-3-Clause
/* Nodes that share a directory are found by a test: each node creates a file there and looks for
 * the files of the others. Names, devices and mount tables are not reliable. */
#include "data/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/folder.h"

enum { PATH_SIZE = 4096 };

static void probe_path(char path[PATH_SIZE], const char *directory, int64_t job, int node)
{
    snprintf(path, PATH_SIZE, "%.4000s/.vittrain-probe-%llx-%d", directory, (unsigned long long)job,
             node);
}

bool directory_owner(struct comm *world, const char *path, int *owner, struct error *error)
{
    int nodes, *node_of = malloc((size_t)world->size * sizeof *node_of);
    ENSURE(node_of != NULL, "no memory to count nodes");
    struct comm *neighbours = comm_split_nodes(world, node_of, &nodes);
    const int node = node_of[world->rank];
    free(node_of);
    /* A number that is unique to this job and the same on all ranks. */
    int64_t job = (int64_t)(clock_wall() * 1e6) ^ ((int64_t)getpid() << 40), found = node;
    comm_broadcast(world, &job, 1, COMM_INT64, 0);
    char own[PATH_SIZE], other[PATH_SIZE];
    probe_path(own, path, job, node);
    bool speaks = neighbours->rank == 0;
    int probe = -1;
    if (speaks && folder_make(path, "choose another", error)) {
        probe = open(own, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (probe < 0)
            error_set(error, ERROR_FILE, "cannot write to %s: %s; choose another directory", path,
                      strerror(errno));
        else
            close(probe);
    }
    bool good = comm_agree(world, error);
    if (good && speaks) {
        for (found = 0; found < node; found++) {
            probe_path(other, path, job, (int)found);
            if (access(other, F_OK) == 0)
                break;
        }
    }
    comm_broadcast(neighbours, &found, 1, COMM_INT64, 0);
    comm_barrier(world); /* all ranks have looked */
    if (probe >= 0)
        unlink(own);
    neighbours->backend->close(neighbours);
    *owner = (int)found;
    return good;
}
