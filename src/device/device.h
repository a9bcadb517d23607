/* The table of operations: all that a model or the step asks of the hardware. A backend is one
 * `const struct device_backend`. Operations are queued on a stream and return at once; the CPU runs
 * them before it returns, which is a legal order. Nothing here allocates except *_allocate and
 * device_open; an operation that needs workspace takes it from what `workspace_bytes` reserved.
 *
 * Tensors are dense and row-major. "type" tensors hold the compute type; sums, statistics and
 * gradients of parameters are fp32. Gradients of parameters are added to what is there, or with
 * `overwrite` written, whatever was there; with no rows they are not touched either way. Every
 * reduction has a fixed order, so results do not depend on the number of threads.
 * A NULL where a field says "or NULL" switches that part off. Sizes of 0 are legal and do nothing.
 */
#ifndef VITTRAIN_DEVICE_DEVICE_H
#define VITTRAIN_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/sensors.h"

enum data_type { TYPE_FP32, TYPE_BF16, TYPE_FP16 };

static inline size_t type_size(enum data_type type)
{
    return type == TYPE_FP32 ? 4 : 2;
}

/* The largest fp32 number that is rounded to 0 when it is stored in this type. */
static inline float type_rounds_to_zero(enum data_type type)
{
    return type == TYPE_FP32 ? 0 : type == TYPE_BF16 ? 0x1p-134f : 0x1p-25f;
}

static inline const char *type_name(enum data_type type)
{
    return type == TYPE_FP32 ? "fp32" : type == TYPE_BF16 ? "bf16" : "fp16";
}

/* Where in the run a pass or an update is. It lies in device memory, and operations read it when
 * the stream comes to them, not when they are queued: so a recorded step can run again elsewhere.
 * The host writes it through the stream (train/place.h). */
struct step_params {
    uint32_t step;          /* keys random numbers */
    uint32_t position;      /* of the device batch's first sample in the global batch */
    int64_t update;         /* number of the update, from 1 */
    double rate;            /* the learning rate */
    double beta1, momentum; /* schedules move these too */
};

/* Dynamic loss scaling (Micikevicius et al. 2018) by the rules of PyTorch's GradScaler, in device
 * memory: cross_entropy multiplies the gradient by the scale, so that fp16 does not lose what is
 * small; update divides by it; scaler_update follows what came of it. The scale is always a power
 * of two, so neither changes a digit. */
struct loss_scaler {
    float scale;
    int32_t good_steps; /* in a row, since the scale was changed */
    int64_t skipped;    /* updates that changed nothing, since the run began */
};

enum { LOSS_SCALER_GOOD_STEPS = 2000 };
/* Between which it moves: at the lowest all that fp16 holds of a gradient has vanished, at the
 * highest all above 2^-24 overflows. What trains comes near neither. */
#define LOSS_SCALE_LEAST 0x1p-24f
#define LOSS_SCALE_MOST 0x1p+40f

/* Dropout as part of an operation. Element e of sample b (e counts the operation's elements of one
 * sample, row-major, the last dimension rounded up to a multiple of 8) is kept when lane e % 8 of
 * random_block_at(seed, RANDOM_DROPOUT, layer, params->step, params->position + b, e / 8) is >=
 * round(rate * 65536), a lane being 16 bits (lane l: word l / 2, low half first). Kept elements are
 * multiplied by 65536 / (65536 - threshold). The mask is never stored: backward draws it again. */
struct dropout {
    float rate; /* 0: off, the other fields are not looked at */
    uint64_t seed;
    uint32_t layer;                   /* which dropout of the model */
    const struct step_params *params; /* device; its step and position are read */
};

/* Stochastic depth: the whole branch of sample b is dropped when random_uniform(word 0 of
 * random_block_at(seed, RANDOM_DROP_PATH, layer, params->step, params->position + b, 0)) < rate,
 * else divided by 1 - rate (Huang et al. 2016). Same fields as dropout. */

/* y = x . weight^T + bias, then one of
 *   pre != NULL:      pre gets that sum, y = dropout(gelu(pre)), exact gelu (erf);
 *   residual != NULL: y = residual + drop_path(dropout(sum)); y may be residual;
 *   neither:          y = dropout(sum).
 * rows = batch * rows_per_sample. */
