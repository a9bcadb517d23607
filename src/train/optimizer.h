/* The optimizer: turns options into the device's `update` of each unit's shard. */
#ifndef VITTRAIN_TRAIN_OPTIMIZER_H
#define VITTRAIN_TRAIN_OPTIMIZER_H

#include "mesh/flat.h"
#include "train/schedule.h"

struct options;

struct optimizer {
    enum update_rule rule;
    double beta1, beta2, epsilon, momentum, alpha, average_decay, max_norm;
    bool nesterov;
};

void optimizer_open(struct optimizer *optimizer, const struct options *options);

/* How many moments the rule keeps; with one only, it lies in flat's moment1 (RMSprop's square_avg
 * too). */
int optimizer_moments(const struct options *options);

/* Sets what a schedule moves besides the rate: onecycle the momentum or beta1. Call it before each
 * step; `update` counts from 0. */
void optimizer_follow(struct optimizer *optimizer, const struct schedule *schedule, int64_t update);

/* What the device must know of the update with this number (from 0) and its passes, but for their
 * position in the global batch. */
struct step_params optimizer_params(const struct optimizer *optimizer, double rate, int64_t update);

/* Queues the update of all units; params and scaler (NULL: none) are device memory. The gradients
 * are reduced and flat_norm was called. */
void optimizer_step(const struct optimizer *optimizer, struct flat_model *flat,
                    const struct step_params *params, struct loss_scaler *scaler);

#endif
