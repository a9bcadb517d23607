// SPDX-License-Identifier: BSD-3-Clause
/* `vittrain plan CHECKPOINT`. */
#ifndef VITTRAIN_PLAN_PLAN_CHECKPOINT_H
#define VITTRAIN_PLAN_PLAN_CHECKPOINT_H

#include <stdbool.h>

#include "core/error.h"

/* Print the contents of a checkpoint. Not collective. Reads only the frame of the file: checksums
 * of vectors are not verified. */
MUST_CHECK bool plan_checkpoint_print(const char *path, struct error *error);

#endif
