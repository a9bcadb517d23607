// SPDX-License-Identifier: BSD-3-Clause
/* The phases of a run: what the main thread is doing, for debug.pause and for messages about ranks
 * that fail or do not answer. */
#ifndef VITTRAIN_OPTIONS_PHASE_H
#define VITTRAIN_OPTIONS_PHASE_H

#include "base/status.h"

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

/* Table of the phases for status_set_phases. */
extern const struct status_phase phase_table[PHASE_COUNT];

#endif
