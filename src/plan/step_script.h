/* A step as it would go, taken note of instead of done: each operation and each collective, in the
 * order in which the step's own code asks for them (step_rehearse), on an imagined mesh. So what is
 * said about a strategy's time is about the code that runs it. */
#ifndef VITTRAIN_PLAN_STEP_SCRIPT_H
#define VITTRAIN_PLAN_STEP_SCRIPT_H

#include "device/count.h"
#include "train/session.h"

enum rehearsed_phase { REHEARSED_DATA, REHEARSED_FORWARD, REHEARSED_BACKWARD, REHEARSED_UPDATE };
enum { REHEARSED_PHASES = REHEARSED_UPDATE + 1 };

enum collective_action { ACTION_SUM, ACTION_SCATTER, ACTION_GATHER };
enum { COLLECTIVE_ACTIONS = ACTION_GATHER + 1 };

/* What the two groups of a mesh do: all-reduce, reduce-scatter, all-gather. */
struct collective {
    enum collective_action action;
    bool replica; /* of the replica group; else of the shard group */
    double bytes; /* of all that is summed; of one rank's block that is scattered or gathered */
};

enum rehearsed_kind {
    REHEARSED_OPERATION,
    REHEARSED_START, /* a collective takes its place in the queue */
    REHEARSED_WAIT   /* what comes next needs its result */
};

struct rehearsed {
    enum rehearsed_kind kind;
    enum rehearsed_phase phase;
    int unit;                     /* -1: of none; of a wait: where the step stood */
    struct counted counted;       /* OPERATION */
    int number;                   /* START, WAIT: which collective, from 0 */
    struct collective collective; /* START */
};

struct step_script {
    struct rehearsed *event;
    int count, capacity, collectives;
};

/* Of an imagined session that was measured (session_measure) for training; no other use can be made
 * of the session afterwards. */
void step_script_make(struct step_script *script, struct session *session,
                      const struct image_source *source);
void step_script_close(struct step_script *script);

#endif
