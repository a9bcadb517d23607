// SPDX-License-Identifier: BSD-3-Clause
/* Convert stored pixels to a batch of images. The resize is bit-identical to Pillow's
 * (src/libImaging/Resample.c), horizontal pass first as in all versions before 13, because
 * pretrained weights expect what torchvision's transforms produce from PIL images. The stages after
 * the resize move whole pixels: one lookup per pixel, with values from a table of the 256 levels.
 * fp32 has the same stages without tables. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "device/image.h"

enum { PIECE = 256 /* pixels processed at a time */ };

static void axis_make(struct resize_axis *axis, int64_t source, int64_t size, uint8_t *memory)
{
    const struct resize_span span = {.extent = (double)source, .source = source, .size = size};
    resize_axis_make(axis, &span, 0, size, (int32_t *)(void *)memory);
}

/* State prepared once per call for all samples. */
struct transform_state {
    const struct image_transform *args;
    const struct image_kernels *kernels;
    const struct convert_kernels *convert;
    int64_t first, end; /* the channels of this pass over the samples */
    union pixel_table tables[IMAGE_GROUP];
    struct resize_axis across, down;
    struct image_scratch scratch;
    uint8_t *memory; /* first aligned byte of the scratch */
};

/* Rows of a plane are contiguous. */
static void resize_across(const struct transform_state *state, int64_t rows, const void *from,
                          void *to)
{
    const struct resize_axis *axis = &state->across;
    const struct resize_lines lines = {from, rows, axis->source, 1};
    const struct resize_values values = {from, to, rows, axis->source, 1, axis->size, 1};
    if (state->args->from_fp32)
        state->kernels->resize_values(axis, &values);
    else
        state->kernels->resize_horizontal(axis, &lines, to);
}

static void resize_down(const struct transform_state *state, const void *from, void *to)
{
    const int64_t width = state->args->width;
    const struct resize_values values = {from, to, width, 1, width, 1, width};
    if (state->args->from_fp32)
        state->kernels->resize_values(&state->down, &values);
    else
        state->kernels->resize_vertical(&state->down, width, from, to);
}

/* Return the sample's planes in the output size: resized in the slot, or the source. */
static const char *sample_resize(const struct transform_state *state, const char *source,
                                 int64_t slot)
{
    const struct image_transform *args = state->args;
    if (!image_resizes(args))
        return source;
    const struct image_scratch *scratch = &state->scratch;
    const int64_t size = (int64_t)image_value_size(args);
    uint8_t *between = state->memory + scratch->slots + (size_t)slot * scratch->slot_bytes;
    char *resized = (char *)between + scratch->planes_offset;

    for (int64_t channel = state->first; channel < state->end; channel++) {
        const char *plane = source + channel * args->source_height * args->source_width * size;
        char *to = resized + channel * args->height * args->width * size;
        if (args->source_height == args->height) {
            resize_across(state, args->height, plane, to);
        } else if (args->source_width == args->width) {
            resize_down(state, plane, to);
        } else {
            resize_across(state, args->source_height, plane, between);
            resize_down(state, between, to);
        }
    }
    return resized;
}

/* Pixels of a channel: `count` of the output from `first` on. They are those at origin[i] of the
 * plane, or without origin those at the same positions. */
struct pixel_run {
    const struct pixel_plan *plan; /* or NULL */
    int64_t channel, first, count;
    const char *plane;
    const int32_t *origin;
};

static bool channel_is_dropped(const struct pixel_plan *plan, int64_t channel)
{
    if (plan->channel_dropout <= 0)
        return false;
    const struct random_block drawn = random_block_at(plan->seed, RANDOM_CHANNELS, 0, plan->epoch,
                                                      plan->sample, (uint32_t)(channel / 4));
    return random_uniform(drawn.word[channel % 4]) < plan->channel_dropout;
}

