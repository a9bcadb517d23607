// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "model/model.h"
#include "options/options.h"
#include "train/session.h"
#include "train/split_loader.h"

bool plan_open(struct plan *plan, const struct options *options, int ranks, int node_ranks,
               struct error *error)
{
    struct dataset described;
    *plan = (struct plan){
        .options = *options, .ranks = ranks, .node_ranks = node_ranks, .training = true};
    if (!dataset_describe(&described, options, error))
        return false;
    plan->source = split_loader_source(options, &described);
    plan->kept = split_loader_kept_bytes(options, &described);
    const bool good = options_resolve(&plan->options, &described, NULL, error);
    dataset_close(&described);
    return good;
}

struct plan plan_with(const struct plan *plan, enum strategy_choice strategy,
                      enum checkpoint_activations_choice checkpoint_activations)
{
    struct plan other = *plan;
    if (other.options.mesh.strategy != strategy)
        other.options.mesh.shard = 0;
    other.options.mesh.strategy = strategy;
    other.options.train.checkpoint_activations = checkpoint_activations;
    return other;
}

bool plan_session(const struct plan *plan, struct session *session, struct error *error)
{
    if (!session_imagine(session, &plan->options, plan->ranks, plan->node_ranks, plan->training,
                         error))
        return false;
    const struct options *options = &plan->options;
    const int64_t batch =
        plan->training
            ? split_loader_pass_samples(options, split_loader_global_batch(options, plan->ranks),
                                        plan->ranks, options->train.accumulate)
            : options->train.batch;
    const size_t rows = (size_t)session->model->unit_count + ARENA_UNIT_ROWS;
    session->memory.rows = allocate(rows, sizeof *session->memory.rows);
    session_measure(session, batch, &plan->source, plan->training, session->memory.rows);
    return true;
}

/* By doubling and bisection of the micro-batch. Doubling keeps sizes from overflowing. */
int64_t plan_largest_batch(const struct plan *plan, struct session *session, size_t room)
{
    const int64_t pieces = plan->training ? plan->options.train.accumulate : 1;
    const int64_t own = session->batch;
    int64_t good = 0, bad = BATCH_MOST + 1;
    for (int64_t batch = 1; bad - good > 1;) {
        session_measure(session, batch, &plan->source, plan->training, NULL);
        *(session_needs(session) <= room ? &good : &bad) = batch;
        batch = bad > BATCH_MOST ? smaller(2 * good, BATCH_MOST) : good + (bad - good) / 2;
    }
    session_measure(session, own, &plan->source, plan->training, NULL);
    return smaller(good * pieces, BATCH_MOST);
}

/* Return the share of the bytes in a ring of `size` ranks that is sent to another node. */
static double network_share(const struct group_shape *shape, int size)
{
    return size > 1 ? (double)(shape->nodes - 1) / (size - 1) : 0;
}

struct step_prediction plan_predict(const struct plan *plan, const struct machine *machine,
                                    struct session *session)
{
    struct step_script script;
    struct step_prediction prediction;
    const int shard = session->mesh.shard->size, replica = session->mesh.replica->size;
    const struct mesh_shape mesh = mesh_shape(plan->ranks, plan->node_ranks, shard);
    step_script_make(&script, session, &plan->source);
    step_predict(&prediction, &script, session->model->unit_count, machine, &mesh);
    for (const struct script_event *event = script.event; event < script.event + script.count;
         event++) {
        const struct collective *part = &event->collective;
        if (event->kind == EVENT_START && part->replica)
            prediction.sent_replica += machine_network_bytes(part, replica);
        else if (event->kind == EVENT_START)
            prediction.sent_shard += machine_network_bytes(part, shard);
    }
    prediction.sent_network = prediction.sent_shard * network_share(&mesh.shard, shard) +
                              prediction.sent_replica * network_share(&mesh.replica, replica);
    if (machine != NULL && machine->images > 0) {
        const int64_t samples = session->batch * plan->options.train.accumulate;
        prediction.data = fmax(0, (double)samples / machine->images - prediction.seconds);
        prediction.seconds += prediction.data;
    }
    step_script_close(&script);
    return prediction;
}

