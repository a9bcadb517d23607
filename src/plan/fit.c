/* Plans the same run with other strategies and smaller batches, to find what would fit. */
#include "plan/fit.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "config/options.h"
#include "model/registry.h"
#include "plan/plan.h"

static void advice_add(char *advice, size_t size, const char *text)
{
    size_t used = strlen(advice);
    snprintf(advice + used, size - used, "%s%s", used > 0 ? ", or " : "", text);
}

/* Another way to run the same batch: in `advice` when it fits. */
static bool way_try(const struct plan *plan, int strategy, int checkpoint_activations, size_t room,
                    char *advice, size_t size)
{
    struct plan_entry entry;
    char text[128];
    plan_make(plan, (enum strategy_choice)strategy,
              (enum checkpoint_activations_choice)checkpoint_activations, 0, &entry);
    if (entry.error.kind != ERROR_NONE || entry.needs > room)
        return false;
    bool moves = strategy != plan->options.mesh.strategy;
    bool blocks = checkpoint_activations != plan->options.train.checkpoint_activations;
    snprintf(text, sizeof text, "%s%s%s%s", moves ? "mesh.strategy=" : "",
             moves ? mesh_strategy_name((enum strategy_choice)strategy) : "",
             moves && blocks ? " with " : "", blocks ? "train.checkpoint_activations=block" : "");
    advice_add(advice, size, text);
    return true;
}

/* The first of the other strategies that fits: those that send least come first. */
static bool strategies_try(const struct plan *plan, int checkpoint_activations, size_t room,
                           char *advice, size_t size)
{
    for (int strategy = STRATEGY_DDP; strategy <= STRATEGY_HSDP; strategy++)
        if (strategy != plan->options.mesh.strategy &&
            way_try(plan, strategy, checkpoint_activations, room, advice, size))
            return true;
    return false;
}

/* The largest batch that fits so, in `advice` with what must be set for it. */
static void batch_advise(const struct plan *plan, int strategy, int checkpoint_activations,
                         size_t room, char *advice, size_t size)
{
    const struct options *options = &plan->options;
    struct plan_entry entry;
    char text[160];
    plan_make(plan, (enum strategy_choice)strategy,
              (enum checkpoint_activations_choice)checkpoint_activations, room, &entry);
    if (entry.largest_batch == 0)
        return;
    bool global = plan->training && options->train.global_batch > 0;
    bool moves = strategy != options->mesh.strategy;
    bool blocks = checkpoint_activations != options->train.checkpoint_activations;
    snprintf(text, sizeof text, "%s=%lld%s%s%s%s", global ? "train.global_batch" : "train.batch",
             (long long)entry.largest_batch * (global ? plan->ranks : 1),
             moves ? " with mesh.strategy=" : "",
             moves ? mesh_strategy_name((enum strategy_choice)strategy) : "",
             !blocks ? ""
             : moves ? " and "
                     : " with ",
             blocks ? "train.checkpoint_activations=block" : "");
    advice_add(advice, size, text);
}

void fit_advise(const struct session *session, const struct image_source *source, bool training,
                size_t room, char *advice, size_t size)
{
    const struct mesh *mesh = &session->mesh;
    const struct plan plan = {.options = *session->options,
                              .ranks = mesh->world->size,
                              .node_ranks = mesh->node->size,
                              .source = *source,
                              .training = training};
    int own = plan.options.mesh.strategy, kept = plan.options.train.checkpoint_activations;
    bool blocks = training && kept != CHECKPOINT_ACTIVATIONS_BLOCK &&
                  model_recomputes(plan.options.model.name);
    advice[0] = '\0';
    batch_advise(&plan, own, kept, room, advice, size);
    bool found = blocks && way_try(&plan, own, CHECKPOINT_ACTIVATIONS_BLOCK, room, advice, size);
    if (training && plan.ranks > 1)
        found = strategies_try(&plan, kept, room, advice, size) || found;
    if (!found && blocks && plan.ranks > 1)
        found = strategies_try(&plan, CHECKPOINT_ACTIVATIONS_BLOCK, room, advice, size);
    int least = plan.ranks > 1 ? STRATEGY_FSDP : own;
    if (!found && training && (blocks || least != own))
        batch_advise(&plan, least, blocks ? CHECKPOINT_ACTIVATIONS_BLOCK : kept, room, advice,
                     size);
    if (advice[0] == '\0')
        snprintf(advice, size, "more ranks on more nodes, or a smaller model");
}
