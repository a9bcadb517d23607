#include "plan/plan_cluster.h"

#include <stdio.h>
#include <string.h>

#include "config/options.h"
#include "core/text.h"
#include "train/feed.h"

enum { MOST_RANKS = 4096 };

/* Replace precision=auto by the best type that the cluster supports. */
static void precision_choose(struct options *options, const struct machine *machine)
{
    if (options->train.precision != PRECISION_AUTO)
        return;
    options->train.precision = machine_multiplies(machine, TYPE_BF16)   ? PRECISION_BF16
                               : machine_multiplies(machine, TYPE_FP16) ? PRECISION_FP16
                                                                        : PRECISION_FP32;
}

/* Keep the batch per rank (weak scaling) or the global batch (strong scaling) of the deck. */
static void batch_choose(struct options *options, int64_t planned_ranks, int64_t ranks)
{
    int64_t global = feed_global_batch(options, planned_ranks);
    options->train.global_batch =
        options->plan.scaling == SCALING_STRONG ? global : global / planned_ranks * ranks;
}

static void row_print(const struct plan *plan, const struct machine *machine,
                      const struct step_prediction *prediction, const struct plan_details *details,
                      double *first)
{
    int nodes = (plan->ranks + plan->node_ranks - 1) / plan->node_ranks;
    double images = (double)plan->options.train.global_batch / prediction->seconds;
    bool full = machine->memory > 0 && (double)details->needs > machine->memory;
    char mesh[32];
    if (plan->ranks == 1)
        *first = images;
    snprintf(mesh, sizeof mesh, "%dx%d", details->replica, details->shard);
    printf("%6d %6d %9s %8lld %11.0f%s %11.3f %11.3f %11.3f %8.1f %12.1f", plan->ranks, nodes, mesh,
           (long long)details->batch, mib(details->needs), full ? "!" : " ",
           1e3 * prediction->seconds, 1e3 * prediction->step.communication,
           1e3 * prediction->step.exposed, *first > 0 ? 100 * images / (plan->ranks * *first) : 0,
           images);
    if (machine->watts > 0)
        printf(" %10.3f", machine->watts * nodes / images);
    printf("\n");
}

/* Print a row. Return false if the batch is too small for this and larger numbers of ranks. */
static bool ranks_print(const struct plan *wanted, const struct machine *machine, int ranks,
                        double *first)
{
    static struct plan plan;
    struct step_prediction prediction;
    struct plan_details details;
    struct error error = {0};
    plan = *wanted;
    plan.ranks = ranks;
    plan.node_ranks = ranks < machine->node_ranks ? ranks : machine->node_ranks;
    batch_choose(&plan.options, wanted->ranks, ranks);
    if (plan.options.train.global_batch < ranks) {
        printf("%6d the batch of %lld images is less than one per rank\n", ranks,
               (long long)plan.options.train.global_batch);
        return false;
    }
    if (!plan_predict(&plan, (enum strategy_choice)plan.options.mesh.strategy,
                      (enum checkpoint_activations_choice)plan.options.train.checkpoint_activations,
                      machine, &prediction, &details, &error)) {
        printf("%6d %s\n", ranks, error.text);
        return true;
    }
    row_print(&plan, machine, &prediction, &details, first);
    step_prediction_close(&prediction);
    plan_details_close(&details);
    return true;
}

void plan_cluster_print(const struct plan *plan, const struct machine *machine)
{
    static struct plan wanted;
    double first = 0; /* images/s of one rank */
    wanted = *plan;
    wanted.options.run.backend = BACKEND_CPU; /* nothing is computed */
    precision_choose(&wanted.options, machine);
    printf("\nPrediction for %s%s%s, %s, %s scaling (%s), %d rank%s per node. Times in "
           "milliseconds, memory in MiB per rank%s.\n\n",
           machine->path, machine->device[0] != '\0' ? ": " : "", machine->device,
           mesh_strategy_name((enum strategy_choice)wanted.options.mesh.strategy),
           wanted.options.plan.scaling == SCALING_STRONG ? "strong" : "weak",
           wanted.options.plan.scaling == SCALING_STRONG ? "the global batch is fixed"
                                                         : "the batch per rank is fixed",
           machine->node_ranks, machine->node_ranks == 1 ? "" : "s",
           machine->memory > 0 ? " (!: more than it has)" : "");
    printf("%6s %6s %9s %8s %12s %11s %11s %11s %8s %12s%s\n", "ranks", "nodes", "mesh", "batch",
           "memory", "step", "sending", "exposed", "eff. %", "images/s",
           machine->watts > 0 ? "    J/image" : "");
    for (int ranks = 1; ranks <= MOST_RANKS; ranks *= 2)
        if (!ranks_print(&wanted, machine, ranks, &first))
            break;
}
