/* A run and its object store: output.upload. All of it is rank 0's. */
#ifndef VITTRAIN_RUNLOG_UPLOAD_H
#define VITTRAIN_RUNLOG_UPLOAD_H

#include "train/trainer.h"

/* Collective, when the run's folder is there. Finds credentials and tries whether bucket and
 * credentials let us write: what a person has to put right is an error now, a network that is down
 * is a warning, since it may be back when there is something to send. */
MUST_CHECK bool upload_prepare(struct trainer *trainer, struct error *error);

/* Begins to send, beside the run. Nothing without output.upload. */
void upload_start(struct trainer *trainer);

/* After all files of the run are closed. A run that succeeded waits output.upload_wait at most for
 * what is on its way; one that failed ends at once. */
void upload_end(struct trainer *trainer);

#endif
