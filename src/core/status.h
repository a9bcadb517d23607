/* What this process is doing: the current phase, unit and step. Other ranks print it when this one
 * stops responding. The main thread stores to a few atomic words, without calls or locks. */
#ifndef VITTRAIN_CORE_STATUS_H
#define VITTRAIN_CORE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum status_phase {
    STATUS_START,
    STATUS_COMMAND, /* of a command that tells no more */
    STATUS_DATA_OPEN,
    STATUS_MODEL_OPEN,
    STATUS_MEMORY,
    STATUS_FOLDER,
    STATUS_WEIGHTS_READ,
    STATUS_DATA,
    STATUS_FORWARD,
    STATUS_BACKWARD,
    STATUS_REDUCE,
    STATUS_UPDATE,
    STATUS_RECORDED, /* a step that the device runs from a recording */
    STATUS_REPORT,
    STATUS_EVALUATION,
    STATUS_CHECKPOINT_BEGIN,
    STATUS_CHECKPOINT_WRITE,
    STATUS_CHECKPOINT_NAME,
    STATUS_CHECKPOINT_WAIT,
    STATUS_WEIGHTS_WRITE,
    STATUS_RESULTS,
    STATUS_END,
    STATUS_PHASES
};

/* "backward" */
const char *status_phase_name(enum status_phase phase);

/* The main thread's. A phase begins without a unit; steps count from 1, 0 is none; -1 is no unit.
 */
void status_set_step(int64_t step);
void status_set_phase(enum status_phase phase);
void status_set_unit(int unit);
/* debug.pause: this process waits, once, where it comes to a phase of a step, and says so on
 * stderr: to be looked at by a debugger, or to be killed there. "PHASE:STEP:SECONDS", as
 * "checkpoint_write:20:5"; step 0 is before the first; "none": no pause. ERROR_USAGE otherwise. */
bool status_pause_at(const char *text, struct error *error);

/* Names for numbers, copied; what is beyond STATUS_UNITS or STATUS_NAME has only a number. */
enum { STATUS_UNITS = 512, STATUS_NAME = 48 };
void status_name_unit(int unit, const char *name);

/* A thread that works beside the main one: STATUS_CHECKPOINT_*; STATUS_START: rests. */
void status_set_background(enum status_phase phase);

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
