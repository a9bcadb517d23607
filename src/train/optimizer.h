// SPDX-License-Identifier: BSD-3-Clause
/* The optimizer turns options into the device's `update` of each unit's shard; the schedule gives
 * the learning rate of a step. */
#ifndef VITTRAIN_TRAIN_OPTIMIZER_H
#define VITTRAIN_TRAIN_OPTIMIZER_H

#include "mesh/flat.h"

struct options;

/* ---- Learning-rate schedules, as in torch.optim.lr_scheduler. A warm-up of w steps multiplies the
 * rate by (t+1)/w for t < w; the schedule then runs over step t - w of T - w. With
 * schedule.per=epoch these numbers count epochs, and the rate is constant within an epoch. */

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

/* ---- The optimizer. */

struct optimizer {
    struct update constants; /* the rule and its constants; all other members are zero */
    double beta1, momentum;  /* of the next update */
    enum muon_scale_choice muon_scale;
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
