// SPDX-License-Identifier: BSD-3-Clause
/* The loader at the ends of epochs: during an evaluation it reads the first batches of the next
 * epoch. It reads each sample of an epoch once, and nothing after the last step. */
#include <semaphore.h>
#include <stdatomic.h>

#include "model_fixture.h"
#include "options/options.h"
#include "temporary.h"
#include "train/trainer.h"

enum { EPOCHS = 3, BATCH = 16, EPOCH_STEPS = 6, SAMPLES = EPOCH_STEPS * BATCH };

static const struct dataset_format *format; /* the original format */
static struct dataset_format training_format, validation_format;
static atomic_int training_reads, validation_reads;
static sem_t training_read_done; /* posted by each read of a training sample */
static int validation_samples;

static bool training_read(const struct dataset *dataset, int64_t record, void *values,
                          struct error *failure)
{
    atomic_fetch_add(&training_reads, 1);
    sem_post(&training_read_done);
    return format->read(dataset, record, values, failure);
}

/* The first read of an evaluation waits until a batch of the next epoch was read. */
static bool validation_read(const struct dataset *dataset, int64_t record, void *values,
                            struct error *failure)
{
    static int seen; /* reads of training samples */
    const int number = atomic_fetch_add(&validation_reads, 1);
    const int epoch = number / validation_samples + 1;
    const int wanted = epoch * SAMPLES + (epoch < EPOCHS ? BATCH : 0);
    for (; number % validation_samples == 0 && seen < wanted; seen++)
        sem_wait(&training_read_done);
    return format->read(dataset, record, values, failure);
}

TEST(the_loader_goes_on_while_an_evaluation_runs)
{
    static struct trainer trainer;
    struct options options;
    settings_set(&options,
                 "model.dim=32 model.depth=1 model.heads=2 model.patch=8 data.format=synthetic "
                 "train.batch=16 train.epochs=3 train.precision=fp32 output.tensorboard=0 "
                 "output.logbook= output.monitor=0 run.backend=cpu data.samples=96 "
                 "checkpoint.keep=1 run.threads=1");
    snprintf(options.run.dir, sizeof options.run.dir, "%s", temporary_path("run"));
    assert_int_equal(sem_init(&training_read_done, 0, 0), 0);
    assert_ok(trainer_open(&trainer, &options, NULL, NULL, world, &error), &error);
    assert_int_equal(trainer.steps_per_epoch, EPOCH_STEPS);
    format = trainer.session.train.dataset.format;
    training_format = validation_format = *format;
    training_format.read = training_read;
    validation_format.read = validation_read;
    trainer.session.train.dataset.format = &training_format;
    trainer.session.validation.dataset.format = &validation_format;
    validation_samples = (int)trainer.session.validation.dataset.count;
    assert_ok(trainer_run(&trainer, &error), &error);
    trainer_close(&trainer);
    assert_int_equal(atomic_load(&validation_reads), EPOCHS * validation_samples);
    assert_int_equal(atomic_load(&training_reads), EPOCHS * SAMPLES);
}

TEST_MAIN_WORLD(.setup = temporary_setup, .teardown = temporary_close)
