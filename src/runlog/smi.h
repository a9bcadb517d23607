/* The table that nvidia-smi prints, for the log book: what people look at first, and know. */
#ifndef VITTRAIN_RUNLOG_SMI_H
#define VITTRAIN_RUNLOG_SMI_H

#include <stdbool.h>

#include "core/error.h"

/* Runs nvidia-smi and writes `title` and what it printed to the file. For so many seconds at most,
 * and only while `wanted` is true: then it is killed with all that it started. False and no error:
 * there is no such program, it failed, or it was not wanted any more. ERROR_FILE: the file;
 * ERROR_PEER: it did not answer in time. From any thread. */
MUST_CHECK bool smi_write(const char *path, const char *title, double seconds,
                          bool (*wanted)(void *self), void *self, struct error *error);

#endif
