/* `plan` with plan.cluster: what the deck's run would do on 1 to 4096 ranks of a described cluster.
 */
#include "app/plan_time.h"

#include <stdio.h>
#include <string.h>

#include "config/options.h"
#include "core/text.h"
#include "train/feed.h"

enum { MOST_RANKS = 4096 };

/* The type that the cluster multiplies best, where the deck leaves it open. */
static void precision_choose(struct options *options, const struct machine *machine)
{
    if (options->train.precision != PRECISION_AUTO)
        return;
    options->train.precision = machine_multiplies(machine, TYPE_BF16)   ? PRECISION_BF16
                               : machine_multiplies(machine, TYPE_FP16) ? PRECISION_FP16
                                                                        : PRECISION_FP32;
}

/* The deck's batch, on as many ranks as it is planned for, is what stays: of a rank or of all. */
static void batch_choose(struct options *options, int64_t planned_ranks, int64_t ranks)
{
    int64_t global = feed_global_batch(options, planned_ranks);
    options->train.global_batch =
        options->plan.scaling == SCALING_STRONG ? global : global / planned_ranks * ranks;
}

struct row {
    double images_per_second, first; /* first: of one rank */
};

static void row_print(const struct plan *plan, const struct machine *machine,
                      const struct forecast *forecast, const struct plan_model *known,
                      struct row *row)
{
    int nodes = (plan->ranks + plan->node_ranks - 1) / plan->node_ranks;
    double images = (double)plan->options.train.global_batch / forecast->seconds;
    bool full = machine->memory > 0 && (double)known->needs > machine->memory;
    char mesh[32];
    if (plan->ranks == 1)
        row->first = images;
    snprintf(mesh, sizeof mesh, "%dx%d", known->replica, known->shard);
    printf("%6d %6d %9s %8lld %11.0f%s %11.3f %11.3f %11.3f %8.1f %12.1f", plan->ranks, nodes, mesh,
           (long long)known->batch, mib(known->needs), full ? "!" : " ", 1e3 * forecast->seconds,
           1e3 * forecast->step.communication, 1e3 * forecast->step.exposed,
           row->first > 0 ? 100 * images / (plan->ranks * row->first) : 0, images);
    if (machine->watts > 0)
        printf(" %10.3f", machine->watts * nodes / images);
    printf("\n");
}

/* False: this many ranks cannot do it, and it was said why. */
static bool ranks_print(const struct plan *wanted, const struct machine *machine, int ranks,
                        struct row *row)
{
    static struct plan plan;
    struct forecast forecast;
    struct plan_model known;
    struct error error = {0};
    plan = *wanted;
    plan.ranks = ranks;
    plan.node_ranks = ranks < machine->node_ranks ? ranks : machine->node_ranks;
    batch_choose(&plan.options, wanted->ranks, ranks);
    if (plan.options.train.global_batch < ranks) {
        printf("%6d the batch of %lld images is less than one a rank\n", ranks,
               (long long)plan.options.train.global_batch);
        return false;
    }
    if (!plan_forecast(
            &plan, (enum strategy_choice)plan.options.mesh.strategy,
            (enum checkpoint_activations_choice)plan.options.train.checkpoint_activations, machine,
            &forecast, &known, &error)) {
        printf("%6d %s\n", ranks, error.text);
        return true;
    }
    row_print(&plan, machine, &forecast, &known, row);
    forecast_close(&forecast);
    plan_model_close(&known);
    return true;
}

bool plan_cluster_print(const struct plan *plan, const struct machine *machine, struct error *error)
{
    static struct plan wanted;
    struct row row = {0};
    (void)error;
    wanted = *plan;
    wanted.options.run.backend = BACKEND_CPU; /* nothing is computed: whatever is here will do */
    precision_choose(&wanted.options, machine);
    printf("\nExpected of %s%s%s, %s, %s scaling (%s), nodes of %d rank%s. Times in "
           "milliseconds, memory in MiB of a rank%s.\n\n",
           machine->path, machine->device[0] != '\0' ? ": " : "", machine->device,
           mesh_strategy_name((enum strategy_choice)wanted.options.mesh.strategy),
           wanted.options.plan.scaling == SCALING_STRONG ? "strong" : "weak",
           wanted.options.plan.scaling == SCALING_STRONG ? "the batch of all ranks stays"
                                                         : "each rank's batch stays",
           machine->node_ranks, machine->node_ranks == 1 ? "" : "s",
           machine->memory > 0 ? " (! more than it has)" : "");
    printf("%6s %6s %9s %8s %12s %11s %11s %11s %8s %12s%s\n", "ranks", "nodes", "mesh", "batch",
           "memory", "step", "sending", "exposed", "eff. %", "images/s",
           machine->watts > 0 ? "    J/image" : "");
    for (int ranks = 1; ranks <= MOST_RANKS; ranks *= 2)
        if (!ranks_print(&wanted, machine, ranks, &row))
            break;
    return true;
}
