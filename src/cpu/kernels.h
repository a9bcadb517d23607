// SPDX-License-Identifier: BSD-3-Clause
/* Kernels: single-threaded loops over a range. Each kernels_SUBJECT.c is compiled once per
 * instruction set, with -DKERNELS=baseline, avx2 or avx512, and defines one table of functions,
 * KERNEL(SUBJECT_kernels). All functions are static. kernels_table.c collects the tables of one
 * instruction set; the device selects one set when it is opened. */
#ifndef VITTRAIN_CPU_KERNELS_H
#define VITTRAIN_CPU_KERNELS_H

#include "device/device.h"
#include "device/image.h" /* struct image_kernels */

/* The subjects, as (prefix of the table, member of struct cpu_kernels). */
#define KERNEL_SUBJECTS(SUBJECT)                                                                   \
    SUBJECT(random, random)                                                                        \
    SUBJECT(convert, convert)                                                                      \
    SUBJECT(linear, linear)                                                                        \
    SUBJECT(attention, attention)                                                                  \
    SUBJECT(element, elements)                                                                     \
    SUBJECT(norm, norm)                                                                            \
    SUBJECT(batch_norm, batch_norm)                                                                \
    SUBJECT(convolution, convolution)                                                              \
    SUBJECT(implicit, implicit)                                                                    \
    SUBJECT(max_pool, max_pool)                                                                    \
    SUBJECT(loss, loss)                                                                            \
    SUBJECT(update, update)                                                                        \
    SUBJECT(image, image)

#ifdef KERNELS
#define KERNEL_PASTE_SUFFIX(name, suffix) name##_##suffix
#define KERNEL_PASTE(name, suffix) KERNEL_PASTE_SUFFIX(name, suffix)
#define KERNEL(name) KERNEL_PASTE(name, KERNELS)

#define KERNEL_DECLARE(subject, member)                                                            \
    extern const struct subject##_kernels KERNEL(subject##_kernels);
KERNEL_SUBJECTS(KERNEL_DECLARE)
#endif

/* Source of one sample's dropout mask (types.h, struct dropout). */
struct mask_source {
    uint32_t threshold; /* 0: nothing is dropped */
    float scale;        /* factor of kept elements */
    uint32_t key[2];
    uint32_t counter[3]; /* words 1 to 3 of Philox's counter: sample, step, purpose + 256 * layer */
};

/* kernels_random.c */
struct random_kernels {
    /* mask[i] = 0 or source->scale for elements 8 * block_begin + i, count a multiple of 8. */
    void (*mask)(const struct mask_source *source, int64_t block_begin, int64_t count, float *mask);
};

/* kernels_elements.c */
struct convert_kernels {
    void (*to_fp32)(float *to, enum data_type from_type, const void *from, int64_t count);
    void (*from_fp32)(enum data_type to_type, void *to, const float *from, int64_t count);
};

/* A range of one row of a matrix product and the operands of its epilogue. All pointers are at the
 * first element of the range. `sum` may be y or dx if these are fp32. */
struct linear_row {
    enum data_type type;
    int64_t count;
    const float *sum;
    const float *mask;    /* dropout factors, or NULL */
    const void *bias;     /* or NULL */
    const void *residual; /* or NULL */
    const void *scale;    /* or NULL */
    bool gelu_tanh;
    float path_scale;   /* drop path factor, with residual */
    bool relu;          /* forward only */
    const void *relu_x; /* backward: output of a ReLU, or NULL */
    union {             /* or NULL */
        void *pre;
        const void *pre_read; /* backward, drop */
    };
    float *products; /* drop only, or NULL */
    void *y;
};

/* kernels_linear.c */
struct linear_kernels {
    /* The epilogue of struct linear_forward. */
    void (*forward)(const struct linear_row *row);
    /* y = sum * mask * gelu'(pre), or sum if pre is NULL; 0 where relu_x <= 0. */
    void (*backward)(const struct linear_row *row);
    /* g = residual * mask * path_scale; products += g * pre; y = g * scale. */
    void (*drop)(const struct linear_row *row);
    /* sums[c] += sum over rows of x[r * stride + begin + c]; the order depends on `rows` only. */
    void (*column_sums)(enum data_type type, int64_t rows, int64_t columns, int64_t stride,
                        const void *x, int64_t begin, float *sums);
};

/* One head of one sample. Rows of q, k and v have a distance of `stride` elements, rows of out
 * `out_stride`. Names as in operations.h. */
struct attention_head {
    enum data_type type;
    int64_t tokens, queries, head_dim, stride, out_stride;
    float scale;
    const void *q, *k, *v;
    void *out;
    float *lse;
    const float *lse_read; /* this and the next four: backward only */
    const void *dout;
    void *dq, *dk, *dv;
    struct mask_source mask; /* threshold 0: no dropout */
    int64_t mask_block;      /* first block of the mask of query 0 */
    const struct random_kernels *random;
    float *memory;
};

