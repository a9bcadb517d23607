// SPDX-License-Identifier: BSD-3-Clause
/* Internal commands, which the program runs as a child process (core/subprocess.h). */
#ifndef VITTRAIN_APP_READ_FRAME_H
#define VITTRAIN_APP_READ_FRAME_H

#include <stdbool.h>

/* True if `word` is the name of an internal command. */
bool read_frame_is_command(const char *word);

/* Read the headers of HDF5 files under limits on time and memory, write them to standard output,
 * and exit. words: the command and its arguments. */
_Noreturn void read_frame_run(int count, char **words);

#endif