struct linear_forward {
    enum data_type type;
    int64_t rows, in, out, rows_per_sample;
    const void *x;        /* [rows, in] type */
    const void *weight;   /* [out, in] type */
    const void *bias;     /* [out] type, or NULL */
    const void *residual; /* [rows, out] type, or NULL */
    void *pre;            /* [rows, out] type, or NULL */
    bool relu;            /* y = max(0, sum); with none of the others */
    void *y;              /* [rows, out] type */
    struct dropout dropout, drop_path;
};

/* dx = dy . weight; where pre != NULL (the pre-activation of the layer that made x, dropout its
 * dropout): dx = dropout(dy . weight) * gelu'(pre), the gradient of that pre-activation.
 * dweight += dy^T . x, dbias += column sums of dy. */
struct linear_backward {
    enum data_type type;
    int64_t rows, in, out, rows_per_sample;
    const void *x;      /* [rows, in] type */
    const void *weight; /* [out, in] type */
    const void *dy;     /* [rows, out] type */
    const void *pre;    /* [rows, in] type, or NULL */
    bool x_relu;        /* x came out of a relu: dx is 0 where x is; with pre NULL */
    void *dx;           /* [rows, in] type, or NULL; not dy */
    float *dweight;     /* [out, in], or NULL */
    float *dbias;       /* [out], or NULL */
    bool overwrite;     /* of dweight, dbias */
    struct dropout dropout;
};

/* Layer normalisation (Ba et al. 2016) over the last dimension. */
struct norm_forward {
    enum data_type type;
    int64_t rows, width;
    float epsilon;
    const void *x;            /* [rows, width] type */
    const void *gamma, *beta; /* [width] type */
    void *y;                  /* [rows, width] type */
    float *mean, *rstd;       /* [rows], or both NULL (evaluation) */
};

/* dx = (add != NULL ? add : 0) + gradient through the norm; dx may be add or dy. */
struct norm_backward {
    enum data_type type;
    int64_t rows, width;
    const void *x, *gamma, *dy; /* as forward */
    const float *mean, *rstd;
    const void *add;       /* [rows, width] type, or NULL: what flows past the branch */
    void *dx;              /* [rows, width] type */
    float *dgamma, *dbeta; /* [width], or both NULL */
    bool overwrite;        /* of dgamma, dbeta */
};

/* softmax(q k^T * scale) v for each head, dropout on the probabilities (element (h * queries + i) *
 * round_up(tokens, 8) + j of a sample). qkv is [batch, tokens, 3, heads, head_dim]. Only the first
 * `queries` tokens of a sample ask (1 <= queries <= tokens): where just the class token is read
 * afterwards, the rest need not be computed. */
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
    void *dqkv; /* as qkv, all of it is written: zero where a token did not ask */
    struct dropout dropout;
};

/* y = drop_path(dropout(x)), elementwise; y may be x. Its own backward. rows as in linear. */
struct dropout_apply {
    enum data_type type;
    int64_t rows, width, rows_per_sample;
    const void *x;
    void *y;
    struct dropout dropout, drop_path;
};

/* Images to rows: [batch, channels, height, width] -> [batch * patches, channels * patch * patch],
 * patches row by row, a patch's elements as (channel, y, x): the order of a convolution's weight.
 */
struct patches_forward {
    enum data_type type;
    int64_t batch, channels, height, width, patch;
    const void *images;
    void *rows;
};

/* Token sequence: x[b, 0] = class_token + position[0] (when there is one), then patch rows + their
 * positions. tokens = patches + (class_token != NULL). */
struct tokens_forward {
    enum data_type type;
    int64_t batch, tokens, width;
    const void *patches;     /* [batch, tokens - 1 or tokens, width] type */
    const void *class_token; /* [width] type, or NULL */
    const void *position;    /* [tokens, width] type */
    void *x;                 /* [batch, tokens, width] type */
};

struct tokens_backward {
    enum data_type type;
    int64_t batch, tokens, width;
    bool class_token;
    const void *dx;
    void *dpatches;      /* type */
    float *dclass_token; /* [width], or NULL */
    float *dposition;    /* [tokens, width], or NULL */
    bool overwrite;      /* of dclass_token, dposition */
};

/* One row a sample: token 0, or the mean of tokens first..tokens-1. */
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
    void *dx; /* all of it is written */
};