/* Add noise to the values of a run from the output's pixel `first` on. */
static void noise_add(const struct pixel_run *run, int64_t first, int64_t count, float *values)
{
    const struct pixel_plan *plan = run->plan;
    float normal[4];

    for (int64_t i = 0; i < count; i++) {
        const int64_t at = first + i;
        if (i == 0 || at % 4 == 0) {
            const struct random_block drawn =
                random_block_at(plan->seed, RANDOM_NOISE, (uint32_t)run->channel, plan->epoch,
                                plan->sample, (uint32_t)(at / 4));
            random_normal_pair(drawn.word[0], drawn.word[1], normal);
            random_normal_pair(drawn.word[2], drawn.word[3], normal + 2);
        }
        values[i] = fmaf(plan->noise, normal[at % 4], values[i]);
    }
}

/* Write the values of `count` pixels of a run from its pixel `begin` on. */
static void values_write(const struct transform_state *state, const struct pixel_run *run,
                         int64_t begin, int64_t count, float *values)
{
    const struct image_transform *args = state->args;
    const int64_t first = run->first + begin;
    const float *plane = (const float *)(const void *)run->plane;

    state->kernels->normalise(args->mean[run->channel], args->std[run->channel], args->missing,
                              run->origin == NULL ? plane + first : plane,
                              run->origin == NULL ? NULL : run->origin + begin, count, values);
    if (run->plan == NULL || args->is_target)
        return;
    if (channel_is_dropped(run->plan, run->channel))
        memset(values, 0, (size_t)count * sizeof *values);
    else if (run->plan->noise > 0)
        noise_add(run, first, count, values);
}

static void pixels_write(const struct transform_state *state, const struct pixel_run *run,
                         char *images)
{
    const struct image_transform *args = state->args;
    float piece[PIECE];

    if (!args->from_fp32) {
        const char *levels = run->origin == NULL ? run->plane + run->first : run->plane;
        state->kernels->look_up(args->type, &state->tables[run->channel - state->first],
                                (const uint8_t *)levels, run->origin, run->count, images);
    } else if (args->type == TYPE_FP32) {
        values_write(state, run, 0, run->count, (float *)(void *)images);
    } else {
        for (int64_t i = 0; i < run->count; i += PIECE) {
            const int64_t some = i + PIECE < run->count ? PIECE : run->count - i;
            values_write(state, run, i, some, piece);
            state->convert->from_fp32(args->type, element_to_write(args->type, images, i), piece,
                                      some);
        }
    }
}

/* Write `count` pixels of one row from (x, y) on, in the channels of this pass. */
static void piece_write(const struct transform_state *state, const struct pixel_plan *plan,
                        const char *planes, int64_t x, int64_t y, int64_t count, char *images)
{
    const struct image_transform *args = state->args;
    const int64_t plane = args->height * args->width, at = y * args->width + x;
    const int64_t plane_bytes = plane * (int64_t)image_value_size(args);
    int32_t origin[PIECE];

    state->kernels->follow(plan, (int32_t)args->width, (int32_t)args->height, (int32_t)x,
                           (int32_t)y, (int32_t)count, origin);
    for (int64_t channel = state->first; channel < state->end; channel++) {
        const struct pixel_run run = {.plan = plan,
                                      .channel = channel,
                                      .first = at,
                                      .count = count,
                                      .plane = planes + channel * plane_bytes,
                                      .origin = origin};
        pixels_write(state, &run, element_to_write(args->type, images, channel * plane + at));
    }
}

static void sample_transform(const struct transform_state *state, int64_t sample, int64_t slot)
{
    const struct image_transform *args = state->args;
    const int64_t plane = args->height * args->width, size = (int64_t)image_value_size(args);
    char *images = element_to_write(args->type, args->images, sample * args->channels * plane);
    const char *source = (const char *)args->source + sample * image_source_stride(args);
    const char *planes = sample_resize(state, source, slot);

    for (int64_t channel = state->first; args->plans == NULL && channel < state->end; channel++) {
        const struct pixel_run run = {
            .channel = channel, .count = plane, .plane = planes + channel * plane * size};
        pixels_write(state, &run, element_to_write(args->type, images, channel * plane));
    }
    for (int64_t y = 0; args->plans != NULL && y < args->height; y++)
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
    state->convert = cpu->kernels->convert;
    state->scratch = image_scratch_of(args);
    if (!image_resizes(args))
        return;
    state->memory = args->scratch + (-(uintptr_t)args->scratch % IMAGE_SCRATCH_ALIGN);
    axis_make(&state->across, args->source_width, args->width, state->memory);
    axis_make(&state->down, args->source_height, args->height, state->memory + state->scratch.down);
}

