/* Finds out whether a folder is one and the same on all nodes, by what matters: a file that one
 * node makes is seen by the others, and theirs by it. On node-private folders a checkpoint written
 * by all ranks would be in pieces on different disks. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "config/run_options.h"
#include "core/durable.h"
#include "core/log.h"

struct probe {
    const char *directory;
    const struct mesh *mesh;
    char token[32]; /* unique to this call, from rank 0 */
    bool leader;    /* speaks for its node */
};

static void probe_path(const struct probe *probe, int node, const char *ending, char *path,
                       size_t size)
{
    snprintf(path, size, "%s/.probe-%s-node%d%s", probe->directory, probe->token, node, ending);
}

/* Leaves this node's file, by way of a rename as checkpoints do. */
static bool leave_file(const struct probe *probe, struct error *error)
{
    char path[PATH_MAX], part[PATH_MAX];
    probe_path(probe, probe->mesh->node_index, "", path, sizeof path);
    probe_path(probe, probe->mesh->node_index, ".part", part, sizeof part);
    int descriptor = durable_create(part, error);
    if (descriptor < 0)
        return false;
    bool good = durable_write(descriptor, part, probe->token, sizeof probe->token, 0, error);
    good = durable_close(descriptor, part, error) && good;
    good = good && durable_rename(part, path, error);
    if (!good)
        unlink(part);
    return good;
}

static void remove_file(const struct probe *probe)
{
    char path[PATH_MAX];
    probe_path(probe, probe->mesh->node_index, "", path, sizeof path);
    unlink(path);
}

/* Does this node see that node's file, with what that node wrote? */
static bool sees_file(const struct probe *probe, int node)
{
    char path[PATH_MAX], content[sizeof probe->token] = "";
    struct error error = {.kind = ERROR_NONE};
    probe_path(probe, node, "", path, sizeof path);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    bool good = durable_read(descriptor, path, content, sizeof content, 0, &error);
    close(descriptor);
    return good && memcmp(content, probe->token, sizeof content) == 0;
}

static void make_token(struct probe *probe)
{
    uint64_t random = 0;
    if (probe->mesh->world->rank == 0) {
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            random = (uint64_t)getpid();
        snprintf(probe->token, sizeof probe->token, "%016llx", (unsigned long long)random);
    }
    comm_broadcast(probe->mesh->world, probe->token, sizeof probe->token, COMM_BYTE, 0);
}

/* Collective: does every node see rank 0's file, and rank 0 theirs? */
static bool all_nodes_share(const struct probe *probe)
{
    const struct mesh *mesh = probe->mesh;
    struct error error = {.kind = ERROR_NONE};
    bool speaks = probe->leader && mesh->node_index != 0;
    int64_t good = !speaks || leave_file(probe, &error);
    comm_barrier(mesh->world);
    if (speaks)
        good = good && sees_file(probe, 0);
    for (int node = 1; mesh->world->rank == 0 && node < mesh->node_count; node++)
        good = good && sees_file(probe, node);
    comm_all_reduce(mesh->world, &good, 1, COMM_INT64, COMM_MIN);
    if (speaks)
        remove_file(probe);
    return good != 0;
}

bool checkpoint_probe(const char *directory, struct mesh *mesh, enum writers_choice asked,
                      enum writers_choice *decided, struct error *error)
{
    struct comm *world = mesh->world;
    struct probe probe = {.directory = directory, .mesh = mesh};
    probe.leader = mesh->node->rank == 0;
    make_token(&probe);
    if (world->rank == 0)
        leave_file(&probe, error);
    bool good = comm_agree(world, error);
    bool shared = good && asked != WRITERS_NODE0 && all_nodes_share(&probe);
    if (good && world->rank == 0)
        remove_file(&probe);
    if (good && asked == WRITERS_ALL && !shared)
        error_set(error, ERROR_USAGE,
                  "the folder %s is not one and the same on all nodes; set "
                  "checkpoint.writers=auto or node0, or run.dir to a shared folder",
                  directory);
    *decided = shared ? WRITERS_ALL : WRITERS_NODE0;
    if (good && asked == WRITERS_AUTO && !shared)
        log_info("%s is not shared by all nodes: %s writes the checkpoints of all", directory,
                 comm_host());
    return comm_agree(world, error);
}
