// SPDX-License-Identifier: BSD-3-Clause
/* The device implements the update rules. This file chooses the rule, its constants and the
 * learning rate of a step, and passes this rank's shard of each unit to the device. */
#include "train/optimizer.h"

#include <math.h>

#include "options/options.h"

void optimizer_open(struct optimizer *optimizer, const struct options *options)
{
    const struct optim_options *optim = &options->optim;
    const struct optimizer_facts *facts = optimizer_facts(optim->name);
    const bool lars = optim->name == OPTIMIZER_LARS;
    *optimizer = (struct optimizer){
        .constants = {.rule = (enum update_rule)optim->name,
                      .beta2 = optim->betas.count > 0 ? optim->betas.value[1] : facts->beta2,
                      .epsilon = optim->eps >= 0 ? optim->eps : facts->epsilon,
                      .alpha = optim->alpha,
                      .average_decay = optim->ema,
                      .nesterov = optim->nesterov,
                      .trust = optim->trust_coeff >= 0 ? optim->trust_coeff
                               : lars                  ? 0.001
                                                       : 1,
                      .trust_clip = optim->trust_clip,
                      .max_norm = options->train.clip_norm},
        .beta1 = optim->betas.count > 0 ? optim->betas.value[0] : facts->beta1,
        .momentum = optim->momentum,
        .muon_scale = optim->muon_scale};
}

int optimizer_moments(const struct options *options)
{
    const struct optimizer_facts *facts = optimizer_facts(options->optim.name);
    return (facts->moment1 || (facts->momentum && options->optim.momentum != 0)) + facts->moment2;
}

void optimizer_set_momentum(struct optimizer *optimizer, const struct schedule *schedule,
                            int64_t update)
{
    optimizer->momentum = schedule_momentum(schedule, update, optimizer->momentum);
    optimizer->beta1 = schedule_momentum(schedule, update, optimizer->beta1);
}

struct step_params optimizer_params(const struct optimizer *optimizer, double rate, int64_t update)
{
    return (struct step_params){.step = (uint32_t)update,
                                .update = update + 1,
                                .rate = rate,
                                .beta1 = optimizer->beta1,
                                .momentum = optimizer->momentum};
}

/* Returns the arguments of the update of a unit. */
static struct update unit_update(const struct optimizer *optimizer, const struct flat_model *flat,
                                 int unit, const struct step_params *params,
                                 const struct loss_scaler *scaler)
{
    const struct flat_buffer *buffer = &flat->buffers[unit];
    const size_t skipped = (size_t)buffer->shard_begin * type_size(flat->type);
    struct update update = optimizer->constants;
    bool squares_only = update.rule == UPDATE_RMSPROP && flat->moments == 1;
    /* No compute copy if the model reads the masters, or if gathering the unit makes the copy. */
    bool copies = !flat->slots_weights && buffer->weights != (void *)buffer->master;
    update.count = buffer->shard_count;
    update.weights = buffer->master;
    update.gradient = buffer->gradient;
    update.moment1 = squares_only ? NULL : buffer->moment1;
    update.moment2 = squares_only ? buffer->moment1 : buffer->moment2;
    update.average = buffer->average;
    update.copy = copies ? (unsigned char *)buffer->weights + skipped : NULL;
    update.copy_type = flat->type;
    update.direction = flat_direction(flat, unit);
    update.segments = buffer->segments;
    update.segment_count = buffer->segment_count;
    update.params = params;
    update.norms = flat->norms;
    update.norm_squared = flat->norm_squared;
    update.scaler = scaler;
    update.counted = flat->counted;
    return update;
}

/* Queues the update of all units, or with `measure` the sums of squares of their tensors. */
static void units_update(const struct optimizer *optimizer, const struct flat_model *flat,
                         const struct step_params *params, const struct loss_scaler *scaler,
                         bool measure)
{
    for (int unit = 0; unit < flat->count; unit++) {
        struct update *update = &flat->updates[unit];
        *update = unit_update(optimizer, flat, unit, params, scaler);
        update->measure = measure;
        update->next = unit + 1 < flat->count ? update + 1 : NULL;
    }
    if (flat->count > 0)
        flat->device->backend->update(flat->stream, flat->updates);
}

