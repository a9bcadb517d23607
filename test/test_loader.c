/* The loader against the sampler: all batches in order, whatever the number of threads; starting
 * anywhere, stopping anywhere; a record that cannot be read. The data set is one of the test's own,
 * so that reads can fail and can be counted. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/loader.h"

enum { SIDE = 4, PIXELS = 3 * SIDE * SIDE, SAMPLES = 103 };

static atomic_int reads, signals_open;
static atomic_long bad_record;

static bool probe_read(struct dataset *dataset, int64_t record, uint8_t *pixels, int32_t *label,
                       struct error *error)
{
    (void)dataset;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (!sigismember(&mask, SIGINT) || !sigismember(&mask, SIGTERM) || !sigismember(&mask, SIGUSR1))
        atomic_fetch_add(&signals_open, 1);
    atomic_fetch_add(&reads, 1);
    *label = 1 << 30;
    if (record == atomic_load(&bad_record))
        return error_set(error, ERROR_DATA, "record %lld is bad", (long long)record);
    memset(pixels, (int)record, PIXELS);
    *label = (int32_t)record * 2;
    return true;
}

static const struct dataset_format probe_format = {.name = "probe", .read = probe_read};
static struct dataset probe = {.format = &probe_format,
                               .count = SAMPLES,
                               .channels = 3,
                               .height = SIDE,
                               .width = SIDE,
                               .classes = 10};

static struct device *device;
static struct options options;
static struct augment augment;
static struct crop crop; /* inactive: as stored */
static struct sampler sampler;
static struct error error;

static int open_device(void **state)
{
    (void)state;
    device = device_cpu.open(0, 1, &error);
    options_default(&options);
    augment_open(&augment, &options, SIDE, SIDE, true);
    return device == NULL;
}

static int close_device(void **state)
{
    (void)state;
    device->backend->close(device);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    atomic_store(&bad_record, -1);
    error_clear(&error);
    return 0;
}

static struct loader *open_loader(int workers, int slots)
{
    struct loader *loader = loader_open(&probe, &sampler, &augment, &crop, device, workers, slots, &error);
    assert_non_null(loader);
    return loader;
}

static void check_batch(const struct batch *batch, int64_t step, int64_t micro)
{
    struct sampler_slice slice = sampler_slice_at(&sampler, step, micro);
    assert_int_equal(batch->count, slice.count);
    assert_int_equal(batch->position, slice.position);
    assert_int_equal(batch->global_count, slice.global_count);
    assert_int_equal(batch->error.kind, ERROR_NONE);
    for (int64_t i = 0; i < batch->count; i++) {
        uint32_t record = sampler.order[slice.begin + i];
        assert_int_equal(batch->records[i], record);
        assert_int_equal(batch->labels[i], record * 2);
        for (int p = 0; p < PIXELS; p++)
            assert_int_equal(batch->pixels[i * PIXELS + p], record & 0xff);
        struct pixel_plan plan;
        augment_plan(&augment, sampler.epoch, record, &plan);
        assert_memory_equal(&batch->plans[i], &plan, sizeof plan);
    }
}

/* Takes the epoch from first_step on to its end. */
static void take_epoch(struct loader *loader, int64_t first_step)
{
    double waited = 0;
    loader_start(loader, first_step);
    for (int64_t step = first_step; step < sampler_steps(&sampler); step++)
        for (int64_t micro = 0; micro < sampler.accumulate; micro++) {
            struct batch *batch = loader_next(loader, &waited);
            assert_non_null(batch);
            check_batch(batch, step, micro);
            loader_give_back(loader, batch);
        }
    assert_null(loader_next(loader, &waited));
    assert_null(loader_next(loader, &waited));
    assert_true(waited >= 0);
}

static void test_order(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 8; workers++)
        for (int size = 1; size <= 8; size += 7) {
            sampler_open(&sampler, 1, SAMPLES, 20, 3, true, false, size - 1, size);
            struct loader *loader = open_loader(workers, 2 + workers % 3);
            for (uint32_t epoch = 0; epoch < 3; epoch++) {
                sampler_set_epoch(&sampler, epoch);
                take_epoch(loader, epoch);
            }
            loader_close(loader);
            sampler_close(&sampler);
        }
    assert_int_equal(atomic_load(&signals_open), 0);
}

/* Eight ranks and batches of 3: most of them get nothing. */
static void test_empty_batches(void **state)
{
    (void)state;
    for (int rank = 0; rank < 8; rank++) {
        sampler_open(&sampler, 1, SAMPLES, 3, 2, true, false, rank, 8);
        struct loader *loader = open_loader(2, 3);
        int before = atomic_load(&reads);
        take_epoch(loader, 0);
        if (rank >= 3)
            assert_int_equal(atomic_load(&reads), before);
        loader_close(loader);
        sampler_close(&sampler);
    }
}

