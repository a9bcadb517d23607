// SPDX-License-Identifier: BSD-3-Clause
/* One optimizer step over a range: clipping, weight decay, moments, weight, moving average and
 * compute copy in one pass over memory. The rules are those of torch.optim (single tensor), with
 * coefficients from update_rule.h. */
#include "device/kernels.h"
#include "device/update_rule.h"
#include "device/vector.h"

/* A vector of elements during the update. */
struct update_vector {
    vector_float weight, gradient, moment1, moment2;
};

KERNEL_INLINE void apply_sgd(struct update_vector *v, const struct update_coefficients *c,
                             bool momentum, bool nesterov)
{
    vector_float direction = v->gradient;

    if (momentum) {
        v->moment1 = v->moment1 * c->keep1 + v->gradient;
        direction = nesterov ? v->gradient + v->moment1 * c->keep1 : v->moment1;
    }
    v->weight -= direction * c->rate;
}

KERNEL_INLINE void apply_adam(struct update_vector *v, const struct update_coefficients *c,
                              bool nesterov)
{
    v->moment1 = v->moment1 * c->keep1 + v->gradient * c->new1;
    v->moment2 = v->moment2 * c->keep2 + v->gradient * v->gradient * c->new2;
    vector_float direction = nesterov ? v->moment1 * c->keep1 + v->gradient * c->new1 : v->moment1;
    v->weight -= direction * c->rate / (vector_sqrt(v->moment2) * c->root_scale + c->epsilon);
}

KERNEL_INLINE void apply_rmsprop(struct update_vector *v, const struct update_coefficients *c,
                                 bool momentum)
{
    v->moment2 = v->moment2 * c->keep2 + v->gradient * v->gradient * c->new2;
    vector_float direction = v->gradient / (vector_sqrt(v->moment2) + c->epsilon);
    if (momentum) {
        v->moment1 = v->moment1 * c->keep1 + direction;
        direction = v->moment1;
    }
    v->weight -= direction * c->rate;
}

/* `rule` and `copy_type` are compile-time constants. */
KERNEL_INLINE void update_typed(enum data_type copy_type, enum update_rule rule,
                                const struct update *args, const struct update_coefficients *c,
                                int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += VECTOR_WIDTH) {
        struct update_vector v = {.weight = typed_load_row(TYPE_FP32, args->weights, i, end)};
        v.gradient = rule == UPDATE_MUON_APPLY
                         ? typed_load_row(direction_type(copy_type), args->direction, i, end)
                         : typed_load_row(TYPE_FP32, args->gradient, i, end) * c->clip;
        v.gradient += v.weight * c->decay;
        v.weight *= c->shrink;
        if (args->moment1 != NULL)
            v.moment1 = typed_load_row(TYPE_FP32, args->moment1, i, end);
        if (args->moment2 != NULL)
            v.moment2 = typed_load_row(TYPE_FP32, args->moment2, i, end);
        if (rule == UPDATE_MUON_APPLY)
            apply_sgd(&v, c, false, false);
        else if (rule == UPDATE_SGD)
            apply_sgd(&v, c, args->moment1 != NULL, args->nesterov);
        else if (rule == UPDATE_RMSPROP)
            apply_rmsprop(&v, c, args->moment1 != NULL);
        else
            apply_adam(&v, c, args->nesterov);
        if (args->moment1 != NULL)
            typed_store_row(TYPE_FP32, args->moment1, i, end, v.moment1);
        if (args->moment2 != NULL)
            typed_store_row(TYPE_FP32, args->moment2, i, end, v.moment2);
        typed_store_row(TYPE_FP32, args->weights, i, end, v.weight);
        if (args->average != NULL) {
            vector_float average = typed_load_row(TYPE_FP32, args->average, i, end);
            average += (v.weight - average) * c->average_new;
            typed_store_row(TYPE_FP32, args->average, i, end, average);
        }
        if (args->copy != NULL)
            typed_store_row(copy_type, args->copy, i, end, v.weight);
    }
}

/* Muon's momentum and the direction of matrices. */
KERNEL_INLINE void direction_typed(enum data_type copy_type, const struct update *args,
                                   const struct update_coefficients *c, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += VECTOR_WIDTH) {
        vector_float gradient =
            typed_load_row(TYPE_FP32, args->gradient, i, end) * c->clip * c->new1;
        vector_float moment =
            typed_load_row(TYPE_FP32, args->moment1, i, end) * c->keep1 + gradient;
        typed_store_row(TYPE_FP32, args->moment1, i, end, moment);
        if (args->nesterov)
            moment = moment * c->keep1 + gradient;
        typed_store_row(direction_type(copy_type), args->direction, i, end, moment);
    }
}

static void update(const struct update *args, const struct update_coefficients *coefficients,
                   int64_t begin, int64_t end)
{
    if (args->rule == UPDATE_SGD)
        TYPED_CALL(update_typed, args->copy_type, UPDATE_SGD, args, coefficients, begin, end);
    else if (args->rule == UPDATE_RMSPROP)
        TYPED_CALL(update_typed, args->copy_type, UPDATE_RMSPROP, args, coefficients, begin, end);
    else if (args->rule == UPDATE_MUON)
        TYPED_CALL(direction_typed, args->copy_type, args, coefficients, begin, end);
    else if (args->rule == UPDATE_MUON_APPLY)
        TYPED_CALL(update_typed, args->copy_type, UPDATE_MUON_APPLY, args, coefficients, begin,
                   end);
    else
        TYPED_CALL(update_typed, args->copy_type, UPDATE_ADAM, args, coefficients, begin, end);
}

const struct update_kernels KERNEL(update_kernels) = {update};
