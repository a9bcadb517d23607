// SPDX-License-Identifier: BSD-3-Clause
/* The work of the phases of a run on a shared file system. */
#include <math.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "plan/plan.h"

/* Metadata operations: names that are looked up, opened, created, renamed or removed. Counted with
 * strace (docs/start.md). */
enum {
    LOAD = 494,      /* a rank: the program, its libraries and their configuration */
    MONITOR = 1,     /* a rank: the table of sensors of its node */
    NODE = 3,        /* the first rank of each node: tests of the run folder, and the table */
    RUN_FOLDER = 55, /* rank 0: the run folder and its files, until the first step */
    CHECKPOINT = 13, /* rank 0: the file, its links, and the folder to remove older ones */
    WEIGHTS = 6,     /* rank 0: final weights */
};

void plan_files(const struct plan *plan, const struct session *session,
                const struct machine *machine, struct file_work work[FILE_PHASES])
{
    const struct flat_model *flat = &session->flat;
    const struct file_system *files = &machine->files;
    const double ranks = plan->ranks, shards = session->mesh.shard->size;
    const double nodes = (double)round_up_division(plan->ranks, plan->node_ranks);
    const struct checkpoint_division division = checkpoint_divide(flat);
    const double vectors = 1 + flat->moments + flat->averaged;
    const double writers = (double)division.writers, blocks = (double)division.pieces * vectors;
    double bytes = 0; /* of a vector */
    for (int u = 0; u < flat->count; u++)
        bytes += (double)flat->buffers[u].unit->count * sizeof(float);
    work[FILES_START] =
        (struct file_work){"start", ranks * (LOAD + MONITOR) + nodes * NODE + RUN_FOLDER,
                           .consecutive = RUN_FOLDER, .ranks = ranks};
    work[FILES_CHECKPOINT] = (struct file_work){
        "checkpoint", writers + CHECKPOINT, CHECKPOINT, vectors * bytes, writers, 0};
    work[FILES_WEIGHTS] = (struct file_work){"weights", WEIGHTS, WEIGHTS, bytes, 1, 0};
    /* Each block is read by one rank to verify the file, and by one rank to load it. */
    const double readers = fmin(ranks, blocks);
    work[FILES_RESUME] =
        (struct file_work){"resume", 2 * readers, 0, 2 * vectors * bytes, readers, 0};
    /* Network bandwidth of a rank if all ranks of its node send. */
    const double link =
        machine->between.bandwidth > 0 ? machine->between.bandwidth / plan->node_ranks : INFINITY;
    for (struct file_work *part = work; part < work + FILE_PHASES; part++)
        part->seconds = part->operations / files->operations + part->consecutive * files->latency +
                        part->bytes / fmin(files->bandwidth * files->stripes, part->ranks * link);
    /* Each block is broadcast to the replicas of its shard. */
    work[FILES_RESUME].seconds += ceil(log2(session->mesh.replica->size)) / shards *
                                  (vectors * bytes / link + blocks * machine->between.latency);
}
