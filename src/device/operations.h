// SPDX-License-Identifier: BSD-3-Clause
/* The operations: everything that a model or a training step asks of the hardware. Each has a
 * struct of arguments and one entry in the list at the end, from which the prototypes and tables of
 * the backends (device.h, cpu.h, cuda.h), the profile (profile.c), the counts (count.c) and the
 * calls per grain (grains.c) are generated.
 *
 * Operations are queued on a stream and return at once. The CPU backend runs them before it
 * returns, which is a legal order. An operation that needs workspace uses the memory given to
 * workspace_set.
 *
 * Tensors are dense and row-major. "type" tensors have the compute type; sums, statistics and
 * gradients of parameters are fp32. Gradients of parameters are accumulated, or replaced if
 * `overwrite` is set. With 0 rows they are left unchanged in both cases. Every reduction has a
 * fixed order, so results do not depend on the number of threads. NULL disables a field that is
 * documented as "or NULL". Sizes of 0 are legal and do nothing. */
#ifndef VITTRAIN_DEVICE_OPERATIONS_H
#define VITTRAIN_DEVICE_OPERATIONS_H

#include <string.h>

#include "device/types.h"
#include "options/optimizers.h"
#include "options/option_types.h"

struct stream;

/* Grains (grains.h) of linear layers: if grain_rows > 0, each grain has grain_rows rows; the last
 * one may be shorter. The bits of its outputs then depend on its rows only. A call with gradients
 * of parameters has one grain, others any number if device_backend.linear_grains is set. */

/* y = x . weight^T + bias, followed by one of
 *   pre != NULL:      pre = sum, y = dropout(gelu(pre)); gelu is exact (erf) or, with gelu_tanh,
 *                     the tanh approximation;
 *   residual != NULL: y = residual + drop_path(dropout(sum)); y may be residual;
 *   scale != NULL:    pre = sum, y = residual + drop_path(dropout(scale * pre)), LayerScale
 *                     (Touvron et al. 2021); requires pre and residual;
 *   none of them:     y = dropout(sum).
 * rows = batch * rows_per_sample. */
struct linear_forward {
    enum data_type type;
    int64_t rows, in, out, rows_per_sample;
    const void *x;        /* [rows, in] type */
    const void *weight;   /* [out, in] type */
    const void *bias;     /* [out] type, or NULL */
    const void *residual; /* [rows, out] type, or NULL */
    const void *scale;    /* [out] type, or NULL */
    void *pre;            /* [rows, out] type, or NULL */
    bool gelu_tanh;
    bool relu; /* y = max(0, sum); not combined with the other variants */
    void *y;   /* [rows, out] type */
    struct dropout dropout, drop_path;
    int64_t grain_rows;
};

/* What follows the matrix product and its bias; GPUs launch a kernel for it. A residual without
 * dropout is added by the product. */
enum linear_epilogue { LINEAR_PLAIN, LINEAR_GELU, LINEAR_DROP, LINEAR_RELU };

static inline enum linear_epilogue linear_epilogue(const struct linear_forward *args)
{
    if (args->pre != NULL && args->scale == NULL)
        return LINEAR_GELU;
    if (args->scale != NULL || args->dropout.rate > 0 ||
        (args->residual != NULL && args->drop_path.rate > 0))
        return LINEAR_DROP;
    return args->relu ? LINEAR_RELU : LINEAR_PLAIN;
}

/* dx = dy . weight. If pre != NULL (the pre-activation of the layer that produced x, with that
 * layer's dropout): dx = dropout(dy . weight) * gelu'(pre), the gradient of the pre-activation.
 * dweight += dy^T . x, dbias += column sums of dy. */
struct linear_backward {
    enum data_type type;
    int64_t rows, in, out, rows_per_sample;
    const void *x;      /* [rows, in] type */
    const void *weight; /* [out, in] type */
    const void *dy;     /* [rows, out] type */
    const void *pre;    /* [rows, in] type, or NULL */
    bool gelu_tanh;     /* the value in the forward pass of the layer that produced x */
    bool x_relu;        /* x is the output of a ReLU: dx is 0 where x is 0; requires pre == NULL */
    void *dx;           /* [rows, in] type, or NULL; not dy */
    float *dweight;     /* [out, in], or NULL */
    float *dbias;       /* [out], or NULL */
    float *dx_sums;     /* [in] column sums of dx, or NULL; requires pre and sums_gradients */
    bool overwrite;     /* applies to dweight, dbias and dx_sums */
    struct dropout dropout;
    int64_t grain_rows;
};

/* Layer normalisation (Ba et al. 2016) over the last dimension. y may be x. If group > 0, x and y
 * have groups of `group` contiguous rows, which start `stride` elements apart. */
struct norm_forward {
    enum data_type type;
    int64_t rows, width, group, stride;
    float epsilon;
    const void *x;            /* [rows, width] type */
    const void *gamma, *beta; /* [width] type */
    void *y;                  /* [rows, width] type */
    void *kept;               /* [rows, width] type, contiguous: a copy of x; or NULL */
    float *mean, *rstd;       /* [rows], or both NULL (evaluation) */
};

/* dx = (add != NULL ? add : 0) + gradient through the norm; dx may be add or dy. If group > 0, dy
 * and dx have groups as in norm_forward, x is contiguous, and add is NULL. */