/* ---- what would fit ---- */

struct advice {
    struct plan plan; /* of the run that does not fit */
    size_t room;      /* bytes per rank */
    FILE *text;       /* the settings that would fit: "train.batch=8, or mesh.strategy=fsdp" */
    bool found;
};

/* Plan the run with other settings, with the same batch or with the largest one that fits. If it
 * fits, add the settings to the advice and return true. */
static bool way_try(struct advice *advice, enum strategy_choice strategy,
                    enum checkpoint_activations_choice checkpoint_activations, bool same_batch)
{
    const struct plan *plan = &advice->plan;
    const struct options *options = &plan->options;
    const struct plan other = plan_with(plan, strategy, checkpoint_activations);
    const char *separator = advice->found ? ", or " : "";
    struct session session;
    struct error impossible = {0};
    int64_t largest = 0;
    bool fits = plan_session(&other, &session, &impossible);
    if (fits && same_batch)
        fits = session_needs(&session) <= advice->room;
    else if (fits)
        fits = (largest = plan_largest_batch(&other, &session, advice->room)) > 0;
    session_close(&session);
    if (!fits)
        return false;
    advice->found = true;
    if (!same_batch) {
        const bool global = plan->training && options->train.global_batch > 0;
        fprintf(advice->text, "%strain.%sbatch=%lld", separator, global ? "global_" : "",
                (long long)largest * (global ? plan->ranks : 1));
        separator = " with ";
    }
    if (strategy != options->mesh.strategy) {
        fprintf(advice->text, "%smesh.strategy=%s", separator, mesh_strategy_name(strategy));
        separator = same_batch ? " with " : " and ";
    }
    if (checkpoint_activations != options->train.checkpoint_activations)
        fprintf(advice->text, "%strain.checkpoint_activations=block", separator);
    return true;
}

void fit_advise(struct error *error)
{
    const struct memory_shortage *shortage = session_shortage();
    struct text_stream text;
    if (shortage == NULL || error->kind != ERROR_MEMORY)
        return;
    struct advice advice = {.plan = {.options = shortage->options,
                                     .ranks = shortage->ranks,
                                     .node_ranks = shortage->node_ranks,
                                     .source = shortage->source,
                                     .training = shortage->training},
                            .room = (size_t)shortage->room,
                            .text = text_stream_open(&text)};
    const bool training = shortage->training;
    const enum strategy_choice own = shortage->options.mesh.strategy;
    const enum strategy_choice last = training && shortage->ranks > 1 ? STRATEGIES : 0;
    const enum checkpoint_activations_choice kept = shortage->options.train.checkpoint_activations,
                                             block = CHECKPOINT_ACTIVATIONS_BLOCK;
    const bool blocks = training && kept != block && model_recomputes(shortage->options.model.name);
    way_try(&advice, own, kept, false);
    const bool block_fits = blocks && way_try(&advice, own, block, true);
    bool found = false;
    /* The same batch with the other strategies, in order of increasing communication. */
    for (int i = 0; i < (blocks && !block_fits ? 2 : 1); i++)
        for (enum strategy_choice other = 0; !found && other < last; other++)
            found = other != own && way_try(&advice, other, i == 0 ? kept : block, true);
    if (!found && !block_fits && training && (blocks || (last > 0 && own != STRATEGY_FSDP)))
        way_try(&advice, last > 0 ? STRATEGY_FSDP : own, blocks ? block : kept, false);
    if (!advice.found)
        fputs("more ranks on more nodes, or a smaller model", advice.text);
    char *settings = text_stream_close(&text);
    const size_t used = strlen(error->text);
    snprintf(error->text + used, sizeof error->text - used, "; this would fit: %s", settings);
    free(settings);
}
