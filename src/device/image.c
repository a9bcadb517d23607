// SPDX-License-Identifier: BSD-3-Clause
/* Weights of a resize, computed on the host as in Pillow (src/libImaging/Resample.c), and the
 * scratch layout of image_transform. The layout is the same for all backends, so the memory plan
 * does not depend on the backend. */
#include "device/image.h"

#include <math.h>

#include "base/base.h"

enum { SLOTS = 64 /* samples resized at a time */ };

static size_t scratch_align(size_t bytes)
{
    return (size_t)round_up((int64_t)bytes, IMAGE_SCRATCH_ALIGN);
}

double image_support(double extent, int64_t size)
{
    double scale = extent / (double)size;
    return scale < 1 ? 1 : scale;
}

/* Return the half-width of a span's filter in inputs. */
static double span_support(const struct resize_span *span)
{
    return (span->filter == FILTER_BICUBIC ? 2 : 1) * image_support(span->extent, span->size);
}

static int64_t span_taps(const struct resize_span *span)
{
    return (int64_t)ceil(span_support(span)) * 2 + 1;
}

/* The same for an axis of image_transform. */
static int64_t axis_taps(int64_t source, int64_t size)
{
    return span_taps(&(struct resize_span){.extent = (double)source, .size = size});
}

static size_t axis_bytes(int64_t size, int64_t taps)
{
    return scratch_align((size_t)(size * (2 + taps)) * sizeof(int32_t));
}

size_t resize_axis_numbers(const struct resize_span *span, int64_t count)
{
    return (size_t)(count * (2 + span_taps(span)));
}

/* Keys' cubic filter with a = -0.5. */
static double cubic(double distance)
{
    const double a = -0.5;
    if (distance < 1)
        return ((a + 2) * distance - (a + 3)) * distance * distance + 1;
    return distance < 2 ? (((distance - 5) * distance + 8) * distance - 4) * a : 0;
}

/* Return the filter's value at the centre of input `i`. */
static double filter_value(const struct resize_window *window, int64_t i)
{
    const double distance = fabs(((double)i - window->center + 0.5) * (1 / window->scale));
    if (window->span->filter == FILTER_BICUBIC)
        return cubic(distance);
    return distance < 1 ? 1 - distance : 0;
}

struct resize_window resize_window_of(const struct resize_span *span, int64_t output)
{
    const double reach = span_support(span);
    struct resize_window window = {.span = span,
                                   .center = span->begin + ((double)output + 0.5) *
                                                               (span->extent / (double)span->size),
                                   .scale = image_support(span->extent, span->size)};
    window.first = (int64_t)(window.center - reach + 0.5);
    window.first = window.first < 0 ? 0 : window.first;
    window.end = (int64_t)(window.center + reach + 0.5);
    window.end = window.end > span->source ? span->source : window.end;
    for (int64_t i = window.first; i < window.end; i++)
        window.sum += filter_value(&window, i);
    return window;
}

double resize_weight(const struct resize_window *window, int64_t input)
{
    return filter_value(window, input) / window->sum;
}

static void axis_weigh(struct resize_axis *axis, const struct resize_span *span, int64_t at,
                       int64_t output)
{
    const struct resize_window window = resize_window_of(span, output);
    axis->first[at] = (int32_t)window.first;
    axis->count[at] = (int32_t)(window.end - window.first);
    for (int64_t i = window.first; i < window.end; i++) {
        const double weight = resize_weight(&window, i) * (1 << IMAGE_RESIZE_BITS);
        axis->weights[at * axis->taps + i - window.first] =
            (int32_t)(weight + (weight < 0 ? -0.5 : 0.5));
    }
}

void resize_axis_make(struct resize_axis *axis, const struct resize_span *span, int64_t begin,
                      int64_t count, int32_t *memory)
{
    axis->source = span->source;
    axis->size = count;
    axis->taps = span_taps(span);
    axis->first = memory;
    axis->count = axis->first + count;
    axis->weights = axis->count + count;
    for (int64_t i = 0; i < count; i++)
        axis_weigh(axis, span, i, begin + i);
}

struct image_scratch image_scratch_of(const struct image_transform *args)
{
    struct image_scratch scratch = {.taps_across = axis_taps(args->source_width, args->width),
                                    .taps_down = axis_taps(args->source_height, args->height)};
    const size_t size = image_value_size(args);
    const size_t between = (size_t)(args->source_height * args->width) * size;
    const size_t all_between = scratch_align((size_t)args->channels * between);

    scratch.down = axis_bytes(args->width, scratch.taps_across);
    scratch.slots = scratch.down + axis_bytes(args->height, scratch.taps_down);
    scratch.planes_offset = scratch_align(between);
    scratch.slot_bytes =
        scratch.planes_offset +
        scratch_align((size_t)(args->channels * args->height * args->width) * size);
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
