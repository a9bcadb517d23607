// SPDX-License-Identifier: BSD-3-Clause
/* Runs a command of this program in a child process with limits on time and memory. The parent
 * sends requests to its standard input and reads its standard output. For libraries that may crash
 * or hang on damaged files (HDF5). The child runs without MPI. */
#ifndef VITTRAIN_CORE_SUBPROCESS_H
#define VITTRAIN_CORE_SUBPROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"

/* Set the program that subprocess_start runs; the text must stay valid. The default is NULL: no
 * program, as in tests that link the modules only. */
void subprocess_set_program(const char *path);
bool subprocess_has_program(void);

struct subprocess {
    pid_t pid;
    int output;     /* a socket: the child's standard input and output */
    bool truncated; /* the output ended too early */
    bool no_memory; /* subprocess_read_array failed for that reason */
};

/* Start the program with these words, NULL-terminated, after its name. Standard error is /dev/null.
 * Unless it fails (ERROR_MEMORY), call subprocess_end. */
MUST_CHECK bool subprocess_start(struct subprocess *child, const char *const *words,
                                 struct error *error);

/* Send these bytes; false if the child has ended. */
MUST_CHECK bool subprocess_send(struct subprocess *child, const void *data, size_t bytes);

/* Read exactly these bytes of the output; false if it ends earlier. */
MUST_CHECK bool subprocess_read(struct subprocess *child, void *data, size_t bytes);

/* Read an array of `count` elements into new memory. False: the output ends earlier, or `count` is
 * not in [0, most]. */
MUST_CHECK bool subprocess_read_array(struct subprocess *child, void **array, size_t size,
                                      int64_t count, int64_t most);

/* End the input of a child that read the structure of `path`, and wait for its end; `whole` is
 * false if its output is not complete. If the file can be the cause of a failure (a crash, the
 * limit on CPU time, invalid output), the error has the kind `damaged`, else ERROR_MEMORY. */
MUST_CHECK bool subprocess_end(struct subprocess *child, bool whole, const char *path,
                               enum error_kind damaged, struct error *error);

/* For the child, before its work: set the limits. It ends with its parent, and no core is dumped.
 * Signals of the limits on time are SIGXCPU and SIGALRM. False: too little memory is left. */
MUST_CHECK bool subprocess_limit(void);

#endif
