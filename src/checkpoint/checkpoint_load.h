/* Steps of reading that checkpoint_read and checkpoint_find share. Private to the checkpoint. */
#ifndef VITTRAIN_CHECKPOINT_CHECKPOINT_LOAD_H
#define VITTRAIN_CHECKPOINT_CHECKPOINT_LOAD_H

#include "checkpoint/checkpoint_file.h"
#include "comm/comm.h"
#include "config/run_options.h"

/* Collective. What rank 0 read of a file's frame, on all ranks (without deck, names and tensors).
 */
void checkpoint_contents_share(struct checkpoint_contents *contents, struct comm *world);

/* Collective. Reads all pieces and compares their sums: the ranks share the work, or rank 0 does it
 * alone (WRITERS_NODE0). `wanted`: which vectors, one bit each. */
bool checkpoint_contents_verify(const char *path, enum writers_choice writers, struct comm *world,
                                const struct checkpoint_contents *contents, unsigned wanted,
                                struct error *error);

#endif
