// SPDX-License-Identifier: BSD-3-Clause
/* Names of a run's checkpoints: step-NNNNNNNN.h5. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_NAME_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_NAME_H

#include <stdint.h>

enum { CHECKPOINT_NAME = 32 };

void checkpoint_name(char name[CHECKPOINT_NAME], int64_t step);

/* Return the step of a path that ends in such a name, else -1. */
int64_t checkpoint_name_step(const char *path);

#endif