struct norm_backward {
    enum data_type type;
    int64_t rows, width, group, stride;
    const void *x, *gamma, *dy; /* as in forward */
    const float *mean, *rstd;
    const void *add;       /* [rows, width] type: gradient of the residual path; or NULL */
    void *dx;              /* [rows, width] type */
    float *dgamma, *dbeta; /* [width], or both NULL */
    float *add_sums;       /* [width] column sums of add, or NULL; requires add, dgamma and
                              sums_gradients */
    bool overwrite;        /* applies to dgamma, dbeta and add_sums */
};

/* softmax(q k^T * scale) v for each head, with dropout on the probabilities (element (h * queries +
 * i) * round_up(tokens, 8) + j of a sample). qkv is [batch, tokens, 3, heads, head_dim]. Only the
 * first `queries` tokens of a sample are queries (1 <= queries <= tokens), which saves work if only
 * the class token is used afterwards. */
struct attention_forward {
    enum data_type type;
    int64_t batch, tokens, queries, heads, head_dim;
    float scale;
    const void *qkv;
    void *out;  /* [batch, queries, heads, head_dim] type */
    float *lse; /* [batch, heads, queries]: log of the sum of exponentials, or NULL (evaluation) */
    struct dropout dropout;
};

struct attention_backward {
    enum data_type type;
    int64_t batch, tokens, queries, heads, head_dim;
    float scale;
    const void *qkv, *out, *dout;
    const float *lse;
    void *dqkv;       /* shape of qkv, written completely: zero for tokens that are not queries */
    float *dqkv_sums; /* [3, heads, head_dim] sums of dqkv over all tokens, or NULL; requires
                         sums_gradients */
    bool overwrite;   /* applies to dqkv_sums */
    struct dropout dropout;
};

/* y = drop_path(dropout(x)), elementwise; y may be x. The operation is its own gradient. rows as in
 * linear_forward. */
struct dropout_apply {
    enum data_type type;
    int64_t rows, width, rows_per_sample;
    const void *x;
    void *y;
    struct dropout dropout, drop_path;
};

/* True if nothing changes: no dropout, in place. */
static inline bool dropout_is_idle(const struct dropout_apply *args)
{
    return args->dropout.rate == 0 && args->drop_path.rate == 0 && args->x == args->y;
}

/* Gradients of linear_forward with `scale`: with g = drop_path(dropout(dy)), the gradient of pre is
 * dx = scale * g, and dscale += column sums of g * pre. */
struct scale_backward {
    enum data_type type;
    int64_t rows, width, rows_per_sample;
    const void *pre, *dy; /* [rows, width] type */
    const void *scale;    /* [width] type */
    void *dx;             /* [rows, width] type; may be dy */
    float *dscale;        /* [width], or NULL */
    bool overwrite;       /* applies to dscale */
    struct dropout dropout, drop_path;
};

/* Rotary positions (Su et al. 2021) as in DINOv3 (Simeoni et al. 2025), in place: elements i and
 * i + head_dim / 2 of a query or key of the patch in row r and column c of the grid are rotated by
 * the angle 2 pi x / temperature^(j / (head_dim / 4)), where j = i and x = (2 r + 1) / grid[0] - 1
 * for i < head_dim / 4, else j = i - head_dim / 4 and x = (2 c + 1) / grid[1] - 1. The first tokens
 * of a sample, which are not patches, are not rotated. head_dim is a multiple of 4. */
struct rotary {
    enum data_type type;
    int64_t batch, tokens, heads, head_dim;
    int64_t grid[2]; /* rows and columns of patches, which are the last tokens */
    float temperature;
    bool inverse; /* rotate by the negative angle, for the gradient */
    void *qkv;    /* [batch, tokens, 3, heads, head_dim] type; values (v) are unchanged */
};

/* SwiGLU (Shazeer 2020): y = silu(x1) * x2. x1 and x2 are the first and second half of a row of x;
 * silu(a) = a / (1 + exp(-a)). */
struct glu_forward {
    enum data_type type;
    int64_t rows, width;
    const void *x; /* [rows, 2 * width] type */
    void *y;       /* [rows, width] type */
};

/* Gradient of SwiGLU: the halves of a row of dx are dy * x2 * silu'(x1) and dy * silu(x1). */
struct glu_backward {
    enum data_type type;
    int64_t rows, width;
    const void *x;  /* [rows, 2 * width] type */
    const void *dy; /* [rows, width] type */
    void *dx;       /* [rows, 2 * width] type; may be x */
};

/* Convert images to rows or, if `back` is set, rows to images, which is the inverse and the
 * gradient: [batch, channels, height, width] <-> [batch, first + patches, channels * patch *
 * patch]. Patches are in row-major order. A patch's elements are ordered (channel, y, x), as in a
 * convolution's weight. The first rows of a sample are not patches: they become 0, and are ignored
 * with `back`. The last patches may extend beyond the image. Their pixels outside have the value of
 * the nearest pixel, with PAD_WRAP of column x % width, with PAD_NONE 0; with `back` they are
 * ignored. */
struct patches {
    enum data_type type;
    enum pad_choice pad;
    int64_t batch, channels, height, width, patch, first;
    void *images, *rows; /* one of them is only read */
    bool back;
};

