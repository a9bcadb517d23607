// SPDX-License-Identifier: BSD-3-Clause
/* TensorBoard event files: records of length, masked CRC32C and protobuf event (events.proto: a
 * schema with TensorBoard's field numbers). */
#ifndef VITTRAIN_RECORD_TENSORBOARD_H
#define VITTRAIN_RECORD_TENSORBOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct tensorboard;

/* Create an event file in the directory. NULL: error. */
struct tensorboard *tensorboard_open(const char *directory, struct error *error);

/* Write a purge: TensorBoard drops earlier points at or after this step. */
MUST_CHECK bool tensorboard_restart(struct tensorboard *board, int64_t step, struct error *error);

/* Write a point. Buffered: a write error (full disk) may be reported by a later call. Thread-safe.
 */
MUST_CHECK bool tensorboard_scalar(struct tensorboard *board, const char *tag, int64_t step,
                                   double value, struct error *error);
MUST_CHECK bool tensorboard_flush(struct tensorboard *board, struct error *error);
void tensorboard_close(struct tensorboard *board);

/* Entries of TensorBoard's HPARAMS tab (plugin hparams): the options of a run, the tags of its
 * metrics, and its end. The messages are those of
 * torch.utils.tensorboard.SummaryWriter.add_hparams. TensorBoard shows one entry for a run folder,
 * also if several attempts wrote one. */

struct options;

/* Write the options of the sections that change results and the tags of metrics, ended by NULL. */
MUST_CHECK bool hparams_write(struct tensorboard *board, const struct options *options,
                              const char *const *metrics, struct error *error);

/* Write that the run is complete. */
MUST_CHECK bool hparams_finish(struct tensorboard *board, struct error *error);

#endif
