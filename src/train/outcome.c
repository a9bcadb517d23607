/* The ring of outcomes. */
#include "train/outcome.h"

#include <string.h>

#include "train/hardware.h"

bool outcome_open(struct outcome_ring *ring, struct device *device, bool wait, struct error *error)
{
    const struct device_backend *backend = device->backend;
    bool apart = hardware_has_memory(device);
    *ring = (struct outcome_ring){.device = device, .ahead = apart && !wait ? OUTCOMES_AHEAD : 0};
    ring->slots = backend->allocate_pinned(device, OUTCOME_SLOTS * sizeof *ring->slots, error);
    if (ring->slots == NULL)
        return false;
    for (int i = 0; i < OUTCOME_SLOTS; i++)
        ring->there[i] = backend->event_open(device);
    return true;
}

void outcome_close(struct outcome_ring *ring)
{
    if (ring->slots == NULL)
        return;
    const struct device_backend *backend = ring->device->backend;
    for (int i = 0; i < OUTCOME_SLOTS; i++)
        backend->event_close(ring->there[i]);
    backend->release_pinned(ring->device, ring->slots);
    memset(ring, 0, sizeof *ring);
}

void outcome_queue(struct outcome_ring *ring, struct stream *stream, int64_t number,
                   const double *norm_squared, const struct loss_scaler *scaler)
{
    const struct device_backend *backend = ring->device->backend;
    ENSURE(ring->count < OUTCOME_SLOTS, "the outcome of step %lld has no slot", (long long)number);
    int slot = (ring->first + ring->count++) % OUTCOME_SLOTS;
    struct step_outcome *outcome = &ring->slots[slot];
    ring->number[slot] = number;
    backend->copy(stream, &outcome->norm_squared, norm_squared, sizeof *norm_squared);
    ring->scaled = scaler != NULL;
    if (ring->scaled)
        backend->copy(stream, &outcome->scaler, scaler, sizeof *scaler);
    backend->event_record(ring->there[slot], stream);
}

bool outcome_take(struct outcome_ring *ring, bool all, struct step_outcome *newest, int64_t *number)
{
    if (ring->count <= (all ? 0 : ring->ahead))
        return false;
    int slot = ring->first;
    ring->device->backend->event_synchronize(ring->there[slot]);
    newest->norm_squared = ring->slots[slot].norm_squared;
    newest->used = newest->scaler;
    if (ring->scaled)
        newest->scaler = ring->slots[slot].scaler;
    *number = ring->number[slot];
    ring->first = (slot + 1) % OUTCOME_SLOTS;
    ring->count--;
    return true;
}