/* Build the token sequence: class token (if there is one), register tokens, patch rows. Each token
 * is added to its position embedding. The first `unplaced` tokens have no position embedding; in a
 * model without position embeddings `unplaced` equals `tokens`. */
struct tokens_forward {
    enum data_type type;
    int64_t batch, tokens, width, registers, unplaced;
    const void *patches;     /* [batch, tokens - registers - (class_token != NULL), width] type */
    const void *class_token; /* [width] type, or NULL */
    const void *register_tokens; /* [registers, width] type */
    const void *position;        /* [tokens - unplaced, width] type */
    void *x;                     /* [batch, tokens, width] type */
};

struct tokens_backward {
    enum data_type type;
    int64_t batch, tokens, width, registers, unplaced;
    bool class_token;
    const void *dx;
    void *dpatches;          /* type */
    float *dclass_token;     /* [width], or NULL */
    float *dregister_tokens; /* [registers, width], or NULL */
    float *dposition;        /* [tokens - unplaced, width], or NULL */
    bool overwrite;          /* applies to all gradients of parameters */
};

/* Reduce each sample to one row: token 0, or the mean of tokens first..tokens-1. */
struct pool_forward {
    enum data_type type;
    int64_t batch, tokens, width, first;
    bool mean;
    const void *x; /* [batch, tokens, width] type */
    void *y;       /* [batch, width] type */
};

struct pool_backward {
    enum data_type type;
    int64_t batch, tokens, width, first;
    bool mean;
    const void *dy;
    void *dx; /* written completely */
};

/* SOFTMAX: softmax cross-entropy. BINARY: PyTorch's binary_cross_entropy_with_logits, averaged over
 * the classes of a sample. BINARY_SUM: the same, summed over the classes. */
enum cross_entropy_kind { CROSS_ENTROPY_SOFTMAX, CROSS_ENTROPY_BINARY, CROSS_ENTROPY_BINARY_SUM };

/* Cross-entropy. Targets are one class per sample (labels), smoothed by `smoothing`
 * (Szegedy et al. 2016: 1 - s on the label plus s / classes everywhere), or any distribution
 * (targets). dlogits = scale * scaler->scale * d(loss of the sample), where scale is 1 / the global
 * batch. Counters and losses are not scaled. A sample counts for top-k if fewer than k classes beat
 * its label (of equal logits the lower index wins); with `targets` the label is the largest target.
 * Weights (SOFTMAX only) multiply the terms of the classes, as in PyTorch; sums->weight and
 * sums->counted then add those of the labels, or 1 with `targets`.
 * A label outside 0..classes-1 is a programming error: the CPU aborts; a GPU, which detects it
 * late, sets the sample's loss and gradient to NaN. */
struct cross_entropy {
    enum data_type type;
    enum cross_entropy_kind kind;
    int64_t batch, classes;
    float smoothing, scale;
    const void *logits;               /* [batch, classes] type */
    const int32_t *labels;            /* [batch], or NULL */
    const float *targets;             /* [batch, classes], or NULL */
    const float *weights;             /* [classes], or NULL: 1 */
    void *dlogits;                    /* type; may be logits; or NULL */
    const struct loss_scaler *scaler; /* device, or NULL */
    struct loss_sums *sums;
    float *losses;        /* [batch], or NULL */
    int32_t *predicted;   /* [batch], or NULL */
    float *probabilities; /* [batch, classes], always by softmax; or NULL */
};

/* y = relu ? max(0, sum) : sum with sum = x * weight + bias, the cross-correlation of PyTorch's
 * Conv2d. `workspace`: convolution_workspace(...) bytes of device memory, which other convolutions
 * on the same stream may share. */
struct convolution_forward {
    enum data_type type;
    struct convolution_shape shape;
    const void *x;      /* [batch, height, width, in] type */
    const void *weight; /* [out, in, kernel, kernel] type */
    const void *bias;   /* [out] type, or NULL */
    bool relu;
    void *y; /* [batch, out height, out width, out] type */
    void *workspace;
};

/* Set the members that both passes of a linear layer have, from a convolution of 1 x 1. */
#define LINEAR_SET(linear, args)                                                                   \
    do {                                                                                           \
        memset(&(linear), 0, sizeof(linear));                                                      \
        (linear).type = (args)->type;                                                              \
        (linear).rows = convolution_pixels(&(args)->shape);                                        \
        (linear).in = (args)->shape.in;                                                            \
        (linear).out = (args)->shape.out;                                                          \
        (linear).rows_per_sample = (args)->shape.height * (args)->shape.width;                     \
        (linear).x = (args)->x;                                                                    \
        (linear).weight = (args)->weight;                                                          \
    } while (0)

static inline struct linear_forward convolution_as_linear(const struct convolution_forward *args)
{
    struct linear_forward linear;
    LINEAR_SET(linear, args);
    linear.bias = args->bias;
    linear.relu = args->relu;
    linear.y = args->y;
    return linear;
}

/* dx = gradient of x. With x_relu, x is the output of a ReLU and dx is 0 where x is 0. */
struct convolution_backward {
    enum data_type type;
    struct convolution_shape shape;
    const void *x, *weight, *dy;
    bool x_relu;
    void *dx;       /* shape of x, or NULL; not dy */
    float *dweight; /* [out, in, kernel, kernel], or NULL */
    float *dbias;   /* [out], or NULL */
    bool overwrite; /* applies to dweight and dbias */
    void *workspace;
};

