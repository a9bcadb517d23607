/* Tells the device where in the run it is. The device may run behind the host, so what is on its
 * way lies in a small ring of pinned memory: a slot is written again when its upload is done. */
#ifndef VITTRAIN_TRAIN_PLACE_H
#define VITTRAIN_TRAIN_PLACE_H

#include "device/device.h"

enum { PLACE_SLOTS = 8 };

struct place_ring {
    struct device *device;
    struct step_params *slots; /* [PLACE_SLOTS] pinned */
    struct event *uploaded[PLACE_SLOTS];
    int next;
};

/* False and an error when there is no pinned memory. */
MUST_CHECK bool place_open(struct place_ring *ring, struct device *device, struct error *error);
/* Nothing may be on its way any more. A ring that was never opened is nothing. */
void place_close(struct place_ring *ring);

/* Queues the upload of `value`; waits for the device only when it is PLACE_SLOTS uploads behind. */
void place_upload(struct place_ring *ring, struct stream *stream, struct step_params *place,
                  const struct step_params *value);

#endif
