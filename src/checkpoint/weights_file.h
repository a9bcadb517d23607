/* Recognises files of weights that other programs write and this one does not read. */
#ifndef VITTRAIN_CHECKPOINT_WEIGHTS_FILE_H
#define VITTRAIN_CHECKPOINT_WEIGHTS_FILE_H

#include <stdbool.h>

#include "core/error.h"

/* Fail with the Python command that converts the file to safetensors if it is one of PyTorch
 * (.pth, .pt, .bin, .ckpt; a zip archive or a pickle). All other files, and those that cannot be
 * opened, are left to their reader. Not collective. */
MUST_CHECK bool weights_file_check(const char *path, struct error *error);

#endif
