/* What a run says while it goes: sums over the ranks, lines, CSV rows, TensorBoard points. */
#ifndef VITTRAIN_TRAIN_PROGRESS_H
#define VITTRAIN_TRAIN_PROGRESS_H

#include "train/trainer.h"

void progress_begin(struct trainer *trainer);
/* Frees what progress_begin took; also where it was never called. */
void progress_end(struct trainer *trainer);

/* Collective. Adds the sums since the last call to the epoch's, writes a row, shows a line. Nothing
 * when no step was done since. A row that cannot be written is told by progress_epoch. */
void progress_interval(struct trainer *trainer);

/* What Prometheus is told of the run, from the next reading of the sensors on. */
void progress_figures(struct trainer *trainer);

/* So many seconds until now were no training: they are taken out of the interval and the epoch. */
void progress_pause(struct trainer *trainer, double seconds);

/* Collective. The epoch's row and line; `evaluated`: trainer->evaluation is of now. */
MUST_CHECK bool progress_epoch(struct trainer *trainer, bool evaluated, struct error *error);

/* The test split's row and line. */
void progress_test(struct trainer *trainer);

/* Collective. The end: summary on the console, result.json. */
MUST_CHECK bool progress_result(struct trainer *trainer, struct error *error);

#endif
