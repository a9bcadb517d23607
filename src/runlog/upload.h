// SPDX-License-Identifier: BSD-3-Clause
/* Copies a run's folder to a remote during the run: output.upload. Failures are warnings. */
#ifndef VITTRAIN_RUNLOG_UPLOAD_H
#define VITTRAIN_RUNLOG_UPLOAD_H

#include <stdint.h>

/* If `remote` ends in '/' or ':', the name of the folder, which must exist, is appended. */
struct upload *upload_open(const char *folder, const char *remote);

/* Start a copy in the background if none is in progress and the newest began before the first step
 * or before the last of `checkpoints` complete checkpoints. Called in each step; does not block,
 * and checks the copy in progress once per second. */
void upload_follow(struct upload *upload, int64_t checkpoints);

/* Copy the final files, for at most `seconds`, and log the result. NULL is allowed. */
void upload_close(struct upload *upload, double seconds);

#endif
