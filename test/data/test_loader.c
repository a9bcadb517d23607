// SPDX-License-Identifier: BSD-3-Clause
/* Compares the loader with the sampler: all batches in order with any number of threads, across
 * epochs, with any first and last step, and with a record that cannot be read. The data set belongs
 * to the test, so reads can fail and are counted. */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

#include "data/loader.h"
#include "options/options.h"
#include "test.h"

enum { SIDE = 4, PIXELS = 3 * SIDE * SIDE, SAMPLES = 103 };

static atomic_int reads, signals_open;
static sem_t read_done; /* posted by each read */
static atomic_long bad_record;

static int32_t probe_label(const struct dataset *dataset, int64_t record)
{
    (void)dataset;
    return (int32_t)record * 2;
}

static bool probe_read(const struct dataset *dataset, int64_t record, void *values,
                       struct error *failure)
{
    (void)dataset;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (!sigismember(&mask, SIGINT) || !sigismember(&mask, SIGTERM) || !sigismember(&mask, SIGUSR1))
        atomic_fetch_add(&signals_open, 1);
    atomic_fetch_add(&reads, 1);
    sem_post(&read_done);
    if (record == atomic_load(&bad_record))
        return error_set(failure, ERROR_DATA, "record %lld is bad", (long long)record);
    memset(values, (int)record, PIXELS);
    return true;
}

static const struct dataset_format probe_format = {
    .name = "probe", .read = probe_read, .label = probe_label};
static struct dataset probe = {.format = &probe_format,
                               .count = SAMPLES,
                               .channels = 3,
                               .height = SIDE,
                               .width = SIDE,
                               .classes = 2 * SAMPLES};

static struct device *device;
static struct options options;
static struct augment augment;
static struct crop crop;                 /* inactive: images as stored */
static struct sampler sampler, expected; /* the loader's; one for the expected orders */
static struct loader *loader;
static double waited;

static void open_device(void)
{
    device = device_cpu.open(0, 1, &error);
    options_default(&options);
    assert_non_null(device);
    assert_ok(augment_open(&augment, &options, SIDE, SIDE, true, &error), &error);
}

static void close_device(void)
{
    device->backend->close(device);
}

static void set_up(void)
{
    atomic_store(&bad_record, -1);
}

static void close_all(void)
{
    loader_close(loader);
    loader = NULL;
    sampler_close(&sampler);
    sampler_close(&expected);
}

/* Open the loader of a rank. */
static void begin(int64_t global_batch, int64_t accumulate, int rank, int size, int workers,
                  int slots)
{
    close_all();
    sampler_open(&sampler, 1, SAMPLES, global_batch, accumulate, true, false, rank, size);
    sampler_open(&expected, 1, SAMPLES, global_batch, accumulate, true, false, rank, size);
    loader = loader_open(&probe, &sampler, &augment, &crop, device, workers, slots, &error);
    assert_non_null(loader);
}

static void check_batch(const struct batch *batch, uint32_t epoch, int64_t step, int64_t micro)
{
    struct sampler_slice slice = sampler_slice_at(&expected, step, micro);
    sampler_draw(&expected, epoch);
    const uint32_t *samples = expected.samples;
    assert_int_equal(batch->count, slice.count);
    assert_int_equal(batch->position, slice.position);
    assert_int_equal(batch->global_count, slice.global_count);
    assert_int_equal(batch->error.kind, ERROR_NONE);
    for (int64_t i = 0; i < batch->count; i++) {
        uint32_t record = samples[slice.begin + i];
        assert_int_equal(batch->records[i], record);
        assert_int_equal(batch->labels[i], record * 2);
        for (int p = 0; p < PIXELS; p++)
            assert_int_equal(batch->pixels[i * PIXELS + p], record & 0xff);
        struct pixel_plan plan;
        augment_plan(&augment, epoch, record, &plan);
        assert_memory_equal(&batch->plans[i], &plan, sizeof plan);
    }
}

/* Take a batch, compare it with the sampler's, and give it back. */
static void take_batch(uint32_t epoch, int64_t step, int64_t micro)
{
    struct batch *batch = loader_next(loader, &waited);
    assert_non_null(batch);
    assert_true(waited >= 0);
    check_batch(batch, epoch, step, micro);
    loader_give_back(loader, batch);
}

/* Take some steps, which may begin anywhere in an epoch and span several. */
static void take_steps(int64_t epoch, int64_t first_step, int64_t steps)
{
    const int64_t epoch_steps = sampler_steps(&sampler);
    const int64_t first = epoch * epoch_steps + first_step;
    loader_start(loader, epoch, first_step, steps);
    for (int64_t number = first; number < first + steps; number++)
        for (int64_t micro = 0; micro < sampler.accumulate; micro++)
            take_batch((uint32_t)(number / epoch_steps), number % epoch_steps, micro);
    assert_null(loader_next(loader, &waited));
    assert_null(loader_next(loader, &waited));
}

/* Slices of one and of eight ranks, which are empty on the last one. Epochs of one step, of a few,
 * of more than the ring holds; the first step also ends an epoch. */