static inline struct linear_backward
convolution_backward_as_linear(const struct convolution_backward *args)
{
    struct linear_backward linear;
    LINEAR_SET(linear, args);
    linear.dy = args->dy;
    linear.x_relu = args->x_relu;
    linear.dx = args->dx;
    linear.dweight = args->dweight;
    linear.dbias = args->dbias;
    linear.overwrite = args->overwrite;
    return linear;
}

/* Batch normalisation (Ioffe and Szegedy 2015) over the rows of all ranks, in steps between which
 * the caller all-reduces `sums` (synchronised batch norm; local batch norm skips the all-reduce).
 *
 * sums = [2 * channels + 1] doubles, written: sums of x, sums of x^2 over this rank's rows, number
 * of rows. Accurate even if the mean is large compared to the standard deviation. */
struct batch_norm_sums {
    enum data_type type;
    int64_t rows, channels;
    const void *x; /* [rows, channels] type */
    double *sums;
};

/* y = relu?((x - mean) * rstd * gamma + beta + residual). Mean and biased variance are computed
 * from `sums`, or are the running statistics if `sums` is NULL. statistics = [3 * channels],
 * written: mean, 1 / sqrt(variance + epsilon), unbiased variance (n / max(n - 1, 1) times the
 * biased). */
struct batch_norm_forward {
    enum data_type type;
    int64_t rows, channels;
    float epsilon;
    const void *x;                               /* [rows, channels] type */
    const void *gamma, *beta;                    /* [channels] type */
    const double *sums;                          /* summed over all ranks, or NULL */
    const void *running_mean, *running_variance; /* [channels] type; read if sums is NULL */
    const void *residual;                        /* [rows, channels] type, or NULL */
    bool relu;
    void *y;           /* [rows, channels] type; may be x in evaluation */
    float *statistics; /* not NULL */
};

/* First step of the gradient. g = dy + add where y > 0, 0 elsewhere (without a ReLU: g = dy + add
 * everywhere). y is read or, if forward had no residual, recomputed from x, gamma and beta with the
 * rounding of forward, which gives the same mask. g replaces dy and is also the residual's
 * gradient; if y is recomputed and `add` is NULL, a backend may leave dy unchanged. sums = [2 *
 * channels + 1], written: sums of g, sums of g * (x - mean) * rstd, rows. This rank's sums are
 * added to dgamma and dbeta. drunning_* receive this rank's share of the step's statistics,
 * running_weight * rows / all rows * (mean, unbiased variance): the sum over ranks, which the
 * gradient reduction forms, is the step's statistics (mesh/unit.h: TENSOR_STATE). */
struct batch_norm_backward_sums {
    enum data_type type;
    int64_t rows, channels;
    const void *x;
    const void *y;            /* [rows, channels] type: output of the ReLU; or NULL */
    const void *gamma, *beta; /* to recompute that output if y is NULL; or both NULL */
    const void *add; /* [rows, channels] type: gradient of a second consumer of y; or NULL */
    const float *statistics;    /* from forward */
    const double *forward_sums; /* summed over all ranks; NULL: running statistics were used */
    float running_weight;
    void *dy; /* [rows, channels] type */
    double *sums;
    float *dgamma, *dbeta;                    /* [channels], or both NULL */
    float *drunning_mean, *drunning_variance; /* [channels], or both NULL */
    bool overwrite;                           /* applies to these four */
};

/* Second step: dx = gamma * rstd * (g - (sums of g + xhat * sums of g xhat) / all rows). If sums is
 * NULL (running statistics were used), the subtracted term is dropped. dy is that of
 * batch_norm_backward_sums; if beta is set, the ReLU's mask may still have to be applied. */
struct batch_norm_backward {
    enum data_type type;
    int64_t rows, channels;
    const void *x, *gamma;
    const float *statistics;
    const double *sums; /* summed over all ranks, or NULL */
    const void *beta;   /* [channels] type: same value as in batch_norm_backward_sums; or NULL */
    const void *dy;
    void *dx; /* [rows, channels] type; may be dy */
};

/* Maximum of each window and its index in the window (row-major; the first of equal values; NaN is
 * larger than all numbers). Windows may extend past the edge by `padding`; pixels outside are
 * ignored. */
struct max_pool_forward {
    enum data_type type;
    int64_t batch, height, width, channels, kernel, stride, padding;
    const void *x;  /* [batch, height, width, channels] type */
    void *y;        /* [batch, out height, out width, channels] type */
    uint8_t *index; /* shape of y, NULL in evaluation; kernel <= 15 */
};

/* dx = sum of (dy + add) over the windows whose maximum was at this pixel. */
struct max_pool_backward {
    enum data_type type;
    int64_t batch, height, width, channels, kernel, stride, padding;
    const void *dy;
    const void *add; /* shape of dy: gradient of a second consumer of y; or NULL */
    const uint8_t *index;
    void *dx; /* written completely */
};

/* Bilinear interpolation of channels-last images to channels-first images, PyTorch's
 * interpolate(mode="bilinear", align_corners=False). */
struct upsample_forward {
    enum data_type type;
    int64_t batch, channels, height, width, out_height, out_width;
    const void *x; /* [batch, height, width, channels] type */
    void *y;       /* [batch, channels, out_height, out_width] type */
};

