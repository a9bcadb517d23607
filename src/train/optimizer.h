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
    double beta1, beta2, epsilon, momentum;
    double alpha;         /* RMSprop: decay rate of the mean of squared gradients */
    double average_decay; /* of the EMA of the weights; 0: none */
    double max_norm;      /* to which the gradient is clipped; 0: no clipping */
    double trust;         /* factor of the trust ratio of LAMB and LARS */
    bool nesterov, trust_clip;
    struct newton_schulz newton_schulz;
};

/* Set the rule and its constants from the options. Allocates no memory. */
void optimizer_open(struct optimizer *optimizer, const struct options *options);

/* Return the number of moments that the flat buffers store: 0, 1 or 2. A single moment is stored as
 * moment1. For RMSprop without momentum this is the mean of squared gradients. */
int optimizer_moments(const struct options *options);

/* With schedule.name=onecycle, set momentum and beta1 to their values for this update. A value of 0
 * remains 0. Call it before each step. update: number of the update, from 0. */
void optimizer_set_momentum(struct optimizer *optimizer, const struct schedule *schedule,
                            int64_t update);

/* Return the step parameters of an update, except for `position`, which differs between its forward
 * passes. rate: learning rate. update: number of the update, from 0. */
struct step_params optimizer_params(const struct optimizer *optimizer, double rate, int64_t update);

/* Queue the update of all units. Before the call, the gradients must be reduced and flat_norm
 * called. With LAMB, LARS and Muon the function is collective: all ranks must call it. params and
 * scaler (NULL: none) are in device memory. */
void optimizer_step(const struct optimizer *optimizer, struct flat_model *flat,
                    const struct step_params *params, struct loss_scaler *scaler);

#endif
