// SPDX-License-Identifier: BSD-3-Clause
/* The command `plan`. Rank 0 computes and prints. The other ranks only report how many of them
 * share a node. */
#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/text.h"
#include "plan/plan.h"

static bool plan_print(const struct options *options, int started, int started_on_node,
                       struct error *error)
{
    static struct plan plan;
    const struct machine *machine;
    int ranks = options->plan.ranks > 0 ? (int)options->plan.ranks : started;
    int node_ranks = options->plan.node_ranks > 0 ? (int)options->plan.node_ranks
                     : options->plan.ranks > 0    ? ranks
                                                  : started_on_node;
    if (node_ranks > ranks)
        node_ranks = ranks;
    if (!plan_machine_find(options, &machine, error) ||
        !plan_open(&plan, options, ranks, node_ranks, error))
        return false;
    if (options->plan.cluster[0] != '\0') {
        plan_cluster_print(&plan, machine);
        return true;
    }
    return plan_memory_print(&plan, machine, error) && plan_time_print(&plan, machine, error) &&
           (options->plan.operations[0] == '\0' ||
            plan_operations_write(&plan, options->plan.operations, error));
}

static void plan_run(const struct options *options, const struct command_line *line,
                     struct comm *world, struct error *error)
{
    struct comm *node = comm_split_node(world);
    int64_t node_ranks = node->size; /* of the largest node */
    node->backend->close(node);
    comm_all_reduce(world, &node_ranks, 1, COMM_INT64, COMM_MAX);
    if (line->operand_count > 0)
        error_set(error, ERROR_USAGE, "plan takes decks and section.key=value, not \"%s\"%s",
                  line->operand[0],
                  text_ends_with(line->operand[0], ".h5") ? "; use h5ls -r for a checkpoint" : "");
    else if (world->rank == 0 && plan_print(options, world->size, (int)node_ranks, error))
        error_defer(app_output_arrived(error));
    comm_agree(world, error);
}

const struct command command_plan = {
    .name = "plan",
    .synopsis = "plan [DECK.ini ...] [section.key=value ...]",
    .summary = "memory, communication and time of a run, before it runs",
    .detail =
        "Prints what a rank of the run that the deck describes needs: memory by unit and kind, "
        "then all strategies side by side with the bytes that a rank sends per step and, with "
        "plan.memory, the largest train.batch that fits. plan.ranks and plan.node_ranks set the "
        "number of ranks. The data set need not exist, except for folders of images, tar shards "
        "and arrays, which define the number of classes; data.format=synthetic with data.image "
        "and data.classes replaces them. The numbers come from the code that allocates, so they "
        "are those of the run. plan also counts the operations of a step by unit. If `bench "
        "device` and `bench comm` have measured this machine (plan.machine), it predicts the time "
        "of each unit, the exposed communication, images per second and the length of epochs. "
        "plan.cluster=FILE predicts the run on 1 to 4096 ranks of the cluster that the file "
        "describes, with the batch of each rank (train.batch) or the global one "
        "(train.global_batch). plan.operations=FILE writes the kernels of a step as CSV.",
    .run = plan_run};