struct upsample_backward {
    enum data_type type;
    int64_t batch, channels, height, width, out_height, out_width;
    const void *dy;
    void *dx;
};

/* y[b, column, row] = x[b, row, column]: converts between channels first and channels last. */
struct transpose {
    enum data_type type;
    int64_t batch, rows, columns;
    const void *x;
    void *y; /* not x */
};

/* SQUARED: (p - t)^2 of prediction p and target t. ABSOLUTE: |p - t|. HUBER: PyTorch's HuberLoss
 * with delta = 1. BINARY: PyTorch's binary_cross_entropy_with_logits. CROSS_ENTROPY: softmax over
 * the outputs of a pixel, whose target is the number of a class. */
enum target_loss_kind {
    TARGET_SQUARED,
    TARGET_ABSOLUTE,
    TARGET_HUBER,
    TARGET_BINARY,
    TARGET_CROSS_ENTROPY
};

/* Loss of predictions with fp32 targets; height x width is 1 x 1 or the size of the image. The loss
 * l of a sample is the weighted mean sum(w * l) / sum(w) over its targets that are not NaN, and 0
 * if all are NaN: w = weights[output] * row_weights[row], for CROSS_ENTROPY weights[class] *
 * row_weights[row]. Rows are those of the field. With is_sum, l is the sum sum(w * l). dpredictions
 * = scale * scaler->scale * d(loss of the sample). All sums but top1 and top5 are counted; a sample
 * whose sum(w) is 0 is empty. A target of CROSS_ENTROPY that is not the number of an output makes
 * the sample's loss and gradient NaN. */
struct target_loss {
    enum data_type type;
    enum target_loss_kind kind;
    bool is_sum;
    int64_t batch, outputs, height, width;
    float scale;
    const float *weights;             /* [outputs], or NULL: 1 */
    const float *row_weights;         /* [rows of the field], or NULL: 1 */
    const int32_t *first_rows;        /* [batch]: the field's row that is row 0, or NULL: 0 */
    const void *predictions;          /* [batch, outputs, height, width] type */
    const float *targets;             /* [batch, CROSS_ENTROPY ? 1 : outputs, height, width] */
    void *dpredictions;               /* type; may be predictions; or NULL */
    const struct loss_scaler *scaler; /* device, or NULL */
    struct loss_sums *sums;
};

/* Return the number of targets of a sample. */
static inline int64_t target_count(const struct target_loss *args)
{
    return (args->kind == TARGET_CROSS_ENTROPY ? 1 : args->outputs) * args->height * args->width;
}

/* Muon (Jordan et al. 2024) updates matrices in two calls. UPDATE_MUON adds the gradient to the
 * momentum of matrices and writes their direction. It updates all other segments as AdamW does,
 * with `nesterov` as timm's NAdamW does. The caller then orthogonalizes the directions.
 * UPDATE_MUON_APPLY decays the matrices, subtracts their directions, and updates their averages and
 * copies. */
enum update_rule { OPTIMIZERS(OPTION_CONSTANT, UPDATE_) UPDATE_MUON_APPLY };

/* Return the data type of Muon's directions. It is not fp16: its exponent range is too small for
 * gradients without the loss scale. */
static inline enum data_type direction_type(enum data_type compute)
{
    return compute == TYPE_FP16 ? TYPE_FP32 : compute;
}

/* A range of a flat buffer with the same hyperparameters. */
struct update_segment {
    int64_t begin, end;
    float weight_decay, rate_scale; /* rate_scale 0: frozen, nothing changes */
    /* Running statistics: weights = keep * weights + gradient, without clipping and loss scale.
     * Moments are unchanged; average and copy are updated. */
    bool running;
    bool matrix; /* Muon: part of a matrix */
    bool adapts; /* LAMB, LARS: the step is multiplied by the trust ratio of `tensor` */
    int tensor;  /* index in update.norms */
    float keep;
};

/* A sum of squares as an integer: word i has the unit 2^(32 * i - 352). Words are added without
 * carries, also in an all-reduce of int64. They do not overflow with up to 2^35 elements. */
enum { EXACT_WORDS = 21 };
struct exact_sum {
    int64_t word[EXACT_WORDS];
    int64_t infinities, nans; /* numbers of blocks (exact_sum.h) with such a sum */
};

/* Sums of squares of a tensor's weights and of its direction, which excludes the trust ratio. */
struct tensor_norms {
    struct exact_sum weights, direction;
};

/* One optimizer step over a flat buffer, with the rules of torch.optim. Lion (Chen et al. 2023),
 * LAMB, LARS and Muon follow timm. With s the scaler's scale (1 without a scaler), the gradient is
 * first multiplied by the clip coefficient
 * min(1, max_norm / (sqrt(*norm_squared) / s + 1e-6)) / s, one factor rounded to fp32. If `counted`
 * samples of the step, not all params->samples, are in the loss, s includes their share. Bias
 * corrections count params->update - scaler->skipped updates. If *norm_squared is not finite,
 * nothing changes. Elements outside all segments are padding. */
