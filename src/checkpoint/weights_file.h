// SPDX-License-Identifier: BSD-3-Clause
/* Weights that a user names: the file in a run folder, and detection of formats that this program
 * does not read. */
#ifndef VITTRAIN_CHECKPOINT_WEIGHTS_FILE_H
#define VITTRAIN_CHECKPOINT_WEIGHTS_FILE_H

#include <stdbool.h>

#include "base/error.h"
#include "comm/comm.h"

enum { WEIGHTS_PATH = 4096 };

/* Replace a link to a checkpoint, such as last.h5 of a running job, by its target, so that all
 * readers open one file. Lock that file until the process ends: checkpoint_prune does not remove
 * it. Other paths are unchanged. Not collective. */
void weights_file_hold(char path[WEIGHTS_PATH]);

/* Collective. Write the path of a checkpoint or weights to `path`, after weights_file_hold. For a
 * run folder or its folder of checkpoints this is the best checkpoint, else the best weights, the
 * last checkpoint, the last weights; the path is printed on stderr. An image is ERROR_USAGE.
 * `initial`: for model.init; then weights are preferred to checkpoints, and nothing is printed. */
MUST_CHECK bool weights_file_find(const char *name, bool initial, struct comm *world,
                                  char path[WEIGHTS_PATH], struct error *error);

/* Return false if the file cannot be opened for reading. `where` is the start of the error's text:
 * "model.init: ". Not collective. */
MUST_CHECK bool weights_file_exists(const char *where, const char *path, struct error *error);

/* Return false for a PyTorch file (.pth, .pt, .bin, .ckpt; a zip archive or a pickle). The error
 * contains the Python command that converts it to safetensors. All other files, and those that
 * cannot be opened, return true: the function that reads them reports errors. Not collective. */
MUST_CHECK bool weights_file_check(const char *path, struct error *error);

#endif
