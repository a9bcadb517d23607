/* One step of an optimizer over a stretch of a flat buffer, in one pass: weights, moments, average
 * and compute copy are read and written once. The rules are torch.optim's. */
#include "device/kernels.h"
#include "device/vector.h"

/* What is read and written for one vector of elements. */
struct lanes {
    vector_float weight, gradient, moment1, moment2;
};

KERNEL_INLINE vector_float optional_load(const float *from, int64_t i, int64_t end)
{
    return from != NULL ? typed_load_row(TYPE_FP32, from, i, end) : vector_all(0);
}

/* SGD: the velocity is momentum * velocity + gradient, at the first step the gradient itself
 * (keep1 is 0 then); Nesterov looks ahead along it. */
KERNEL_INLINE void sgd(const struct update *args, const struct update_coefficients *c,
                       struct lanes *l)
{
    vector_float step = l->gradient;
    if (args->moment1 != NULL) {
        l->moment1 = l->moment1 * c->keep1 + l->gradient;
        step = args->nesterov ? l->gradient + l->moment1 * (float)args->momentum : l->moment1;
    }
    l->weight -= step * c->rate;
}

KERNEL_INLINE void adam(const struct update *args, const struct update_coefficients *c,
                        struct lanes *l)
{
    (void)args;
    l->weight = l->weight * c->shrink;
    l->moment1 = l->moment1 * c->keep1 + l->gradient * c->new1;
    l->moment2 = l->moment2 * c->keep2 + l->gradient * l->gradient * c->new2;
    vector_float root = vector_sqrt(l->moment2) * c->root_scale + c->epsilon;
    l->weight -= l->moment1 * c->rate / root;
}

/* RMSprop: with momentum moment1 is the velocity and moment2 the mean square; without, moment1 is
 * the mean square. */
KERNEL_INLINE void rmsprop(const struct update *args, const struct update_coefficients *c,
                           struct lanes *l)
{
    vector_float square = args->moment2 != NULL ? l->moment2 : l->moment1;
    square = square * c->keep2 + l->gradient * l->gradient * c->new2;
    vector_float step = l->gradient / (vector_sqrt(square) + c->epsilon);
    if (args->moment2 != NULL) {
        l->moment2 = square;
        l->moment1 = l->moment1 * c->keep1 + step;
        step = l->moment1;
    } else {
        l->moment1 = square;
    }
    l->weight -= step * c->rate;
}

KERNEL_INLINE void update_by(void (*rule)(const struct update *, const struct update_coefficients *,
                                          struct lanes *),
                             const struct update *args, const struct update_coefficients *c,
                             int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += VECTOR_WIDTH) {
        struct lanes l = {.weight = typed_load_row(TYPE_FP32, args->weights, i, end),
                          .gradient = typed_load_row(TYPE_FP32, args->gradient, i, end),
                          .moment1 = optional_load(args->moment1, i, end),
                          .moment2 = optional_load(args->moment2, i, end)};
        l.gradient = l.gradient * c->clip + l.weight * c->decay;
        rule(args, c, &l);
        typed_store_row(TYPE_FP32, args->weights, i, end, l.weight);
        if (args->moment1 != NULL)
            typed_store_row(TYPE_FP32, args->moment1, i, end, l.moment1);
        if (args->moment2 != NULL)
            typed_store_row(TYPE_FP32, args->moment2, i, end, l.moment2);
        if (args->average != NULL) {
            vector_float average = typed_load_row(TYPE_FP32, args->average, i, end);
            average += (l.weight - average) * c->average_new;
            typed_store_row(TYPE_FP32, args->average, i, end, average);
        }
        if (args->copy != NULL)
            typed_store_row(args->copy_type, args->copy, i, end, l.weight);
    }
}

static void update(const struct update *args, const struct update_coefficients *coefficients,
                   int64_t begin, int64_t end)
{
    switch (args->rule) {
    case UPDATE_SGD:
        update_by(sgd, args, coefficients, begin, end);
        break;
    case UPDATE_ADAM:
    case UPDATE_ADAMW:
        update_by(adam, args, coefficients, begin, end);
        break;
    case UPDATE_RMSPROP:
        update_by(rmsprop, args, coefficients, begin, end);
        break;
    }
}

extern const struct update_kernels KERNEL(update_kernels);
const struct update_kernels KERNEL(update_kernels) = {.update = update};
