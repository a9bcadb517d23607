// SPDX-License-Identifier: BSD-3-Clause
/* Read a checkpoint on any mesh. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_READ_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_READ_H

#include "checkpoint/checkpoint_file.h"
#include "comm/comm.h"

/* Collective. Read the model's state into flat and the training state into *state. Format, model,
 * names, shapes and all checksums are verified before flat changes. The device adopts the
 * algorithms in the file (device.h: choices_adopt). weights_only (evaluation, model.init): moments,
 * training state and algorithms are skipped, and `state` may be NULL. If flat keeps an EMA and the
 * file has none, it is set to the parameters. */
MUST_CHECK bool checkpoint_read(const char *path, const struct checkpoint_target *target,
                                struct flat_model *flat, struct training_state *state,
                                bool weights_only, struct error *error);

/* Compare the tensors of a file with those of the model. Return false and describe the first
 * difference. */
bool checkpoint_fits(const struct checkpoint_contents *contents, const struct flat_model *flat,
                     char *text, size_t size);

/* Collective. Read the training state only; checksums of vectors are not verified. */
MUST_CHECK bool checkpoint_read_state(const char *path, struct comm *world,
                                      struct training_state *state, struct error *error);

/* Collective. Read the deck that is saved in a checkpoint; the caller frees it. */
MUST_CHECK bool checkpoint_read_deck(const char *path, struct comm *world, char **deck_text,
                                     struct error *error);

struct options;
/* Set the options from the deck of a checkpoint. An invalid deck is ERROR_CHECKPOINT. */
MUST_CHECK bool checkpoint_deck_parse(const char *text, const char *path, struct options *options,
                                      struct error *error);

/* Collective. Broadcast the contents that rank `root` read, without texts, units and tensors. */
void checkpoint_contents_share(struct checkpoint_contents *contents, struct comm *world, int root);

/* Collective. Verify the checksums of all pieces: the ranks share the work, or with WRITERS_NODE0
 * rank 0 does it alone. `wanted`: a bit mask of state kinds. */
MUST_CHECK bool checkpoint_contents_verify(const char *path, enum writers_choice writers,
                                           struct comm *world,
                                           const struct checkpoint_contents *contents,
                                           unsigned wanted, struct error *error);

#endif
