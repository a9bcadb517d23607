// SPDX-License-Identifier: BSD-3-Clause
/* Shared by the image_transform of all backends: limits of image sizes and the layout of the resize
 * scratch. */
#ifndef VITTRAIN_DEVICE_IMAGE_H
#define VITTRAIN_DEVICE_IMAGE_H

#include "config/option_types.h"
#include "device/device.h"

enum {
    IMAGE_RESIZE_BITS = 22,   /* fraction bits of a resize weight */
    IMAGE_SCRATCH_ALIGN = 64, /* alignment in bytes of the scratch and of its parts */
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

struct resize_axis;

/* resize_axis_make computes the weights of outputs begin .. begin + count - 1 (device/kernels.h) in
 * the caller's memory; resize_axis_numbers returns its size in int32_t. */
size_t resize_axis_numbers(const struct resize_span *span, int64_t count);
void resize_axis_make(struct resize_axis *axis, const struct resize_span *span, int64_t begin,
                      int64_t count, int32_t *memory);

/* Return the half-width, in inputs, of the bilinear filter around an output pixel's centre. */
double image_support(double extent, int64_t size);

static inline bool image_resizes(const struct image_transform *args)
{
    return args->source_height != args->height || args->source_width != args->width;
}

#endif
