// SPDX-License-Identifier: BSD-3-Clause
/* Learning-rate schedules, as in torch.optim.lr_scheduler. A warm-up of w steps multiplies the rate
 * by (t+1)/w for t < w; the schedule then runs over step t - w of T - w. With schedule.per=epoch
 * these numbers count epochs, and the rate is constant within an epoch. */
#ifndef VITTRAIN_TRAIN_SCHEDULE_H
#define VITTRAIN_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct options;

struct schedule {
    const struct options *options;
    double base_rate; /* after lr_scale */
    int64_t steps_per_epoch;
    int64_t total_steps;
    /* state of plateau, saved in checkpoints */
    double plateau_factor, plateau_best; /* best NAN: nothing observed yet */
    int64_t plateau_bad;
};

/* options must live as long as the schedule; steps_per_epoch and total_steps are at least 1. */
void schedule_open(struct schedule *schedule, const struct options *options, double base_rate,
                   int64_t steps_per_epoch, int64_t total_steps);

/* clang-format off */
/* Returns the rate of update `step` (from 0):
 *   constant  lr
 *   cosine    CosineAnnealingLR from lr to min_lr over the run
 *   step      StepLR: times gamma every step_size
 *   onecycle  OneCycleLR (cosine, two phases): lr / div_factor up to lr in pct_start of the run,
 *             then down to lr / div_factor / final_div_factor
 *   plateau   ReduceLROnPlateau: times factor (not below min_lr) after more than `patience`
 *             evaluations in a row without a relative gain of `threshold`
 *   linear    LinearLR from lr to lr * end_factor over the run */
/* clang-format on */
double schedule_rate(const struct schedule *schedule, int64_t step);

/* onecycle moves the momentum (beta1 of Adam) between 0.95 and 0.85, OneCycleLR's defaults,
 * opposite to the rate. Other schedules return `momentum` unchanged, and 0 (none) stays 0. */
double schedule_momentum(const struct schedule *schedule, int64_t step, double momentum);

/* Passes the monitored value of an evaluation to the plateau schedule. */
void schedule_observe(struct schedule *schedule, double value, bool lower_is_better);

/* Returns optim.lr, scaled with the global batch by optim.lr_scale. */
double schedule_base_rate(const struct options *options, int64_t global_batch);

#endif
