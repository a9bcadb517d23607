// SPDX-License-Identifier: BSD-3-Clause
/* The device implements the update rules. This file chooses the rule and its constants, and passes
 * this rank's shard of each unit to the device. */
#include "train/optimizer.h"

#include <math.h>

#include "base/base.h"
#include "options/options.h"

/* Coefficients of the Newton-Schulz iteration, as in timm.optim.muon. */
static const double muon_factors[NEWTON_SCHULZ_STEPS][3] = {{4.0848, -6.8946, 2.9270},
                                                            {3.9505, -6.3029, 2.6377},
                                                            {3.7418, -5.5913, 2.3037},
                                                            {2.8769, -3.1427, 1.2046},
                                                            {2.8366, -3.0525, 1.2012}};

/* Liu et al. 2025: the update's root mean square is about 0.2, like AdamW's. */
static double scale_match_rms_adamw(int64_t rows, int64_t columns)
{
    return 0.2 * sqrt((double)larger(rows, columns));
}

/* Jordan et al. 2024, the function muon_update of their repository KellerJordan/Muon. */
static double scale_original(int64_t rows, int64_t columns)
{
    return sqrt(fmax(1, (double)rows / (double)columns));
}

void optimizer_open(struct optimizer *optimizer, const struct options *options)
{
    const struct optimizer_facts *facts = optimizer_facts(options->optim.name);
    const struct option_list *betas = &options->optim.betas;
    *optimizer =
        (struct optimizer){.rule = (enum update_rule)options->optim.name,
                           .beta1 = betas->count > 0 ? betas->value[0] : facts->beta1,
                           .beta2 = betas->count > 0 ? betas->value[1] : facts->beta2,
                           .epsilon = options->optim.eps >= 0 ? options->optim.eps : facts->epsilon,
                           .momentum = options->optim.momentum,
                           .alpha = options->optim.alpha,
                           .average_decay = options->optim.ema,
                           .max_norm = options->train.clip_norm,
                           .nesterov = options->optim.nesterov,
                           .trust = options->optim.trust_coeff,
                           .trust_clip = options->optim.trust_clip};
    if (optimizer->trust < 0)
        optimizer->trust = optimizer->rule == UPDATE_LARS ? 0.001 : 1;
    optimizer->newton_schulz = (struct newton_schulz){
        .factors = muon_factors,
        .epsilon = optimizer->epsilon,
        .scale = options->optim.muon_scale == MUON_SCALE_ORIGINAL ? scale_original
                                                                  : scale_match_rms_adamw};
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
    bool squares_only = optimizer->rule == UPDATE_RMSPROP && flat->moments == 1;
    /* No compute copy if the model reads the masters, or if gathering the unit makes the copy. */
    bool copies = !flat->slots_weights && buffer->weights != (void *)buffer->master;
    size_t skipped = (size_t)buffer->shard_begin * type_size(flat->type);
    return (struct update){
        .rule = optimizer->rule,
        .count = buffer->shard_count,
        .weights = buffer->master,
        .gradient = buffer->gradient,
        .moment1 = squares_only ? NULL : buffer->moment1,
        .moment2 = squares_only ? buffer->moment1 : buffer->moment2,
        .average = buffer->average,
        .copy = copies ? (unsigned char *)buffer->weights + skipped : NULL,
        .copy_type = flat->type,
        .direction = flat_direction(flat, unit),
        .segments = buffer->segments,
        .segment_count = buffer->segment_count,
        .params = params,
        .beta2 = optimizer->beta2,
        .epsilon = optimizer->epsilon,
        .alpha = optimizer->alpha,
        .average_decay = optimizer->average_decay,
        .nesterov = optimizer->nesterov,
        .norms = flat->norms,
        .trust = optimizer->trust,
        .trust_clip = optimizer->trust_clip,
        .norm_squared = flat->norm_squared,
        .max_norm = optimizer->max_norm,
        .scaler = scaler,
        .counted = flat->counted,
    };
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
            flat_orthogonalize(flat, first - 1, &optimizer->newton_schulz);
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
        flat_norms_begin(flat);
        units_update(optimizer, flat, params, scaler, true);
        flat_norms_sum(flat);
    }
    if (optimizer_facts((int)optimizer->rule)->scope == SCOPE_MATRIX)
        muon_update(optimizer, flat, params, scaler);
    else
        units_update(optimizer, flat, params, scaler, false);
    if (scaler != NULL)
        flat->device->backend->scaler_update(flat->stream, scaler, flat->norm_squared);
    flat_updated(flat);
}
