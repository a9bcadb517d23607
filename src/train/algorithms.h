/* The algorithms that devices choose by measurement are the same on all ranks, so that a resumed
 * run can go on with them bit for bit (device.h: choices_adopt). */
#ifndef VITTRAIN_TRAIN_ALGORITHMS_H
#define VITTRAIN_TRAIN_ALGORITHMS_H

#include "comm/comm.h"

/* Collective, cheap where nothing new was chosen. The lowest rank with new choices gives them to
 * all others, until there are none. What was recorded keeps its algorithms: call it before. */
void algorithms_agree(struct device *device, struct comm *world);

#endif
