/* The scratch of image_transform, the same for all backends: what a run takes from its arena does
 * not depend on which one it opens. */
#include "device/image.h"

#include <math.h>

enum { SLOTS = 64 /* samples that are resized at a time */ };

static size_t align(size_t bytes)
{
    return (bytes + IMAGE_SCRATCH_ALIGN - 1) / IMAGE_SCRATCH_ALIGN * IMAGE_SCRATCH_ALIGN;
}

double image_support(int64_t source, int64_t size)
{
    double scale = (double)source / (double)size;
    return scale < 1 ? 1 : scale;
}

static int64_t axis_taps(int64_t source, int64_t size)
{
    return (int64_t)ceil(image_support(source, size)) * 2 + 1;
}

static size_t axis_bytes(int64_t size, int64_t taps)
{
    return align((size_t)(size * (2 + taps)) * sizeof(int32_t));
}

struct image_scratch image_scratch_of(const struct image_transform *args)
{
    struct image_scratch scratch = {.taps_across = axis_taps(args->source_width, args->width),
                                    .taps_down = axis_taps(args->source_height, args->height)};
    const size_t between = (size_t)(args->source_height * args->width);
    const size_t all_between = align((size_t)args->channels * between);

    scratch.down = axis_bytes(args->width, scratch.taps_across);
    scratch.slots = scratch.down + axis_bytes(args->height, scratch.taps_down);
    scratch.planes_offset = align(between);
    scratch.slot_bytes =
        scratch.planes_offset + align((size_t)(args->channels * args->height * args->width));
    if (scratch.slot_bytes < all_between)
        scratch.slot_bytes = all_between;
    scratch.slot_count = args->batch < SLOTS ? args->batch : SLOTS;
    scratch.bytes =
        IMAGE_SCRATCH_ALIGN + scratch.slots + (size_t)scratch.slot_count * scratch.slot_bytes;
    return scratch;
}

size_t image_transform_scratch(const struct image_transform *args)
{
    return image_resizes(args) && args->batch > 0 ? image_scratch_of(args).bytes : 0;
}

void image_check(const struct image_transform *args)
{
    ENSURE(args->channels <= IMAGE_CHANNELS && args->height <= IMAGE_LARGEST &&
               args->width <= IMAGE_LARGEST,
           "images of %lld x %lld x %lld are too large", (long long)args->channels,
           (long long)args->height, (long long)args->width);
}