struct update {
    enum update_rule rule;
    int64_t count;
    float *weights; /* fp32 master weights */
    const float *gradient;
    float *moment1; /* momentum buffer or exp_avg; NULL: the rule has none, params->momentum is 0 */
    float *moment2; /* exp_avg_sq or square_avg; NULL if the rule has none */
    float *average; /* EMA of the weights, or NULL */
    void *copy;     /* copy in the compute type, or NULL if the fp32 weights are used directly */
    enum data_type copy_type;
    void *direction; /* Muon: direction_type(copy_type); NULL if no segment is part of a matrix */
    const struct update_segment
        *segments; /* host memory, valid until the stream has executed the update */
    int segment_count;
    const struct step_params *params; /* device memory; all but step and position are read */
    double beta2, epsilon, alpha, average_decay;
    bool nesterov;
    /* LAMB (You et al. 2020) and LARS (You et al. 2017) need the norms of whole tensors. A call
     * with `measure` adds the sums of squares of this buffer's segments to `norms` and changes
     * nothing else. The caller adds those of the other ranks before the call without `measure`. */
    struct tensor_norms *norms; /* device; NULL if no segment adapts */
    bool measure, trust_clip;
    double trust;                     /* optim.trust_coeff: factor of the trust ratio */
    const double *norm_squared;       /* device: of the scaled gradient; NULL: assumed finite */
    double max_norm;                  /* 0: no clipping; otherwise norm_squared is required */
    const struct loss_scaler *scaler; /* device, or NULL */
    const double *counted;            /* device: loss_sums.counted of all ranks; NULL: all count */
    /* Next buffer of the same step, or NULL: one call updates the whole list. Only tensors, `count`
     * and segments may differ from the first buffer. */
    const struct update *next;
};

/* The plan for one sample's pixels (filled in by src/image/augment.c). The stages after the resize
 * are: roll, crop with padding, flips, transpose, rotate, translate, erase, normalise, noise,
 * channel dropout. Those before normalise move whole pixels, so each output pixel is traced back to
 * one pixel of the resized image, stage by stage from the last one. A stage that leads outside the
 * image yields 0: erased rectangle -> 0; translate: (x - translate_x, y - translate_y); rotate:
 * ((m0 x + m1 y + m2) >> 16, (m3 x + m4 y + m5) >> 16); transpose: (y, x); vflip: height - 1 - y;
 * flip: width - 1 - x; crop with padding: (x + shift_x, y + shift_y); roll: ((x - roll_x) mod
 * width, (y - roll_y) mod height). */
struct pixel_plan {
    int16_t roll_x, roll_y; /* 0 .. width - 1, 0 .. height - 1 */
    int16_t shift_x, shift_y;
    bool flip, vflip, transpose, rotate;
    int32_t matrix[6]; /* 16.16 fixed point, as in PIL's nearest affine; read if rotate */
    int16_t translate_x, translate_y;
    int16_t erase_x, erase_y, erase_width, erase_height; /* width 0: nothing is erased */
    /* fp32 only. noise: standard deviation of normal numbers that are added to all pixels.
     * channel_dropout: probability that a channel becomes 0. Both draw from the streams of (seed,
     * epoch, sample). */
    float noise, channel_dropout;
    uint64_t seed;
    uint32_t epoch, sample;
};

/* Convert images [batch, channels, source_height, source_width] to [batch, channels, height,
 * width] type. uint8: resize (bilinear with antialiasing, bit-identical to PIL up to version 12;
 * version 13 swaps the two passes if an image is reduced much more in height than in width), crop
 * with zero padding (`shift`), flip, rotation (nearest, zero outside), translation (nearest, zero
 * outside), / 255, erase (zero), (v - mean) / std. fp32: the same stages without / 255, in fp32.
 * NaN is a missing value. A resize leaves missing values out; its output is missing if less than
 * half of its weights are left. Missing values and pixels outside the image become `missing`. */
struct image_transform {
    enum data_type type;
    bool from_fp32; /* the source is fp32, else uint8 */
    int64_t batch, channels, source_height, source_width, height, width;
    const void *source;
    int64_t source_stride;          /* bytes from one sample to the next; 0: contiguous */
    const struct pixel_plan *plans; /* [batch], or NULL: only resize and normalise */
    const float *mean, *std;        /* [channels], host memory */
    float missing;                  /* fp32: 0 or NaN */
    bool is_target;                 /* no noise and no channel dropout */
    void *images;
    uint8_t *scratch; /* device, image_transform_scratch(...) bytes (image.h); NULL if that is 0 */
};

/* The plan for mixing two neighbours in a batch (filled in by src/image/augment.c). */
struct mix_plan {
    float share; /* weight of the sample's own target; the partner has the rest */
    bool cut;    /* CutMix: the samples exchange a rectangle; otherwise Mixup blends their pixels */
    int16_t x, y, width, height; /* the rectangle, inside the image; may be empty */
};

/* Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019) of samples 2k and 2k + 1 with plans[k], in
 * place. An image becomes share * image + (1 - share) * partner's image (in fp32, then rounded), or
 * both exchange a rectangle. targets[b, c] = (1 - smoothing) * (share * [c is b's label] + (1 -
 * share) * [c is its partner's label]) + smoothing / classes. The last sample of an odd batch has
 * no partner: only its target is written. Labels outside 0..classes-1: as in cross_entropy, with
 * NaN targets on a GPU. */
struct images_mix {
    enum data_type type;
    int64_t batch, channels, height, width, classes;
    float smoothing;
    const struct mix_plan *plans; /* [(batch + 1) / 2]; of an odd batch the last one is not read */
    const int32_t *labels;        /* [batch] */
    void *images;                 /* [batch, channels, height, width] type */
    float *targets;               /* [batch, classes] */
};

