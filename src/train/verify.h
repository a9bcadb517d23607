// SPDX-License-Identifier: BSD-3-Clause
/* Replays steps of a run and compares them with its receipts. */
#ifndef VITTRAIN_TRAIN_VERIFY_H
#define VITTRAIN_TRAIN_VERIFY_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/comm.h"

struct command_line;

/* Collective. Replays the run in `folder` with the options of its deck, overridden by `line`, from
 * a checkpoint to the last receipt (options verify.*). Writes nothing to the folder. Sets `result`
 * to one line. ERROR_DIFFERENT if a step gives other values than its receipt. */
MUST_CHECK bool verify_replay(const char *folder, const struct command_line *line,
                              struct comm *world, char *result, size_t size, struct error *error);

#endif
