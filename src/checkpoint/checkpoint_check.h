/* The values of a checkpoint file. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_CHECK_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_CHECK_H

#include "checkpoint/checkpoint_file.h"

/* Check all values of contents that were read: numbers are in their valid ranges
 * (checkpoint_numbers), names and texts end, tensors and pieces are inside their units, and vectors
 * inside the file of contents->bytes. ERROR_CHECKPOINT names the file and the value. */
MUST_CHECK bool checkpoint_check(const char *path, const struct checkpoint_contents *contents,
                                 struct error *error);

struct options;
/* Read the deck of a checkpoint over the options. An invalid deck is ERROR_CHECKPOINT. */
MUST_CHECK bool checkpoint_deck_parse(const char *text, const char *path, struct options *options,
                                      struct error *error);

#endif
