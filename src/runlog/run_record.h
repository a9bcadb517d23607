/* What a run tells of itself besides its figures: run.json (what runs where, once for each part of
 * the run), units.csv and ranks.csv (where memory and time went, at the end of a part). The log
 * book and the report are made of these (src/report/record.h). */
#ifndef VITTRAIN_RUNLOG_RUN_RECORD_H
#define VITTRAIN_RUNLOG_RUN_RECORD_H

#include "train/trainer.h"

/* Collective, when set-up is over: adds this part to run.json, which keeps the parts before. */
bool run_record_begin(struct trainer *trainer, struct error *error);

/* Collective, when the part ended well; after monitor_stop. Says the ranks' processor times. */
bool run_record_end(struct trainer *trainer, struct error *error);

/* Rank 0, when the part failed: run.json tells why, as far as it can still be written. Local. */
void run_record_fail(struct trainer *trainer, const struct error *why);

#endif
