// SPDX-License-Identifier: BSD-3-Clause
/* The current phase, unit and step of this process. Other ranks print it when this one stops
 * responding. The main thread stores to a few atomic words, without calls or locks. */
#ifndef VITTRAIN_BASE_STATUS_H
#define VITTRAIN_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* X(CONSTANT, word in debug.pause, name in messages) */
#define PHASES(X)                                                                                  \
    X(PHASE_START, "start", "the start")                                                           \
    X(PHASE_MPI, "mpi", "the start of MPI")                                                        \
    X(PHASE_COMMAND, "command", "its command")                                                     \
    X(PHASE_DATA_OPEN, "data_open", "the opening of the data")                                     \
    X(PHASE_MODEL_OPEN, "model_open", "the opening of device and model")                           \
    X(PHASE_MEMORY, "memory", "the allocation of memory")                                          \
    X(PHASE_FOLDER, "folder", "the opening of the run folder")                                     \
    X(PHASE_FOLDER_LOCK, "folder_lock", "the locking of the run folder")                           \
    X(PHASE_WEIGHTS_READ, "weights_read", "the reading of the weights")                            \
    X(PHASE_DATA, "data", "the wait for data")                                                     \
    X(PHASE_FORWARD, "forward", "forward")                                                         \
    X(PHASE_BACKWARD, "backward", "backward")                                                      \
    X(PHASE_REDUCE, "reduce", "the wait for gradients")                                            \
    X(PHASE_UPDATE, "update", "update")                                                            \
    X(PHASE_RECORDED, "recorded", "a recorded step")                                               \
    X(PHASE_REPORT, "report", "the report of the log")                                             \
    X(PHASE_EVALUATION, "evaluation", "evaluation")                                                \
    X(PHASE_TEST, "test", "the evaluation of the test split")                                      \
    X(PHASE_CHECKPOINT_BEGIN, "checkpoint_begin", "the begin of a checkpoint")                     \
    X(PHASE_CHECKPOINT_WRITE, "checkpoint_write", "the writing of a checkpoint")                   \
    X(PHASE_CHECKPOINT_MEMORY, "checkpoint_memory", "the writing of a checkpoint in memory")       \
    X(PHASE_CHECKPOINT_NAME, "checkpoint_name", "the naming of a checkpoint")                      \
    X(PHASE_CHECKPOINT_LINK, "checkpoint_link", "the linking of a checkpoint")                     \
    X(PHASE_CHECKPOINT_WAIT, "checkpoint_wait", "the wait for a checkpoint")                       \
    X(PHASE_WEIGHTS_WRITE, "weights_write", "the writing of the weights")                          \
    X(PHASE_RESULTS, "results", "the writing of the results")                                      \
    X(PHASE_END, "end", "the end")
#define PHASE_CONSTANT(constant, word, name) constant,
enum phase { PHASES(PHASE_CONSTANT) PHASE_COUNT };

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
