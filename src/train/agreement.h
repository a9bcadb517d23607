/* What all ranks do at the same step although one of them decides it: end by a signal that one got,
 * or by rank 0's clock; write a checkpoint that is due; go on with one that is being written. Each
 * step begins with the ranks' wishes, which one small collective brings together while the step
 * runs, and ends with what came out: nobody waits for it inside of a step. */
#ifndef VITTRAIN_TRAIN_AGREEMENT_H
#define VITTRAIN_TRAIN_AGREEMENT_H

#include "comm/comm.h"

/* 0 or 1 each: of a rank; or whether any rank has it. */
struct wishes {
    int64_t stop;       /* a signal asked for the end */
    int64_t time_over;  /* train.max_seconds */
    int64_t checkpoint; /* checkpoint.every_seconds */
    int64_t writing;    /* this rank's part of a checkpoint in the background is not done yet */
};

struct agreement {
    struct comm *world;
    struct ticket *ticket;
    bool asked;
    struct wishes wishes; /* the collective's while one is under way */
};

void agreement_open(struct agreement *agreement, struct comm *world);

/* Collective. After this agreement_hear is called, before the next is asked. */
void agreement_ask(struct agreement *agreement, const struct wishes *own);

/* Collective. What was asked last. */
struct wishes agreement_hear(struct agreement *agreement);

/* Collective where something was asked and not heard, after a step that failed. Nothing for one
 * that was never opened (all zero). */
void agreement_close(struct agreement *agreement);

#endif
