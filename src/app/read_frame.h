/* Internal commands, which the program runs as a child process (core/subprocess.h). */
#ifndef VITTRAIN_APP_READ_FRAME_H
#define VITTRAIN_APP_READ_FRAME_H

#include <stdbool.h>

bool read_frame_is_command(const char *word);

/* Read the headers of HDF5 files under limits on time and memory, and write them to standard
 * output. words: the command, then its arguments. Does not return. */
_Noreturn void read_frame_run(int count, char **words);

#endif
