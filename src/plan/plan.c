// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan.h"

#include "config/options.h"
#include "core/integer.h"
#include "train/feed.h"
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

/* Samples per micro-batch as set by the options. */
static int64_t micro_batch(const struct plan *plan)
{
    const struct options *options = &plan->options;
    if (!plan->training)
        return options->train.batch;
    return feed_pass_samples(options, feed_global_batch(options, plan->ranks), plan->ranks,
                             options->train.accumulate);
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
    const size_t rows = (size_t)session->model->unit_count + ARENA_UNIT_ROWS;
    session->memory.rows = allocate(rows, sizeof *session->memory.rows);
    session_measure(session, micro_batch(plan), &plan->source, plan->training,
                    session->memory.rows);
    return true;
}

static bool batch_fits(const struct plan *plan, struct session *session, int64_t batch, size_t room)
{
    session_measure(session, batch, &plan->source, plan->training, NULL);
    return session_needs(session) <= room;
}

/* By doubling and bisection of the micro-batch. Doubling keeps sizes from overflowing. */
int64_t plan_largest_batch(const struct plan *plan, struct session *session, size_t room)
{
    const int64_t pieces = plan->training ? plan->options.train.accumulate : 1;
    int64_t good = 0, bad = 1;
    while (bad <= BATCH_MOST && batch_fits(plan, session, bad, room)) {
        good = bad;
        bad *= 2;
    }
    bad = smaller(bad, BATCH_MOST + 1);
    while (bad - good > 1) {
        int64_t middle = good + (bad - good) / 2;
        *(batch_fits(plan, session, middle, room) ? &good : &bad) = middle;
    }
    return smaller(good * pieces, BATCH_MOST);
}

bool plan_script(const struct plan *plan, struct session *session, struct step_script *script,
                 struct error *error)
{
    *script = (struct step_script){0};
    if (!plan_session(plan, session, error))
        return false;
    step_script_make(script, session, &plan->source);
    return true;
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

bool plan_traffic(const struct plan *plan, struct plan_traffic *sent, struct error *error)
{
    struct session session;
    struct step_script script;
    const bool good = plan_script(plan, &session, &script, error);
    *sent = (struct plan_traffic){0};
    if (good) {
        const int shard = session.mesh.shard->size, replica = session.mesh.replica->size;
        for (const struct script_event *event = script.event; event < script.event + script.count;
             event++) {
            const struct collective *part = &event->collective;
            if (event->kind == EVENT_START && part->replica)
                sent->replica += machine_network_bytes(part, replica);
            else if (event->kind == EVENT_START)
                sent->shard += machine_network_bytes(part, shard);
        }
        sent->network = sent->shard * network_share(plan, shard, 1) +
                        sent->replica * network_share(plan, replica, shard);
    }
    step_script_close(&script);
    session_close(&session);
    return good;
}

bool plan_predict(const struct plan *plan, const struct machine *machine, struct session *session,
                  struct step_prediction *prediction, struct error *error)
{
    struct step_script script;
    bool good = plan_script(plan, session, &script, error);
    if (good) {
        const struct mesh_shape mesh =
            mesh_shape(plan->ranks, plan->node_ranks, session->mesh.shard->size);
        good = step_predict(prediction, &script, session->model->unit_count, machine, &mesh, error);
    }
    if (good && machine != NULL)
        step_prediction_add_loading(prediction, machine,
                                    session->batch * plan->options.train.accumulate);
    step_script_close(&script);
    return good;
}
