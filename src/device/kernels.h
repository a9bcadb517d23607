/* Kernels: single-threaded loops over a range. Each kernels_SUBJECT.c is compiled once per
 * instruction set, with -DKERNELS=baseline, avx2 or avx512, and defines one table of functions,
 * KERNEL(SUBJECT_kernels). Functions in it are static. kernels_table.c puts the subjects' tables
 * together; the device picks one table of tables when it is opened. */
#ifndef VITTRAIN_DEVICE_KERNELS_H
#define VITTRAIN_DEVICE_KERNELS_H

#include "device/device.h"

#ifdef KERNELS
#define KERNEL_PASTE_SUFFIX(name, suffix) name##_##suffix
#define KERNEL_PASTE(name, suffix) KERNEL_PASTE_SUFFIX(name, suffix)
#define KERNEL(name) KERNEL_PASTE(name, KERNELS)
#endif

/* Which random mask a range of elements has (device.h, struct dropout), for one sample. */
struct mask_source {
    uint32_t threshold; /* 0: nothing is dropped */
    float scale;        /* of kept elements */
    uint32_t key[2];
    uint32_t counter[3]; /* words 1 to 3 of Philox's counter: index, epoch, purpose + 256 * layer */
};

/* kernels_random.c */
struct random_kernels {
    /* mask[i] = 0 or source->scale for elements 8 * block_begin + i, count a multiple of 8. */
    void (*mask)(const struct mask_source *source, int64_t block_begin, int64_t count, float *mask);
};

/* kernels_convert.c */
struct convert_kernels {
    void (*to_fp32)(float *to, enum data_type from_type, const void *from, int64_t count);
    void (*from_fp32)(enum data_type to_type, void *to, const float *from, int64_t count);
};

/* A row's part of a product and where it goes; all pointers are at the part's first element. `sum`
 * may be y or dx where these are fp32. */
struct linear_row {
    enum data_type type;
    int64_t count;
    const float *sum;
    const float *mask;    /* factors of dropout, or NULL */
    const void *bias;     /* or NULL */
    const void *residual; /* or NULL */
    float path_scale;     /* of drop path, with residual */
    bool relu;            /* forward */
    const void *relu_x;   /* backward: what came out of a relu, or NULL */
    void *pre;            /* or NULL */
    void *y;
};

/* kernels_linear.c */
struct linear_kernels {
    /* device.h, struct linear_forward, after the product. */
    void (*forward)(const struct linear_row *row);
    /* y = sum * mask * gelu'(pre), or just sum without pre; 0 where relu_x is not above 0. */
    void (*backward)(const struct linear_row *row);
    /* y = residual * mask * path_scale. */
    void (*drop)(const struct linear_row *row);
    /* sums[c] += the sum over rows of x[r * stride + begin + c], in an order that `rows` alone
     * decides. */
    void (*column_sums)(enum data_type type, int64_t rows, int64_t columns, int64_t stride,
                        const void *x, int64_t begin, float *sums);
};

/* One head of one sample; rows of q, k and v lie `stride` elements apart, those of out
 * `out_stride`. Names as in device.h. */
struct attention_head {
    enum data_type type;
    int64_t tokens, queries, head_dim, stride, out_stride;
    float scale;
    const void *q, *k, *v;
    void *out;
    float *lse;
    const float *lse_read; /* backward, and the next four */
    const void *dout;
    void *dq, *dk, *dv;
    struct mask_source mask; /* threshold 0: no dropout */
    int64_t mask_block;      /* of query 0 */
    float *memory;
};

/* kernels_attention.c */
struct attention_kernels {
    /* How many elements `memory` must have. */
    int64_t (*memory)(const struct attention_head *head, bool backward);
    void (*forward)(const struct attention_head *head);
    void (*backward)(const struct attention_head *head);
};

