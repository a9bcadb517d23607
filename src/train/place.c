/* The ring of places on their way to the device. */
#include "train/place.h"

#include <string.h>

bool place_open(struct place_ring *ring, struct device *device, struct error *error)
{
    const struct device_backend *backend = device->backend;
    *ring = (struct place_ring){.device = device};
    ring->slots = backend->allocate_pinned(device, PLACE_SLOTS * sizeof *ring->slots, error);
    if (ring->slots == NULL)
        return false;
    for (int i = 0; i < PLACE_SLOTS; i++)
        ring->uploaded[i] = backend->event_open(device);
    return true;
}

void place_close(struct place_ring *ring)
{
    if (ring->slots == NULL)
        return;
    const struct device_backend *backend = ring->device->backend;
    for (int i = 0; i < PLACE_SLOTS; i++)
        backend->event_close(ring->uploaded[i]);
    backend->release_pinned(ring->device, ring->slots);
    memset(ring, 0, sizeof *ring);
}

/* An event that was never recorded is done. */
void place_upload(struct place_ring *ring, struct stream *stream, struct step_params *place,
                  const struct step_params *value)
{
    const struct device_backend *backend = ring->device->backend;
    int slot = ring->next;
    ring->next = (slot + 1) % PLACE_SLOTS;
    backend->event_synchronize(ring->uploaded[slot]);
    ring->slots[slot] = *value;
    backend->copy(stream, place, &ring->slots[slot], sizeof *place);
    backend->event_record(ring->uploaded[slot], stream);
}
