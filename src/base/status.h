// SPDX-License-Identifier: BSD-3-Clause
/* The current phase, unit and step of this process. Other ranks print it when this one stops
 * responding. The main thread stores to a few atomic words, without calls or locks. */
#ifndef VITTRAIN_BASE_STATUS_H
#define VITTRAIN_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A phase of the program. Phases are numbered from 0, which is also the phase at the start. */
struct status_phase {
    const char *word; /* in debug.pause: "backward" */
    const char *name; /* in messages: "backward", "the wait for data" */
};

/* Set the table of phases, which must stay valid. Without a table phases have no names. */
void status_set_phases(const struct status_phase *phases, int count);

/* Return a phase's name in messages. */
const char *status_phase_name(int phase);

/* Set the status of the main thread. Steps count from 1; 0 is before the first. Setting a phase
 * resets the unit to -1, none. */
void status_set_step(int64_t step);
void status_set_phase(int phase);
void status_set_unit(int unit);
/* Set debug.pause: "PHASE:STEP:FILE" or "PHASE:STEP:FILE:RANK", as in "checkpoint_write:20:go", or
 * "none". When it reaches that phase, the process, or only that rank, writes its process ID to
 * FILE.RANK, prints a line to stderr and waits once until FILE exists. In the background this is
 * the first time in that phase from that step on. ERROR_USAGE for other texts. */
MUST_CHECK bool status_pause_at(const char *text, struct error *error);

/* Set the name of a unit. Units from STATUS_UNITS on have a number only; names are truncated to
 * STATUS_NAME bytes. */
enum { STATUS_UNITS = 512, STATUS_NAME = 48 };
void status_name_unit(int unit, const char *name);

/* Set whether the main thread waits for other ranks, or for a GPU that may wait for them. Calls of
 * other threads have no effect. */
void status_set_waiting(bool waits);

/* Return the median duration of the newest steps, or 0 before the third step has ended. */
double status_step_seconds(void);

/* Set the phase of the background thread; 0: idle. */
void status_set_background(int phase);

/* A snapshot of the status. It may be sent to other ranks, whose units have the same names. */
struct status {
    double seconds; /* since the start of the phase or of the unit */
    int64_t step;
    int32_t phase, unit, background;
    int32_t waits;    /* 1: for other ranks */
    int64_t activity; /* number of changes by the main thread */
};
struct status status_read(double now);

/* Write "backward of blocks.3, step 120, for 0.5 s". */
void status_describe(const struct status *status, char *text, size_t size);

#endif
