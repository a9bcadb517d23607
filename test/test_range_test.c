// SPDX-License-Identifier: BSD-3-Clause
/* The range test restores a session bit for bit, on all meshes and in fp16 with the loss scaler, so
 * that later steps give the same results. The suggestions from curves. */
#include "train/range_test.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm_fixture.h"
#include "config/options.h"
#include "core/crc32c.h"
#include "model_fixture.h"
#include "train/optimizer.h"
#include "train/step.h"

static struct comm *world;

/* A session with its data before the first training step. */
struct rehearsal {
    struct options options;
    struct session session;
    struct data_feed feed;
    struct optimizer optimizer;
    struct step_context step;
};

static void rehearsal_open(struct rehearsal *rehearsal, const char *settings)
{
    static const char same[] = "model.dim=16 model.depth=1 model.heads=2 model.patch=16 "
                               "data.format=synthetic data.samples=96 data.val=none "
                               "model.dropout=0.1 run.threads=1 train.global_batch=12 "
                               "find.steps=20 find.first=1e-4 find.last=1";
    struct options *options = &rehearsal->options;
    struct session *session = &rehearsal->session;
    struct error error = {0};
    char text[1024];
    options_default(options);
    snprintf(text, sizeof text, "%s %s", same, settings);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "))
        assert_true(options_set(word, options, &error));
    if (!feed_open(&rehearsal->feed, options, SPLIT_TRAIN, world, &error) ||
        !session_resolve(options, &rehearsal->feed.dataset, NULL, &error) ||
        !session_open(session, options, world, true, &error) ||
        !session_allocate(session, feed_pass_samples(options, 12, world->size),
                          &rehearsal->feed.source, true, &error) ||
        !feed_start(&rehearsal->feed, options, world, session->device, 12, session->model->image,
                    &error))
        fail_msg("%s", error.text);
    optimizer_open(&rehearsal->optimizer, options);
    flat_set_segments(&session->flat, options->optim.weight_decay, options->train.accumulate);
    flat_initialize(&session->flat, 3);
    flat_refresh(&session->flat);
    step_open(&rehearsal->step, session, &rehearsal->feed, &rehearsal->optimizer);
    session_activations(session, true);
}

static void rehearsal_close(struct rehearsal *rehearsal)
{
    step_close(&rehearsal->step);
    feed_close(&rehearsal->feed);
    session_close(&rehearsal->session);
}

/* Runs training steps of the first epoch. */
static void steps_run(struct rehearsal *rehearsal, int64_t first, int64_t end)
{
    struct step_times times = {0};
    struct error error = {0};
    loader_start(rehearsal->feed.loader, 0, first, end - first);
    for (int64_t step = first; step < end; step++)
        if (!step_run(&rehearsal->step, step, 1e-2, &times, &error))
            fail_msg("%s", error.text);
    if (!step_finish(&rehearsal->step, &times, &error))
        fail_msg("%s", error.text);
    loader_stop(rehearsal->feed.loader);
}

/* Returns the CRC32C of this rank's part of a checkpoint and of the compute copies. */
static uint32_t state_sum(const struct session *session)
{
    uint32_t crc = 0;
    for (int u = 0; u < session->flat.count; u++) {
        const struct flat_buffer *buffer = &session->flat.buffers[u];
        const float *vectors[] = {buffer->master, buffer->moment1, buffer->moment2,
                                  buffer->average};
        for (int i = 0; i < 4; i++)
            if (vectors[i] != NULL)
                crc = crc32c_update(crc, vectors[i], (size_t)buffer->shard_count * sizeof(float));
        /* The parts of other ranks are valid after a gather only. */
        size_t element = type_size(session->flat.type);
        if (!session->flat.slots_weights)
            crc = crc32c_update(
                crc, (const char *)buffer->weights + (size_t)buffer->shard_begin * element,
                (size_t)buffer->shard_count * element);
    }
    crc = crc32c_update(crc, &session->io.result.scaler, sizeof session->io.result.scaler);
    if (session->io.scaler != NULL)
        crc = crc32c_update(crc, session->io.scaler, sizeof *session->io.scaler);
    return crc;
}

static const char *const settings[] = {
    "optim.ema=0.9 train.precision=fp32",
    "mesh.strategy=fsdp optim.name=sgd optim.momentum=0.9 train.precision=bf16",
    "mesh.strategy=zero2 train.precision=fp16 train.accumulate=2",
    "model.name=cnn_b model.width=4 model.dim=auto model.depth=auto model.heads=auto "
    "model.patch=auto model.dropout=auto train.precision=fp32 optim.name=rmsprop "
    "data.image=32 model.image=32 find.steps=5",
};

/* Runs two updates, optionally with a range test between them. */
static uint32_t updates_run(const char *words, bool tests)
{
    static struct rehearsal rehearsal;
    struct error error = {0};
    memset(&rehearsal, 0, sizeof rehearsal);
    rehearsal_open(&rehearsal, words);
    steps_run(&rehearsal, 0, 1);
    if (tests) {
        struct range_test test;
        uint32_t before = state_sum(&rehearsal.session);
        if (!range_test_run(&rehearsal.session, &rehearsal.feed, &test, &error))
            fail_msg("%s", error.text);
        assert_int_equal(before, state_sum(&rehearsal.session));
        assert_true(test.count >= 5);
        range_test_free(&test);
    }
    steps_run(&rehearsal, 1, 3);
    uint32_t after = state_sum(&rehearsal.session);
    rehearsal_close(&rehearsal);
    return after;
}

static void nothing_is_changed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        assert_int_equal(updates_run(settings[i], false), updates_run(settings[i], true));
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

static void a_fall_is_found(void **state)
{
    (void)state;
    struct range_test test;
    struct range_suggestion found;
    curve_make(&test, 1.0, 0.05);
    range_test_suggest(&test, 0.9, &found);
    assert_true(found.steepest_rate > 1e-3 && found.steepest_rate < 5e-3);
    assert_true(found.tenth_of_lowest > 0.02 && found.tenth_of_lowest < 0.15);
    assert_true(found.steepest < found.lowest && found.highest < found.steepest);
}

static void noise_is_no_fall(void **state)
{
    (void)state;
    struct range_test test;
    struct range_suggestion found;
    curve_make(&test, 0, 0.05);
    range_test_suggest(&test, 0.9, &found);
    assert_true(isnan(found.steepest_rate) && isnan(found.tenth_of_lowest));
    curve_make(&test, 1.0, 0.05);
    test.count = 6;
    range_test_suggest(&test, 0.9, &found);
    assert_true(isnan(found.steepest_rate));
    test.count = 0;
    range_test_suggest(&test, 0.9, &found);
    assert_true(isnan(found.steepest_rate));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_changed),
                                       cmocka_unit_test(a_fall_is_found),
                                       cmocka_unit_test(noise_is_no_fall)};
    world = fixture_world_open(&argc, &argv);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    comm_world_close(world);
    return failed;
}