/* What a batch is counted by; lies on the device, added up over batches. */
struct loss_sums {
    double loss;       /* sum over samples */
    double top1, top5; /* how many were right */
    double samples;
};

/* Softmax cross-entropy. Targets are one class a sample (labels), smoothed by `smoothing`
 * (Szegedy et al. 2016: 1 - s on the label plus s / classes everywhere), or any distribution
 * (targets). dlogits = scale * scaler->scale * d(loss of the sample); scale is 1 / the global
 * batch; what is counted, and losses, know nothing of the scaler. A sample counts for top-k when
 * fewer than k classes beat its label (a tie is won by the lower index); with `targets` the label
 * is their largest. A label that is no class is a programmer's mistake: the CPU ends the program,
 * a GPU, which sees it late, makes the sample's loss and gradient NaN. */
struct cross_entropy {
    enum data_type type;
    int64_t batch, classes;
    float smoothing, scale;
    const void *logits;               /* [batch, classes] type */
    const int32_t *labels;            /* [batch], or NULL */
    const float *targets;             /* [batch, classes], or NULL */
    void *dlogits;                    /* type, may be logits; or NULL */
    const struct loss_scaler *scaler; /* device, or NULL */
    struct loss_sums *sums;
    float *losses;        /* [batch], or NULL */
    int32_t *predicted;   /* [batch], or NULL */
    float *probabilities; /* [batch, classes], or NULL */
};

/* What convolutions work on is channels last: [batch, height, width, channels], so that a pixel is
 * a row, and products, norms and pools see rows. Kernels, strides and padding are the same in both
 * directions; zeros are outside the image. */
struct convolution_shape {
    int64_t batch, height, width; /* of x */
    int64_t in, out;              /* channels */
    int64_t kernel, stride, padding;
};

/* Rows or columns that come out of so many: (size + 2 padding - kernel) / stride + 1, rounded down,
 * of convolutions and of max_pool. */
static inline int64_t convolved_size(int64_t size, int64_t kernel, int64_t stride, int64_t padding)
{
    return (size + 2 * padding - kernel) / stride + 1;
}

/* y = relu ? max(0, sum) : sum with sum = x * weight + bias, the cross-correlation of torch's
 * Conv2d. `workspace`: convolution_workspace(...) bytes of device memory, which other convolutions
 * of the stream may use too. */
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

/* dx = gradient of x, where x_relu only where x > 0 (x came out of a relu, whose gradient this then
 * is). */
struct convolution_backward {
    enum data_type type;
    struct convolution_shape shape;
    const void *x, *weight, *dy;
    bool x_relu;
    void *dx;       /* as x, or NULL; not dy */
    float *dweight; /* [out, in, kernel, kernel], or NULL */
    float *dbias;   /* [out], or NULL */
    bool overwrite; /* of dweight, dbias */
    void *workspace;
};

/* Batch normalisation (Ioffe and Szegedy 2015) over the rows of all ranks, in parts between which
 * the caller adds `sums` up over ranks (that is synchronised batch norm; local is the same
 * without).
 *
 * sums = [2 * channels + 1] doubles, written: sums of x, sums of x^2 of this rank's rows, how many
 * rows these are. Accurate where the mean is large against the deviation. */
struct batch_norm_sums {
    enum data_type type;
    int64_t rows, channels;
    const void *x; /* [rows, channels] type */
    double *sums;
};

/* y = relu?((x - mean) * rstd * gamma + beta + residual). Mean and (biased) variance come from
 * `sums`, or, where that is NULL, from the running ones. statistics = [3 * channels], written:
 * mean, 1 / sqrt(variance + epsilon), unbiased variance (n / max(n - 1, 1) times the biased). */
struct batch_norm_forward {
    enum data_type type;
    int64_t rows, channels;
    float epsilon;
    const void *x;                               /* [rows, channels] type */
    const void *gamma, *beta;                    /* [channels] type */
    const double *sums;                          /* of all ranks, or NULL */
    const void *running_mean, *running_variance; /* [channels] type; read where sums is NULL */
    const void *residual;                        /* [rows, channels] type, or NULL */
    bool relu;
    void *y;           /* [rows, channels] type; may be x in evaluation */
    float *statistics; /* not NULL */
};

