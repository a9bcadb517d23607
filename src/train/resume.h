// SPDX-License-Identifier: BSD-3-Clause
/* Compares a run with the checkpoint from which it resumes. */
#ifndef VITTRAIN_TRAIN_RESUME_H
#define VITTRAIN_TRAIN_RESUME_H

#include "train/trainer.h"

/* Rank 0, after feeds_start. Set trainer->data to a description of the data in JSON, which is saved
 * in checkpoints: names of classes, samples per class of each split, checksums of the lists of
 * samples and of the first image of up to 256 classes, and the size of the model's images. */
MUST_CHECK bool resume_describe_data(struct trainer *trainer, struct error *error);

/* Collective, before the checkpoint is read. *other_monitor: its deck has another
 * checkpoint.monitor, so its best value is of another metric. Fail if its data, image size or model
 * differ from the run's, unless `named`: checkpoint.resume names the file, and the differences are
 * warnings. Other options that differ are logged. If no step is left, an option that changes what
 * is learned is an error. */
MUST_CHECK bool resume_check(const struct trainer *trainer, const char *path, bool named,
                             bool *other_monitor, struct error *error);

#endif
