// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "train/feed.h"
#include "train/hardware.h"
#include "train/run.h"

bool plan_open(struct plan *plan, const struct options *options, int ranks, int node_ranks,
               struct error *error)
{
    struct dataset described;
    *plan = (struct plan){
        .options = *options, .ranks = ranks, .node_ranks = node_ranks, .training = true};
    if (!dataset_describe(&described, options, error))
        return false;
    plan->source = feed_source(options, &described);
    plan->source.row_weights = NULL;
    plan->kept = feed_kept_bytes(options, &described);
    const bool good = options_resolve(&plan->options, &described, NULL, error);
    dataset_close(&described);
    return good;
}

/* Return the share of the bytes in a ring of ranks 0, stride, 2 * stride, ... that is sent to
 * another node. */
static double network_share(const struct plan *plan, int size, int stride)
{
    int nodes = 0, before = -1;
    for (int member = 0; member < size; member++) {
        int node = member * stride / plan->node_ranks;
        nodes += node != before;
        before = node;
    }
    return size > 1 ? (double)(nodes - 1) / (size - 1) : 0;
}

static bool batch_fits(const struct plan *plan, struct session *session, int64_t batch, size_t room)
{
    session_measure(session, batch, &plan->source, plan->training, NULL);
    return session_needs(session) <= room;
}

/* Find the largest micro-batch that fits by doubling and bisection; 0 if none does. Doubling keeps
 * sizes from overflowing. */
static int64_t largest_micro_batch(const struct plan *plan, struct session *session, size_t room)
{
    int64_t good = 0, bad = 1;
    while (bad <= BATCH_MOST && batch_fits(plan, session, bad, room)) {
        good = bad;
        bad *= 2;
    }
    if (bad > BATCH_MOST)
        bad = BATCH_MOST + 1;
    while (bad - good > 1) {
        int64_t middle = good + (bad - good) / 2;
        *(batch_fits(plan, session, middle, room) ? &good : &bad) = middle;
    }
    return good;
}

/* Samples per micro-batch as set by the options. */
static int64_t micro_batch(const struct plan *plan)
{
    const struct options *options = &plan->options;
    if (!plan->training)
        return options->train.batch;
    return feed_pass_samples(options, feed_global_batch(options, plan->ranks), plan->ranks,
                             options->train.accumulate);
}

static void entry_fill(const struct plan *plan, struct session *session, size_t room,
                       struct plan_entry *entry)
{
    entry->base = hardware_memory_base(session->device);
    entry->replica = session->mesh.replica->size;
    entry->shard = session->mesh.shard->size;
    entry->compute = session->compute;
    entry->batch = micro_batch(plan);
    session_measure(session, entry->batch, &plan->source, plan->training, NULL);
    for (int i = 0; i < MEMORY_CLASSES; i++)
        entry->by_class[i] = session->memory.arena.by_class[i];
    entry->arena = arena_total(&session->memory.arena);
    entry->feeds = session->memory.loader_bytes;
    entry->snapshot = session->memory.snapshot_bytes;
    entry->needs = session_needs(session);
    if (room > 0) {
        int64_t pieces = plan->training ? plan->options.train.accumulate : 1;
        int64_t batch = largest_micro_batch(plan, session, room) * pieces;
        entry->largest_batch = batch < BATCH_MOST ? batch : BATCH_MOST;
    }
}

/* The plan's options with another strategy and its default mesh.shard. */
static struct options options_with(const struct plan *plan, enum strategy_choice strategy,
                                   enum checkpoint_activations_choice checkpoint_activations)
{
    struct options options = plan->options;
    if (options.mesh.strategy != strategy)
        options.mesh.shard = 0;
    options.mesh.strategy = strategy;
    options.train.checkpoint_activations = checkpoint_activations;
    return options;
}

void plan_make(const struct plan *plan, enum strategy_choice strategy,
               enum checkpoint_activations_choice checkpoint_activations, size_t room,
               struct plan_entry *entry)
{
    struct options options = options_with(plan, strategy, checkpoint_activations);
    struct session session;
    *entry =
        (struct plan_entry){.strategy = strategy, .checkpoint_activations = checkpoint_activations};
    if (session_imagine(&session, &options, plan->ranks, plan->node_ranks, plan->training,
                        &entry->error))
        entry_fill(plan, &session, room, entry);
    session_close(&session);
}

