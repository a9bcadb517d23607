// SPDX-License-Identifier: BSD-3-Clause
/* Entries of TensorBoard's HPARAMS tab (plugin hparams): the options of a run, the tags of its
 * metrics, and its end. The messages are those of
 * torch.utils.tensorboard.SummaryWriter.add_hparams. TensorBoard shows one entry for a run folder,
 * also if several attempts wrote one. */
#ifndef VITTRAIN_RUNLOG_HPARAMS_H
#define VITTRAIN_RUNLOG_HPARAMS_H

#include "runlog/tensorboard.h"

struct options;

/* Write the options of the sections that change results and the tags of metrics, ended by NULL. */
MUST_CHECK bool hparams_write(struct tensorboard *board, const struct options *options,
                              const char *const *metrics, struct error *error);

/* Write that the run is complete. */
MUST_CHECK bool hparams_finish(struct tensorboard *board, struct error *error);

#endif
