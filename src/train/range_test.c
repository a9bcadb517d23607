// SPDX-License-Identifier: BSD-3-Clause
/* The range test runs training steps with its own rates. Unlike in training, the host reads the
 * loss of each step. */
#include "train/range_test.h"

#include <math.h>
#include <stdlib.h>

#include "base/allocate.h"
#include "base/base.h"
#include "train/step.h"

/* Maximum numbers of points that are ignored at the begin and at the end of the curve, and their
 * maximum share (one of SKIP_SHARE). A curve needs POINTS_LEAST points. */
enum { SKIP_FIRST = 10, SKIP_LAST = 5, SKIP_SHARE = 10, POINTS_LEAST = 8 };

/* A slope covers one of SLOPE_SHARE points on each side. */
enum { SLOPE_SHARE = 20 };

/* Minimum fall in standard deviations of the noise. */
enum { NOISE_FACTOR = 4 };

bool range_test_run(struct session *session, struct range_test *test, struct error *error)
{
    const struct find_options *find = &session->options.find;
    const int64_t count = find->steps > 0 ? find->steps : sampler_steps(&session->train.sampler);
    double average = 0, lowest = INFINITY; /* of the losses: without bias correction; smoothed */
    *test = (struct range_test){.end = RANGE_WHOLE, .steps = larger(count, 2)};
    test->points = allocate((size_t)test->steps, sizeof *test->points);
    session->device->backend->zero(session->stream, session->io.sums, sizeof *session->io.sums);
    session_activations(session, true);
    loader_start(session->train.loader, 0, 0, test->steps);
    for (int64_t number = 0; test->end == RANGE_WHOLE && number < test->steps; number++) {
        struct step_times times = {0};
        const double share = (double)number / (double)(test->steps - 1);
        const double rate = find->first * pow(find->last / find->first, share);
        const bool good =
            step_run(session, number, rate, &times, error) && step_finish(session, &times, error);
        if (!good && error->kind != ERROR_NUMERIC)
            break;
        error_clear(error);
        struct {
            struct loss_sums loss;
            double stop;
        } sums = {step_io_take_sums(&session->io, session->stream), comm_stop_wanted()};
        comm_all_reduce(session->world, &sums, sizeof sums / sizeof(double), COMM_FP64, COMM_SUM);
        const double loss = loss_mean(&sums.loss);
        if (sums.loss.samples > 0) { /* a batch without targets is no point of the curve */
            average = find->beta * average + (1 - find->beta) * loss;
            const double smoothed = average / (1 - pow(find->beta, (double)test->count + 1));
            test->end_rate = rate;
            if (!isfinite(loss)) {
                test->end = RANGE_NOT_FINITE;
            } else if (find->stop > 0 && smoothed > find->stop * lowest) {
                test->end = RANGE_DIVERGED;
            } else {
                lowest = fmin(lowest, smoothed);
                test->points[test->count] = (struct range_point){
                    .step = test->count + 1, .rate = rate, .loss = loss, .smoothed = smoothed};
                test->count++;
            }
        }
        if (!good)
            test->end = RANGE_NOT_FINITE;
        else if (sums.stop > 0) /* a signal requests the end on any rank */
            test->end = RANGE_STOPPED;
    }
    batch_upload_finish(&session->input);
    loader_stop(session->train.loader);
    return error->kind == ERROR_NONE;
}

void range_test_free(struct range_test *test)
{
    free(test->points);
    test->points = NULL;
}

/* ---- the suggestion */

/* The slope per point, over a tenth of the curve because the smoothed loss is still noisy. Points
 * are equidistant in the logarithm of the rate. */
static double slope_at(const struct range_test *test, const struct range_suggestion *within,
                       int64_t i)
{
    int64_t reach = larger(test->count / SLOPE_SHARE, 1), left = larger(i - reach, within->first);
    int64_t right = smaller(i + reach, within->end - 1);
    return (test->points[right].smoothed - test->points[left].smoothed) / (double)(right - left);
}

/* The standard deviation of the noise in the smoothed loss at point i, estimated from the
 * differences of successive losses. */
static double noise_at(const struct range_test *test, double beta, int64_t i, int64_t end)
{
    double squares = 0;
    for (int64_t k = 1; k < end; k++)
        squares += pow(test->points[k].loss - test->points[k - 1].loss, 2);
    double seen = pow(beta, (double)i + 1);
    return sqrt(squares / 2 / (double)(end - 1) * (1 - beta) / (1 + beta) * (1 + seen) /
                (1 - seen));
}

void range_test_suggest(const struct range_test *test, double beta,
                        struct range_suggestion *suggestion)
{
    const struct range_point *points = test->points;
    *suggestion = (struct range_suggestion){.steepest_rate = NAN, .tenth_of_lowest = NAN};
    suggestion->first = smaller(test->count / SKIP_SHARE, SKIP_FIRST);
    suggestion->end = test->count - smaller(test->count / SKIP_SHARE, SKIP_LAST);
    if (suggestion->end - suggestion->first < POINTS_LEAST)
        return;
    suggestion->lowest = suggestion->highest = suggestion->first;
    for (int64_t i = suggestion->first; i < suggestion->end; i++)
        if (points[i].smoothed < points[suggestion->lowest].smoothed)
            suggestion->lowest = i;
    for (int64_t i = suggestion->first; i < suggestion->lowest; i++)
        if (points[i].smoothed > points[suggestion->highest].smoothed)
            suggestion->highest = i;
    double high = points[suggestion->highest].smoothed;
    suggestion->fall = high - points[suggestion->lowest].smoothed;
    suggestion->noise = noise_at(test, beta, suggestion->highest, suggestion->lowest + 1);
    if (!(suggestion->fall > NOISE_FACTOR * suggestion->noise))
        return;
    /* Search from the point from which the loss stays below a tenth of the fall. */
    int64_t begin = suggestion->lowest;
    while (begin > suggestion->first && points[begin].smoothed < high - suggestion->fall / 10)
        begin--;
    suggestion->steepest = suggestion->lowest;
    for (int64_t i = begin; i < suggestion->lowest; i++)
        if (slope_at(test, suggestion, i) < slope_at(test, suggestion, suggestion->steepest))
            suggestion->steepest = i;
    suggestion->steepest_rate = points[suggestion->steepest].rate;
    suggestion->tenth_of_lowest = points[suggestion->lowest].rate / 10;
}
