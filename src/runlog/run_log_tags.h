/* Which points TensorBoard gets of a row, under which names: a table for each output.style. */
#ifndef VITTRAIN_RUNLOG_RUN_LOG_TAGS_H
#define VITTRAIN_RUNLOG_RUN_LOG_TAGS_H

#include "runlog/run_log.h"
#include "runlog/tensorboard.h"

/* Nothing for numbers that are NAN. */
MUST_CHECK bool tags_write_metrics(struct tensorboard *board, int style,
                                   const struct metrics_row *row, struct error *error);
MUST_CHECK bool tags_write_epoch(struct tensorboard *board, int style, const struct epoch_row *row,
                                 struct error *error);

/* What a style's points stand at, less the number of steps that were done: 0, or -1 where steps are
 * counted from 0. */
int64_t tags_shift(int style);

#endif
