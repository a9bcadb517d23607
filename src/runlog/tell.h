/* A run tells how it goes, in the style that output.style names (style.h): what all styles need is
 * put together here. Local; rank 0 is heard. */
#ifndef VITTRAIN_RUNLOG_TELL_H
#define VITTRAIN_RUNLOG_TELL_H

#include "runlog/results.h"
#include "train/trainer.h"

void tell_start(const struct trainer *trainer);

/* An epoch, or the rest of one, begins. */
void tell_epoch_begin(const struct trainer *trainer);

/* After the row of a log interval. */
void tell_step(struct trainer *trainer, const struct metrics_row *row);

/* After the row of an epoch; evaluated: it has an evaluation. */
void tell_epoch(const struct trainer *trainer, const struct epoch_row *row, bool evaluated);

/* Tells of the newest checkpoint once it is on disk. */
void tell_checkpoint(struct trainer *trainer);

void tell_result(const struct trainer *trainer, const struct results *results);

/* Rank 0, when all else is in the run's folder. Files that cannot be written are a warning. */
void tell_files(const struct trainer *trainer);

/* However the run ends: files that the style has of its own. Nothing where there is no folder. */
void tell_close(const struct trainer *trainer);

#endif
