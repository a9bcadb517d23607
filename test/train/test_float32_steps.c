// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 4
// joined
/* Eight training steps on float32 records with missing values have the losses of PyTorch
 * (test/vectors/make_float32.py). */
#include "comm_fixture.h"
#include "model_fixture.h"
#include "options/options.h"
#include "train/step.h"

enum { STEPS = 8, CHANNELS = 6, PLANE = 16 * 16, CLASSES = 4 };

static float value_at(int64_t record, int64_t channel, int64_t pixel)
{
    const int64_t number =
        (record * 7919 + pixel * 104729 + channel * 31 + record * pixel % 13) % 1009;
    const float scale = (float)pow(10, (double)channel - 2);
    return number % 50 == 0 ? NAN : (float)((double)number / 1009) * scale + (float)(channel * 25);
}

static int32_t record_label(const struct dataset *dataset, int64_t record)
{
    (void)dataset;
    return (int32_t)(record * 7 % CLASSES);
}

static bool record_read(const struct dataset *dataset, int64_t record, void *values,
                        struct error *failure)
{
    (void)dataset, (void)failure;
    for (int64_t i = 0; i < CHANNELS * PLANE; i++)
        ((float *)values)[i] = value_at(record, i / PLANE, i % PLANE);
    return true;
}

/* vectors: the folder test/vectors. */
static void run_prepare(struct session *session, const struct dataset_format *format,
                        const char *vectors)
{
    static const char settings[] =
        "model.name=vit_tiny_patch16_224 model.image=16 model.channels=6 model.patch=4 "
        "model.dim=24 model.depth=2 model.heads=3 data.val=none data.format=synthetic "
        "data.values=float32 data.image=16 data.samples=32 data.classes=4 data.shuffle=off "
        "train.global_batch=16 train.clip_norm=0 train.precision=fp32 optim.name=adamw "
        "optim.weight_decay=0.05 run.threads=1";
    static struct options options;
    char init[1024];
    settings_set(&options, settings);
    snprintf(init, sizeof init, "model.init=%s/float32.safetensors", vectors);
    assert_ok(options_set(init, &options, &error) &&
                  session_open(session, &options, world, &error) && session_start(session, &error),
              &error);
    session->train.dataset.format = format;
    assert_ok(session_initialize(session, &error), &error);
    flat_refresh(&session->flat);
    session_activations(session, true);
    step_io_take_sums(&session->io, session->stream);
}

TEST(losses_are_pytorchs)
{
    static struct session session;
    struct dataset_format format = dataset_synthetic;
    struct step_times times = {0};
    const char *source = getenv("srcdir");
    char vectors[512], path[600];
    snprintf(vectors, sizeof vectors, "%s/test/vectors", source != NULL ? source : ".");
    snprintf(path, sizeof path, "%s/float32.txt", vectors);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    format.read = record_read;
    format.label = record_label;
    run_prepare(&session, &format, vectors);
    loader_start(session.train.loader, 0, 0, STEPS);
    for (int step = 0; step < STEPS; step++) {
        int number;
        double expected;
        assert_int_equal(fscanf(file, "%d %lf", &number, &expected), 2);
        assert_ok(step_run(&session, step, 3e-3, &times, &error), &error);
        const struct loss_sums own = step_io_take_sums(&session.io, session.stream);
        double sums[] = {own.loss, own.samples};
        comm_all_reduce(world, sums, 2, COMM_FP64, COMM_SUM);
        if (!(fabs(sums[0] / sums[1] - expected) < 1e-4 * expected))
            fail_msg("step %d: loss %.9g, PyTorch has %.9g", number, sums[0] / sums[1], expected);
    }
    loader_stop(session.train.loader);
    session_close(&session);
    fclose(file);
}

TEST_MAIN_WORLD()
