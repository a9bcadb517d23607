// SPDX-License-Identifier: BSD-3-Clause
/* Uploads batches and transforms them to the model's input; values that host and device exchange in
 * each step. */
#include "train/batch_upload.h"

#include <math.h>
#include <string.h>

void batch_upload_open(struct batch_upload *input, struct device *device)
{
    const struct device_backend *backend = device->backend;
    bool asynchronous = backend->memory_free != NULL;
    *input = (struct batch_upload){.device = device, .count = asynchronous ? INPUT_SLOTS : 1};
    input->stream = backend->stream_open(device);
    for (int i = 0; i < input->count; i++) {
        input->slot[i].uploaded = backend->event_open(device);
        input->slot[i].used = backend->event_open(device);
    }
}

void batch_upload_close(struct batch_upload *input)
{
    if (input->device == NULL)
        return;
    const struct device_backend *backend = input->device->backend;
    for (int i = 0; i < input->count; i++) {
        backend->event_close(input->slot[i].uploaded);
        backend->event_close(input->slot[i].used);
    }
    backend->stream_close(input->stream);
    memset(input, 0, sizeof *input);
}

struct image_source batch_upload_source(const struct batch_upload *input,
                                        const struct image_source *source)
{
    struct image_source known = *source;
    if (known.height == 0) {
        known.height = input->image.height;
        known.width = input->image.width;
    }
    return known;
}

static struct image_transform transform_of(const struct batch_upload *input, int64_t count,
                                           const struct image_source *source)
{
    const struct image_source known = batch_upload_source(input, source);
    return (struct image_transform){.type = input->type,
                                    .from_fp32 = known.type == DATASET_FLOAT32,
                                    .batch = count,
                                    .channels = known.channels,
                                    .source_height = known.height,
                                    .source_width = known.width,
                                    .source_stride = (int64_t)image_source_bytes(&known),
                                    .height = input->image.height,
                                    .width = input->image.width};
}

/* Offset of the targets in a record. */
static size_t pixel_bytes(const struct image_source *source)
{
    const struct dataset dataset = {
        .type = source->type, .channels = source->channels, .target = source->target};
    return dataset_plane_bytes(&dataset, source->height * source->width);
}

size_t image_source_bytes(const struct image_source *source)
{
    return pixel_bytes(source) + target_bytes(&source->target);
}

static size_t source_bytes(const struct batch_upload *input, const struct image_source *source)
{
    const struct image_source known = batch_upload_source(input, source);
    return image_source_bytes(&known);
}

void batch_upload_allocate(struct batch_upload *input, struct arena *arena, int64_t batch,
                           const struct image_source *source, bool mixes)
{
    size_t count = (size_t)batch;
    const struct image_transform transform = transform_of(input, batch, source);
    for (int i = 0; i < input->count; i++) {
        struct input_slot *slot = &input->slot[i];
        slot->pixels = arena_take(arena, MEMORY_BUFFERS, count * source_bytes(input, source));
        slot->plans = arena_take(arena, MEMORY_BUFFERS, count * sizeof *slot->plans);
        slot->mixes = arena_take(arena, MEMORY_BUFFERS, (count / 2 + 1) * sizeof *slot->mixes);
        slot->labels = arena_take(arena, MEMORY_BUFFERS, count * sizeof *slot->labels);
    }
    input->labels = arena_take(arena, MEMORY_BUFFERS, count * sizeof *input->labels);
    input->targets = !mixes ? NULL
                            : arena_take(arena, MEMORY_BUFFERS,
                                         count * (size_t)input->classes * sizeof *input->targets);
    input->target_bytes = target_bytes(&source->target);
    input->target_values = source->target.count == 0
                               ? NULL
                               : arena_take(arena, MEMORY_BUFFERS, count * input->target_bytes);
    input->image_bytes = (size_t)(input->channels * input->image.height * input->image.width) *
                         type_size(input->type);
    input->images = arena_take(arena, MEMORY_BUFFERS, count * input->image_bytes);
    input->scratch = arena_take(arena, MEMORY_BUFFERS, image_transform_scratch(&transform));
}

/* Returns the slot's batch to its loader when its upload has ended. */
static void slot_release(struct batch_upload *input, struct input_slot *slot)
{
    if (slot->loader == NULL)
        return;
    input->device->backend->event_synchronize(slot->uploaded);
    loader_give_back(slot->loader, slot->batch);
    slot->loader = NULL;
}