/* First half of the gradient of y. g = (dy + add) where y > 0, 0 elsewhere (without a relu: dy +
 * add). y is read or, where forward had no residual, computed from x, gamma and beta with the
 * rounding of forward, which gives the same mask. dy becomes g, which is also the residual's
 * gradient; but where y is computed and `add` is NULL, a backend may leave dy as it is. sums =
 * [2 * channels + 1], written: sums of g, sums of g * (x - mean) * rstd, rows. dgamma, dbeta get
 * this rank's sums added. drunning_* get this rank's share of the step's statistics, running_weight
 * * rows / all rows * (mean, unbiased variance): added up over ranks like a gradient that is all of
 * them (mesh/unit.h: TENSOR_STATE). */
struct batch_norm_backward_sums {
    enum data_type type;
    int64_t rows, channels;
    const void *x;
    const void *y;              /* [rows, channels] type: output of the relu; or NULL */
    const void *gamma, *beta;   /* to compute that output, with y NULL; or both NULL */
    const void *add;            /* [rows, channels] type, or NULL: y was read twice */
    const float *statistics;    /* of forward */
    const double *forward_sums; /* of all ranks; NULL: the running ones were used */
    float running_weight;
    void *dy; /* [rows, channels] type */
    double *sums;
    float *dgamma, *dbeta;                    /* [channels], or both NULL */
    float *drunning_mean, *drunning_variance; /* [channels], or both NULL */
    bool overwrite;                           /* of these four */
};

/* Second half: dx = gamma * rstd * (g - (sums of g + xhat * sums of g xhat) / all rows); without
 * the bracket's second part where sums is NULL (the running statistics were used). dy is as
 * batch_norm_backward_sums left it; with beta it may still have to be masked. */
struct batch_norm_backward {
    enum data_type type;
    int64_t rows, channels;
    const void *x, *gamma;
    const float *statistics;
    const double *sums; /* of all ranks, or NULL */
    const void *beta;   /* [channels] type: as given to batch_norm_backward_sums; or NULL */
    const void *dy;
    void *dx; /* [rows, channels] type; may be dy */
};

/* The largest value of each window, and where in the window it was (row by row; the first of equal
 * ones; NaN is larger than all). Windows may hang over the edge by `padding`, which holds nothing.
 */
struct max_pool_forward {
    enum data_type type;
    int64_t batch, height, width, channels, kernel, stride, padding;
    const void *x;  /* [batch, height, width, channels] type */
    void *y;        /* [batch, out height, out width, channels] type */
    uint8_t *index; /* as y, in evaluation NULL; kernel <= 15 */
};

/* dx = sum of (dy + add) over the windows whose largest value was there. */
struct max_pool_backward {
    enum data_type type;
    int64_t batch, height, width, channels, kernel, stride, padding;
    const void *dy;
    const void *add; /* as dy, or NULL: y was read twice */
    const uint8_t *index;
    void *dx; /* all of it is written */
};

/* y[b, column, row] = x[b, row, column]: between channels first and channels last. */
struct transpose {
    enum data_type type;
    int64_t batch, rows, columns;
    const void *x;
    void *y; /* not x */
};

/* Mean squared error over the outputs of a sample, torch's MSELoss: loss = mean((prediction -
 * target)^2), where a sample's one target stands for all its outputs: target = labels * label_unit.
 * dpredictions = scale * scaler->scale * d(loss of the sample). Only loss and samples are counted.
 */
struct squared_error {
    enum data_type type;
    int64_t batch, outputs;
    float scale;
    double label_unit;
    const void *predictions;          /* [batch, outputs] type */
    const int32_t *labels;            /* [batch] */
    void *dpredictions;               /* type, may be predictions; or NULL */
    const struct loss_scaler *scaler; /* device, or NULL */
    struct loss_sums *sums;
};

enum update_rule { UPDATE_SGD, UPDATE_ADAM, UPDATE_ADAMW, UPDATE_RMSPROP };

/* A stretch of a flat buffer that is updated alike. */
struct update_segment {
    int64_t begin, end;
    float weight_decay, rate_scale; /* rate_scale 0: frozen, nothing in it changes */
    /* Running statistics: weights = keep * weights + gradient, as it is (not clipped, not divided
     * by the scale); moments stay, average and copy follow. */
    bool running;
    float keep;
};

