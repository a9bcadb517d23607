// SPDX-License-Identifier: BSD-3-Clause
/* The learning-rate range test (Smith 2017, "Cyclical Learning Rates for Training Neural Networks",
 * section 3.3), with the smoothing and the stop criterion of fastai's lr_find: the rate grows
 * exponentially from update to update until the loss diverges. */
#ifndef VITTRAIN_TRAIN_RANGE_TEST_H
#define VITTRAIN_TRAIN_RANGE_TEST_H

#include "train/session.h"

struct range_point {
    int64_t step;    /* from 1 */
    double rate;     /* of the update after this loss */
    double loss;     /* mean of the global batch */
    double smoothed; /* exponential average with the bias correction of Adam */
};

enum range_end {
    RANGE_WHOLE,      /* reached the last rate */
    RANGE_DIVERGED,   /* the smoothed loss was above find.stop times the lowest */
    RANGE_NOT_FINITE, /* NaN or infinity */
    RANGE_STOPPED     /* by a signal */
};

struct range_test {
    struct range_point *points; /* [count], the same on all ranks */
    int64_t count, steps;       /* done; requested */
    enum range_end end;
    double end_rate; /* the last rate */
};

/* The rates that a curve suggests. The first points, where the average is still uncertain, and the
 * last points, where the loss diverges, are ignored. */
struct range_suggestion {
    int64_t first, end;      /* considered points: first <= i < end */
    int64_t lowest, highest; /* of the smoothed losses; the highest before the lowest */
    int64_t steepest;        /* the steepest fall over the logarithm of the rate, between these */
    double fall, noise;      /* highest minus lowest; standard deviation of a smoothed loss */
    double steepest_rate;    /* NAN: the fall is within the noise, or too few points */
    double tenth_of_lowest;  /* a tenth of the rate of the lowest loss, or NAN */
};

/* Collective. Runs the test of the options' section `find` after session_start, with initial
 * weights that the test changes. Returns false and an error for unreadable data or too little
 * memory; NaN losses only end the test. The caller calls range_test_free in any case. */
MUST_CHECK bool range_test_run(struct session *session, struct range_test *test,
                               struct error *error);
void range_test_free(struct range_test *test);

/* beta: smoothing factor of the losses. */
void range_test_suggest(const struct range_test *test, double beta,
                        struct range_suggestion *suggestion);

#endif
