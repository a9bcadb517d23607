// SPDX-License-Identifier: BSD-3-Clause
/* Records a training step without running it: each device operation and each collective, in the
 * order in which step_rehearse queues them on an imagined mesh. Predictions of a strategy's time
 * therefore follow the code that runs it. */
#ifndef VITTRAIN_PLAN_STEP_SCRIPT_H
#define VITTRAIN_PLAN_STEP_SCRIPT_H

#include "device/count.h"
#include "train/session.h"

/* Only the first three are measured; an all-to-all takes the times of a reduce-scatter. */
enum collective_action { ACTION_SUM, ACTION_SCATTER, ACTION_GATHER, ACTION_ALL_TO_ALL };
enum { COLLECTIVE_ACTIONS = ACTION_GATHER + 1 };

/* A collective of the mesh: all-reduce, reduce-scatter, all-gather or all-to-all. */
struct collective {
    enum collective_action action;
    bool replica; /* in the replica group; else in the shard group */
    double bytes; /* all-reduce: of the buffer; all-to-all: to each other rank; else: of one rank's
                     block */
};

enum script_event_kind {
    EVENT_OPERATION,
    EVENT_START, /* a collective is queued */
    EVENT_WAIT   /* the stream waits for its result */
};

struct script_event {
    enum script_event_kind kind;
    enum step_phase phase;
    int unit;                     /* -1: none; WAIT: the unit that runs */
    struct counted counted;       /* OPERATION */
    int number;                   /* START, WAIT: of the collective, from 0 */
    struct collective collective; /* START */
};

struct step_script {
    struct script_event *event;
    int count, capacity, collectives;
};

/* Records a step of a session from session_imagine after session_measure for training. The session
 * can only be closed afterwards. */
void step_script_make(struct step_script *script, struct session *session,
                      const struct image_source *source);
void step_script_close(struct step_script *script);

#endif
