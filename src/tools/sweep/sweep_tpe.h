// SPDX-License-Identifier: BSD-3-Clause
/* The next point of a sweep: random, or suggested by a tree-structured Parzen estimator (Bergstra
 * et al., "Algorithms for Hyper-Parameter Optimization", NIPS 2011) with the constants and kernels
 * of Optuna's TPESampler. */
#ifndef VITTRAIN_TOOLS_SWEEP_SWEEP_TPE_H
#define VITTRAIN_TOOLS_SWEEP_SWEEP_TPE_H

#include "tools/sweep/sweep_space.h"

/* An earlier trial. */
struct sweep_seen {
    struct sweep_point point;
    double value; /* larger is better; -INFINITY: failed; NAN: running */
};

/* Number of random trials before the estimator is used. */
enum { TPE_STARTUP = 10 };

/* Deterministic for a seed and a number. */
void sweep_random_point(const struct sweep_space *space, uint64_t seed, int64_t number,
                        struct sweep_point *point);

/* Suggest the point of trial `number` from `count` earlier trials, in the order of their start.
 * Random until TPE_STARTUP trials have ended. Then 24 candidates are drawn from the density of the
 * good trials, and the one with the largest ratio to the density of the other trials is chosen.
 * Good are the best tenth, rounded up, at most 25. Running trials count as others, so that
 * concurrent trials differ. */
void sweep_tpe_point(const struct sweep_space *space, uint64_t seed, int64_t number,
                     const struct sweep_seen *seen, int64_t count, struct sweep_point *point);

/* Return the logarithm of the density of `count` trials at a point. For tests. */
double sweep_tpe_density(const struct sweep_space *space, const struct sweep_point *trials,
                         int64_t count, const struct sweep_point *at);

#endif
