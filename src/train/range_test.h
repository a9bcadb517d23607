/* The learning-rate range test (Smith 2017, "Cyclical Learning Rates for Training Neural Networks",
 * section 3.3; with the smoothing and the stop of fastai's lr_find): the rate grows exponentially
 * from update to update until the loss explodes. Afterwards all is as it was. */
#ifndef VITTRAIN_TRAIN_RANGE_TEST_H
#define VITTRAIN_TRAIN_RANGE_TEST_H

#include "train/feed.h"
#include "train/session.h"

struct range_point {
    double rate;     /* of the update that this loss was computed before */
    double loss;     /* mean of the global batch */
    double smoothed; /* exponential average, its start corrected as in Adam */
};

enum range_end {
    RANGE_WHOLE,      /* up to the last rate */
    RANGE_DIVERGED,   /* the smoothed loss was above find.stop times the lowest */
    RANGE_NOT_FINITE, /* NaN or infinity */
    RANGE_STOPPED     /* a signal asked for it */
};

struct range_test {
    struct range_point *points; /* [count], the same on all ranks */
    int64_t count, steps;       /* made; asked for */
    enum range_end end;
    double end_rate; /* at which it ended */
};

/* What a curve says. Some points at its beginning (the average has seen little) and at its end (it
 * explodes) are left out. */
struct range_suggestion {
    int64_t first, end;      /* points that were looked at: first <= i < end */
    int64_t lowest, highest; /* of the smoothed losses; the highest before the lowest */
    int64_t steepest;        /* where it falls fastest, over the rate's logarithm, between them */
    double fall, noise;      /* from highest to lowest; standard deviation of a smoothed loss */
    double steepest_rate;    /* NAN: nothing falls by more than noise does, or too few points */
    double tenth_of_lowest;  /* of that rate; NAN likewise */
};

/* Collective. Runs the test that the options' section find describes with the session's weights and
 * their optimizer, begun anew, on the feed's batches from the first epoch on. The session is
 * allocated for training and has its segments (flat_set_segments); the loader runs no epoch. When
 * it returns true, the session's weights, moments, averages and running statistics and its loss
 * scaler have the bits that they had, and the loader runs no epoch. The caller calls
 * range_test_free in any case. False: an error of the data or too little memory; that losses become
 * NaN is none. */
MUST_CHECK bool range_test_run(struct session *session, struct data_feed *feed,
                               struct range_test *test, struct error *error);
void range_test_free(struct range_test *test);

/* beta: by which the losses were smoothed. */
void range_test_suggest(const struct range_test *test, double beta,
                        struct range_suggestion *suggestion);

#endif
