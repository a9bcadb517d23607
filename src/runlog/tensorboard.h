/* TensorBoard event files: records of length, masked CRC32C, protobuf event (events.proto, our own
 * schema with the published field numbers). */
#ifndef VITTRAIN_RUNLOG_TENSORBOARD_H
#define VITTRAIN_RUNLOG_TENSORBOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

enum { TENSORBOARD_TAG = 128 };

struct tensorboard;

/* Makes a new event file in the directory, named so that TensorBoard reads it after those that are
 * there. NULL: error. */
struct tensorboard *tensorboard_open(const char *directory, struct error *error);

/* Does the directory hold event files? */
bool tensorboard_exists(const char *directory);

/* A purge: TensorBoard drops what an earlier part of the run wrote at or after this step. */
MUST_CHECK bool tensorboard_restart(struct tensorboard *board, int64_t step, struct error *error);

/* A point; tags are shorter than TENSORBOARD_TAG. Buffered: a failure (full disk) may only be seen
 * by a later point or the flush. */
MUST_CHECK bool tensorboard_scalar(struct tensorboard *board, const char *tag, int64_t step,
                                   double value, struct error *error);
MUST_CHECK bool tensorboard_flush(struct tensorboard *board, struct error *error);
void tensorboard_close(struct tensorboard *board);

#endif
