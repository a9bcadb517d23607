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
    const struct options *options = &plan->options;
    if (!session_imagine(session, options, plan->ranks, plan->node_ranks, plan->training, error))
        return false;
    const int64_t batch =
        plan->training
            ? split_loader_pass_samples(options, split_loader_global_batch(options, plan->ranks),
                                        plan->ranks, options->train.accumulate)
            : options->train.batch;
    session_measure(session, batch, &plan->source);
    return true;
}

/* By doubling and bisection of the micro-batch. Doubling keeps sizes from overflowing. */
int64_t plan_largest_batch(const struct plan *plan, struct session *session, size_t room)
{
    const int64_t pieces = plan->training ? plan->options.train.accumulate : 1;
    const int64_t own = session->batch;
    int64_t good = 0, bad = BATCH_MOST + 1;
    for (int64_t batch = 1; bad - good > 1;) {
        session_measure(session, batch, &plan->source);
        *(session_needs(session) <= room ? &good : &bad) = batch;
        batch = bad > BATCH_MOST ? smaller(2 * good, BATCH_MOST) : good + (bad - good) / 2;
    }
    session_measure(session, own, &plan->source);
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
    if (machine != NULL) {
        /* The expected maximum of N normally distributed times is at most this much above their
         * mean. All ranks wait for the slowest one, since a step ends with a collective. */
        double operations = prediction.slowed;
        for (int phase = 0; phase < STEP_PHASES; phase++)
            operations += prediction.step.seconds[phase];
        prediction.stragglers = machine->deviation * operations * sqrt(2 * log(plan->ranks));
        prediction.seconds += prediction.stragglers;
    }
    step_script_close(&script);
    return prediction;
}

/* ---- what would fit ---- */

/* Plan the run with another strategy and activation checkpointing, with its batch or with the
 * largest one that fits. If it fits into `room` bytes per rank, write the settings and return true.
 */
static bool way_try(FILE *text, const struct plan *plan, size_t room, enum strategy_choice strategy,
                    enum checkpoint_activations_choice activations, bool same_batch)
{
    const struct options *options = &plan->options;
    const struct plan other = plan_with(plan, strategy, activations);
    struct session session;
    struct error impossible = {0};
    int64_t largest = 0;
    bool fits = plan_session(&other, &session, &impossible);
    if (fits && same_batch)
        fits = session_needs(&session) <= room;
    else if (fits)
        fits = (largest = plan_largest_batch(&other, &session, room)) > 0;
    session_close(&session);
    if (!fits)
        return false;
    const char *separator = ftell(text) > 0 ? ", or " : "";
    if (!same_batch) {
        const bool global = plan->training && options->train.global_batch > 0;
        fprintf(text, "%strain.%sbatch=%lld", separator, global ? "global_" : "",
                (long long)largest * (global ? plan->ranks : 1));
        separator = " ";
    }
    if (strategy != options->mesh.strategy) {
        fprintf(text, "%smesh.strategy=%s", separator, mesh_strategy_name(strategy));
        separator = " ";
    }
    if (activations != options->train.checkpoint_activations)
        fprintf(text, "%strain.checkpoint_activations=block", separator);
    return true;
}

void fit_advise(struct error *error)
{
    const struct memory_shortage *shortage = session_shortage();
    struct text_stream stream;
    if (shortage == NULL || error->kind != ERROR_MEMORY)
        return;
    const struct plan plan = {.options = shortage->options,
                              .ranks = shortage->ranks,
                              .node_ranks = shortage->node_ranks,
                              .source = shortage->source,
                              .training = shortage->training};
    FILE *text = text_stream_open(&stream);
    const size_t room = (size_t)shortage->room;
    const enum strategy_choice own = plan.options.mesh.strategy;
    const enum strategy_choice last = plan.training && plan.ranks > 1 ? STRATEGIES : 0;
    const enum checkpoint_activations_choice kept = plan.options.train.checkpoint_activations,
                                             block = CHECKPOINT_ACTIVATIONS_BLOCK;
    const bool blocks = plan.training && kept != block && model_recomputes(plan.options.model.name);
    way_try(text, &plan, room, own, kept, false);
    const bool block_fits = blocks && way_try(text, &plan, room, own, block, true);
    bool found = false;
    /* The same batch with the other strategies, in order of increasing communication, also with
     * recomputation if that alone is not enough. */
    for (int recomputes = 0; recomputes <= (blocks && !block_fits); recomputes++)
        for (enum strategy_choice other = 0; !found && other < last; other++)
            found =
                other != own && way_try(text, &plan, room, other, recomputes ? block : kept, true);
    if (!found && !block_fits && plan.training && (blocks || (last > 0 && own != STRATEGY_FSDP)))
        way_try(text, &plan, room, last > 0 ? STRATEGY_FSDP : own, blocks ? block : kept, false);
    if (ftell(text) == 0)
        fputs("more ranks on more nodes, or a smaller model", text);
    char *settings = text_stream_close(&stream);
    const size_t used = strlen(error->text);
    snprintf(error->text + used, sizeof error->text - used, "; this would fit: %s", settings);
    free(settings);
}
