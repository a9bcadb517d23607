/* What a run says: lines on the console (rank 0 only) and in the run's log file. On a terminal one
 * progress line is redrawn in place below the other lines; elsewhere it is printed as plain lines.
 */
#ifndef VITTRAIN_CORE_LOG_H
#define VITTRAIN_CORE_LOG_H

#include "core/error.h"

enum log_level { LOG_QUIET, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Ranks other than 0 print nothing unless the level is LOG_DEBUG, then with their rank in front. */
void log_open(int rank, enum log_level level);

/* Each line also goes, with date and time, to this file (rank 0 calls it; appended): those from
 * here on, and those from before, that had no file (64 KiB of them). */
MUST_CHECK bool log_to_file(const char *path, struct error *error);
void log_close(void);

void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A warning that is printed whichever rank it comes from, and whose text names that rank. */
void log_alarm(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints a user's mistake as the program's last word: "vittrain: error: TEXT", on stderr, also when
 * this is not rank 0 (the caller decides who speaks). */
void log_error(const struct error *error);

/* The live line. On a terminal it is redrawn at most ten times a second and never scrolls; when
 * stdout is no terminal nothing is printed (the caller logs plain lines at its own interval).
 * log_progress_end takes it away. */
void log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_progress_end(void);

/* Does a person see stdout at once? Under mpirun: is mpirun's stdout a terminal? */
bool log_is_terminal(void);

#endif
