/* What all backends' image_transform agree on: how large images may be, and where the scratch of a
 * resize has its parts. */
#ifndef VITTRAIN_DEVICE_IMAGE_H
#define VITTRAIN_DEVICE_IMAGE_H

#include "device/device.h"

enum {
    IMAGE_CHANNELS = 32,    /* at most */
    IMAGE_LARGEST = 8192,   /* width and height: the rotation's fixed-point numbers hold no more */
    IMAGE_RESIZE_BITS = 22, /* of the fraction of a resize's weights */
    IMAGE_SCRATCH_ALIGN = 64, /* bytes: where the scratch and each part of it begin */
};

/* Bytes from the first aligned one of the scratch to its parts: the weights of both axes (of an
 * axis of `size` outputs int32_t first[size], count[size], weights[size][taps]), then slot_count
 * slots of slot_bytes. A slot is one sample's room: of the CPU for one plane between the two passes
 * (at planes_offset: the resized planes), of a GPU for all planes between them. */
struct image_scratch {
    int64_t taps_across, taps_down;
    size_t down, slots; /* the axis across is at 0 */
    size_t slot_bytes, planes_offset;
    int64_t slot_count;
    size_t bytes; /* of all; aligned or not */
};

struct image_scratch image_scratch_of(const struct image_transform *args);

/* Ends the program when images are larger than the limits. */
void image_check(const struct image_transform *args);

/* One axis of a resize on the host: `extent` inputs from `begin` on become `size` outputs; no input
 * outside of 0 .. source - 1 has a weight. */
struct resize_span {
    double begin, extent;
    int64_t source, size;
};

struct resize_axis;

/* The weights of outputs begin .. begin + count - 1 (device/kernels.h) in the caller's memory of so
 * many int32_t. */
size_t resize_axis_numbers(const struct resize_span *span, int64_t count);
void resize_axis_make(struct resize_axis *axis, const struct resize_span *span, int64_t begin,
                      int64_t count, int32_t *memory);

/* How far the weights reach around an output pixel's centre, in inputs. */
double image_support(int64_t source, int64_t size);

static inline bool image_resizes(const struct image_transform *args)
{
    return args->source_height != args->height || args->source_width != args->width;
}

#endif
