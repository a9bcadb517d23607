// SPDX-License-Identifier: BSD-3-Clause
/* Checks of the values that were read from a checkpoint file. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_CHECK_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_CHECK_H

#include "checkpoint/checkpoint_file.h"

/* Check that all numbers are in their valid ranges (checkpoint_numbers), names and texts are
 * null-terminated, tensors and pieces are inside their units, and vectors are inside the file
 * (contents->bytes). Otherwise fail with ERROR_CHECKPOINT, the file and the value. */
MUST_CHECK bool checkpoint_check(const char *path, const struct checkpoint_contents *contents,
                                 struct error *error);

struct options;
/* Set the options from the deck of a checkpoint. An invalid deck is ERROR_CHECKPOINT. */
MUST_CHECK bool checkpoint_deck_parse(const char *text, const char *path, struct options *options,
                                      struct error *error);

#endif