TEST(test_order)
{
    static const int64_t batches[] = {200, 50, 10};
    for (int workers = 1; workers <= 8; workers += 2)
        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++)
            for (int size = 1; size <= 8; size += 7) {
                begin(batches[b], 1 + workers % 3, size - 1, size, workers, 2 + workers % 3);
                const int64_t epoch_steps = sampler_steps(&sampler);
                take_steps(0, 0, 3 * epoch_steps);
                take_steps(3, epoch_steps, 2 * epoch_steps + 1);
                take_steps(2, epoch_steps - 1, 0);
            }
    assert_int_equal(atomic_load(&signals_open), 0);
}

/* Before each batch is requested, the ring holds it and the following ones, across epochs. Nothing
 * is read beyond the last step. */
TEST(test_ring_stays_full)
{
    enum { SLOTS = 4, BATCH = 20, EPOCH_STEPS = 6, STEPS = 3 * EPOCH_STEPS - 1 };
    begin(BATCH, 1, 0, 1, 3, SLOTS);
    int seen = 0;
    assert_int_equal(sem_init(&read_done, 0, 0), 0);
    atomic_store(&reads, 0);
    loader_start(loader, 0, 0, STEPS);
    for (int number = 0; number < STEPS; number++) {
        const int end = number + SLOTS < STEPS ? number + SLOTS : STEPS;
        const int wanted = end / EPOCH_STEPS * SAMPLES + end % EPOCH_STEPS * BATCH;
        for (; seen < wanted; seen++)
            sem_wait(&read_done);
        assert_int_equal(atomic_load(&reads), wanted);
        take_batch((uint32_t)(number / EPOCH_STEPS), number % EPOCH_STEPS, 0);
    }
    assert_null(loader_next(loader, &waited));
    assert_int_equal(atomic_load(&reads), 2 * SAMPLES + (EPOCH_STEPS - 1) * BATCH);
}

TEST(test_start_again)
{
    begin(10, 1, 0, 1, 3, 4);
    for (int64_t taken = 0; taken < 6; taken++) {
        loader_start(loader, taken, taken, 30);
        for (int64_t step = taken; step < 2 * taken; step++)
            take_batch((uint32_t)taken, step, 0);
        loader_stop(loader);
        assert_null(loader_next(loader, &waited));
    }
    take_steps(6, 0, 11);
    take_steps(6, 11, 0);
}

/* slots - 1 batches may be held; the ring loads no more than its slots. */
TEST(test_held_batches)
{
    begin(10, 1, 0, 1, 2, 4);
    struct batch *held[3];
    int before = atomic_load(&reads);
    loader_start(loader, 0, 0, 11);
    for (int i = 0; i < 3; i++)
        held[i] = loader_next(loader, &waited);
    for (int i = 0; i < 3; i++)
        check_batch(held[i], 0, i, 0);
    assert_in_range(atomic_load(&reads) - before, 30, 40);
    for (int i = 0; i < 3; i++)
        loader_give_back(loader, held[i]);
    for (int step = 3; step < 11; step++)
        take_batch(0, step, 0);
}

TEST(test_bad_record)
{
    for (int workers = 1; workers <= 4; workers += 3) {
        begin(40, 1, 0, 1, workers, 3);
        sampler_draw(&expected, 0);
        atomic_store(&bad_record, expected.samples[57]);
        loader_start(loader, 0, 0, 3);
        for (int step = 0; step < 3; step++) {
            struct batch *batch = loader_next(loader, &waited);
            assert_int_equal(batch->error.kind, step == 1 ? ERROR_DATA : ERROR_NONE);
            if (step == 1)
                assert_has(batch->error.text, "is bad");
            for (int64_t i = 0; i < batch->count; i++)
                assert_int_equal(batch->labels[i], (int64_t)batch->records[i] * 2);
            loader_give_back(loader, batch);
        }
        atomic_store(&bad_record, -1);
        take_steps(0, 0, 3);
    }
}

/* Closed before the start, in the middle, while a batch is held, and at the end. */
TEST(test_close_anywhere)
{
    for (int taken = -1; taken <= 11; taken++) {
        begin(10, 1, 0, 1, 1 + (taken & 3), 3);
        if (taken >= 0)
            loader_start(loader, 0, 0, 11);
        for (int i = 0; i < taken; i++) {
            struct batch *batch = loader_next(loader, &waited);
            if (i + 1 < taken)
                loader_give_back(loader, batch);
        }
    }
}

static struct device_backend poor_backend;

static void *no_memory(struct device *unused, size_t bytes, struct error *failure)
{
    (void)unused;
    error_set(failure, ERROR_MEMORY, "no %zu bytes of pinned memory", bytes);
    return NULL;
}

TEST(test_no_memory)
{
    poor_backend = *device->backend;
    poor_backend.allocate_pinned = no_memory;
    struct device poor = {.backend = &poor_backend};
    begin(10, 1, 0, 1, 1, 2);
    assert_null(loader_open(&probe, &sampler, &augment, &crop, &poor, 2, 2, &error));
    assert_int_equal(error.kind, ERROR_MEMORY);
}

TEST_MAIN(.setup = open_device, .teardown = close_device, .before = set_up, .after = close_all)
