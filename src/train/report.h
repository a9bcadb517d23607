/* What a run says while it goes: sums over the ranks, lines, CSV rows, TensorBoard points. */
#ifndef VITTRAIN_TRAIN_REPORT_H
#define VITTRAIN_TRAIN_REPORT_H

#include "train/trainer.h"

void report_start(struct trainer *trainer);
/* Frees what report_start took; also where it was never called. */
void report_end(struct trainer *trainer);

/* Collective. Adds the sums since the last call to the epoch's, writes a row, shows a line. Nothing
 * when no step was done since. A row that cannot be written is reported by report_epoch. */
void report_interval(struct trainer *trainer);

/* What Prometheus is told of the run, from the next reading of the sensors on. */
void report_figures(struct trainer *trainer);

/* So many seconds until now were no training: they are taken out of the interval and the epoch. */
void report_pause(struct trainer *trainer, double seconds);

/* Collective. The epoch's row and line; `evaluated`: trainer->evaluation is of now. */
bool report_epoch(struct trainer *trainer, bool evaluated, struct error *error);

/* Collective. The end: summary on the console, result.json. */
bool report_result(struct trainer *trainer, struct error *error);

#endif
