/* Batches on their way to the device. */
#include "train/staging.h"

#include <string.h>

#include "train/hardware.h"

void staging_open(struct staging *staging, struct device *device)
{
    const struct device_backend *backend = device->backend;
    bool apart = hardware_has_memory(device); /* memory and a pace of its own */
    *staging = (struct staging){.device = device, .count = apart ? STAGING_MOST : 1};
    staging->stream = backend->stream_open(device);
    for (int i = 0; i < staging->count; i++) {
        staging->place[i].uploaded = backend->event_open(device);
        staging->place[i].used = backend->event_open(device);
    }
}

void staging_close(struct staging *staging)
{
    if (staging->device == NULL)
        return;
    const struct device_backend *backend = staging->device->backend;
    for (int i = 0; i < staging->count; i++) {
        backend->event_close(staging->place[i].uploaded);
        backend->event_close(staging->place[i].used);
    }
    backend->stream_close(staging->stream);
    memset(staging, 0, sizeof *staging);
}

void staging_allocate(struct staging *staging, struct arena *arena, int64_t samples,
                      size_t sample_bytes)
{
    size_t count = (size_t)samples;
    for (int i = 0; i < staging->count; i++) {
        staging->place[i].pixels = arena_take(arena, MEMORY_BUFFERS, count * sample_bytes);
        staging->place[i].plans =
            arena_take(arena, MEMORY_BUFFERS, count * sizeof *staging->place[i].plans);
        staging->place[i].mixes =
            arena_take(arena, MEMORY_BUFFERS, (count / 2 + 1) * sizeof *staging->place[i].mixes);
        staging->place[i].labels =
            arena_take(arena, MEMORY_BUFFERS, count * sizeof *staging->place[i].labels);
    }
}

/* The batch that lies in pinned memory for this place goes back, when it is no longer read. */
static void place_release(struct staging *staging, int number)
{
    if (staging->place[number].loader == NULL)
        return;
    staging->device->backend->event_synchronize(staging->place[number].uploaded);
    loader_give_back(staging->place[number].loader, staging->place[number].batch);
    staging->place[number].loader = NULL;
}

void staging_upload(struct staging *staging, struct stream *stream, struct batch *batch,
                    size_t sample_bytes, bool augmented, bool mixed, struct loader *loader)
{
    const struct device_backend *backend = staging->device->backend;
    size_t count = (size_t)batch->count;
    backend->event_record(staging->place[staging->turn].used, stream);
    staging->turn = (staging->turn + 1) % staging->count;
    int turn = staging->turn;
    place_release(staging, turn);
    backend->stream_wait(staging->stream, staging->place[turn].used);
    backend->copy(staging->stream, staging->place[turn].pixels, batch->pixels,
                  count * sample_bytes);
    backend->copy(staging->stream, staging->place[turn].labels, batch->labels,
                  count * sizeof *batch->labels);
    if (augmented)
        backend->copy(staging->stream, staging->place[turn].plans, batch->plans,
                      count * sizeof *batch->plans);
    if (mixed)
        backend->copy(staging->stream, staging->place[turn].mixes, batch->mixes,
                      (count + 1) / 2 * sizeof *batch->mixes);
    backend->event_record(staging->place[turn].uploaded, staging->stream);
    backend->stream_wait(stream, staging->place[turn].uploaded);
    staging->place[turn].loader = loader;
    staging->place[turn].batch = batch;
    if (staging->count == 1)
        place_release(staging, turn);
}

/* Oldest first: a loader takes its batches back in order. */
void staging_finish(struct staging *staging)
{
    for (int i = 1; i <= staging->count; i++)
        place_release(staging, (staging->turn + i) % staging->count);
}