/* kernels_elements.c */
struct element_kernels {
    /* y = a + b; y may be one of them. */
    void (*add)(enum data_type type, void *y, const void *a, const void *b, int64_t count);
    void (*scale)(enum data_type type, void *y, const void *x, float factor, int64_t count);
    /* Both at once: a = share * a + (1 - share) * b, b = share * b + (1 - share) * a. */
    void (*mix)(enum data_type type, void *a, void *b, float share, int64_t count);
    /* sum[j] += the sum over rows of x[row * stride + j], j < count. */
    void (*add_columns)(enum data_type type, float *sum, const void *x, int64_t rows,
                        int64_t stride, int64_t count);
    /* dx = 0 where x, which came out of a relu, is not above 0. */
    void (*relu_backward)(enum data_type type, void *dx, const void *x, int64_t count);
    double (*sum_squares)(const float *values, int64_t count);
    /* The lowest index of a value that is not finite, or -1. */
    int64_t (*find_nonfinite)(enum data_type type, const void *values, int64_t count);
};

/* kernels_norm.c: rows begin..end. The sums over these rows are added to dgamma and dbeta, which
 * are both NULL or neither. */
struct norm_kernels {
    void (*forward)(const struct norm_forward *args, int64_t begin, int64_t end);
    void (*backward)(const struct norm_backward *args, int64_t begin, int64_t end, float *dgamma,
                     float *dbeta);
};

/* kernels_batch_norm.c: rows begin..end. What all rows of a channel share is made fp32 first:
 * y = (x - mean) * factor + beta, factor = rstd * gamma; dx = (dy - mean_dy - (x - mean) * slope) *
 * factor, slope = rstd * (mean of dy * xhat). On the way back beta is NULL unless the relu's mask
 * is computed. */
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
    /* dy as device.h says; sums[0 .. 2 * channels] += sums of dy, of dy * (x - mean) * rstd. */
    void (*backward_sums)(const struct batch_norm_backward_sums *args,
                          const struct batch_norm_channels *channels, int64_t begin, int64_t end,
                          double *sums, float *buffer);
    void (*backward)(const struct batch_norm_backward *args,
                     const struct batch_norm_channels *channels, int64_t begin, int64_t end);
};
enum { BATCH_NORM_BUFFERS = 3 };

/* kernels_convolution.c: convolutions of few channels, in fp32. A sample lies in planes, one a
 * channel, `plane` floats apart, their rows `pitch`. */
enum { NARROW_BLOCK = 4, NARROW_PIXELS = 16 };

struct narrow_image {
    int64_t channels, height, width, pitch, plane;
};

/* Stride 1. Around x there is the padding, and behind each of its planes NARROW_PIXELS floats. out
 * is a multiple of NARROW_BLOCK, y_pitch of NARROW_PIXELS. */
struct narrow_convolution {
    int64_t in, out, kernel, height, width; /* height, width: of y */
    int64_t x_pitch, x_plane, y_pitch, y_plane;
    bool relu;
};

struct convolution_kernels {
    /* Between a channels-last sample and planes, which point at the first pixel. */
    void (*split)(const struct narrow_image *image, const float *x, float *planes);
    void (*join)(const struct narrow_image *image, const float *planes, float *x);
    /* weight: [out / NARROW_BLOCK, in, kernel, kernel, NARROW_BLOCK]; bias: [out]. What lies in
     * y's rows behind its width is written, too. */
    void (*forward)(const struct narrow_convolution *convolution, const float *x,
                    const float *weight, const float *bias, float *y);
    /* Adds to sums, of which each is as many floats as a vector has (at most NARROW_PIXELS), in the
     * order of forward's weight and bias. dy is 0 behind its width. */
    void (*weight)(const struct narrow_convolution *convolution, const float *x, const float *dy,
                   float *sums);
    void (*bias)(const struct narrow_convolution *convolution, const float *dy, float *sums);
    void (*fold)(int64_t count, const float *sums, float *totals);
};

/* kernels_pool.c: rows begin..end of y (forward) or dx (backward), counted over all samples. */
struct max_pool_kernels {
    void (*forward)(const struct max_pool_forward *args, int64_t begin, int64_t end);
    /* sums: [width, channels] floats */
    void (*backward)(const struct max_pool_backward *args, int64_t begin, int64_t end, float *sums);
};

