// SPDX-License-Identifier: BSD-3-Clause
/* One optimizer step over a range: clipping, weight decay, moments, weight, moving average and
 * compute copy in one pass over memory. SGD, Adam, AdamW and RMSprop are those of
 * torch.optim (single tensor); Lion, LAMB, LARS and Muon are timm's. Coefficients are from
 * update_rule.h. */
#include "cpu/kernels.h"
#include "cpu/vector.h"

KERNEL_INLINE vector_float vector_sign(vector_float x)
{
    vector_float one = vector_all(1), zero = vector_all(0);
    return vector_select(x > zero, one, zero) - vector_select(x < zero, one, zero);
}

#define UPDATE_NUMBER vector_float
#define UPDATE_ROOT vector_sqrt
#define UPDATE_SIGN vector_sign
#include "device/update_rule.h"

/* `rule` and `copy_type` are compile-time constants. */
KERNEL_INLINE void update_typed(enum data_type copy_type, enum update_rule rule,
                                const struct update *args, const struct update_coefficients *c,
                                int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += VECTOR_WIDTH) {
        struct update_element v = {.weight = typed_load_row(TYPE_FP32, args->weights, i, end)};
        v.gradient = rule == UPDATE_MUON_APPLY
                         ? typed_load_row(direction_type(copy_type), args->direction, i, end)
                         : typed_load_row(TYPE_FP32, args->gradient, i, end);
        if (args->moment1 != NULL)
            v.moment1 = typed_load_row(TYPE_FP32, args->moment1, i, end);
        if (args->moment2 != NULL)
            v.moment2 = typed_load_row(TYPE_FP32, args->moment2, i, end);
        update_apply(&v, c, rule, args->moment1 != NULL, args->nesterov);
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

/* Update Muon's momentum and write the direction of matrices. */
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
    if (args->rule == UPDATE_MUON) {
        TYPED_CALL(direction_typed, args->copy_type, args, coefficients, begin, end);
        return;
    }
    switch (args->rule) {
#define UPDATE_CASE(name, word)                                                                    \
    case name:                                                                                     \
        TYPED_CALL(update_typed, args->copy_type, name, args, coefficients, begin, end);           \
        break;
        OPTIMIZERS(UPDATE_CASE, UPDATE_)
        UPDATE_CASE(UPDATE_MUON_APPLY, "")
    }
}

static void measure(const struct update *args, const struct update_coefficients *coefficients,
                    int64_t begin, int64_t end, float *direction)
{
    for (int64_t i = begin; i < end; i += VECTOR_WIDTH) {
        struct update_element v = {.weight = typed_load_row(TYPE_FP32, args->weights, i, end),
                                   .gradient = typed_load_row(TYPE_FP32, args->gradient, i, end)};
        if (args->moment1 != NULL)
            v.moment1 = typed_load_row(TYPE_FP32, args->moment1, i, end);
        if (args->moment2 != NULL)
            v.moment2 = typed_load_row(TYPE_FP32, args->moment2, i, end);
        typed_store_row(TYPE_FP32, direction, i - begin, end - begin,
                        update_direction(&v, coefficients, args->rule));
    }
}

const struct update_kernels KERNEL(update_kernels) = {update, measure};