/* plans: device memory, [count], or NULL */
static void images_transform(struct batch_upload *input, struct stream *stream, int64_t count,
                             const struct image_source *source, const struct pixel_plan *plans)
{
    struct image_transform transform = transform_of(input, count, source);
    transform.source = input->slot[input->newest].pixels;
    transform.plans = plans;
    transform.mean = input->mean;
    transform.std = input->std;
    transform.images = input->images;
    transform.scratch = input->scratch;
    input->device->backend->image_transform(stream, &transform);
}

/* Normalises the targets. Planes move with the pixels. */
static void targets_transform(struct batch_upload *input, struct stream *stream, int64_t count,
                              const struct image_source *source, const struct pixel_plan *plans)
{
    const struct image_source known = batch_upload_source(input, source);
    const struct target_shape *target = &known.target;
    const struct image_transform transform = {
        .type = TYPE_FP32,
        .from_fp32 = true,
        .batch = count,
        .channels = target->count,
        .source_height = target->height,
        .source_width = target->width,
        .height = target->height,
        .width = target->width,
        .source = (const char *)input->slot[input->newest].pixels + pixel_bytes(&known),
        .source_stride = (int64_t)image_source_bytes(&known),
        .plans = target->height * target->width > 1 ? plans : NULL,
        .mean = input->target_mean,
        .std = input->target_std,
        .missing = NAN,
        .is_target = true,
        .images = input->target_values};
    input->device->backend->image_transform(stream, &transform);
}

void batch_upload_mirror(struct batch_upload *input, struct stream *stream, struct batch *batch,
                         const struct image_source *source)
{
    struct pixel_plan *plans = input->slot[input->newest].plans;
    for (int64_t i = 0; i < batch->count; i++)
        batch->plans[i] = (struct pixel_plan){.flip = true};
    input->device->backend->copy(stream, plans, batch->plans, (size_t)batch->count * sizeof *plans);
    images_transform(input, stream, batch->count, source, plans);
}

void batch_upload_transform(struct batch_upload *input, struct stream *stream, int64_t count,
                            const struct image_source *source, bool augmented)
{
    const struct device_backend *backend = input->device->backend;
    const struct input_slot *slot = &input->slot[input->newest];
    /* A recorded step reads the labels at one address, whichever slot the batch is in. */
    backend->copy(stream, input->labels, slot->labels, (size_t)count * sizeof *slot->labels);
    images_transform(input, stream, count, source, augmented ? slot->plans : NULL);
    if (input->target_values != NULL)
        targets_transform(input, stream, count, source, augmented ? slot->plans : NULL);
    if (!augmented || input->targets == NULL)
        return;
    const struct images_mix mix = {.type = input->type,
                                   .batch = count,
                                   .channels = input->channels,
                                   .height = input->image.height,
                                   .width = input->image.width,
                                   .classes = input->classes,
                                   .smoothing = input->smoothing,
                                   .plans = slot->mixes,
                                   .labels = input->labels,
                                   .images = input->images,
                                   .targets = input->targets};
    backend->images_mix(stream, &mix);
}

void batch_upload_start(struct batch_upload *input, struct stream *stream, struct batch *batch,
                        const struct image_source *source, bool augmented, struct loader *loader)
{
    const struct device_backend *backend = input->device->backend;
    int64_t samples = batch->count; /* the loader may reuse the batch before the transform */
    size_t count = (size_t)samples;
    backend->event_record(input->slot[input->newest].used, stream);
    input->newest = (input->newest + 1) % input->count;
    struct input_slot *slot = &input->slot[input->newest];
    slot_release(input, slot);
    backend->stream_wait(input->stream, slot->used);
    backend->copy(input->stream, slot->pixels, batch->pixels, count * source_bytes(input, source));
    backend->copy(input->stream, slot->labels, batch->labels, count * sizeof *batch->labels);
    if (augmented)
        backend->copy(input->stream, slot->plans, batch->plans, count * sizeof *batch->plans);
    if (augmented && input->targets != NULL)
        backend->copy(input->stream, slot->mixes, batch->mixes,
                      (count + 1) / 2 * sizeof *batch->mixes);
    backend->event_record(slot->uploaded, input->stream);
    backend->stream_wait(stream, slot->uploaded);
    slot->loader = loader;
    slot->batch = batch;
    if (input->count == 1)
        slot_release(input, slot);
    batch_upload_transform(input, stream, samples, source, augmented);
}

