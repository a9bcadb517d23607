/* The command `plan`: memory and bytes on the way, before anything runs; or what a checkpoint holds
 * (plan_checkpoint.c). One rank computes and prints; the others, if there are any, say how they lie
 * on nodes. */
#include <stdlib.h>

#include "app/app.h"
#include "app/plan_time.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/text.h"
#include "model/registry.h"
#include "plan/plan.h"
#include "train/hardware.h"

static void classes_print(const char *name, const size_t by_class[MEMORY_CLASSES], size_t total)
{
    printf("%-14s", name);
    for (int i = 0; i < MEMORY_CLASSES; i++)
        printf(" %11.2f", mib(by_class[i]));
    printf(" %11.2f\n", mib(total));
}

static void header_print(const char *first, const char *last)
{
    printf("%-14s", first);
    for (int i = 0; i < MEMORY_CLASSES; i++)
        printf(" %11s", memory_class_name[i]);
    printf(" %11s%s", "total", last);
}

static size_t row_total(const size_t by_class[MEMORY_CLASSES])
{
    size_t total = 0;
    for (int i = 0; i < MEMORY_CLASSES; i++)
        total += by_class[i];
    return total;
}

static void last_line_print(const char *name, size_t bytes, const char *comment)
{
    printf("%-14s %*.2f%s\n", name, MEMORY_CLASSES * 12 + 11, mib(bytes), comment);
}

/* The deck's own way, unit by unit. Known here: what the libraries take (base), and whether the
 * device has memory of its own. */
static bool units_print(const struct plan *plan, size_t *base, bool *own, struct error *error)
{
    struct session session;
    size_t(*rows)[MEMORY_CLASSES] = plan_rows(plan, &session, error);
    if (rows == NULL)
        return false;
    const struct model *model = session.model;
    size_t arena = session.memory.arena.peak, feeds = session.memory.loader_bytes;
    *base = hardware_memory_base(session.device);
    *own = hardware_has_memory(session.device);
    char mesh[256];
    mesh_describe(&session.mesh, mesh, sizeof mesh);
    printf("%s in %s, %lld image%s a rank and pass\n%s\n\n", plan->options.model.name,
           type_name(session.compute), (long long)session.batch, session.batch == 1 ? "" : "s",
           mesh);
    header_print("MiB of a rank", "\n");
    for (int u = 0; u < model->unit_count; u++)
        classes_print(model->units[u].name, rows[ARENA_UNIT_ROWS + u],
                      row_total(rows[ARENA_UNIT_ROWS + u]));
    classes_print("shared", rows[ARENA_SHARED_ROW], row_total(rows[ARENA_SHARED_ROW]));
    classes_print("arena", session.memory.arena.by_class, arena);
    last_line_print("loaders", feeds,
                    *own ? "  batches that are loaded ahead, on the host"
                         : "  batches that are loaded ahead");
    if (session.memory.snapshot_bytes > 0)
        last_line_print("snapshot", session.memory.snapshot_bytes,
                        *own ? "  for checkpoints in the background, on the host"
                             : "  for checkpoints in the background");
    char libraries[64];
    snprintf(libraries, sizeof libraries, "  private memory here and %d MiB of library files",
             LIBRARY_FILES_MIB);
    last_line_print(*own ? "context" : "libraries", *base, *own ? "  as measured here" : libraries);
    last_line_print("rank", session_needs(&session) + *base, *own ? "  on the GPU" : "");
    free(rows);
    session_close(&session);
    return true;
}

/* A strategy's step, and what of it is waiting for communication. */
static void times_print(const struct plan *plan, const struct machine *machine,
                        const struct plan_entry *entry)
{
    struct forecast forecast;
    struct error error = {0};
    if (!plan_forecast(plan, entry->strategy, entry->checkpoint_activations, machine, &forecast,
                       NULL, &error))
        return;
    printf(" %11.3f %11.3f", 1e3 * forecast.seconds, 1e3 * forecast.step.exposed);
    forecast_close(&forecast);
}

static void entry_print(const struct plan *plan, const struct machine *machine,
                        const struct plan_entry *entry, size_t base)
{
    char name[32];
    bool block = entry->checkpoint_activations == CHECKPOINT_ACTIVATIONS_BLOCK;
    snprintf(name, sizeof name, "%s%s", mesh_strategy_name(entry->strategy),
             block ? ", block" : "");
    if (entry->error.kind != ERROR_NONE) {
        printf("%-14s %s\n", name, entry->error.text);
        return;
    }
    printf("%-14s", name);
    for (int i = 0; i < MEMORY_CLASSES; i++)
        printf(" %11.2f", mib(entry->by_class[i]));
    printf(" %11.2f %11.2f %11.2f %11.2f", mib(entry->needs + base), mib((size_t)entry->sent_shard),
           mib((size_t)entry->sent_replica), mib((size_t)entry->sent_network));
    if (plan->options.plan.memory > 0 && entry->largest_batch == 0)
        printf(" %11s", "none");
    else if (plan->options.plan.memory > 0)
        printf(" %11lld", (long long)entry->largest_batch);
    if (machine != NULL)
        times_print(plan, machine, entry);
    printf("\n");
}