/* kernels_loss.c: rows begin..end, counted in *sums. buffer: LOSS_BUFFERS * loss_stride(classes)
 * floats. */
enum { LOSS_BUFFERS = 2, LOSS_ALIGNMENT = 16 };

static inline int64_t loss_stride(int64_t classes)
{
    return (classes + LOSS_ALIGNMENT - 1) / LOSS_ALIGNMENT * LOSS_ALIGNMENT;
}

struct loss_kernels {
    void (*cross_entropy)(const struct cross_entropy *args, int64_t begin, int64_t end,
                          float *buffer, struct loss_sums *sums);
};

/* kernels_update.c: elements begin..end with one segment's coefficients (update_rule.h). */
struct update_coefficients;

struct update_kernels {
    void (*update)(const struct update *args, const struct update_coefficients *coefficients,
                   int64_t begin, int64_t end);
};

/* kernels_image.c. One axis of a resize: output i is made of `count[i]` inputs from `first[i]` on,
 * with weights[i * taps ...] in 1 / 2^22. */
struct resize_axis {
    int64_t source, size, taps;
    int32_t *first, *count, *weights;
};

/* Lines of one channel, of which pixels and lines lie so many bytes apart. */
struct resize_lines {
    const uint8_t *from;
    int64_t count, row_stride, pixel_stride;
};

/* Values of the 256 levels of a pixel in the type of the images. */
union pixel_table {
    float fp32[256];
    uint16_t half[256];
};

struct image_kernels {
    /* from lines of axis->source pixels to [lines->count, axis->size] */
    void (*resize_horizontal)(const struct resize_axis *axis, const struct resize_lines *lines,
                              uint8_t *to);
    /* from [axis->source, width] to [axis->size, width] */
    void (*resize_vertical)(const struct resize_axis *axis, int64_t width, const uint8_t *from,
                            uint8_t *to);
    /* Where `count` pixels from (x, y) on come from: index into the resized plane, or -1: zero. */
    void (*follow)(const struct pixel_plan *plan, int32_t width, int32_t height, int32_t x,
                   int32_t y, int32_t count, int32_t *origin);
    /* images[i] = table[plane[origin[i]]], or table[plane[i]] where origin is NULL. */
    void (*look_up)(enum data_type type, const union pixel_table *table, const uint8_t *plane,
                    const int32_t *origin, int64_t count, void *images);
};

/* kernels_colour.c: planes of bytes, changed as Pillow changes them (data/colour.h). */
struct colour_kernels {
    /* The grey levels of planes [3, plane]. */
    void (*grey)(int64_t plane, const uint8_t *planes, uint8_t *levels);
    /* to = from + factor * (to - from) in fp32, cut to 0..255, its fraction dropped. */
    void (*blend)(int64_t count, const uint8_t *from, float factor, uint8_t *to);
    /* Adds to the hue of planes [3, plane], of 256 levels. */
    void (*hue)(int64_t plane, uint8_t *planes, uint8_t shift);
    /* A smoothed plane but for its edge, which is not written. */
    void (*smooth)(int64_t height, int64_t width, const uint8_t *from, uint8_t *to);
};

struct cpu_kernels {
    const char *name; /* "AVX2": for people */
    const struct random_kernels *random;
    const struct convert_kernels *convert;
    const struct linear_kernels *linear;
    const struct attention_kernels *attention;
    const struct element_kernels *elements;
    const struct norm_kernels *norm;
    const struct batch_norm_kernels *batch_norm;
    const struct convolution_kernels *convolution;
    const struct max_pool_kernels *max_pool;
    const struct loss_kernels *loss;
    const struct update_kernels *update;
    const struct image_kernels *image;
    const struct colour_kernels *colour;
};

/* The widest kernels that this processor has, or those that VITTRAIN_CPU names (for tests). */
const struct cpu_kernels *cpu_kernels_choose(struct error *error);

/* Which of them are in the program: config.h, HAVE_KERNELS_AVX2 and HAVE_KERNELS_AVX512. */
extern const struct cpu_kernels cpu_kernels_baseline, cpu_kernels_avx2, cpu_kernels_avx512;

#endif
