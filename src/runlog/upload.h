// SPDX-License-Identifier: BSD-3-Clause
/* Copies a run's folder to a remote while the run goes on: output.upload. Rank 0 only. */
#ifndef VITTRAIN_RUNLOG_UPLOAD_H
#define VITTRAIN_RUNLOG_UPLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

struct upload;

struct upload_setup {
    const char *folder; /* of the run; must exist */
    const char *remote; /* "s3://BUCKET/PATH" or "REMOTE:PATH"; see upload_open */
    const char *option; /* what named the remote, for messages */
    double every;       /* seconds between two copies of the log files */
    int64_t rate;       /* bandwidth limit in bytes per second; 0: none */
    bool shows_progress;
};

/* Check the path, and send the log files to test rclone, credentials and permissions. A remote that
 * ends in '/' or ':', or names only a bucket, is completed with the folder's name. A server that
 * cannot be reached is only a warning. NULL: ERROR_USAGE, ERROR_NETWORK, ERROR_FILE. */
struct upload *upload_open(const struct upload_setup *setup, struct error *error);

/* Start the thread that copies new files; it runs at nice 19, as do its children. */
void upload_start(struct upload *upload);

/* End the upload. With a thread: wait for at most `seconds` until everything is sent, then log the
 * result. NULL is allowed. */
void upload_close(struct upload *upload, double seconds);

/* Send everything now, without a thread. Errors: ERROR_NETWORK. */
void upload_all(struct upload *upload, struct error *error);

#endif