/* One step of an optimizer over a flat buffer, rules and defaults as torch.optim's. With s the
 * scaler's scale (1 without one), the gradient is first multiplied by the clip coefficient
 * min(1, max_norm / (sqrt(*norm_squared) / s + 1e-6)) / s, one factor rounded to fp32; bias
 * corrections count place->update - scaler->skipped updates. Nothing changes when *norm_squared is
 * not finite. Elements outside all segments are padding. */
struct update {
    enum update_rule rule;
    int64_t count;
    float *weights; /* fp32 master */
    const float *gradient;
    float *moment1; /* momentum buffer or exp_avg; NULL: the rule has none, place->momentum is 0 */
    float *moment2; /* exp_avg_sq or square_avg; NULL where the rule has none */
    float *average; /* EMA of the weights, or NULL */
    void *copy;     /* compute copy, or NULL when weights are used as they are */
    enum data_type copy_type;
    const struct update_segment *segments; /* host memory, must live until the stream has run */
    int segment_count;
    const struct step_params *params; /* device: update, rate, beta1, momentum are read */
    double beta2, epsilon, alpha, average_decay;
    bool nesterov;
    const double *norm_squared;       /* device, of the gradient as it is; NULL: taken as finite */
    double max_norm;                  /* 0: no clipping; else norm_squared is there */
    const struct loss_scaler *scaler; /* device, or NULL */
    /* The next buffer of the same step, or NULL: one call updates them all. Of the first one's
     * fields only the tensors' addresses, `count` and the segments may differ. */
    const struct update *next;
};

/* How one sample's pixels are made (by src/data/augment.c). Every stage after the resize moves
 * whole pixels, so an output pixel is followed back to one pixel of the resized image, stage by
 * stage; a stage that leads outside the image gives 0: erased rectangle -> 0;  translate: (x -
 * translate_x, y - translate_y); rotate: ((m0 x + m1 y + m2) >> 16, (m3 x + m4 y + m5) >> 16);
 * flip: width - 1 - x; crop with padding: (x + shift_x, y + shift_y). */
struct pixel_plan {
    int16_t shift_x, shift_y;
    bool flip, rotate;
    int32_t matrix[6]; /* 16.16 fixed point, as PIL's nearest affine; looked at when rotate */
    int16_t translate_x, translate_y;
    int16_t erase_x, erase_y, erase_width, erase_height; /* width 0: nothing is erased */
};

/* uint8 images [batch, channels, source_height, source_width] to [batch, channels, height, width]
 * type: resize (bilinear with antialiasing, bit for bit PIL's up to version 12; 13 turns the passes
 * round where an image gets much less high than wide), crop with zero padding (`shift`), flip,
 * rotation (nearest, zero outside), translation (nearest, zero outside), / 255, erase (zero),
 * (v - mean) / std. */
struct image_transform {
    enum data_type type;
    int64_t batch, channels, source_height, source_width, height, width;
    const uint8_t *source;
    const struct pixel_plan *plans; /* [batch], or NULL: only resize and normalise */
    const float *mean, *std;        /* [channels], host memory */
    void *images;
    uint8_t *scratch; /* device, image_transform_scratch(...) bytes; may be NULL when that is 0 */
};

/* Workspace of image_transform: 0 when no resize is needed. */
size_t image_transform_scratch(const struct image_transform *transform);

/* How two neighbours of a batch are mixed (by src/data/augment.c). */
struct mix_plan {
    float share;                 /* of a sample's own target; the rest is its partner's */
    bool cut;                    /* the two exchange a rectangle; else their pixels are blended */
    int16_t x, y, width, height; /* of the rectangle, within the image; it may be empty */
};

/* Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019) of samples 2k and 2k + 1, in place, with
 * plans[k]: images become share * own + (1 - share) * partner's (in fp32, then rounded), or
 * exchange a rectangle; targets[b, c] = (1 - smoothing) * (share * [c is b's label] + (1 - share) *
 * [c is its partner's]) + smoothing / classes. The last sample of an odd batch is its own partner:
 * only its target is made. A label that is no class: as in cross_entropy, on a GPU by NaN in the
 * targets. */
struct images_mix {
    enum data_type type;
    int64_t batch, channels, height, width, classes;
    float smoothing;
    const struct mix_plan *plans; /* [(batch + 1) / 2]; the last of an odd batch is not looked at */
    const int32_t *labels;        /* [batch] */
    void *images;                 /* [batch, channels, height, width] type */
    float *targets;               /* [batch, classes] */
};

