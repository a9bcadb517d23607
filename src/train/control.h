// SPDX-License-Identifier: BSD-3-Clause
/* Control flags: events that one rank sees but on which all ranks must act at the same step. A
 * signal, rank 0's clock or an unfinished checkpoint sets a flag. An all-reduce of the flags starts
 * at the begin of each step and is waited for at its end, so it overlaps with the step. */
#ifndef VITTRAIN_TRAIN_CONTROL_H
#define VITTRAIN_TRAIN_CONTROL_H

#include "comm/comm.h"

/* 0 or 1 each, of one rank; after the all-reduce 1 if any rank has set the flag. */
struct control_flags {
    int64_t stop;       /* a signal requests the end of the run */
    int64_t time_over;  /* train.max_seconds have passed */
    int64_t checkpoint; /* a checkpoint is due by checkpoint.every_seconds */
    int64_t writing;    /* this rank still writes its part of a background checkpoint */
};

/* Initially zero, except `world`. */
struct control {
    struct comm *world;
    struct comm_request *request;
    bool started;
    struct control_flags flags; /* the buffer of the all-reduce */
};

/* Collective. Starts the all-reduce. Each start is followed by one control_wait. */
void control_start(struct control *control, const struct control_flags *flags);

/* Collective. Waits for the all-reduce and returns the maximum of each flag over all ranks. */
struct control_flags control_wait(struct control *control);

/* Collective if an all-reduce was started and not waited for, as after a failed step. Does nothing
 * on a zeroed struct. */
void control_close(struct control *control);

#endif
