// SPDX-License-Identifier: BSD-3-Clause
/* The update rules of the optimizers, compiled for the CPU and the GPU. The first part computes the
 * coefficients of a segment: learning rate, clipping, loss scale, trust ratio. A CPU computes them
 * before its loops; a GPU in a small kernel, because their inputs are in device memory. The second
 * part is the formula of an element. */
#ifndef VITTRAIN_DEVICE_UPDATE_RULE_H
#define VITTRAIN_DEVICE_UPDATE_RULE_H

#include "device/exact_sum.h"

struct update_coefficients {
    float clip;        /* factor of the gradient: update_clip, with LARS times the trust ratio */
    float decay;       /* gradient += decay * weight */
    float shrink;      /* factor of the weight: 1 - rate * decay if the decay is decoupled, else 1;
                          `keep` for running statistics */
    float rate;        /* learning rate; with Adam's moments divided by the first bias correction */
    float keep1, new1; /* moment 1 = keep1 * moment 1 + new1 * gradient */
    float keep2, new2; /* moment 2 = keep2 * moment 2 + new2 * gradient^2; Lion: see apply_lion */
    float root_scale;  /* 1 / sqrt(second bias correction) */
    float epsilon;
    float average_new; /* average += average_new * (weight - average) */
};

/* True if the update must be skipped. */
SHARED_FUNCTION bool update_skips(const struct update *args)
{
    return args->norm_squared != NULL && !isfinite(*args->norm_squared);
}

/* End the program if the memory that the rule needs is missing (host). */
static inline void update_check(const struct update *args)
{
    const struct optimizer_facts *facts =
        optimizer_facts(args->rule == UPDATE_MUON_APPLY ? UPDATE_MUON : (int)args->rule);
    ENSURE(args->params != NULL, "update without step parameters");
    ENSURE(args->moment1 != NULL || !facts->moment1, "update without moment1");
    ENSURE(args->moment2 != NULL || !facts->moment2, "update without moment2");
    ENSURE(args->norms != NULL || !args->measure, "norms of tensors without memory");
}

/* True if the call does not change the segment (host). */
static inline bool segment_skips(const struct update *args, const struct update_segment *segment)
{
    return segment->rate_scale == 0 || (args->measure && !segment->adapts) ||
           segment->begin >= segment->end || (args->rule == UPDATE_MUON_APPLY && !segment->matrix);
}

/* Return the share of a step's samples that is in the loss; 1 if none is: the gradient is 0. */
SHARED_FUNCTION double counted_share(double counted, double samples)
{
    return counted > 0 ? counted / samples : 1;
}

/* Return the factor of the gradient: clipping, and division by the loss scale and by the share of
 * the samples that is in the loss. */
SHARED_FUNCTION float update_clip(const struct update *args)
{
    double scale = args->scaler != NULL ? (double)args->scaler->scale : 1;
    if (args->counted != NULL)
        scale *= counted_share(*args->counted, args->params->samples);
    if (args->max_norm <= 0)
        return (float)(1 / scale);
    double clip = args->max_norm / (sqrt(*args->norm_squared) / scale + 1e-6);
    return (float)((clip < 1 ? clip : 1) / scale);
}

/* Return the trust ratio of a segment's tensor; 1 if it does not adapt or if `measure` is set.
 * rate: learning rate of the segment. */
SHARED_FUNCTION double update_trust(const struct update *args, const struct update_segment *segment,
                                    double rate)
{
    if (!segment->adapts || args->measure)
        return 1;
    const struct tensor_norms *norms = &args->norms[segment->tensor];
    double weights = sqrt(exact_sum_value(&norms->weights)), ratio = 1;
    double direction = sqrt(exact_sum_value(&norms->direction));
    bool lars = args->rule == UPDATE_LARS, defined = weights > 0 && direction > 0;
    if (lars)
        direction += weights * segment->weight_decay + args->epsilon;
    if (defined)
        ratio = args->trust * weights / direction;
    if (args->trust_clip)
        ratio = fmin(lars ? ratio / rate : ratio, 1.0);
    return ratio;
}

/* Compute a segment's coefficients. For a `running` segment the caller applies SGD without moments:
 * the update of running statistics equals a step with shrink = keep and rate -1. The trust ratio
 * multiplies the rate or, with LARS, the gradient and the decay. If `measure` is set, the rate is
 * 1, and LAMB's decay is added to the direction. */
SHARED_FUNCTION void update_coefficients_make(struct update_coefficients *c,
                                              const struct update *args,
                                              const struct update_segment *segment)
{
    const struct step_params *params = args->params;
    bool lamb = args->rule == UPDATE_LAMB, lars = args->rule == UPDATE_LARS;
    double rate = params->rate * segment->rate_scale, decay = segment->weight_decay;
    double trust = update_trust(args, segment, rate);
    rate = args->measure ? 1 : rate * (lars ? 1 : trust);
    bool adam = lamb || args->rule == UPDATE_ADAM || args->rule == UPDATE_ADAMW ||
                (args->rule == UPDATE_MUON && !segment->matrix);
    bool applies = args->rule == UPDATE_MUON_APPLY, running = segment->running;
    bool lion = args->rule == UPDATE_LION;
    bool decoupled = args->rule == UPDATE_ADAMW || args->rule == UPDATE_MUON || applies || lion ||
                     (lamb && !args->measure);
    double keep1 = adam || lion ? params->beta1 : params->momentum,
           keep2 = adam || lion ? args->beta2 : args->alpha;
    double updates = (double)(params->update - (args->scaler != NULL ? args->scaler->skipped : 0));
    double correction1 = adam ? 1 - pow(params->beta1, updates) : 1;
    double correction2 = adam ? 1 - pow(args->beta2, updates) : 1;
    float shrink = decoupled ? (float)(1 - rate * decay) : 1;
    c->clip = running || applies ? 1 : update_clip(args) * (lars ? (float)trust : 1);
    c->decay = decoupled || running ? 0 : (float)(lars ? trust * decay : decay);
    c->shrink = running ? segment->keep : shrink;
    c->rate = running ? -1 : (float)(rate / correction1);
    c->keep1 = (float)keep1;
    c->new1 = (float)(1 - keep1);
    c->keep2 = (float)keep2;
    c->new2 = (float)(1 - keep2);
    c->root_scale = (float)(1 / sqrt(correction2));
    c->epsilon = (float)args->epsilon;
    c->average_new = (float)(1 - args->average_decay);
}