/* y = x_factor * x + z_factor * z + diagonal * I, rounded once; I is the identity matrix. If
 * norm_squared != NULL, x is also divided by max(sqrt(*norm_squared), epsilon). y may be x or z. */
struct matrix_sum {
    enum data_type type;
    int64_t rows, width;
    const void *x, *z; /* [rows, width] type; z may be NULL */
    float x_factor, z_factor, diagonal, epsilon;
    const double *norm_squared; /* device, or NULL */
    void *y;                    /* [rows, width] type */
};

/* sums[j] = sum over rows i of from[i, j] in the order of base/sum_tree.h. */
struct tree_sums {
    int64_t rows, count; /* at most 2^TREE_LEVELS rows */
    const double *from;  /* [rows, count] */
    double *sums;        /* [count] */
};

/* Add to *sum, modulo 2^64, hash_element(key + i, values[i]) of base/base.h for all elements i. */
struct hash {
    int64_t count;
    const float *values;
    uint64_t key;
    uint64_t *sum; /* device */
};

/* Find the first value that is not finite: the lowest index, or -1. */
struct nonfinite {
    enum data_type type;
    int64_t count;
    const void *values;
    int64_t *index; /* device */
};

/* ---- The list: CALL(name, kind, parameters, arguments, cost) for each operation. ARGS is a CALL
 * with the parameters (stream, args), where the struct of arguments has the operation's name.
 *
 * kind: GRAIN if the operation sums over samples, or if the bits of a sample may depend on the
 * number of samples in a call; grains.c then defines how it is cut. Otherwise PASS.
 *
 * cost: an expression of the arguments that gives a struct counted. MOVES(bytes): no matrix
 * products. T(tensor, n): bytes of n elements, 0 if the tensor is NULL; F: the same of fp32; SUM:
 * of an fp32 gradient. DRAWS(dropout, n, cost): n elements of dropout are drawn. ATTENDS(n, bytes):
 * n matrix products of queries x tokens. count.c defines these and the functions *_cost.
 *
 * copy: any direction between device, pinned and pageable memory.
 *
 * scaler_update: called after all updates of a step. If *norm_squared is not finite, the scale is
 * halved (not below LOSS_SCALE_LEAST), good_steps is reset and skipped incremented. Otherwise
 * good_steps is incremented, and at LOSS_SCALER_GOOD_STEPS it is reset and the scale doubled (not
 * above LOSS_SCALE_MOST).
 *
 * sum_squares: add to *sum in device memory. Adding two parts of an array equals adding the array
 * if the second part begins at a multiple of 16 elements.
 *
 * sum_value: set *value, in device memory like *sum, to the sum rounded to fp64. */
/* clang-format off */
#define ARGS(CALL, name, kind, cost)                                                               \
    CALL(name, kind, (struct stream *stream, const struct name *args), (stream, args), cost)
