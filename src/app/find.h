/* The parts of the command `find`. */
#ifndef VITTRAIN_APP_FIND_H
#define VITTRAIN_APP_FIND_H

#include "comm/comm.h"

struct options;

/* Run the learning-rate range test and print the result on rank 0. Collective. */
void find_lr(const struct options *options, struct comm *world, struct error *error);

/* Add a result to the log book (output.logbook), with strategy and model of the options; rank 0
 * only. A failure is a warning. */
struct found;
void find_note(const struct options *options, struct found *found);

#endif
