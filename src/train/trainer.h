// SPDX-License-Identifier: BSD-3-Clause
/* A training run from a deck to a run folder: set-up, resume, epochs of steps and evaluations,
 * checkpoints, results. */
#ifndef VITTRAIN_TRAIN_TRAINER_H
#define VITTRAIN_TRAIN_TRAINER_H

#include <stdbool.h>

struct error;
struct trainer;

/* Collective. Run the training that trainer_open has set up (train/trainer_state.h), record its end
 * and close everything. Return false and an error, also after an attempt that was recorded as
 * failed. */
bool trainer_train(struct trainer *trainer, struct error *error);

#endif
