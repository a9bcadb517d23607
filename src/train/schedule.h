/* The learning rate over time. Rules are torch.optim.lr_scheduler's where it has them; warm-up of w
 * steps gives rate (t+1)/w for t < w, what follows sees t - w of T - w. */
#ifndef VITTRAIN_TRAIN_SCHEDULE_H
#define VITTRAIN_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/options.h"

struct schedule {
    const struct options *options;
    double base_rate;       /* after lr_scale */
    int64_t steps_per_epoch;
    int64_t total_steps;
    /* plateau's state, in the checkpoint */
    double plateau_factor, plateau_best;
    int64_t plateau_bad;
};

void schedule_open(struct schedule *schedule, const struct options *options, double base_rate,
                   int64_t steps_per_epoch, int64_t total_steps);

/* The rate for the update with this number (from 0). */
double schedule_rate(const struct schedule *schedule, int64_t step);

/* onecycle also moves the momentum (beta1); returns `momentum` unchanged for other schedules. */
double schedule_momentum(const struct schedule *schedule, int64_t step, double momentum);

/* plateau: an evaluation's monitored value; `lower_is_better` for losses. */
void schedule_observe(struct schedule *schedule, double value, bool lower_is_better);

/* lr scaled by the global batch as optim.lr_scale asks. */
double schedule_base_rate(const struct options *options, int64_t global_batch);

#endif