/* Where values that are not finite begin: the lowest index, or -1. */
struct nonfinite {
    enum data_type type;
    int64_t count;
    const void *values;
    int64_t *index; /* device */
};

struct device;
struct stream;
struct event;
struct graph;

struct device_limits {
    int threads;           /* CPU: threads of the pool */
    char name[128];        /* "AMD EPYC 9354, AVX2, 2 threads" */
    char instructions[16]; /* "avx2": devices with the same ones give the same bits */
    char identity[48];     /* which device of the world this is, or "" (CPUs) */
    size_t memory_bytes;   /* of its own; 0: it has the host's */
    bool multiplies_bf16, multiplies_fp16; /* in hardware */
    double peak_flops[3];                  /* by data_type, nominal or measured once; 0: unknown */
};

/* What is installed, and how devices of a node reach each other. */
struct device_survey {
    char software[128]; /* "driver for CUDA 13.0, CUDA 12.8, NCCL 2.28.9" */
    int visible;        /* devices of the node that this process sees */
    int unreached;      /* of them, those that this one has no direct access to */
};

struct device_backend {
    const char *name; /* "cpu" */
    /* `number`: which device of the node; threads: CPU only, 0 = all that this process may use. */
    struct device *(*open)(int number, int threads, struct error *error);
    void (*close)(struct device *device);
    void (*limits)(struct device *device, struct device_limits *limits);
    /* NULL: there is nothing to tell. */
    void (*survey)(struct device *device, struct device_survey *survey);
    /* Fills in what the device itself can measure (core/sensors.h), now: seconds of clock_now. May
     * take long; called by one thread at a time, beside the operations. NULL: nothing (the host's
     * sensors are read whatever computes). */
    void (*sensors)(struct device *device, double now, struct sensor_reading *reading);
    /* Can attention over so many tokens in heads of this width be computed? */
    bool (*attention_fits)(struct device *device, int64_t tokens, int64_t head_dim);

    /* Bytes of workspace that a convolution of this shape needs, forward and backward. */
    size_t (*convolution_workspace)(struct device *device, enum data_type type,
                                    const struct convolution_shape *shape);

    /* Device memory and pinned host memory; NULL and an error when there is too little. */
    void *(*allocate)(struct device *device, size_t bytes, struct error *error);
    void (*release)(struct device *device, void *memory);
    void *(*allocate_pinned)(struct device *device, size_t bytes, struct error *error);
    void (*release_pinned)(struct device *device, void *memory);
    /* Bytes of the device's own memory that are free; NULL: it has the host's. */
    size_t (*memory_free)(struct device *device);

    /* The largest workspace that any operation with at most these sizes needs; given once, before
     * the first operation, as `bytes` of device memory from the arena. */
    size_t (*workspace_bytes)(struct device *device);
    void (*workspace_set)(struct device *device, void *memory, size_t bytes);

    /* How matrix products are made, and convolutions, before the first one; NULL where there is no
     * choice. tf32: fp32 operands may be rounded to TF32's 10 bits. cache: the folder where the
     * fastest algorithms are remembered (choices.h), "" for nowhere. */
    void (*products_set)(struct device *device, bool tf32, const char *cache);

    /* The algorithms of matrix products that this device has chosen by measurement (choices.h), as
     * text; other ranks, and a resumed run, adopt them to get the same bits. All NULL where nothing
     * is chosen. choices_adopt returns true if an algorithm in use changed: what was recorded
     * before still has the old one. */
    char *(*choices_export)(struct device *device); /* the caller frees it; "": none */
    bool (*choices_are_new)(struct device *device); /* some were made since the last adoption */
    bool (*choices_adopt)(struct device *device, const char *choices);

    struct stream *(*stream_open)(struct device *device);
    void (*stream_close)(struct stream *stream);
    void (*stream_wait)(struct stream *stream, struct event *event);
    void (*stream_synchronize)(struct stream *stream); /* the host waits */
    struct event *(*event_open)(struct device *device);
    void (*event_close)(struct event *event);
    void (*event_record)(struct event *event, struct stream *stream);
    void (*event_synchronize)(struct event *event); /* the host waits */
    bool (*event_done)(struct event *event);

