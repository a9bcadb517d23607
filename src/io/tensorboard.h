/* TensorBoard event files: records of length, masked CRC32C, protobuf event (events.proto, our own
 * schema with the published field numbers). */
#ifndef VITTRAIN_IO_TENSORBOARD_H
#define VITTRAIN_IO_TENSORBOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

struct tensorboard;

struct tensorboard *tensorboard_open(const char *directory, struct error *error);
/* A purge: TensorBoard drops what an earlier part of the run wrote at or after this step. */
bool tensorboard_restart(struct tensorboard *board, int64_t step, struct error *error);
bool tensorboard_scalar(struct tensorboard *board, const char *tag, int64_t step, double value,
                        struct error *error);
bool tensorboard_flush(struct tensorboard *board, struct error *error);
void tensorboard_close(struct tensorboard *board);

#endif
