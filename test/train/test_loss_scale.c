// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 4
// joined
/* Training in fp16: an overflow skips the update on all ranks and changes only the scale. Other
 * failures (an unreadable record, non-finite weights) end the run on all ranks in the same step. */
#include <fcntl.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm_fixture.h"
#include "model_fixture.h"
#include "options/options.h"
#include "temporary.h"
#include "train/trainer.h"

enum { RECORD = 3073, RECORDS = 96, BATCH = 8, STEPS = RECORDS / BATCH };

static const char *const meshes[] = {
    "mesh.strategy=ddp",
    "mesh.strategy=zero1",
    "mesh.strategy=zero2",
    "mesh.strategy=fsdp mesh.reduce=compute",
    "mesh.strategy=ddp mesh.reduce=compute train.accumulate=2",
    "mesh.strategy=hsdp mesh.shard=1 train.accumulate=2",
};

enum { MESHES = sizeof meshes / sizeof meshes[0] };

static void make_data(void)
{
    shared_folder_make();
    if (world->rank == 0) {
        OWNED unsigned char *records = allocate(RECORDS, RECORD);
        for (int i = 0; i < RECORDS * RECORD; i++)
            records[i] = (unsigned char)(i % RECORD == 0 ? i / RECORD % 10 : i * 7 % 251);
        temporary_file("data_batch_1.bin", records, RECORDS * RECORD);
    }
    comm_barrier(world);
}

/* Open a run with these additional settings, at the start of its first epoch. */
static void loss_run_open(struct trainer *trainer, const char *settings)
{
    static const char small[] =
        "model.dim=32 model.depth=2 model.heads=2 model.patch=8 model.dropout=0 model.drop_path=0 "
        "data.format=cifar10 data.shuffle=off data.val=none train.global_batch=8 optim.ema=0.9 "
        "train.clip_norm=1 run.threads=1 augment.erase=0";
    static int runs;
    char words[2048];
    struct options options;
    snprintf(words, sizeof words, "%s data.root=%s run.dir=%s/run-%d %s", small, shared_folder,
             shared_folder, runs++, settings);
    settings_set(&options, words);
    assert_ok(trainer_open(trainer, &options, NULL, NULL, world, &error), &error);
    session_activations(&trainer->session, true);
    step_io_take_sums(&trainer->session.io, trainer->session.stream);
    loader_start(trainer->session.train.loader, 0, 0, trainer->steps_per_epoch);
}

static bool run_step(struct trainer *trainer, int64_t number)
{
    struct step_times times = {0};
    return step_run(&trainer->session, number, 1e-3, &times, &error);
}

/* Return a copy of everything that an update may change on this rank; the caller frees it. */
static float *everything(const struct flat_model *flat, int64_t *count)
{
    float *all = NULL;
    *count = 0;
    for (int u = 0; u < flat->count; u++) {
        const struct flat_buffer *buffer = &flat->buffers[u];
        const float *parts[] = {buffer->master, buffer->moment1, buffer->moment2, buffer->average};
        for (int p = 0; p < 4; p++) {
            all = allocate_resized(all, (size_t)(*count + buffer->shard_count) * sizeof *all);
            memcpy(all + *count, parts[p], (size_t)buffer->shard_count * sizeof *all);
            *count += buffer->shard_count;
        }
    }
    return all;
}

static bool changed(const struct flat_model *flat, const float *before)
{
    int64_t count;
    OWNED float *now = everything(flat, &count);
    return memcmp(now, before, (size_t)count * sizeof *now) != 0;
}

/* Return the number of ranks on which the condition holds. */
static int64_t ranks_where(bool it)
{
    int64_t count = it;
    comm_all_reduce(world, &count, 1, COMM_INT64, COMM_SUM);
    return count;
}

TEST(an_overflow_changes_nothing_but_the_scale)
{
    for (int i = 0; i < MESHES; i++) {
        struct trainer trainer;
        error_clear(&error);
        char settings[256];
        int64_t count, skipped = 0;
        snprintf(settings, sizeof settings, "train.precision=fp16 train.loss_scale=16384 %s",
                 meshes[i]);
        loss_run_open(&trainer, settings);
        const struct session *session = &trainer.session;
        const struct loss_scaler *scaler = &session->io.result.scaler;
        for (int64_t step = 0; step < STEPS; step++) {
            OWNED float *before = everything(&session->flat, &count);
            assert_int_equal(ranks_where(run_step(&trainer, step)), world->size);
            const int64_t ranks = scaler->skipped > skipped ? world->size : 0;
            skipped += ranks > 0;
            assert_true(isnan(step_norm(session)) == (ranks > 0));
            assert_int_equal(ranks_where(scaler->skipped == skipped), world->size);
            assert_int_equal(ranks_where(changed(&session->flat, before)), world->size - ranks);
            assert_true(scaler->scale == ldexpf(16384, -(int)skipped));
        }
        assert_in_range(skipped, 1, STEPS - 1);
        trainer_close(&trainer);
    }
}