#define DEVICE_OPERATIONS(CALL)                                                                    \
    ARGS(CALL, linear_forward, GRAIN, linear_forward_cost(args))                                   \
    ARGS(CALL, linear_backward, GRAIN, linear_backward_cost(args))                                 \
    ARGS(CALL, norm_forward, PASS, MOVES(                                                          \
         T(x, 2 * ROWS(width)) + T(kept, ROWS(width)) + 2 * F(mean, args->rows)))                  \
    ARGS(CALL, norm_backward, GRAIN, MOVES(                                                        \
         T(x, ROWS(width)) + T(dy, ROWS(width)) + T(add, ROWS(width)) + T(dx, ROWS(width)) +       \
         SUM(add_sums, args->width) + 2 * F(mean, args->rows)))                                    \
    ARGS(CALL, attention_forward, PASS, ATTENDS(2, T(qkv, HEADS * (double)(args->queries +         \
         2 * args->tokens)) + T(out, HEADS * (double)args->queries) +                              \
         F(lse, args->batch * args->heads * args->queries)))                                       \
    ARGS(CALL, attention_backward, PASS, ATTENDS(4, T(qkv, HEADS * (double)(args->queries +        \
         5 * args->tokens)) + 2 * T(out, HEADS * (double)args->queries) +                          \
         F(lse, args->batch * args->heads * args->queries) +                                       \
         SUM(dqkv_sums, 3 * args->heads * args->head_dim)))                                        \
    ARGS(CALL, dropout_apply, PASS, MOVES(dropout_is_idle(args) ? 0 : T(x, 2 * ROWS(width))))      \
    ARGS(CALL, scale_backward, GRAIN, DRAWS(dropout, ROWS(width), MOVES(                           \
         T(pre, ROWS(width)) + T(dy, ROWS(width)) + T(dx, ROWS(width)) +                           \
         SUM(dscale, args->width))))                                                               \
    ARGS(CALL, rotary, PASS, MOVES(T(qkv, 4.0 * (double)args->batch *                              \
         (double)(args->grid[0] * args->grid[1] * args->heads * args->head_dim))))                 \
    ARGS(CALL, glu_forward, PASS, MOVES(T(x, 3 * ROWS(width))))                                    \
    ARGS(CALL, glu_backward, PASS, MOVES(T(x, 5 * ROWS(width))))                                   \
    ARGS(CALL, patches, PASS, MOVES(T(images, 2 * IMAGES)))                                        \
    ARGS(CALL, tokens_forward, PASS, MOVES(T(x, 2 * TOKENS)))                                      \
    ARGS(CALL, tokens_backward, GRAIN, MOVES(T(dx, 2 * TOKENS)))                                   \
    ARGS(CALL, pool_forward, PASS, MOVES(                                                          \
         T(x, (args->mean ? TOKENS : 0) + (double)(args->batch * args->width))))                   \
    ARGS(CALL, pool_backward, PASS, MOVES(T(dx, TOKENS)))                                          \
    ARGS(CALL, convolution_forward, GRAIN, convolution_forward_cost(args))                         \
    ARGS(CALL, convolution_backward, GRAIN, convolution_backward_cost(args))                       \
    ARGS(CALL, batch_norm_sums, GRAIN, MOVES(T(x, ROWS(channels))))                                \
    ARGS(CALL, batch_norm_forward, PASS, MOVES(                                                    \
         T(x, 2 * ROWS(channels)) + T(residual, ROWS(channels))))                                  \
    ARGS(CALL, batch_norm_backward_sums, GRAIN, MOVES(                                             \
         T(x, ROWS(channels)) + T(y, ROWS(channels)) + T(add, ROWS(channels)) +                    \
         T(dy, (args->y != NULL || args->add != NULL ? 2 : 1) * ROWS(channels))))                  \
    ARGS(CALL, batch_norm_backward, PASS, MOVES(T(x, 3 * ROWS(channels))))                         \
    ARGS(CALL, max_pool_forward, PASS, MOVES(T(x, IMAGES * 1.25)))                                 \
    ARGS(CALL, max_pool_backward, PASS, MOVES(                                                     \
         T(dx, IMAGES * 1.25) + T(add, IMAGES / 4)))                                               \
    ARGS(CALL, upsample_forward, PASS, MOVES(T(x, IMAGES + UPSAMPLED)))                            \
    ARGS(CALL, upsample_backward, PASS, MOVES(T(dx, IMAGES + UPSAMPLED)))                          \
    ARGS(CALL, transpose, PASS, MOVES(                                                             \
         T(x, 2.0 * (double)args->batch * ROWS(columns))))                                         \
    ARGS(CALL, cross_entropy, PASS, MOVES(                                                         \
         T(logits, (double)args->batch * (double)args->classes) +                                  \
         T(dlogits, (double)args->batch * (double)args->classes)))                                 \
    ARGS(CALL, target_loss, PASS, target_loss_cost(args))                                          \
    ARGS(CALL, update, PASS, MOVES_FP32(update_bytes(args)))                                       \
    ARGS(CALL, matrix_sum, PASS, MOVES(T(x, 2 * ROWS(width)) + T(z, ROWS(width))))                 \
    ARGS(CALL, tree_sums, PASS, MOVES_FP32(                                                        \
         (double)(args->rows + 1) * (double)args->count * sizeof *args->sums))                     \
    ARGS(CALL, hash, PASS, MOVES_FP32((double)args->count * sizeof *args->values))                 \
    ARGS(CALL, nonfinite, PASS, MOVES(T(values, (double)args->count)))                             \
    ARGS(CALL, image_transform, PASS, MOVES(T(images, IMAGES) +                                    \
         (double)(args->batch * args->source_height * args->source_width * args->channels) *       \
             (double)image_value_size(args)))                                                      \
    ARGS(CALL, images_mix, PASS, MOVES(T(images, 2 * IMAGES)))                                     \
    CALL(copy, PASS, (struct stream *stream, void *to, const void *from, size_t bytes),            \
         (stream, to, from, bytes), MOVES_FP32(2 * (double)bytes))                                 \
    CALL(zero, PASS, (struct stream *stream, void *memory, size_t bytes),                          \
         (stream, memory, bytes), MOVES_FP32((double)bytes))                                       \
    CALL(convert, PASS, (struct stream *stream, enum data_type to_type, void *to,                  \
                         enum data_type from_type, const void *from, int64_t count),               \
         (stream, to_type, to, from_type, from, count),                                            \
         MOVES_FP32((double)count * (double)(type_size(to_type) + type_size(from_type))))          \
    CALL(add, PASS, (struct stream *stream, float *sum, const float *addend, int64_t count),       \
         (stream, sum, addend, count), MOVES_FP32(3 * (double)count * sizeof *sum))                \
    CALL(scaler_update, PASS, (struct stream *stream, struct loss_scaler *scaler,                  \
                               const double *norm_squared), (stream, scaler, norm_squared),        \
         MOVES_FP32(sizeof *scaler))                                                               \
    CALL(sum_squares, PASS, (struct stream *stream, const float *values, int64_t count,            \
                             struct exact_sum *sum), (stream, values, count, sum),                 \
         MOVES_FP32((double)count * sizeof *values))                                               \
    CALL(sum_value, PASS, (struct stream *stream, const struct exact_sum *sum, double *value),     \
         (stream, sum, value), MOVES_FP32(sizeof *sum + sizeof *value))

#define OPERATION_NUMBER(name, ...) OPERATION_##name,
enum device_operation { DEVICE_OPERATIONS(OPERATION_NUMBER) OPERATIONS };
/* clang-format on */

extern const char *const operation_name[OPERATIONS]; /* "linear_forward" */

#endif