/* All strategies side by side, without and, where the model can, with recomputation of blocks. */
static void strategies_print(const struct plan *plan, const struct machine *machine, size_t base,
                             bool own)
{
    static struct plan_entry entry;
    size_t memory = (size_t)plan->options.plan.memory;
    size_t room = memory > base ? memory - base : memory > 0 ? 1 : 0;
    bool recomputes = model_recomputes(plan->options.model.name);
    printf("\nTotal: with %s. Sent: by a rank in a step, in its groups, and of that between "
           "nodes.%s",
           own ? "the context, of the GPU's memory" : "loaders, snapshot and libraries",
           recomputes ? "\nblock: train.checkpoint_activations=block." : "");
    if (memory > 0)
        printf(" Largest: train.batch that fits in plan.memory=%.0f MiB.", mib(memory));
    else
        printf("\nReserve: train and find batch leave %d %% of the free memory unused.",
               RESERVE_PERCENT);
    printf("\n\n");
    header_print("MiB of a rank", "");
    printf(" %11s %11s %11s%s%s\n", "sent shard", "replica", "network",
           memory > 0 ? "     largest" : "", machine != NULL ? "     step ms     exposed" : "");
    for (int block = CHECKPOINT_ACTIVATIONS_NONE;
         block <= (recomputes ? CHECKPOINT_ACTIVATIONS_BLOCK : CHECKPOINT_ACTIVATIONS_NONE);
         block++)
        for (int strategy = STRATEGY_DDP; strategy <= STRATEGY_HSDP; strategy++) {
            plan_make(plan, (enum strategy_choice)strategy,
                      (enum checkpoint_activations_choice)block, room, &entry);
            entry_print(plan, machine, &entry, base);
        }
}

/* Collective. Ranks of the largest node. */
static int started_node_ranks(struct comm *world)
{
    struct comm *node = comm_split_node(world);
    int64_t ranks = node->size;
    node->backend->close(node);
    comm_all_reduce(world, &ranks, 1, COMM_INT64, COMM_MAX);
    return (int)ranks;
}

static bool plan_print(const struct options *options, int started, int started_on_node,
                       struct error *error)
{
    static struct plan plan;
    size_t base;
    bool own;
    int ranks = options->plan.ranks > 0 ? (int)options->plan.ranks : started;
    int node_ranks = options->plan.node_ranks > 0 ? (int)options->plan.node_ranks
                     : options->plan.ranks > 0    ? ranks
                                                  : started_on_node;
    if (node_ranks > ranks)
        node_ranks = ranks;
    const struct machine *machine;
    if (!plan_machine_find(options, &machine, error) ||
        !plan_open(&plan, options, ranks, node_ranks, error))
        return false;
    if (options->plan.cluster[0] != '\0')
        return plan_cluster_print(&plan, machine, error) && app_output_arrived(error);
    if (!units_print(&plan, &base, &own, error))
        return false;
    strategies_print(&plan, machine, base, own);
    if (!plan_time_print(&plan, machine, error))
        return false;
    if (options->plan.operations[0] != '\0' &&
        !plan_operations_write(&plan, options->plan.operations, error))
        return false;
    return app_output_arrived(error);
}

/* Collective. */
static void plan_deck(const struct options *options, struct comm *world, struct error *error)
{
    int node_ranks = started_node_ranks(world);
    if (world->rank == 0)
        plan_print(options, world->size, node_ranks, error);
    comm_agree(world, error);
}

static void plan_run(const struct options *options, const struct command_line *line,
                     struct comm *world, struct error *error)
{
    if (line->operand_count == 0)
        plan_deck(options, world, error);
    else if (line->operand_count == 1 && text_ends_with(line->operand[0], ".h5"))
        error_defer(plan_checkpoint(line->operand[0], world, error));
    else
        error_set(error, ERROR_USAGE,
                  "plan takes decks and section.key=value, or one checkpoint (.h5), not \"%s\"",
                  line->operand[0]);
}

const struct command command_plan = {
    .name = "plan",
    .synopsis = "plan [DECK.ini ...] [section.key=value ...] | plan CHECKPOINT",
    .summary = "memory, communication and time of a run, before it runs; what a checkpoint holds",
    .detail =
        "Says what a rank of the run that the deck describes would take: by unit and kind, then "
        "for all strategies side by side, with the bytes that a rank sends in a step and, with "
        "plan.memory, the largest train.batch that fits. plan.ranks and plan.node_ranks say for "
        "how many ranks. The data need not be there; folders of images and packed files "
        "must, as they tell the number of classes: data.format=synthetic with data.image and "
        "data.classes stands in for them. The numbers come from the code that "
        "allocates, so a run takes what its plan says. It counts the "
        "operations of a step by unit and, where `vittrain bench machine` has measured this "
        "machine (plan.machine), says how long each takes, how much of the communication is "
        "hidden, images a second and the length of epochs. plan.cluster=FILE foretells the run "
        "on 1 to 4096 ranks of a cluster that the file describes, by plan.scaling. "
        "plan.operations=FILE gets the kernels of a step as CSV. Of a checkpoint "
        "it lists what is in it: who "
        "wrote it and how far the run was, the deck's main values, units with their tensors, and "
        "which rank wrote which part. The sums of its bytes are not compared; that is done when it "
        "is used.",
    .run = plan_run};
