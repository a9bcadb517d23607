// SPDX-License-Identifier: BSD-3-Clause
/* Plans the same run with other strategies and smaller batches, to find what would fit. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "config/options.h"
#include "model/model.h"
#include "plan/plan.h"
#include "train/session.h"

/* Plan the run with other settings, with the same batch or with the largest one that fits. If it
 * fits, append the settings to `advice` and return true. */
static bool way_try(const struct plan *plan, enum strategy_choice strategy,
                    enum checkpoint_activations_choice checkpoint_activations, bool same_batch,
                    size_t room, char *advice, size_t size)
{
    static const char *const separator[] = {"", " with ", " and "};
    const struct options *options = &plan->options;
    const struct plan other = plan_with(plan, strategy, checkpoint_activations);
    struct session session;
    struct error impossible = {0};
    char batch[64], name[64];
    const char *settings[3];
    int64_t largest = 0;
    int count = 0;
    bool fits = plan_session(&other, &session, &impossible);
    if (fits && same_batch)
        fits = session_needs(&session) <= room;
    else if (fits)
        fits = (largest = plan_largest_batch(&other, &session, room)) > 0;
    session_close(&session);
    if (!fits)
        return false;
    size_t used = strlen(advice);
    used += (size_t)snprintf(advice + used, size - used, "%s", used > 0 ? ", or " : "");
    if (!same_batch) {
        bool global = plan->training && options->train.global_batch > 0;
        snprintf(batch, sizeof batch, "%s=%lld", global ? "train.global_batch" : "train.batch",
                 (long long)largest * (global ? plan->ranks : 1));
        settings[count++] = batch;
    }
    snprintf(name, sizeof name, "mesh.strategy=%s", mesh_strategy_name(strategy));
    if (strategy != options->mesh.strategy)
        settings[count++] = name;
    if (checkpoint_activations != options->train.checkpoint_activations)
        settings[count++] = "train.checkpoint_activations=block";
    for (int n = 0; n < count && used < size; n++)
        used += (size_t)snprintf(advice + used, size - used, "%s%s", separator[n], settings[n]);
    return true;
}

/* Try the other strategies with the same batch, in order of increasing communication. */
static bool strategies_try(const struct plan *plan,
                           enum checkpoint_activations_choice checkpoint_activations, size_t room,
                           char *advice, size_t size)
{
    for (enum strategy_choice strategy = 0; strategy < STRATEGIES; strategy++)
        if (strategy != plan->options.mesh.strategy &&
            way_try(plan, strategy, checkpoint_activations, true, room, advice, size))
            return true;
    return false;
}

void fit_advise(struct error *error)
{
    const struct memory_shortage *shortage = session_shortage();
    if (shortage == NULL || error->kind != ERROR_MEMORY)
        return;
    const struct plan plan = {.options = shortage->options,
                              .ranks = shortage->ranks,
                              .node_ranks = shortage->node_ranks,
                              .source = shortage->source,
                              .training = shortage->training};
    const bool training = plan.training;
    const size_t room = (size_t)shortage->room;
    const enum strategy_choice own = plan.options.mesh.strategy;
    const enum checkpoint_activations_choice kept = plan.options.train.checkpoint_activations;
    const enum strategy_choice least = plan.ranks > 1 ? STRATEGY_FSDP : own;
    const bool blocks = training && kept != CHECKPOINT_ACTIVATIONS_BLOCK &&
                        model_recomputes(plan.options.model.name);
    char advice[512] = "";
    way_try(&plan, own, kept, false, room, advice, sizeof advice);
    bool found = blocks && way_try(&plan, own, CHECKPOINT_ACTIVATIONS_BLOCK, true, room, advice,
                                   sizeof advice);
    if (training && plan.ranks > 1)
        found = strategies_try(&plan, kept, room, advice, sizeof advice) || found;
    if (!found && blocks && plan.ranks > 1)
        found = strategies_try(&plan, CHECKPOINT_ACTIVATIONS_BLOCK, room, advice, sizeof advice);
    if (!found && training && (blocks || least != own))
        way_try(&plan, least, blocks ? CHECKPOINT_ACTIVATIONS_BLOCK : kept, false, room, advice,
                sizeof advice);
    if (advice[0] == '\0')
        snprintf(advice, sizeof advice, "more ranks on more nodes, or a smaller model");
    const size_t used = strlen(error->text);
    snprintf(error->text + used, sizeof error->text - used, "; this would fit: %s", advice);
}
