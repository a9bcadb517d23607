// SPDX-License-Identifier: BSD-3-Clause
/* Detection of weights in file formats that this program does not read. */
#ifndef VITTRAIN_CHECKPOINT_WEIGHTS_FILE_H
#define VITTRAIN_CHECKPOINT_WEIGHTS_FILE_H

#include <stdbool.h>

#include "core/error.h"

/* Return false for a PyTorch file (.pth, .pt, .bin, .ckpt; a zip archive or a pickle). The error
 * contains the Python command that converts it to safetensors. All other files, and those that
 * cannot be opened, return true: the function that reads them reports errors. Not collective. */
MUST_CHECK bool weights_file_check(const char *path, struct error *error);

#endif
