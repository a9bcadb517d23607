// SPDX-License-Identifier: BSD-3-Clause
/* Runs another program, without input, with a time limit and collects its output. Thread-safe;
 * posix_spawn is safe in a process with threads and MPI, where fork is not. */
#ifndef VITTRAIN_CORE_CHILD_H
#define VITTRAIN_CORE_CHILD_H

#include <stdbool.h>
#include <stddef.h>

struct child {
    const char *const *words; /* NULL-terminated; the program is searched in PATH */
    char *const *environment; /* NULL: that of this process */
    char *output;             /* receives the beginning of its standard output, as text; or NULL */
    size_t output_size;
    char *log; /* receives the end of its standard error, as text */
    size_t log_size;
    double seconds; /* time limit; 0: none */
    bool own_group; /* in a process group of its own, which is killed as a whole */
    /* Called about ten times per second; false ends the program: SIGTERM, then SIGKILL. */
    bool (*wanted)(const struct child *child, void *self);
    void *self;

    /* Results. */
    bool truncated; /* the output did not fit */
    bool late;      /* the time limit has passed */
    int status;     /* of waitpid; -1 if it could not be reaped */
};

/* Run the program to its end. Return 0, or an errno value if it cannot be started. If
 * this process ends first, SIGPIPE ends the program when it next writes to its standard error. */
int child_run(struct child *child);

#endif
