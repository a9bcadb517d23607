/* The learning rate over time. Rules are torch.optim.lr_scheduler's where it has them; warm-up of w
 * steps gives rate (t+1)/w for t < w, what follows sees t - w of T - w. With schedule.per=epoch all
 * of this counts epochs, and the rate stands still within one. */
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
    /* plateau's state, in the checkpoint */
    double plateau_factor, plateau_best; /* best NAN: nothing observed yet */
    int64_t plateau_bad;
};

/* options must live as long as the schedule; steps_per_epoch and total_steps are at least 1. */
void schedule_open(struct schedule *schedule, const struct options *options, double base_rate,
                   int64_t steps_per_epoch, int64_t total_steps);

/* The rate for the update with this number (from 0):
 *   constant  lr
 *   cosine    CosineAnnealingLR from lr to min_lr over the run
 *   step      StepLR: times gamma every step_size
 *   onecycle  OneCycleLR (cosine, two phases): lr / div_factor up to lr in pct_start of the run,
 * then down to lr / div_factor / final_div_factor plateau   ReduceLROnPlateau: times factor (not
 * below min_lr) after more than `patience` evaluations in a row without a relative gain of
 * `threshold` linear    LinearLR from lr to lr * end_factor over the run */
double schedule_rate(const struct schedule *schedule, int64_t step);

/* onecycle moves the momentum (beta1 of Adam) between 0.95 and 0.85, OneCycleLR's defaults, against
 * the rate; other schedules return `momentum` unchanged, and 0 (none) stays 0. */
double schedule_momentum(const struct schedule *schedule, int64_t step, double momentum);

/* plateau: an evaluation's monitored value; `lower_is_better` for losses. */
void schedule_observe(struct schedule *schedule, double value, bool lower_is_better);

/* lr scaled by the global batch as optim.lr_scale asks. */
double schedule_base_rate(const struct options *options, int64_t global_batch);

#endif
