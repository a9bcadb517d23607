// SPDX-License-Identifier: BSD-3-Clause
/* The contents of a checkpoint file as a message from the child process that has parsed it. Both
 * processes run the same program. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_MESSAGE_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_MESSAGE_H

#include "checkpoint/checkpoint_file.h"
#include "core/subprocess.h"

/* The command of this program that runs checkpoint_message_send. */
#define CHECKPOINT_READ_FRAME "read-checkpoint-frame"

/* In the child: read the frame of a file and write the contents, or the error, to standard output.
 * Return the exit code. */
int checkpoint_message_send(const char *path);

/* In the parent: receive the message. `contents` must be zero except for `bytes`, the size of the
 * file, which limits all counts. Return false if the message is incomplete. If the child could not
 * read the file, *theirs has its error. Check the values with checkpoint_check. */
MUST_CHECK bool checkpoint_message_receive(struct subprocess *child,
                                           struct checkpoint_contents *contents,
                                           struct error *theirs);

#endif