/* kernels_attention.c, tiles/kernels_attention.c */
struct attention_kernels {
    /* Return the number of floats that `memory` must have; 0 if the head is not supported. */
    int64_t (*memory)(const struct attention_head *head, bool backward);
    void (*forward)(const struct attention_head *head);
    void (*backward)(const struct attention_head *head);
};

/* kernels_elements.c */
struct element_kernels {
    /* y = a + b; y may be a or b. */
    void (*add)(enum data_type type, void *y, const void *a, const void *b, int64_t count);
    void (*scale)(enum data_type type, void *y, const void *x, float factor, int64_t count);
    /* One row of matrix_sum; x is multiplied by `factor`. */
    void (*matrix_sum_row)(const struct matrix_sum *args, float factor, int64_t row);
    /* Rotate x[i] and x[half + i] by angles given as cosines and sines [half]. */
    void (*rotate)(enum data_type type, void *x, const float *cosine, const float *sine,
                   int64_t half);
    /* One row of glu_forward and glu_backward. */
    void (*glu)(enum data_type type, void *y, const void *x, int64_t width);
    void (*glu_backward)(enum data_type type, void *dx, const void *x, const void *dy,
                         int64_t width);
    /* Simultaneously a = share * a + (1 - share) * b and b = share * b + (1 - share) * a. */
    void (*mix)(enum data_type type, void *a, void *b, float share, int64_t count);
    /* sum[j] += sum over rows of x[row * stride + j], j < count. */
    void (*add_columns)(enum data_type type, float *sum, const void *x, int64_t rows,
                        int64_t stride, int64_t count);
    /* Set dx to 0 where x, the output of a ReLU, is not positive. */
    void (*relu_backward)(enum data_type type, void *dx, const void *x, int64_t count);
    /* Add to *sum. */
    void (*sum_squares)(const float *values, int64_t count, struct exact_sum *sum);
    /* Return the sum of hash_element(key + i, values[i]) over all elements (base/base.h). */
    uint64_t (*hash)(const float *values, int64_t count, uint64_t key);
    /* Return the lowest index of a non-finite value, or -1. */
    int64_t (*find_nonfinite)(enum data_type type, const void *values, int64_t count);
};

/* kernels_norm.c: rows begin..end. Their sums are added to dgamma and dbeta, which may both be
 * NULL. */
struct norm_kernels {
    void (*forward)(const struct norm_forward *args, int64_t begin, int64_t end);
    void (*backward)(const struct norm_backward *args, int64_t begin, int64_t end, float *dgamma,
                     float *dbeta);
};

/* kernels_batch_norm.c: rows begin..end. Values shared by all rows of a channel, in fp32: y = (x -
 * mean) * factor + beta, factor = rstd * gamma; dx = (dy - mean_dy - (x - mean) * slope) * factor,
 * slope = rstd * (mean of dy * xhat). In the backward pass beta is NULL unless the ReLU's mask is
 * recomputed. */
struct batch_norm_channels {
    const float *mean, *factor, *beta;
    const float *mean_dy, *slope; /* or both NULL: dx = dy * factor */
};

struct batch_norm_kernels {
    /* sums[0 .. 2 * channels] += sums of x, of x^2. buffer: BATCH_NORM_BUFFERS * channels floats.
     */
    void (*sums)(const struct batch_norm_sums *args, int64_t begin, int64_t end, double *sums,
                 float *buffer);
    void (*forward)(const struct batch_norm_forward *args,
                    const struct batch_norm_channels *channels, int64_t begin, int64_t end);
    /* dy as in operations.h; sums[0 .. 2 * channels] += sums of dy, of dy * (x - mean) * rstd. */
    void (*backward_sums)(const struct batch_norm_backward_sums *args,
                          const struct batch_norm_channels *channels, int64_t begin, int64_t end,
                          double *sums, float *buffer);
    void (*backward)(const struct batch_norm_backward *args,
                     const struct batch_norm_channels *channels, int64_t begin, int64_t end);
};
enum { BATCH_NORM_BUFFERS = 3 };

/* kernels_convolution.c: direct convolution for few channels in fp32. A sample is stored as one
 * plane per channel. plane, pitch: distance in floats between planes and between rows. */
enum { DIRECT_BLOCK = 4, DIRECT_PIXELS = 16 };

struct plane_layout {
    int64_t channels, height, width, pitch, plane;
};

/* Stride 1. x is padded on all sides, and DIRECT_PIXELS floats follow each of its planes. out is a
 * multiple of DIRECT_BLOCK, y_pitch a multiple of DIRECT_PIXELS. */
struct direct_convolution {
    int64_t in, out, kernel, height, width; /* height, width: of y */
    int64_t x_pitch, x_plane, y_pitch, y_plane;
    bool relu;
};

