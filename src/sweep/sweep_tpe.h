/* Where a sweep looks next: random points, or those of a tree-structured Parzen estimator (Bergstra
 * et al., "Algorithms for Hyper-Parameter Optimization", NIPS 2011) with the numbers and kernels of
 * Optuna's TPESampler. */
#ifndef VITTRAIN_SWEEP_SWEEP_TPE_H
#define VITTRAIN_SWEEP_SWEEP_TPE_H

#include "sweep/sweep_space.h"

/* A trial that is known. */
struct sweep_seen {
    struct sweep_point point;
    double value; /* more is better; -INFINITY: it failed; NAN: it runs */
};

/* Trials before the estimator is asked. */
enum { TPE_STARTUP = 10 };

/* The same for the same seed and number. */
void sweep_random_point(const struct sweep_space *space, uint64_t seed, int64_t number,
                        struct sweep_point *point);

/* The suggestion for trial `number`, after `count` others, in the order in which they began. Random
 * until TPE_STARTUP have ended; then that of 24 points, drawn by the density of the good trials,
 * where this is largest over the density of the others. Good: the best tenth, rounded up, 25 at
 * most. Trials that run count as others, so that two at once do not look at one place. */
void sweep_tpe_point(const struct sweep_space *space, uint64_t seed, int64_t number,
                     const struct sweep_seen *seen, int64_t count, struct sweep_point *point);

/* The logarithm of the density of `count` trials at a point; for tests. */
double sweep_tpe_density(const struct sweep_space *space, const struct sweep_point *trials,
                         int64_t count, const struct sweep_point *at);

#endif
