// SPDX-License-Identifier: BSD-3-Clause
/* Convert stored pixels to a batch of images. The resize is bit-identical to Pillow's
 * (src/libImaging/Resample.c), horizontal pass first as in all versions before 13, because
 * pretrained weights expect what torchvision's transforms produce from PIL images. The stages after
 * the resize move whole pixels: one lookup per pixel, with values from a table of the 256 levels.
 */
#include "device/cpu.h"
#include "device/image.h"

#include <string.h>

enum { PIECE = 256 /* pixels processed at a time */ };

static void axis_make(struct resize_axis *axis, int64_t source, int64_t size, uint8_t *memory)
{
    const struct resize_span span = {.extent = (double)source, .source = source, .size = size};
    resize_axis_make(axis, &span, 0, size, (int32_t *)(void *)memory);
}

/* Rows of a plane are contiguous. */
static void resize_across(const struct image_kernels *kernels, const struct resize_axis *axis,
                          int64_t rows, const uint8_t *from, uint8_t *to)
{
    const struct resize_lines lines = {from, rows, axis->source, 1};
    kernels->resize_horizontal(axis, &lines, to);
}

/* State prepared once per call for all samples. */
struct transform_state {
    const struct image_transform *args;
    const struct image_kernels *kernels;
    union pixel_table tables[IMAGE_CHANNELS];
    struct resize_axis across, down;
    struct image_scratch scratch;
    uint8_t *memory; /* first aligned byte of the scratch */
};

/* Return the sample's planes in the output size: resized in the slot, or the source. */
static const uint8_t *sample_resize(const struct transform_state *state, const uint8_t *source,
                                    int64_t slot)
{
    const struct image_transform *args = state->args;
    if (!image_resizes(args))
        return source;
    const struct image_scratch *scratch = &state->scratch;
    uint8_t *between = state->memory + scratch->slots + (size_t)slot * scratch->slot_bytes;
    uint8_t *resized = between + scratch->planes_offset;

    for (int64_t channel = 0; channel < args->channels; channel++) {
        const uint8_t *plane = source + channel * args->source_height * args->source_width;
        uint8_t *to = resized + channel * args->height * args->width;
        if (args->source_height == args->height) {
            resize_across(state->kernels, &state->across, args->height, plane, to);
        } else if (args->source_width == args->width) {
            state->kernels->resize_vertical(&state->down, args->width, plane, to);
        } else {
            resize_across(state->kernels, &state->across, args->source_height, plane, between);
            state->kernels->resize_vertical(&state->down, args->width, between, to);
        }
    }
    return resized;
}

/* Write `count` pixels of one row from (x, y) on, in all channels. */
static void piece_write(const struct transform_state *state, const struct pixel_plan *plan,
                        const uint8_t *planes, int64_t x, int64_t y, int64_t count, char *images)
{
    const struct image_transform *args = state->args;
    int64_t plane = args->height * args->width, at = y * args->width + x;
    int32_t origin[PIECE];

    state->kernels->follow(plan, (int32_t)args->width, (int32_t)args->height, (int32_t)x,
                           (int32_t)y, (int32_t)count, origin);
    for (int64_t channel = 0; channel < args->channels; channel++)
        state->kernels->look_up(args->type, &state->tables[channel], planes + channel * plane,
                                origin, count,
                                images + (size_t)(channel * plane + at) * type_size(args->type));
}

static void sample_transform(const struct transform_state *state, int64_t sample, int64_t slot)
{
    const struct image_transform *args = state->args;
    int64_t plane = args->height * args->width;
    char *images =
        (char *)args->images + (size_t)(sample * args->channels * plane) * type_size(args->type);
    const uint8_t *source =
        args->source + sample * args->channels * args->source_height * args->source_width;
    const uint8_t *planes = sample_resize(state, source, slot);

    if (args->plans == NULL) {
        for (int64_t channel = 0; channel < args->channels; channel++)
            state->kernels->look_up(args->type, &state->tables[channel], planes + channel * plane,
                                    NULL, plane,
                                    images + (size_t)(channel * plane) * type_size(args->type));
        return;
    }
    for (int64_t y = 0; y < args->height; y++)
        for (int64_t x = 0; x < args->width; x += PIECE)
            piece_write(state, &args->plans[sample], planes, x, y,
                        x + PIECE < args->width ? PIECE : args->width - x, images);
}

static void state_make(struct transform_state *state, const struct cpu_device *cpu,
                       const struct image_transform *args)
{
    image_check(args);
    state->args = args;
    state->kernels = cpu->kernels->image;
    state->scratch = image_scratch_of(args);
    /* ToTensor, then Normalize, in fp32 as in torchvision. */
    for (int64_t channel = 0; channel < args->channels; channel++) {
        float values[256];
        for (int level = 0; level < 256; level++)
            values[level] = ((float)level / 255.0f - args->mean[channel]) / args->std[channel];
        cpu->kernels->convert->from_fp32(args->type, &state->tables[channel], values, 256);
    }
    if (!image_resizes(args))
        return;
    state->memory = args->scratch + (-(uintptr_t)args->scratch % IMAGE_SCRATCH_ALIGN);
    axis_make(&state->across, args->source_width, args->width, state->memory);
    axis_make(&state->down, args->source_height, args->height, state->memory + state->scratch.down);
}

void cpu_image_transform(struct stream *stream, const struct image_transform *args)
{
    struct transform_state state = {0};
    int64_t elements = args->batch * args->channels * args->height * args->width;

    if (elements == 0)
        return;
    state_make(&state, stream->cpu, args);
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(stream->cpu, elements))
    for (int64_t slot = 0; slot < state.scratch.slot_count; slot++)
        for (int64_t sample = slot; sample < args->batch; sample += state.scratch.slot_count)
            sample_transform(&state, sample, slot);
}
