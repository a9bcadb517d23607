// SPDX-License-Identifier: BSD-3-Clause
/* The frame of a checkpoint file, parsed by HDF5. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_FRAME_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_FRAME_H

#include "checkpoint/checkpoint_file.h"

/* Read everything except the vectors into *contents, which is zero except for `bytes`, the size of
 * the file. Tables and texts are complete and have the right checksums; checkpoint_check examines
 * their values. May crash on a damaged file. Not collective. */
MUST_CHECK bool checkpoint_frame_read(const char *path, struct checkpoint_contents *contents,
                                      struct error *error);

#endif