/* Queues Muon's update. Up to four units are in progress. While the matrices of one are iterated,
 * the communication of the other three continues. */
static void muon_update(const struct optimizer *optimizer, struct flat_model *flat,
                        const struct step_params *params, const struct loss_scaler *scaler)
{
    const struct device_backend *backend = flat->device->backend;
    for (int first = 0, last = 1 - ORTHOGONAL_SLOTS; last < flat->count; first++, last++) {
        if (first < flat->count) {
            const struct update update = unit_update(optimizer, flat, first, params, scaler);
            backend->update(flat->stream, &update);
            flat_direction_start(flat, first);
        }
        if (first >= 1 && first - 1 < flat->count)
            flat_orthogonalize(flat, first - 1, optimizer->constants.epsilon,
                               optimizer->muon_scale);
        if (first >= 2 && first - 2 < flat->count)
            flat_direction_sum(flat, first - 2);
        if (last >= 0 && flat->buffers[last].orthogonal) {
            struct update update = unit_update(optimizer, flat, last, params, scaler);
            update.rule = UPDATE_MUON_APPLY;
            flat_direction_wait(flat, last);
            backend->update(flat->stream, &update);
        }
    }
}

void optimizer_step(const struct optimizer *optimizer, struct flat_model *flat,
                    const struct step_params *params, struct loss_scaler *scaler)
{
    if (flat->norm_count > 0) {
        flat->device->backend->zero(flat->stream, flat->norms,
                                    (size_t)flat->norm_count * sizeof *flat->norms);
        units_update(optimizer, flat, params, scaler, true);
        flat_norms_sum(flat);
    }
    if (optimizer_facts((int)optimizer->constants.rule)->scope == SCOPE_MATRIX)
        muon_update(optimizer, flat, params, scaler);
    else
        units_update(optimizer, flat, params, scaler, false);
    if (scaler != NULL)
        flat->device->backend->scaler_update(flat->stream, scaler, flat->norm_squared);
    flat_updated(flat);
}

/* ---- The learning rate as a function of the step. Only plateau has a state, so a resumed run gets
 * the same rates. Rules count units, which are steps or epochs. */

/* torch.optim.lr_scheduler.OneCycleLR's base_momentum and max_momentum. */
static const double cycle_low_momentum = 0.85, cycle_high_momentum = 0.95;

/* ReduceLROnPlateau's eps: smaller changes of the rate are ignored. */
static const double plateau_least_change = 1e-8;

/* The position of a step after the warm-up, in the schedule's units. */
struct position {
    double done;  /* units since the end of the warm-up */
    double total; /* units from the end of the warm-up to the end of the run, at least 1 */
};

void schedule_open(struct schedule *schedule, const struct options *options, double base_rate,
                   int64_t steps_per_epoch, int64_t total_steps)
{
    ENSURE(steps_per_epoch >= 1 && total_steps >= 1,
           "invalid schedule of %lld steps, %lld per epoch", (long long)total_steps,
           (long long)steps_per_epoch);
    *schedule = (struct schedule){.options = options,
                                  .base_rate = base_rate,
                                  .steps_per_epoch = steps_per_epoch,
                                  .total_steps = total_steps,
                                  .plateau_factor = 1,
                                  .plateau_best = NAN};
}

static int64_t schedule_unit(const struct schedule *schedule, int64_t step)
{
    return schedule->options->schedule.per == SCHEDULE_PER_EPOCH ? step / schedule->steps_per_epoch
                                                                 : step;
}

static struct position schedule_position(const struct schedule *schedule, int64_t step)
{
    int64_t warmup = schedule->options->schedule.warmup;
    int64_t done = schedule_unit(schedule, step) - warmup;
    int64_t total = schedule_unit(schedule, schedule->total_steps - 1) + 1 - warmup;