struct convolution_kernels {
    /* Convert between a channels-last sample and planes, which point at the first pixel. */
    void (*split)(const struct plane_layout *image, const float *x, float *planes);
    void (*join)(const struct plane_layout *image, const float *planes, float *x);
    /* weight: [out / DIRECT_BLOCK, in, kernel, kernel, DIRECT_BLOCK]; bias: [out]. The padding of
     * y's rows is written, too. */
    void (*forward)(const struct direct_convolution *convolution, const float *x,
                    const float *weight, const float *bias, float *y);
    /* Accumulate into sums, in the order of forward's weight and bias. Each sum is one vector of
     * floats (at most DIRECT_PIXELS). The padding of dy's rows must be 0. */
    void (*weight)(const struct direct_convolution *convolution, const float *x, const float *dy,
                   float *sums);
    void (*bias)(const struct direct_convolution *convolution, const float *dy, float *sums);
    void (*fold)(int64_t count, const float *sums, float *totals);
};

/* kernels_implicit.c: a convolution as a matrix product whose left operand is read from an image
 * with channels last. Output channels are divided into panels of `panel` channels. For pixel i of
 * the result, each of `rows` kernel rows reads `span` successive floats; the first row begins at
 * x + x_offset[i], the next row_pitch floats after it. */
enum { IMPLICIT_PANEL_MOST = 64 };

struct implicit_product {
    int64_t pixels, rows, span, row_pitch, out;
    const float *x;
    const int32_t *x_offset;
    const float *weight; /* [panels, rows, span, panel], channels beyond `out` are 0 */
    const float *bias;   /* [out], or NULL */
    float *y;
    const int32_t *y_offset; /* of the first channel of each pixel */
    bool accumulate;         /* add to y, and ignore the bias */
    bool relu;
};

struct implicit_weight {
    int64_t pixels, rows, span, row_pitch, panels;
    const float *x;
    const int32_t *x_offset;
    const float *dy; /* [panels, pixels, panel] */
    float *sums;     /* [panels, rows, span, panel] += gradient */
};

struct implicit_kernels {
    int64_t panel;  /* at most IMPLICIT_PANEL_MOST */
    bool preferred; /* faster than oneDNN with these instructions */
    void (*product)(const struct implicit_product *product);
    void (*weight)(const struct implicit_weight *weight);
};

/* kernels_pool.c: one row of y (forward) or dx (backward), numbered over all samples. */
struct max_pool_kernels {
    void (*forward)(const struct max_pool_forward *args, int64_t row);
    /* sums: [width, channels] floats */
    void (*backward)(const struct max_pool_backward *args, int64_t row, float *sums);
};

/* kernels_loss.c: rows begin..end, added to *sums. buffer: LOSS_BUFFERS * loss_stride(classes)
 * floats. */
enum { LOSS_BUFFERS = 2, LOSS_ALIGNMENT = 16 };

static inline int64_t loss_stride(int64_t classes)
{
    return (classes + LOSS_ALIGNMENT - 1) / LOSS_ALIGNMENT * LOSS_ALIGNMENT;
}

struct loss_kernels {
    void (*cross_entropy)(const struct cross_entropy *args, int64_t begin, int64_t end,
                          float *buffer, struct loss_sums *sums);
    /* Return the sum of the weights of targets begin..end of a sample. */
    double (*target_weights)(const struct target_loss *args, int64_t sample, int64_t begin,
                             int64_t end);
    /* Return the sum of weight * loss. The gradient of the predictions is factor * weight *
     * derivative of the loss. */
    double (*target_losses)(const struct target_loss *args, int64_t sample, int64_t begin,
                            int64_t end, float factor);
};

/* kernels_update.c: elements begin..end with one segment's coefficients (update_rule.h). */
struct update_coefficients;

struct update_kernels {
    void (*update)(const struct update *args, const struct update_coefficients *coefficients,
                   int64_t begin, int64_t end);
    /* Write the direction whose norm is part of the trust ratio to direction[0..end - begin]. */
    void (*measure)(const struct update *args, const struct update_coefficients *coefficients,
                    int64_t begin, int64_t end, float *direction);
};

struct cpu_kernels {
    const char *name; /* "AVX2", for messages */
#define KERNEL_MEMBER(subject, member) const struct subject##_kernels *member;
    KERNEL_SUBJECTS(KERNEL_MEMBER)
};

/* Return the widest kernels that this processor supports, or those that VITTRAIN_CPU selects. */
const struct cpu_kernels *cpu_kernels_choose(struct error *error);

/* The sets compiled in are given by HAVE_KERNELS_AVX2 and the like (config.h). */
extern const struct cpu_kernels cpu_kernels_baseline, cpu_kernels_avx2, cpu_kernels_avx512,
    cpu_kernels_neon_bf16;

#endif
