// SPDX-License-Identifier: BSD-3-Clause
/* A training run from a deck to a run folder: set-up, resume, epochs of steps and evaluations,
 * checkpoints, results. */
#ifndef VITTRAIN_TRAIN_TRAINER_H
#define VITTRAIN_TRAIN_TRAINER_H

#include <stdbool.h>
#include <stddef.h>

struct comm;
struct error;
struct options;
struct session;

/* Collective. Runs the training and closes everything. opened: called after the set-up, or NULL.
 * folder: on rank 0 set to the run folder if this attempt was recorded in it or the run was
 * finished before, else to "". Returns false and an error, also after an attempt that was recorded
 * as failed. */
bool trainer_train(const struct options *options, struct comm *world,
                   void (*opened)(const struct session *session), char *folder, size_t size,
                   struct error *error);

#endif