/* After the run has begun, the last sample of the step gets an invalid label. The host checks
 * outcomes this many steps later. */
static void check_bad_record(const char *precision, const char *mesh, int64_t bad_step, int ahead)
{
    struct trainer trainer;
    error_clear(&error);
    char settings[256], path[300];
    const unsigned char labels[] = {77, 3};
    snprintf(settings, sizeof settings, "%s %s", precision, mesh);
    loss_run_open(&trainer, settings);
    trainer.session.io.ahead = ahead;
    loader_stop(trainer.session.train.loader);
    snprintf(path, sizeof path, "%s/data_batch_1.bin", shared_folder);
    int file = world->rank == 0 ? open(path, O_WRONLY) : -1;
    const off_t place = (bad_step * BATCH + BATCH - 1) * RECORD;
    assert_true(world->rank != 0 || pwrite(file, &labels[0], 1, place) == 1);
    comm_barrier(world);
    loader_start(trainer.session.train.loader, 0, 0, trainer.steps_per_epoch);
    for (int64_t step = 0; step <= bad_step + ahead; step++) {
        assert_int_equal(error.kind, ERROR_NONE); /* files written meanwhile are valid */
        assert_int_equal(ranks_where(run_step(&trainer, step)),
                         step < bad_step + ahead ? world->size : 0);
    }
    assert_error(&error, ERROR_DATA, "was changed during the run");
    assert_true(world->rank != 0 || pwrite(file, &labels[1], 1, place) == 1);
    close(file);
    comm_barrier(world); /* the next run reads the file */
    trainer_close(&trainer);
}

/* In fp16 the gradient would also overflow without the invalid record. */
TEST(a_record_that_cannot_be_read_is_an_error_of_its_step)
{
    for (int i = 0; i < MESHES; i++)
        if (i % 2 == 0)
            check_bad_record("train.precision=fp16 train.loss_scale=1099511627776", meshes[i], i,
                             0);
        else
            check_bad_record("train.precision=fp32", meshes[i], i, RESULTS_AHEAD);
}

/* A smaller scale does not help with non-finite weights. */
TEST(the_lowest_scale_ends_the_run)
{
    for (int i = 1; i < MESHES; i += 2) {
        struct trainer trainer;
        error_clear(&error);
        char settings[256];
        snprintf(settings, sizeof settings, "train.precision=fp16 %s", meshes[i]);
        loss_run_open(&trainer, settings);
        struct flat_model *flat = &trainer.session.flat;
        flat->buffers[1].master[0] = INFINITY;
        flat_refresh(flat);
        session_set_scaler(&trainer.session,
                           &(struct loss_scaler){.scale = 4 * LOSS_SCALE_LEAST, .good_steps = 9});
        assert_int_equal(ranks_where(run_step(&trainer, 0)), world->size);
        assert_int_equal(trainer.session.io.result.scaler.good_steps, 0);
        assert_int_equal(ranks_where(run_step(&trainer, 1)), 0);
        assert_error(&error, ERROR_NUMERIC, "step 2: NaN or infinity in the weights blocks.0");
        trainer_close(&trainer);
    }
}

/* A run resumed in another type knows the number of Adam's updates. */
TEST(skipped_updates_count_in_other_types)
{
    struct trainer trainer;
    int64_t count;
    loss_run_open(&trainer, "train.precision=fp32");
    assert_null(trainer.session.io.scaler);
    assert_true(run_step(&trainer, 0));
    OWNED float *after = everything(&trainer.session.flat, &count);
    trainer_close(&trainer);
    for (int64_t skipped = 0; skipped <= 3; skipped += 3) {
        loss_run_open(&trainer, "train.precision=fp32");
        session_set_scaler(&trainer.session, &(struct loss_scaler){.scale = 1, .skipped = skipped});
        assert_true(run_step(&trainer, 3));
        assert_true(changed(&trainer.session.flat, after) == (skipped == 0));
        trainer_close(&trainer);
    }
}

TEST_MAIN_WORLD(.setup = make_data, .teardown = shared_folder_remove)
