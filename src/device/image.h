// SPDX-License-Identifier: BSD-3-Clause
/* Images: limits of sizes and layout of the resize scratch, shared by the image_transform of all
 * backends; and functions with which the host resizes and augments images before they are sent to
 * the device. */
#ifndef VITTRAIN_DEVICE_IMAGE_H
#define VITTRAIN_DEVICE_IMAGE_H

#include "device/device.h"
#include "options/option_types.h"

enum {
    IMAGE_RESIZE_BITS = 22,   /* fraction bits of a resize weight */
    IMAGE_SCRATCH_ALIGN = 64, /* alignment in bytes of the scratch and of its parts */
    IMAGE_GROUP = 32,         /* channels whose levels are in one table */
};

/* Byte offsets from the scratch's first aligned byte: the weights of both axes (for `size` outputs:
 * int32_t first[size], count[size], weights[size][taps]), then slot_count slots of slot_bytes. A
 * slot is the memory of one sample. On the CPU it holds one plane between the two passes and, at
 * planes_offset, the resized planes; on a GPU it holds all planes between the passes. */
struct image_scratch {
    int64_t taps_across, taps_down;
    size_t down, slots; /* the horizontal axis is at 0 */
    size_t slot_bytes, planes_offset;
    int64_t slot_count;
    size_t bytes; /* total, including alignment */
};

struct image_scratch image_scratch_of(const struct image_transform *args);

/* Return the bytes of scratch memory that image_transform needs: 0 without a resize. */
size_t image_transform_scratch(const struct image_transform *args);

/* Return the bytes of one channel of a pixel in the input. */
static inline size_t image_value_size(const struct image_transform *args)
{
    return args->from_fp32 ? sizeof(float) : sizeof(uint8_t);
}

/* Abort if images exceed the limits. */
void image_check(const struct image_transform *args);

/* Interpolation of a resize on the host; the filters of Pillow's BILINEAR and BICUBIC. */
enum resize_filter { FILTER_BILINEAR, FILTER_BICUBIC };

/* One axis of a resize on the host: `extent` inputs starting at `begin` become `size` outputs.
 * Inputs outside 0 .. source - 1 have no weight. */
struct resize_span {
    double begin, extent;
    int64_t source, size;
    enum resize_filter filter;
};

/* kernels_image.c. One axis of a resize: output i is the sum of `count[i]` inputs from `first[i]`
 * on, with weights[i * taps ...] in units of 1 / 2^22. */
struct resize_axis {
    int64_t source, size, taps;
    int32_t *first, *count, *weights;
};

/* Rows of pixels with interleaved channels; the stride is in bytes. */
struct resize_lines {
    const uint8_t *from;
    int64_t count, row_stride, channels;
};

/* Parallel lines of fp32 that are resized; distances are in elements: between lines, and between
 * the inputs or outputs of a line. */
struct resize_values {
    const float *from;
    float *to;
    int64_t count, from_line, from_step, to_line, to_step;
};

/* The 256 levels of a pixel as values of the images' type. */
union pixel_table {
    float fp32[256];
    uint16_t half[256];
};

struct image_kernels {
    /* [lines->count, axis->source, lines->channels] -> [lines->channels, lines->count, axis->size]
     */
    void (*resize_horizontal)(const struct resize_axis *axis, const struct resize_lines *lines,
                              uint8_t *to);
    /* [axis->source, width] -> [axis->size, width] */
    void (*resize_vertical)(const struct resize_axis *axis, int64_t width, const uint8_t *from,
                            uint8_t *to);
    /* Trace `count` output pixels from (x, y) on: index into the resized plane, or -1 for zero. */
    void (*follow)(const struct pixel_plan *plan, int32_t width, int32_t height, int32_t x,
                   int32_t y, int32_t count, int32_t *origin);
    /* images[i] = table[plane[origin[i]]], or table[plane[i]] if origin is NULL. */
    void (*look_up)(enum data_type type, const union pixel_table *table, const uint8_t *plane,
                    const int32_t *origin, int64_t count, void *images);
    /* The same for fp32 (operations.h). A missing output of resize_values is NaN. */
    void (*resize_values)(const struct resize_axis *axis, const struct resize_values *lines);
    void (*normalise)(float mean, float std, float missing, const float *plane,
                      const int32_t *origin, int64_t count, float *images);

    /* Operations on planes of bytes, as in Pillow (image/image_change.c). */
    /* Grey levels of planes [3, plane]. */
    void (*grey)(int64_t plane, const uint8_t *planes, uint8_t *levels);
    /* to = from + factor * (to - from) in fp32, clamped to 0..255 and truncated. */
    void (*blend)(int64_t count, const uint8_t *from, float factor, uint8_t *to);
    /* Shift the hue of planes [3, plane] by `shift` of 256 levels. */
    void (*hue)(int64_t plane, uint8_t *planes, uint8_t shift);
    /* Smooth a plane; the pixels at its edge are not written. */
    void (*smooth)(int64_t height, int64_t width, const uint8_t *from, uint8_t *to);
};

/* A resize window: the inputs of one output. */
struct resize_window {
    const struct resize_span *span;
    int64_t first, end; /* inputs with a weight */
    double center, scale, sum;
};

/* Return the window of output `output`, and the weight of one of its inputs; the sum of all weights
 * is 1. If the image shrinks, the filter covers more inputs (antialiasing). */
struct resize_window resize_window_of(const struct resize_span *span, int64_t output);
double resize_weight(const struct resize_window *window, int64_t input);

/* resize_axis_make computes the weights of outputs begin .. begin + count - 1 in the
 * caller's memory; resize_axis_numbers returns its size in int32_t. */
size_t resize_axis_numbers(const struct resize_span *span, int64_t count);
void resize_axis_make(struct resize_axis *axis, const struct resize_span *span, int64_t begin,
                      int64_t count, int32_t *memory);

/* Return the half-width, in inputs, of the bilinear filter around an output pixel's centre. */
double image_support(double extent, int64_t size);

/* Return the bytes from one sample of the source to the next. */
static inline int64_t image_source_stride(const struct image_transform *args)
{
    return args->source_stride != 0 ? args->source_stride
                                    : args->channels * args->source_height * args->source_width *
                                          (int64_t)image_value_size(args);
}

static inline bool image_resizes(const struct image_transform *args)
{
    return args->source_height != args->height || args->source_width != args->width;
}

#endif