/* Prepare the next pass: all channels, or those whose levels fit into the tables. ToTensor, then
 * Normalize, in fp32 as in torchvision. */
static void channels_choose(struct transform_state *state, int64_t first)
{
    const struct image_transform *args = state->args;
    state->first = first;
    state->end = args->from_fp32 || first + IMAGE_GROUP > args->channels ? args->channels
                                                                         : first + IMAGE_GROUP;
    for (int64_t channel = first; !args->from_fp32 && channel < state->end; channel++) {
        float values[256];
        for (int level = 0; level < 256; level++)
            values[level] = ((float)level / 255.0f - args->mean[channel]) / args->std[channel];
        state->convert->from_fp32(args->type, &state->tables[channel - first], values, 256);
    }
}

void cpu_image_transform(struct stream *stream, const struct image_transform *args)
{
    struct transform_state state = {0};
    int64_t elements = args->batch * args->channels * args->height * args->width;

    if (elements == 0)
        return;
    state_make(&state, stream->cpu, args);
    for (int64_t first = 0; first < args->channels; first = state.end) {
        channels_choose(&state, first);
#pragma omp parallel for schedule(static) num_threads(cpu_threads_for(stream->cpu, elements))
        for (int64_t slot = 0; slot < state.scratch.slot_count; slot++)
            for (int64_t sample = slot; sample < args->batch; sample += state.scratch.slot_count)
                sample_transform(&state, sample, slot);
    }
}

/* ---- Mixup and CutMix: one plane of a pair per task, then the targets */

/* Swap `count` bytes. */
static void bytes_swap(char *a, char *b, size_t count)
{
    char between[256];
    for (size_t done = 0; done < count;) {
        size_t some = count - done < sizeof between ? count - done : sizeof between;
        memcpy(between, a + done, some);
        memcpy(a + done, b + done, some);
        memcpy(b + done, between, some);
        done += some;
    }
}

static void plane_mix(const struct images_mix *args, const struct element_kernels *kernels,
                      int64_t pair, int64_t channel)
{
    const struct mix_plan *plan = &args->plans[pair];
    const size_t size = type_size(args->type), plane = (size_t)(args->height * args->width) * size;
    const size_t channels = (size_t)args->channels;
    char *image = (char *)args->images + ((size_t)(2 * pair) * channels + (size_t)channel) * plane;
    char *partner = image + channels * plane;
    if (!plan->cut) {
        kernels->mix(args->type, image, partner, plan->share, args->height * args->width);
        return;
    }
    for (int64_t y = plan->y; y < plan->y + plan->height; y++) {
        size_t at = (size_t)(y * args->width + plan->x) * size;
        bytes_swap(image + at, partner + at, (size_t)plan->width * size);
    }
}

static void target_make(const struct images_mix *args, int64_t sample)
{
    const float smooth = args->smoothing / (float)args->classes, sure = 1 - args->smoothing;
    const int64_t partner = sample ^ 1;
    const float share = partner < args->batch ? args->plans[sample / 2].share : 1;
    float *target = args->targets + sample * args->classes;
    for (int64_t c = 0; c < args->classes; c++)
        target[c] = smooth;
    target[args->labels[sample]] += sure * share;
    if (partner < args->batch)
        target[args->labels[partner]] += sure * (1 - share);
}

void cpu_images_mix(struct stream *stream, const struct images_mix *args)
{
    const struct cpu_device *cpu = stream->cpu;
    const int64_t planes = args->batch / 2 * args->channels;
    cpu_labels_check(args->labels, args->batch, args->classes);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, 2 * planes * args->height * args->width))
    for (int64_t plane = 0; plane < planes; plane++)
        plane_mix(args, cpu->kernels->elements, plane / args->channels, plane % args->channels);
#pragma omp parallel for schedule(static)                                                          \
    num_threads(cpu_threads_for(cpu, args->batch * args->classes))
    for (int64_t sample = 0; sample < args->batch; sample++)
        target_make(args, sample);
}