/* The oldest batch first: a loader takes its batches back in order. */
void batch_upload_finish(struct batch_upload *input)
{
    for (int i = 1; i <= input->count; i++)
        slot_release(input, &input->slot[(input->newest + i) % input->count]);
}

/* ---- values of a step: rings of pinned memory */

bool step_io_open(struct step_io *io, struct device *device, bool wait, struct error *error)
{
    const struct device_backend *backend = device->backend;
    bool asynchronous = backend->memory_free != NULL;
    io->device = device;
    io->ahead = asynchronous && !wait ? RESULTS_AHEAD : 0;
    io->slots = backend->allocate_pinned(device, sizeof *io->slots, error);
    if (io->slots == NULL)
        return false;
    for (int i = 0; i < PARAMS_SLOTS; i++)
        io->uploaded[i] = backend->event_open(device);
    for (int i = 0; i < RESULT_SLOTS; i++)
        io->returned[i] = backend->event_open(device);
    return true;
}

void step_io_close(struct step_io *io)
{
    if (io->slots == NULL)
        return;
    const struct device_backend *backend = io->device->backend;
    for (int i = 0; i < PARAMS_SLOTS; i++)
        backend->event_close(io->uploaded[i]);
    for (int i = 0; i < RESULT_SLOTS; i++)
        backend->event_close(io->returned[i]);
    backend->release_pinned(io->device, io->slots);
    memset(io, 0, sizeof *io);
}

void step_io_allocate(struct step_io *io, struct arena *arena, bool scaled)
{
    io->sums = arena_take(arena, MEMORY_BUFFERS, sizeof *io->sums);
    io->params = arena_take(arena, MEMORY_BUFFERS, sizeof *io->params);
    io->scaler = scaled ? arena_take(arena, MEMORY_BUFFERS, sizeof *io->scaler) : NULL;
}

/* Synchronizing with an event that was never recorded returns at once. */
void step_io_upload_params(struct step_io *io, struct stream *stream,
                           const struct step_params *params)
{
    const struct device_backend *backend = io->device->backend;
    int slot = io->next_params;
    io->next_params = (slot + 1) % PARAMS_SLOTS;
    backend->event_synchronize(io->uploaded[slot]);
    io->slots->params[slot] = *params;
    backend->copy(stream, io->params, &io->slots->params[slot], sizeof *params);
    backend->event_record(io->uploaded[slot], stream);
}

void step_io_queue_result(struct step_io *io, struct stream *stream, int64_t number,
                          const double *norm_squared, double samples)
{
    const struct device_backend *backend = io->device->backend;
    ENSURE(io->count < RESULT_SLOTS, "no slot for the result of step %lld", (long long)number);
    int slot = (io->first + io->count++) % RESULT_SLOTS;
    struct step_result *result = &io->slots->results[slot];
    result->number = number;
    result->samples = samples;
    backend->copy(stream, &result->norm_squared, norm_squared, sizeof *norm_squared);
    backend->copy(stream, &result->counted, &io->sums->counted, sizeof result->counted);
    if (io->scaler != NULL)
        backend->copy(stream, &result->scaler, io->scaler, sizeof *io->scaler);
    backend->event_record(io->returned[slot], stream);
}

bool step_io_take_result(struct step_io *io, bool all)
{
    if (io->count <= (all ? 0 : io->ahead))
        return false;
    int slot = io->first;
    io->device->backend->event_synchronize(io->returned[slot]);
    const struct loss_scaler used = io->result.scaler;
    io->result = io->slots->results[slot];
    io->result.used = used;
    if (io->scaler == NULL)
        io->result.scaler = used;
    io->first = (slot + 1) % RESULT_SLOTS;
    io->count--;
    return true;
}

struct loss_sums step_io_take_sums(struct step_io *io, struct stream *stream)
{
    const struct device_backend *backend = io->device->backend;
    backend->copy(stream, &io->slots->sums, io->sums, sizeof *io->sums);
    backend->zero(stream, io->sums, sizeof *io->sums);
    backend->stream_synchronize(stream);
    return io->slots->sums;
}
