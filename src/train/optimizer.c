// SPDX-License-Identifier: BSD-3-Clause
/* The device implements the update rules. This file chooses the rule and its constants, and passes
 * this rank's shard of each unit to the device. */
#include "train/optimizer.h"

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
