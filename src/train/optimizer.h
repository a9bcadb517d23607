/* The optimizer: turns options into the device's `update` of each unit's shard. */
#ifndef VITTRAIN_TRAIN_OPTIMIZER_H
#define VITTRAIN_TRAIN_OPTIMIZER_H

#include "core/options.h"
#include "mesh/flat.h"

struct optimizer {
    enum update_rule rule;
    double beta1, beta2, epsilon, momentum, alpha, average_decay, max_norm;
    bool nesterov;
};

void optimizer_open(struct optimizer *optimizer, const struct options *options);
int optimizer_moments(const struct options *options); /* how many moments the rule keeps */

/* Queues the update of all units with this rate; step counts from 1. */
void optimizer_step(const struct optimizer *optimizer, struct flat_model *flat, double rate,
                    int64_t step);

#endif
