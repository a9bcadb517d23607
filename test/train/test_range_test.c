// SPDX-License-Identifier: BSD-3-Clause
/* The suggestions of the range test from curves; test_find_lr.sh runs the test. */
#include "train/range_test.h"

#include "test.h"

/* A curve is constant, then falls around 1e-3, then diverges. */

enum { POINTS = 200 };

static void curve_make(struct range_test *test, double depth, double noise)
{
    static struct range_point points[POINTS];
    double average = 0, beta = 0.9;
    *test = (struct range_test){.points = points, .count = POINTS, .steps = POINTS};
    for (int i = 0; i < POINTS; i++) {
        double place = -8 + 9.0 * i / (POINTS - 1); /* log10 of the rate */
        double fall = depth / (1 + exp(-3 * (place + 3)));
        double rise = place > 0 ? 20 * place * place : 0;
        points[i].rate = pow(10, place);
        points[i].loss = 2.3 - fall + rise + noise * sin(1e3 * i * i);
        average = beta * average + (1 - beta) * points[i].loss;
        points[i].smoothed = average / (1 - pow(beta, i + 1));
    }
}

/* No suggestion from noise, nor from too few points. */
TEST(a_fall_is_found)
{
    static const struct {
        double depth;
        int64_t count;
    } rows[] = {{1, POINTS}, {0, POINTS}, {1, 6}, {1, 0}};
    for (int i = 0; i < 4; i++) {
        struct range_test test;
        struct range_suggestion found;
        curve_make(&test, rows[i].depth, 0.05);
        test.count = rows[i].count;
        range_test_suggest(&test, 0.9, &found);
        assert_int_equal(isnan(found.steepest_rate), i > 0);
        assert_int_equal(isnan(found.tenth_of_lowest), i > 0);
        if (i > 0)
            continue;
        assert_true(found.steepest_rate > 1e-3 && found.steepest_rate < 5e-3);
        assert_true(found.tenth_of_lowest > 0.02 && found.tenth_of_lowest < 0.15);
        assert_true(found.steepest < found.lowest && found.highest < found.steepest);
    }
}

TEST_MAIN()
