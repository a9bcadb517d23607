// SPDX-License-Identifier: BSD-3-Clause
/* The output of nvidia-smi, for the log book. */
#ifndef VITTRAIN_RUNLOG_SMI_H
#define VITTRAIN_RUNLOG_SMI_H

#include <stdbool.h>

#include "core/error.h"

/* Run nvidia-smi and write `title` and its output to a file. After `seconds`, or when `wanted`
 * returns false, its process group is killed. False without an error: the program does not exist,
 * failed or was no longer wanted. ERROR_FILE: the file; ERROR_PEER: the time limit. Thread-safe. */
MUST_CHECK bool smi_write(const char *path, const char *title, double seconds,
                          bool (*wanted)(void *self), void *self, struct error *error);

#endif
