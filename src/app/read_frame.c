// SPDX-License-Identifier: BSD-3-Clause
#include "app/read_frame.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_message.h"
#include "core/subprocess.h"
#include "data/packed.h"

bool read_frame_is_command(const char *word)
{
    return strcmp(word, CHECKPOINT_READ_FRAME) == 0 || strcmp(word, PACKED_READ_FRAMES) == 0;
}

_Noreturn void read_frame_run(int count, char **words)
{
    int code = ERROR_USAGE;
    if (!subprocess_limit())
        code = ERROR_MEMORY;
    else if (count == 2 && strcmp(words[0], CHECKPOINT_READ_FRAME) == 0)
        code = checkpoint_message_send(words[1]);
    else if (count == 3 && atoll(words[2]) > 0)
        code = packed_message_send(words[1], atoll(words[2]));
    _exit(code); /* HDF5's exit handlers may crash after a damaged file */
}
