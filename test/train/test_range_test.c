// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// joined
/* The range test on all meshes and in fp16 with the loss scaler, and the suggestions from curves.
 */
#include "train/range_test.h"

#include "comm_fixture.h"
#include "model_fixture.h"
#include "options/options.h"
#include "settings.h"
#include "test.h"

/* Opens a run before its first training step. */
static void rehearsal_open(struct session *session, const char *settings)
{
    static const char same[] = "model.dim=16 model.depth=1 model.heads=2 model.patch=16 "
                               "data.format=synthetic data.samples=96 data.val=none "
                               "model.dropout=0.1 run.threads=1 train.global_batch=12 "
                               "find.steps=20 find.first=1e-4 find.last=1";
    static struct options options;
    struct error error = {0};
    char text[1024];
    snprintf(text, sizeof text, "%s %s", same, settings);
    settings_set(&options, text);
    assert_ok(session_open(session, &options, world, &error) && session_start(session, &error),
              &error);
    flat_initialize(&session->flat, 3);
    flat_refresh(&session->flat);
    session_activations(session, true);
}

static const char *const settings[] = {
    "optim.ema=0.9 train.precision=fp32",
    "mesh.strategy=fsdp optim.name=sgd optim.momentum=0.9 train.precision=bf16",
    "mesh.strategy=zero2 train.precision=fp16 train.accumulate=2",
    "model.name=cnn_b model.width=4 model.dim=auto model.depth=auto model.heads=auto "
    "model.patch=auto model.dropout=auto train.precision=fp32 optim.name=rmsprop "
    "data.image=32 model.image=32 find.steps=5",
};

TEST(all_ranks_get_the_same_curve)
{
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        static struct session session;
        struct range_test test;
        struct error error = {0};
        rehearsal_open(&session, settings[i]);
        assert_ok(range_test_run(&session, &test, &error), &error);
        assert_true(test.count >= 5 && isfinite(test.points[0].loss));
        assert_true(comm_same(world, test.points, (size_t)test.count * sizeof *test.points));
        range_test_free(&test);
        session_close(&session);
    }
}

/* ---- curves: constant, then falling around 1e-3, then diverging */

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

TEST_MAIN_WORLD()
