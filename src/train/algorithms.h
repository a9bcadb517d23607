/* The algorithms that devices choose by measurement are the same on all ranks, so that a resumed
 * run can go on with them bit for bit (device.h: choices_adopt). */
#ifndef VITTRAIN_TRAIN_ALGORITHMS_H
#define VITTRAIN_TRAIN_ALGORITHMS_H

#include "comm/comm.h"

/* Collective. Waits for the stream; costs one reduction of 8 bytes if no rank has new choices. The
 * lowest rank with new choices sends them to all others, until there are none. A recorded step
 * keeps its algorithms, so call this before recording. */
void algorithms_agree(struct device *device, struct stream *stream, struct comm *world);

#endif
