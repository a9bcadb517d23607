// SPDX-License-Identifier: BSD-3-Clause
/* rclone as a child process: copies files to and from object stores and other remotes. */
#ifndef VITTRAIN_RUNLOG_RCLONE_H
#define VITTRAIN_RUNLOG_RCLONE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum { RCLONE_PATH = 2048, RCLONE_VERSION = 64 };

/* Outcome of a command after rclone's own retries. */
enum rclone_outcome {
    RCLONE_DONE,
    RCLONE_MISSING,  /* no such file or folder */
    RCLONE_LATER,    /* failure of the network or the server; a later try may succeed */
    RCLONE_REFUSED,  /* needs a change by the user: credentials, permissions, names */
    RCLONE_CANCELLED /* by `cancelled` */
};

/* Settings of the commands for one remote. One thread at a time runs commands. */
struct rclone {
    int64_t rate;          /* bandwidth limit in bytes per second; 0: none */
    double seconds;        /* time limit of a command; 0: none */
    const char *label;     /* name in progress lines; NULL: no progress */
    atomic_bool cancelled; /* set by any thread: ends the running command within seconds */
};

/* True if a path names a remote: it has a colon before the first slash ("s3://bucket/path",
 * "gcs:bucket/path"). "./a:b" is a file. */
bool rclone_is_remote(const char *path);

/* True if an object path names one file and not the folder of a run. */
bool rclone_is_file(const char *path);

/* Checks a remote's path ("s3://BUCKET/PATH" or "REMOTE:PATH") and that rclone is installed and
 * new enough. `option` names the setting in messages. Errors: ERROR_USAGE, ERROR_NETWORK. */
MUST_CHECK bool rclone_check(const char *path, const char *option, struct error *error);

/* The version of the rclone on PATH, "1.60.1". ERROR_NETWORK: none, or older than this program
 * needs. */
MUST_CHECK bool rclone_version(char version[RCLONE_VERSION], struct error *error);

/* Joins a remote's path and a name below it. */
void rclone_join(const char *remote, const char *name, char path[RCLONE_PATH]);

/* Runs `rclone WORD...`; the list ends with NULL. `input`: text for its standard input (at most 64
 * KiB), or NULL. `output`: receives its standard output as text, or NULL; output that does not fit
 * is RCLONE_REFUSED. `error` is set for LATER, REFUSED and MISSING. The child ends with this
 * process: it receives SIGPIPE when it writes its next statistics, within a second. */
enum rclone_outcome rclone_run(struct rclone *rclone, const char *const *words, const char *input,
                               char *output, size_t size, struct error *error);

/* Copies a remote file to PATH by way of PATH.part, unless PATH already has its size and time. */
enum rclone_outcome rclone_get(struct rclone *rclone, const char *remote, const char *path,
                               struct error *error);

#endif
