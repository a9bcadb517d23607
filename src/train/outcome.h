/* What steps came to, on its way to the host. A device with a pace of its own runs behind the host,
 * and a step's outcome is looked at when OUTCOMES_AHEAD more have been queued: the host waits for
 * nothing that is not done long ago. */
#ifndef VITTRAIN_TRAIN_OUTCOME_H
#define VITTRAIN_TRAIN_OUTCOME_H

#include "device/device.h"

enum { OUTCOMES_AHEAD = 2, OUTCOME_SLOTS = OUTCOMES_AHEAD + 1 };

struct step_outcome {
    double norm_squared;             /* of the gradient with the scale in it */
    struct loss_scaler used, scaler; /* that the step had; that the next one has */
};

struct outcome_ring {
    struct device *device;
    struct step_outcome *slots; /* [OUTCOME_SLOTS] pinned */
    struct event *there[OUTCOME_SLOTS];
    int64_t number[OUTCOME_SLOTS]; /* of the step */
    int first, count;              /* the oldest; how many are on their way */
    bool scaled;                   /* scalers are queued, too */
    int ahead;                     /* so many may stay there: 0 where the device runs at once */
};

/* False and an error when there is no pinned memory. wait: look at each outcome at once. */
MUST_CHECK bool outcome_open(struct outcome_ring *ring, struct device *device, bool wait,
                             struct error *error);
void outcome_close(struct outcome_ring *ring);

/* Queues the way of a step's outcome: scaler (device) may be NULL. */
void outcome_queue(struct outcome_ring *ring, struct stream *stream, int64_t number,
                   const double *norm_squared, const struct loss_scaler *scaler);

/* Takes the oldest outcome that is due; all: whatever is on its way. *newest, the outcome of the
 * step before, becomes this one's; its scaler stays where none was queued.
 * False: none is due. */
bool outcome_take(struct outcome_ring *ring, bool all, struct step_outcome *newest,
                  int64_t *number);

#endif
