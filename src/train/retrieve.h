// SPDX-License-Identifier: BSD-3-Clause
/* Copies checkpoints and weights from a remote into the run's folder. Rank 0 runs rclone; the other
 * ranks wait without a time limit. */
#ifndef VITTRAIN_TRAIN_RETRIEVE_H
#define VITTRAIN_TRAIN_RETRIEVE_H

#include "train/trainer_state.h"

/* Collective. Copies one file to RUN/retrieved/NAME, which becomes `path`. "best.h5" and "last.h5"
 * are resolved through best.txt and last.txt; the address of a run means its best checkpoint, else
 * its final weights. `option` names the setting in messages. */
MUST_CHECK bool retrieve_file(struct trainer *trainer, const char *remote, const char *option,
                              char *path, size_t size, struct error *error);

/* Collective. Copies the checkpoints of the remote into checkpoints/ and sets
 * trainer->resume_path to the newest valid one there; it stays empty without one. If the folder
 * held no run, its log, tables and events are copied, too, so that later uploads are complete. */
MUST_CHECK bool retrieve_newest(struct trainer *trainer, const char *remote, struct error *error);

#endif
