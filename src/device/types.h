// SPDX-License-Identifier: BSD-3-Clause
/* Types that several operations share: numbers, step parameters, loss scale, dropout and the shape
 * of a convolution. */
#ifndef VITTRAIN_DEVICE_TYPES_H
#define VITTRAIN_DEVICE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum data_type { TYPE_FP32, TYPE_BF16, TYPE_FP16 };

static inline size_t type_size(enum data_type type)
{
    return type == TYPE_FP32 ? 4 : 2;
}

/* Return the largest fp32 number that is rounded to 0 when it is stored in this type. */
static inline float type_rounds_to_zero(enum data_type type)
{
    return type == TYPE_FP32 ? 0 : type == TYPE_BF16 ? 0x1p-134f : 0x1p-25f;
}

static inline const char *type_name(enum data_type type)
{
    return type == TYPE_FP32 ? "fp32" : type == TYPE_BF16 ? "bf16" : "fp16";
}

/* Return the address of element `index`; NULL if the tensor is NULL. */
static inline const void *element(enum data_type type, const void *tensor, int64_t index)
{
    return tensor == NULL ? NULL : (const char *)tensor + index * (int64_t)type_size(type);
}

static inline void *element_to_write(enum data_type type, void *tensor, int64_t index)
{
    return tensor == NULL ? NULL : (char *)tensor + index * (int64_t)type_size(type);
}

/* Step parameters in device memory. Operations read them when the stream executes the operation,
 * not when it is queued, so a captured graph can run again for another step. The host writes them
 * through the stream (train/batch_upload.h). */
struct step_params {
    uint32_t step;          /* key of random numbers */
    uint32_t position;      /* index of the device batch's first sample in the global batch */
    int64_t update;         /* number of the update, counted from 1 */
    double rate;            /* learning rate */
    double samples;         /* of the global batch */
    double beta1, momentum; /* changed by schedules */
};

/* Dynamic loss scaling (Micikevicius et al. 2018) with the rules of PyTorch's GradScaler, in device
 * memory. cross_entropy multiplies the gradient by the scale, so that small values do not vanish in
 * fp16. update divides by it, and scaler_update adjusts it afterwards. The scale is always a power
 * of two, so neither operation changes a mantissa. */
struct loss_scaler {
    float scale;
    int32_t good_steps; /* consecutive, since the scale was changed */
    int64_t skipped;    /* updates skipped since the start of the run */
};

enum { LOSS_SCALER_GOOD_STEPS = 2000 };
/* Limits of the scale. At the lower limit every fp16 gradient has vanished; at the upper one
 * everything above 2^-24 overflows. Training that works stays far from both. */
#define LOSS_SCALE_LEAST 0x1p-24f
#define LOSS_SCALE_MOST 0x1p+40f

/* Dropout fused into an operation. Element e of sample b (e counts the operation's elements of one
 * sample in row-major order, with the last dimension rounded up to a multiple of 8) is kept if lane
 * e % 8 of random_block_at(seed, RANDOM_DROPOUT, layer, params->step, params->position + b, e / 8)
 * is >= round(rate * 65536), where b counts from `first`. A lane has 16 bits (lane l: word l / 2,
 * low half first). Kept elements are multiplied by 65536 / (65536 - threshold). The mask is never
 * stored: backward draws it again.
 */
struct dropout {
    float rate; /* 0: no dropout, and the other fields are not read */
    uint64_t seed;
    uint32_t layer;                   /* index of the dropout in the model */
    uint32_t first;                   /* number of the operation's first sample in the pass */
    const struct step_params *params; /* device memory; step and position are read */
};

/* Stochastic depth (Huang et al. 2016) uses the same struct: the branch of sample b is dropped if
 * random_uniform(word 0 of random_block_at(seed, RANDOM_DROP_PATH, layer, params->step,
 * params->position + b, 0)) < rate, else divided by 1 - rate; b as above. */

/* Size of images in pixels. */
struct image_size {
    int64_t height, width;
};

/* Convolutions use channels-last tensors, [batch, height, width, channels]: a pixel is a row for
 * matrix products, norms and pools. Kernel, stride and padding are the same in both directions;
 * padding is zeros. */
struct convolution_shape {
    int64_t batch, height, width; /* of x */
    int64_t in, out;              /* channels */
    int64_t kernel, stride, padding;
    int64_t images; /* 1: x is [batch, in, height, width] and has no gradient; else 0 */
};

/* Return the output size of a convolution or max pool: (size + 2 padding - kernel) / stride + 1,
 * rounded down. */
static inline int64_t convolved_size(int64_t size, int64_t kernel, int64_t stride, int64_t padding)
{
    return (size + 2 * padding - kernel) / stride + 1;
}

/* Return the pixels of x. */
static inline int64_t convolution_pixels(const struct convolution_shape *s)
{
    return s->batch * s->height * s->width;
}

/* Return the height, the width and the pixels of y. */
static inline int64_t convolved_height(const struct convolution_shape *s)
{
    return convolved_size(s->height, s->kernel, s->stride, s->padding);
}

static inline int64_t convolved_width(const struct convolution_shape *s)
{
    return convolved_size(s->width, s->kernel, s->stride, s->padding);
}

static inline int64_t convolved_pixels(const struct convolution_shape *s)
{
    return s->batch * convolved_height(s) * convolved_width(s);
}

/* Return the elements of the weight. */
static inline int64_t convolution_weights(const struct convolution_shape *s)
{
    return s->out * s->in * s->kernel * s->kernel;
}

/* True if the convolution is a linear layer over pixels. */
static inline bool convolution_is_linear(const struct convolution_shape *s)
{
    return s->kernel == 1 && s->stride == 1 && s->padding == 0;
}

/* Loss and accuracy counters in device memory, accumulated over batches. */
struct loss_sums {
    double loss;       /* sum over samples */
    double top1, top5; /* numbers of correct samples */
    double samples;
    double empty;   /* samples without a target that counts: they are in no other sum */
    double counted; /* `samples`, or `weight`, of the step in progress (flat_norm) */
    double weight;  /* sum of the weights of the samples; 0 if all have the weight 1 */
};

/* Return the mean loss; NAN without samples. */
static inline double loss_mean(const struct loss_sums *sums)
{
    return sums->loss / (sums->weight > 0 ? sums->weight : sums->samples);
}

#endif