/* ---- Update of an element. The file that includes this header defines
 *   UPDATE_NUMBER: vector_float on a CPU, float on a GPU,
 *   UPDATE_ROOT:   square root of an UPDATE_NUMBER,
 *   UPDATE_SIGN:   sign of an UPDATE_NUMBER: -1, 0 or 1.
 * On a CPU `rule` is a compile-time constant. */
#ifdef UPDATE_NUMBER
struct update_element {
    UPDATE_NUMBER weight, gradient, moment1, moment2;
};

SHARED_FUNCTION void apply_sgd(struct update_element *e, const struct update_coefficients *c,
                               bool momentum, bool nesterov)
{
    UPDATE_NUMBER direction = e->gradient;
    if (momentum) {
        e->moment1 = e->moment1 * c->keep1 + e->gradient;
        direction = nesterov ? e->gradient + e->moment1 * c->keep1 : e->moment1;
    }
    e->weight -= direction * c->rate;
}

/* Update the moments. Return the direction of Adam (NAdam with `nesterov`) times c->rate. */
SHARED_FUNCTION UPDATE_NUMBER adam_direction(struct update_element *e,
                                             const struct update_coefficients *c, bool nesterov)
{
    e->moment1 = e->moment1 * c->keep1 + e->gradient * c->new1;
    e->moment2 = e->moment2 * c->keep2 + e->gradient * e->gradient * c->new2;
    UPDATE_NUMBER direction = nesterov ? e->moment1 * c->keep1 + e->gradient * c->new1 : e->moment1;
    return direction * c->rate / (UPDATE_ROOT(e->moment2) * c->root_scale + c->epsilon);
}

SHARED_FUNCTION void apply_rmsprop(struct update_element *e, const struct update_coefficients *c,
                                   bool momentum)
{
    e->moment2 = e->moment2 * c->keep2 + e->gradient * e->gradient * c->new2;
    UPDATE_NUMBER direction = e->gradient / (UPDATE_ROOT(e->moment2) + c->epsilon);
    if (momentum) {
        e->moment1 = e->moment1 * c->keep1 + direction;
        direction = e->moment1;
    }
    e->weight -= direction * c->rate;
}

SHARED_FUNCTION void apply_lion(struct update_element *e, const struct update_coefficients *c)
{
    e->weight -= UPDATE_SIGN(e->moment1 * c->keep1 + e->gradient * c->new1) * c->rate;
    e->moment1 = e->moment1 * c->keep2 + e->gradient * c->new2;
}

/* Update an element. For UPDATE_MUON_APPLY e->gradient contains the orthogonalized direction. */
SHARED_FUNCTION void update_apply(struct update_element *e, const struct update_coefficients *c,
                                  enum update_rule rule, bool momentum, bool nesterov)
{
    e->gradient = e->gradient * c->clip + e->weight * c->decay;
    e->weight *= c->shrink;
    if (rule == UPDATE_SGD || rule == UPDATE_LARS || rule == UPDATE_MUON_APPLY)
        apply_sgd(e, c, momentum, nesterov);
    else if (rule == UPDATE_RMSPROP)
        apply_rmsprop(e, c, momentum);
    else if (rule == UPDATE_LION)
        apply_lion(e, c);
    else
        e->weight -= adam_direction(e, c, nesterov);
}

/* Return the direction whose norm is part of the trust ratio. c: the coefficients for `measure`. */
SHARED_FUNCTION UPDATE_NUMBER update_direction(struct update_element *e,
                                               const struct update_coefficients *c,
                                               enum update_rule rule)
{
    e->gradient = e->gradient * c->clip;
    if (rule == UPDATE_LAMB)
        return adam_direction(e, c, false) + e->weight * c->decay;
    return e->gradient;
}
#endif

/* Return the factor of x in a matrix_sum: x_factor, divided by the norm if there is one. */
SHARED_FUNCTION float matrix_sum_factor(const struct matrix_sum *args)
{
    if (args->norm_squared == NULL)
        return args->x_factor;
    double norm = sqrt(*args->norm_squared);
    return (float)((double)args->x_factor / (norm > args->epsilon ? norm : args->epsilon));
}

/* Halve the loss scale if the gradient of this step was not finite. Double it after
 * LOSS_SCALER_GOOD_STEPS finite ones. The operation scaler_update calls it. */
SHARED_FUNCTION void loss_scaler_adjust(struct loss_scaler *scaler, double norm_squared)
{
    if (!isfinite(norm_squared)) {
        scaler->skipped++;
        scaler->good_steps = 0;
        if (scaler->scale > LOSS_SCALE_LEAST)
            scaler->scale /= 2;
    } else if (++scaler->good_steps >= LOSS_SCALER_GOOD_STEPS) {
        scaler->good_steps = 0;
        if (scaler->scale < LOSS_SCALE_MOST)
            scaler->scale *= 2;
    }
}

#endif