static void details_fill(const struct session *session, struct plan_details *details)
{
    const struct model *model = session->model;
    *details = (struct plan_details){.flops_per_image = model->flops_per_image,
                                     .parameters = model_parameter_count(model),
                                     .compute = session->compute,
                                     .batch = session->batch * session->options->train.accumulate,
                                     .replica = session->mesh.replica->size,
                                     .shard = session->mesh.shard->size,
                                     .needs = session_needs(session),
                                     .shared_bytes = session->memory.shared_bytes,
                                     .units = model->unit_count};
    details->unit_name = allocate((size_t)model->unit_count + 1, sizeof *details->unit_name);
    for (int u = 0; u < model->unit_count; u++) {
        details->unit_name[u] = allocate_copy(model->units[u].name);
    }
}

void plan_details_close(struct plan_details *details)
{
    for (int u = 0; u < details->units; u++)
        free(details->unit_name[u]);
    free(details->unit_name);
    *details = (struct plan_details){0};
}

bool plan_script(const struct plan *plan, struct session *session, struct step_script *script,
                 struct error *error)
{
    *script = (struct step_script){0};
    if (!session_imagine(session, &plan->options, plan->ranks, plan->node_ranks, true, error))
        return false;
    session_measure(session, micro_batch(plan), &plan->source, true, NULL);
    step_script_make(script, session, &plan->source);
    return true;
}

void plan_add_traffic(const struct plan *plan, struct plan_entry *entry)
{
    struct plan wanted = *plan;
    struct session session;
    struct step_script script;
    if (entry->error.kind != ERROR_NONE)
        return;
    wanted.options = options_with(plan, entry->strategy, entry->checkpoint_activations);
    const bool good = plan_script(&wanted, &session, &script, &entry->error);
    for (int i = 0; good && i < script.count; i++) {
        const struct collective *sent = &script.event[i].collective;
        if (script.event[i].kind != EVENT_START)
            continue;
        if (sent->replica)
            entry->sent_replica += machine_network_bytes(sent, entry->replica);
        else
            entry->sent_shard += machine_network_bytes(sent, entry->shard);
    }
    entry->sent_network = entry->sent_shard * network_share(plan, entry->shard, 1) +
                          entry->sent_replica * network_share(plan, entry->replica, entry->shard);
    step_script_close(&script);
    session_close(&session);
}

bool plan_predict(const struct plan *plan, enum strategy_choice strategy,
                  enum checkpoint_activations_choice checkpoint_activations,
                  const struct machine *machine, struct step_prediction *prediction,
                  struct plan_details *details, struct error *error)
{
    struct plan wanted = *plan;
    struct session session;
    struct step_script script;
    wanted.options = options_with(plan, strategy, checkpoint_activations);
    bool good = plan_script(&wanted, &session, &script, error);
    if (good) {
        const struct mesh_shape mesh =
            mesh_shape(plan->ranks, plan->node_ranks, session.mesh.shard->size);
        good = step_predict(prediction, &script, session.model->unit_count, machine, &mesh, error);
    }
    if (good && machine != NULL)
        step_prediction_add_loading(prediction, machine,
                                    session.batch * wanted.options.train.accumulate);
    if (good && details != NULL)
        details_fill(&session, details);
    step_script_close(&script);
    session_close(&session);
    return good;
}

size_t (*plan_rows(const struct plan *plan, struct session *session,
                   struct error *error))[MEMORY_CLASSES]
{
    if (!session_imagine(session, &plan->options, plan->ranks, plan->node_ranks, plan->training,
                         error)) {
        session_close(session);
        return NULL;
    }
    size_t(*rows)[MEMORY_CLASSES] =
        allocate((size_t)session->model->unit_count + ARENA_UNIT_ROWS, sizeof *rows);
    session_measure(session, micro_batch(plan), &plan->source, plan->training, rows);
    return rows;
}
