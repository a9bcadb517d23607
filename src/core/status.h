/* What this process is doing: the current phase, unit and step. Other ranks print it when this one
 * stops responding. The main thread stores to a few atomic words, without calls or locks. */
#ifndef VITTRAIN_CORE_STATUS_H
#define VITTRAIN_CORE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* A phase of the program. Phases are numbered from 0, which is also the phase at the start. */
struct status_phase {
    const char *word; /* in debug.pause: "backward" */
    const char *name; /* in messages: "backward", "the wait for data" */
};

/* Set the table of phases, which must stay valid. Without a table phases have no names. */
void status_set_phases(const struct status_phase *phases, int count);

/* Return a phase's name in messages. */
const char *status_phase_name(int phase);

/* The main thread's. A phase begins without a unit; steps count from 1, 0 is none; -1 is no unit.
 */
void status_set_step(int64_t step);
void status_set_phase(int phase);
void status_set_unit(int unit);
/* debug.pause: this process waits, once, where it comes to a phase of a step, and says so on
 * stderr: to be looked at by a debugger, or to be killed there. "PHASE:STEP:SECONDS", as
 * "checkpoint_write:20:5"; step 0 is before the first; "none": no pause. ERROR_USAGE otherwise. */
MUST_CHECK bool status_pause_at(const char *text, struct error *error);

/* Names for numbers, copied; what is beyond STATUS_UNITS or STATUS_NAME has only a number. */
enum { STATUS_UNITS = 512, STATUS_NAME = 48 };
void status_name_unit(int unit, const char *name);

/* Set the phase of the background thread; 0: idle. */
void status_set_background(int phase);

/* A moment's status: may be sent to other ranks, whose units have the same names. */
struct status {
    double seconds; /* since the phase, or the unit in it, began */
    int64_t step;
    int32_t phase, unit, background, reserved;
};
struct status status_read(double now);

/* "backward of blocks.3, step 120, for 0.5 s" */
void status_describe(const struct status *status, char *text, size_t size);

#endif
