// SPDX-License-Identifier: BSD-3-Clause
/* Rings of pinned memory between host and device. */
#include "train/batch_upload.h"

#include <string.h>

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
    io->number[slot] = number;
    result->samples = samples;
    backend->copy(stream, &result->norm_squared, norm_squared, sizeof *norm_squared);
    backend->copy(stream, &result->counted, &io->sums->counted, sizeof result->counted);
    if (io->scaler != NULL)
        backend->copy(stream, &result->scaler, io->scaler, sizeof *io->scaler);
    backend->event_record(io->returned[slot], stream);
}

bool step_io_take_result(struct step_io *io, bool all, int64_t *number)
{
    if (io->count <= (all ? 0 : io->ahead))
        return false;
    int slot = io->first;
    io->device->backend->event_synchronize(io->returned[slot]);
    io->result.norm_squared = io->slots->results[slot].norm_squared;
    io->result.samples = io->slots->results[slot].samples;
    io->result.counted = io->slots->results[slot].counted;
    io->result.used = io->result.scaler;
    if (io->scaler != NULL)
        io->result.scaler = io->slots->results[slot].scaler;
    *number = io->number[slot];
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