    /* Recorded steps; all NULL where there are none. What is put on the stream between begin and
     * end, and on streams that wait for its events and that it waits for, is not run but recorded;
     * run puts all of it on the stream. Addresses and numbers of the host are as they were when it
     * was recorded; what lies in memory is read when it runs. */
    void (*graph_begin)(struct stream *stream);
    struct graph *(*graph_end)(struct stream *stream);
    void (*graph_run)(struct graph *graph, struct stream *stream);
    void (*graph_close)(struct graph *graph);

    /* Marks for a profiler's timeline, nested; NULL where there is none. */
    void (*range_begin)(const char *name);
    void (*range_end)(void);

    /* Starts and stops what a profiler records that waits for it; NULL where there is none. */
    void (*capture)(bool on);

    /* From here on operations only (profile.c counts on it).
     * copy: any direction between device, pinned and plain memory. */
    void (*copy)(struct stream *stream, void *to, const void *from, size_t bytes);
    void (*zero)(struct stream *stream, void *memory, size_t bytes);
    void (*convert)(struct stream *stream, enum data_type to_type, void *to,
                    enum data_type from_type, const void *from, int64_t count);
    void (*add)(struct stream *stream, float *sum, const float *addend, int64_t count);

    void (*linear_forward)(struct stream *stream, const struct linear_forward *args);
    void (*linear_backward)(struct stream *stream, const struct linear_backward *args);
    void (*norm_forward)(struct stream *stream, const struct norm_forward *args);
    void (*norm_backward)(struct stream *stream, const struct norm_backward *args);
    void (*attention_forward)(struct stream *stream, const struct attention_forward *args);
    void (*attention_backward)(struct stream *stream, const struct attention_backward *args);
    void (*dropout_apply)(struct stream *stream, const struct dropout_apply *args);
    void (*patches_forward)(struct stream *stream, const struct patches_forward *args);
    void (*tokens_forward)(struct stream *stream, const struct tokens_forward *args);
    void (*tokens_backward)(struct stream *stream, const struct tokens_backward *args);
    void (*pool_forward)(struct stream *stream, const struct pool_forward *args);
    void (*pool_backward)(struct stream *stream, const struct pool_backward *args);
    void (*convolution_forward)(struct stream *stream, const struct convolution_forward *args);
    void (*convolution_backward)(struct stream *stream, const struct convolution_backward *args);
    void (*batch_norm_sums)(struct stream *stream, const struct batch_norm_sums *args);
    void (*batch_norm_forward)(struct stream *stream, const struct batch_norm_forward *args);
    void (*batch_norm_backward_sums)(struct stream *stream,
                                     const struct batch_norm_backward_sums *args);
    void (*batch_norm_backward)(struct stream *stream, const struct batch_norm_backward *args);
    void (*max_pool_forward)(struct stream *stream, const struct max_pool_forward *args);
    void (*max_pool_backward)(struct stream *stream, const struct max_pool_backward *args);
    void (*transpose)(struct stream *stream, const struct transpose *args);
    void (*cross_entropy)(struct stream *stream, const struct cross_entropy *args);
    void (*squared_error)(struct stream *stream, const struct squared_error *args);
    void (*update)(struct stream *stream, const struct update *args);
    /* After all updates of a step. Where *norm_squared is not finite the scale is halved (not below
     * LOSS_SCALE_LEAST), good_steps 0, skipped one more; else good_steps is one more, and at
     * LOSS_SCALER_GOOD_STEPS the scale is doubled (not above LOSS_SCALE_MOST) and good_steps 0. */
    void (*scaler_update)(struct stream *stream, struct loss_scaler *scaler,
                          const double *norm_squared);
    /* Adds to *sum (device). */
    void (*sum_squares)(struct stream *stream, const float *values, int64_t count, double *sum);
    void (*nonfinite)(struct stream *stream, const struct nonfinite *args);
    void (*image_transform)(struct stream *stream, const struct image_transform *args);
    void (*images_mix)(struct stream *stream, const struct images_mix *args);
};

struct device {
    const struct device_backend *backend;
};

extern const struct device_backend device_cpu;

/* The backend of that name, "cpu" or "cuda" (whose module is opened); NULL and an error that says
 * what is missing. */
const struct device_backend *device_find(const char *name, struct error *error);

#endif
