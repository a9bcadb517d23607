/* Does a run fit into the memory that there is? Asked before anything is allocated, by all ranks
 * together, so that a deck that cannot fit ends with an answer and not with the system's killer. */
#ifndef VITTRAIN_PLAN_FIT_H
#define VITTRAIN_PLAN_FIT_H

#include "train/session.h"

struct options;

/* Percent of the free memory that stays unused: libraries load kernels when these are first used,
 * after the arena was allocated, and other processes of a node must not run out of memory. */
enum { RESERVE_PERCENT = 5 };

/* Collective over the ranks of a node, before they allocate. Bytes that each of them may still take
 * besides the `base` that it has: the rest of plan.memory if that is set; else what its GPU has
 * free, or an equal part of what the node has available, less the reserve. 0: not known. */
size_t fit_room(struct device *device, struct comm *node, const struct options *options,
                size_t base);

/* Collective, after session_measure: fits what it measured? Else the error, the same on all ranks,
 * says what is needed, what there is, and which batch or way to train would fit. */
MUST_CHECK bool fit_check(const struct session *session, const struct image_source *source,
                          bool training, struct error *error);

#endif
