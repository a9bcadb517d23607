// SPDX-License-Identifier: BSD-3-Clause
/* The optimizer: turns options into the device's `update` of each unit's shard. */
#ifndef VITTRAIN_TRAIN_OPTIMIZER_H
#define VITTRAIN_TRAIN_OPTIMIZER_H

#include "mesh/flat.h"
#include "mesh/flat_orthogonal.h"
#include "train/schedule.h"

struct options;

struct optimizer {
    enum update_rule rule;
    double beta1, beta2, epsilon, momentum, alpha, average_decay, max_norm;
    double trust;
    bool nesterov, trust_clip;
    struct newton_schulz newton_schulz;
};

void optimizer_open(struct optimizer *optimizer, const struct options *options);

/* Returns the number of moments of the rule. A single moment is stored in moment1 of the flat
 * buffers, also RMSprop's square_avg. */
int optimizer_moments(const struct options *options);

/* Sets the momentum or beta1 of the onecycle schedule. Call it before each step. update: number of
 * the update, from 0. */
void optimizer_follow(struct optimizer *optimizer, const struct schedule *schedule, int64_t update);

/* Returns the step parameters of update `update` (from 0), except for the position of the passes in
 * the global batch. */
struct step_params optimizer_params(const struct optimizer *optimizer, double rate, int64_t update);

/* Queues the update of all units: params and scaler (NULL: none) are device memory. The gradients
 * must be reduced and flat_norm called before. */
void optimizer_step(const struct optimizer *optimizer, struct flat_model *flat,
                    const struct step_params *params, struct loss_scaler *scaler);

#endif
