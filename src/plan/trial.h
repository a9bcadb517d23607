/* A trial of a batch: everything that a run takes is really allocated, a step is run on made-up
 * images, and memory is measured. What does not fit is given back and is no error. */
#ifndef VITTRAIN_PLAN_TRIAL_H
#define VITTRAIN_PLAN_TRIAL_H

#include "plan/plan.h"

struct trial {
    int64_t batch; /* train.batch */
    bool fits;
    size_t planned;         /* arena, loaders and libraries of the rank that needs most */
    size_t peak;            /* its resident set at most; 0: it did not come so far */
    double seconds;         /* of the step */
    int64_t image;          /* the model's */
    enum data_type compute; /* what was computed in */
    int nodes;
    struct error why; /* where something could not be allocated */
};

/* Collective. Fits: all ranks run it and none is ever larger than `limit` bytes (the same on all
 * ranks). plan: whose options and data. false: another error than too little memory, the same on
 * all ranks. */
MUST_CHECK bool trial_run(const struct plan *plan, int64_t batch, size_t limit, struct comm *world,
                          struct trial *trial, struct error *error);

#endif
