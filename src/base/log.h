// SPDX-License-Identifier: BSD-3-Clause
/* The log: lines on the console (rank 0 only) and in the run's log file. On a terminal, a progress
 * line is redrawn in place below the other lines. */
#ifndef VITTRAIN_BASE_LOG_H
#define VITTRAIN_BASE_LOG_H

#include "base/error.h"

enum log_level { LOG_QUIET, LOG_WARN, LOG_INFO, LOG_DETAIL };

/* Set rank and level. Ranks other than 0 print alarms and errors only. */
void log_open(int rank, enum log_level level);

/* Append all lines, with date and time, to this file too; called by rank 0. Earlier lines (up to 64
 * KiB) are written first. */
MUST_CHECK bool log_to_file(const char *path, struct error *error);
void log_close(void);

/* Print all lines to standard error: standard output is for results. */
void log_use_stderr(void);

/* A line for the file; on the console from level LOG_DETAIL on (output.verbose). */
void log_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A warning printed by any rank; its text names the rank. */
void log_alarm(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print "vittrain: error: TEXT" to stderr, on any rank. */
void log_error(const struct error *error);

/* Redraw the progress line, at most ten times a second; log_progress_end removes it. Nothing is
 * printed if stdout is not a terminal. */
void log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_progress_end(void);

/* True if stdout, or that of mpirun, is a terminal. */
bool log_is_terminal(void);

#endif