    if (total < 1)
        total = 1;
    if (done > total)
        done = total;
    return (struct position){.done = (double)done, .total = (double)total};
}

/* Half a cosine from `from` (share 0) to `to` (share 1). */
static double cosine_between(double from, double to, double share)
{
    return to + (from - to) * 0.5 * (1 + cos(M_PI * share));
}

/* OneCycleLR's two phases: up, then down. low, high, last: values at the start, at the peak and in
 * the last unit. */
static double onecycle_value(const struct schedule *schedule, struct position at, double low,
                             double high, double last)
{
    double top = schedule->options->schedule.pct_start * at.total - 1;
    double end = at.total - 1;

    if (at.done <= top && top > 0)
        return cosine_between(low, high, at.done / top);
    if (end <= top)
        return high;
    return cosine_between(high, last, fmin((at.done - top) / (end - top), 1));
}

double schedule_rate(const struct schedule *schedule, int64_t step)
{
    const struct schedule_options *options = &schedule->options->schedule;
    const int64_t unit = schedule_unit(schedule, step);
    const struct position at = schedule_position(schedule, step);
    const double rate = schedule->base_rate, low = rate / options->div_factor;
    if (unit < options->warmup) {
        const double factor = options->name == SCHEDULE_PLATEAU ? schedule->plateau_factor : 1;
        return rate * factor * (double)(unit + 1) / (double)options->warmup;
    }
    switch (options->name) {
    case SCHEDULE_CONSTANT:
        return rate;
    case SCHEDULE_COSINE:
        return cosine_between(rate, options->min_lr, at.done / at.total);
    case SCHEDULE_STEP:
        return rate * pow(options->gamma, floor(at.done / (double)options->step_size));
    case SCHEDULE_ONECYCLE:
        return onecycle_value(schedule, at, low, rate, low / options->final_div_factor);
    case SCHEDULE_PLATEAU:
        return rate * schedule->plateau_factor;
    case SCHEDULE_LINEAR:
        return rate * (1 + (options->end_factor - 1) * at.done / at.total);
    }
    error_abort(__FILE__, __LINE__, "unknown schedule %d", options->name);
}

double schedule_momentum(const struct schedule *schedule, int64_t step, double momentum)
{
    struct position at = schedule_position(schedule, step);

    if (schedule->options->schedule.name != SCHEDULE_ONECYCLE || momentum == 0)
        return momentum;
    if (at.done < 0)
        at.done = 0;
    return onecycle_value(schedule, at, cycle_high_momentum, cycle_low_momentum,
                          cycle_high_momentum);
}

void schedule_observe(struct schedule *schedule, double value, bool lower_is_better)
{
    const struct options *options = schedule->options;
    double threshold = options->schedule.threshold;
    double best = schedule->plateau_best;

    if (options->schedule.name != SCHEDULE_PLATEAU)
        return;
    if (isnan(best)
            ? !isnan(value)
            : (lower_is_better ? value < best * (1 - threshold) : value > best * (1 + threshold))) {
        schedule->plateau_best = value;
        schedule->plateau_bad = 0;
        return;
    }
    if (++schedule->plateau_bad <= options->schedule.patience)
        return;
    double old = schedule->base_rate * schedule->plateau_factor;
    double reduced = fmax(old * options->schedule.factor, options->schedule.min_lr);
    if (old - reduced > plateau_least_change)
        schedule->plateau_factor = reduced / schedule->base_rate;
    schedule->plateau_bad = 0;
}

double schedule_base_rate(const struct options *options, int64_t global_batch)
{
    double ratio = (double)global_batch / (double)options->optim.lr_batch;

    switch (options->optim.lr_scale) {
    case RATE_SCALE_NONE:
        return options->optim.lr;
    case RATE_SCALE_LINEAR:
        return options->optim.lr * ratio;
    case RATE_SCALE_SQRT:
        return options->optim.lr * sqrt(ratio);
    }
    error_abort(__FILE__, __LINE__, "unknown lr_scale %d", options->optim.lr_scale);
}
