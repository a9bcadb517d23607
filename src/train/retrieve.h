/* What a run takes from an object store: a checkpoint to go on from, weights to begin with. Rank 0
 * gets it into the run's folder, where it is a file like others. */
#ifndef VITTRAIN_TRAIN_RETRIEVE_H
#define VITTRAIN_TRAIN_RETRIEVE_H

#include "train/trainer.h"

/* Is that the name of one object, and not of all that a run has sent? */
bool retrieve_is_object(const char *url);

/* Collective. One object; "best.h5" and "last.h5" are followed; for an address that output.upload
 * has sent to, the best checkpoint, else the final weights. It becomes RUN/retrieved/NAME, which is
 * `path`. `option` names what was set so. */
MUST_CHECK bool retrieve_object(struct trainer *trainer, const char *url, const char *option,
                                char *path, size_t size, struct error *error);

/* Collective. What to go on from below an address that output.upload has sent to: the newest good
 * checkpoint of it and of the run's folder becomes trainer->resume_path, which stays empty where
 * there is none at all. Into a folder that held no run the log, the tables and the events come,
 * too, so that what is sent from there later is the whole. */
MUST_CHECK bool retrieve_newest(struct trainer *trainer, const char *url, struct error *error);

#endif
