// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan.h"

#include <math.h>

#include "base/base.h"
#include "model/model.h"
#include "options/options.h"
#include "train/session.h"
#include "train/split_loader.h"

bool plan_open(struct plan *plan, const struct options *options, int ranks, int node_ranks,
               struct error *error)
{
    struct dataset described;
    *plan = (struct plan){.options = *options, .ranks = ranks, .node_ranks = node_ranks};
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
    if (!session_imagine(session, options, plan->ranks, plan->node_ranks, error))
        return false;
    const int64_t batch =
        split_loader_pass_samples(options, split_loader_global_batch(options, plan->ranks),
                                  plan->ranks, options->train.accumulate);
    session_measure(session, batch, &plan->source);
    return true;
}

/* By doubling and bisection of the micro-batch. Doubling keeps sizes from overflowing. */
int64_t plan_largest_batch(const struct plan *plan, struct session *session, size_t room)
{
    const int64_t pieces = plan->options.train.accumulate, own = session->batch;
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
    step_script_close(&script);
    return prediction;
}