static void test_start_again(void **state)
{
    (void)state;
    sampler_open(&sampler, 1, SAMPLES, 10, 1, true, false, 0, 1);
    struct loader *loader = open_loader(3, 4);
    double waited = 0;
    for (int64_t taken = 0; taken < 6; taken++) {
        loader_start(loader, taken);
        for (int64_t step = taken; step < 2 * taken; step++) {
            struct batch *batch = loader_next(loader, &waited);
            check_batch(batch, step, 0);
            loader_give_back(loader, batch);
        }
        loader_stop(loader);
        assert_null(loader_next(loader, &waited));
        sampler_set_epoch(&sampler, (uint32_t)taken + 1);
    }
    take_epoch(loader, 0);
    take_epoch(loader, 11);
    loader_close(loader);
    sampler_close(&sampler);
}

/* slots - 1 batches may be held; the ring goes no further than its slots. */
static void test_held_batches(void **state)
{
    (void)state;
    sampler_open(&sampler, 1, SAMPLES, 10, 1, true, false, 0, 1);
    struct loader *loader = open_loader(2, 4);
    struct batch *held[3];
    double waited = 0;
    int before = atomic_load(&reads);
    loader_start(loader, 0);
    for (int i = 0; i < 3; i++)
        held[i] = loader_next(loader, &waited);
    for (int i = 0; i < 3; i++)
        check_batch(held[i], i, 0);
    assert_in_range(atomic_load(&reads) - before, 30, 40);
    for (int i = 0; i < 3; i++)
        loader_give_back(loader, held[i]);
    for (int step = 3; step < 11; step++) {
        struct batch *batch = loader_next(loader, &waited);
        check_batch(batch, step, 0);
        loader_give_back(loader, batch);
    }
    loader_close(loader);
    sampler_close(&sampler);
}

static void test_bad_record(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 4; workers += 3) {
        sampler_open(&sampler, 1, SAMPLES, 40, 1, true, false, 0, 1);
        atomic_store(&bad_record, sampler.order[57]);
        struct loader *loader = open_loader(workers, 3);
        double waited = 0;
        loader_start(loader, 0);
        for (int step = 0; step < 3; step++) {
            struct batch *batch = loader_next(loader, &waited);
            assert_int_equal(batch->error.kind, step == 1 ? ERROR_DATA : ERROR_NONE);
            if (step == 1)
                assert_non_null(strstr(batch->error.text, "is bad"));
            for (int64_t i = 0; i < batch->count; i++)
                assert_int_equal(batch->labels[i],
                                 step == 1 && i == 17 ? 0 : (int64_t)batch->records[i] * 2);
            loader_give_back(loader, batch);
        }
        atomic_store(&bad_record, -1);
        take_epoch(loader, 0);
        loader_close(loader);
        sampler_close(&sampler);
    }
}

/* Closed before the start, in the middle, with a batch held, at the end. */
static void test_close_anywhere(void **state)
{
    (void)state;
    sampler_open(&sampler, 1, SAMPLES, 10, 1, true, false, 0, 1);
    for (int taken = -1; taken <= 11; taken++) {
        struct loader *loader = open_loader(1 + (taken & 3), 3);
        double waited = 0;
        if (taken >= 0)
            loader_start(loader, 0);
        for (int i = 0; i < taken; i++) {
            struct batch *batch = loader_next(loader, &waited);
            if (i + 1 < taken)
                loader_give_back(loader, batch);
        }
        loader_close(loader);
    }
    loader_close(NULL);
    sampler_close(&sampler);
}

static struct device_backend poor_backend;

static void *no_memory(struct device *unused, size_t bytes, struct error *failure)
{
    (void)unused;
    error_set(failure, ERROR_MEMORY, "no %zu bytes of pinned memory", bytes);
    return NULL;
}

static void test_no_memory(void **state)
{
    (void)state;
    poor_backend = *device->backend;
    poor_backend.allocate_pinned = no_memory;
    struct device poor = {.backend = &poor_backend};
    sampler_open(&sampler, 1, SAMPLES, 10, 1, true, false, 0, 1);
    assert_null(loader_open(&probe, &sampler, &augment, &crop, &poor, 2, 2, &error));
    assert_int_equal(error.kind, ERROR_MEMORY);
    sampler_close(&sampler);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_order, set_up),
        cmocka_unit_test_setup(test_empty_batches, set_up),
        cmocka_unit_test_setup(test_start_again, set_up),
        cmocka_unit_test_setup(test_held_batches, set_up),
        cmocka_unit_test_setup(test_bad_record, set_up),
        cmocka_unit_test_setup(test_close_anywhere, set_up),
        cmocka_unit_test_setup(test_no_memory, set_up),
    };
    return cmocka_run_group_tests_name("loader", tests, open_device, close_device);
}
