// SPDX-License-Identifier: BSD-3-Clause
/* The work of the phases of a run on a shared file system. A phase takes the time of its metadata
 * operations at the rate of the file system, that of rank 0's consecutive operations, and that of
 * its bytes at the bandwidth of the stripes or of the nodes that move them. */
#include <math.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "plan/plan.h"

/* Metadata operations: names that are looked up, opened, created, renamed or removed. Counted with
 * strace; without /proc, /sys, /dev and temporary files. */
enum {
    LOAD = 426,            /* a rank: the program, its libraries and their configuration */
    RUN_FOLDER = 60,       /* rank 0: the run folder and its files, until the first step */
    MONITOR = 2,           /* the first rank of each node: its table of sensors */
    CHECKPOINT_NAMES = 13, /* rank 0: the file, its links, and the folder to remove older ones */
    WEIGHTS_NAMES = 6,     /* rank 0: final weights */
};

const char *const file_phase_name[FILE_PHASES] = {"start", "checkpoint", "weights", "resume"};

void plan_files(const struct plan *plan, const struct session *session,
                struct file_work work[FILE_PHASES])
{
    const struct flat_model *flat = &session->flat;
    const double ranks = plan->ranks, replicas = session->mesh.replica->size,
                 shards = session->mesh.shard->size;
    const double nodes = (double)round_up_division(plan->ranks, plan->node_ranks);
    const struct checkpoint_division division = checkpoint_divide(flat);
    double weights = 0; /* bytes */
    for (int u = 0; u < flat->count; u++)
        weights += (double)flat->buffers[u].unit->count * sizeof(float);
    const double bytes = weights * (1 + flat->moments + flat->averaged);
    work[FILES_START] =
        (struct file_work){.operations = ranks * LOAD + nodes * MONITOR + RUN_FOLDER,
                           .consecutive = RUN_FOLDER,
                           .ranks = ranks};
    work[FILES_CHECKPOINT] =
        (struct file_work){.operations = (double)division.writers + CHECKPOINT_NAMES,
                           .consecutive = CHECKPOINT_NAMES,
                           .bytes = bytes,
                           .ranks = (double)division.writers};
    work[FILES_WEIGHTS] = (struct file_work){
        .operations = WEIGHTS_NAMES, .consecutive = WEIGHTS_NAMES, .bytes = weights, .ranks = 1};
    /* The ranks divide the blocks, one of each piece and vector, first to verify the file, then to
     * read it. */
    const double blocks = (double)division.pieces * (bytes / weights);
    const double readers = fmin(ranks, blocks);
    work[FILES_RESUME] = (struct file_work){.operations = 2 * readers,
                                            .bytes = 2 * bytes,
                                            .ranks = readers,
                                            .broadcasts = replicas > 1 ? blocks / shards : 0,
                                            .broadcast = replicas > 1 ? bytes / shards : 0};
}

double machine_file_seconds(const struct machine *machine, const struct plan *plan,
                            const struct session *session, const struct file_work *work)
{
    const struct file_system *files = &machine->files;
    const struct network *network =
        plan->ranks > plan->node_ranks ? &machine->between : &machine->inside;
    /* One rank's share of its node's bandwidth. */
    const double link = network->bandwidth / (network == &machine->between ? plan->node_ranks : 1);
    double rate = files->bandwidth * files->stripes;
    if (machine->between.bandwidth > 0)
        rate = fmin(rate, work->ranks * machine->between.bandwidth / plan->node_ranks);
    double seconds = work->operations / files->operations + work->consecutive * files->latency +
                     work->bytes / rate;
    if (work->broadcast > 0 && link > 0)
        seconds += ceil(log2(session->mesh.replica->size)) *
                   (work->broadcast / link + work->broadcasts * network->latency);
    return seconds;
}
