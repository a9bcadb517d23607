// SPDX-License-Identifier: BSD-3-Clause
/* rclone as a child process: copies files to and from object stores and other remotes. */
#ifndef VITTRAIN_RUNLOG_RCLONE_H
#define VITTRAIN_RUNLOG_RCLONE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum { RCLONE_PATH = 2048 };

enum rclone_outcome {
    RCLONE_DONE,
    RCLONE_MISSING,     /* no such file or folder */
    RCLONE_UNREACHABLE, /* no connection to the server, or out of time */
    RCLONE_FAILED,
    RCLONE_CANCELLED
};

/* Settings of the commands for one remote. One thread at a time runs commands. */
struct rclone {
    int64_t rate;          /* bandwidth limit in bytes per second; 0: none */
    double seconds;        /* time limit of a command; 0: none */
    const char *label;     /* name in the progress line of a terminal; NULL: no progress */
    atomic_bool cancelled; /* set by any thread: ends the running command within seconds */
};

/* True if a path names a remote: it has a colon before the first slash ("s3://bucket/path",
 * "gcs:bucket/path"). "./a:b" is a file. */
bool rclone_is_remote(const char *path);

/* True if an object path names one file and not the folder of a run. */
bool rclone_is_file(const char *path);

/* Check the form of a remote's path ("s3://BUCKET/PATH" or "REMOTE:PATH"). `option` names the
 * setting in messages. ERROR_USAGE. */
MUST_CHECK bool rclone_check(const char *path, const char *option, struct error *error);

/* Write the first line of `rclone version`. ERROR_NETWORK: not installed. */
MUST_CHECK bool rclone_version(char version[64], struct error *error);

/* Join a remote's path and a name below it. */
void rclone_join(const char *remote, const char *name, char path[RCLONE_PATH]);

/* Run `rclone WORD...`; the list ends with NULL. `output`: receives its standard output as text, or
 * NULL. The error is rclone's last message. If this process ends, SIGPIPE ends the child when it
 * writes its next statistics, within a second. */
enum rclone_outcome rclone_run(struct rclone *rclone, const char *const *words, char *output,
                               size_t size, struct error *error);

/* Copy a remote file to PATH, unless PATH already has its size and time. */
enum rclone_outcome rclone_get(struct rclone *rclone, const char *remote, const char *path,
                               struct error *error);

#endif
