// SPDX-License-Identifier: BSD-3-Clause
/* data.shuffle=chunks and the cache of decoded chunks: the order of the samples, the values, how
 * often chunks are decoded, and the memory, with one and several ranks, threads and files. */
#include <pthread.h>

#include "arrays/decode.h"
#include "data/loader.h"
#include "dataset_fixture.h"
#include "hdf5_fixture.h"
#include "options/options.h"
#include "temporary.h"
#include "test.h"

enum { SAMPLES = 1003, CHUNK = 6, CHANNELS = 2, SIDE = 4, PLANE = SIDE * SIDE };
enum { VALUES = CHANNELS * PLANE, PIECES = 2 };
enum { CHUNK_BYTES = CHUNK * CHANNELS * SIDE * SIDE / PIECES * (int)sizeof(float), BATCH = 24 };
enum { FULL_CHUNKS = SAMPLES / CHUNK, THREADS_MOST = 8 };

static struct device *device;
static struct augment augment;
static struct crop crop;          /* inactive */
static const char *sources = "x"; /* data.x */

static float value_of(int64_t sample, int64_t place)
{
    return (float)(sample * VALUES + place);
}

/* Write samples first, first + 1, ... with `chunk` of them in a chunk; a sample is in two chunks.
 */
static void file_make(const char *name, int64_t first, int64_t count, int64_t chunk)
{
    static float x[SAMPLES][VALUES];
    static int y[SAMPLES];
    const hsize_t extent[] = {(hsize_t)count, CHANNELS, SIDE, SIDE};
    const hsize_t shape[] = {(hsize_t)chunk, CHANNELS, SIDE, SIDE / PIECES};
    for (int64_t n = 0; n < count; n++) {
        y[n] = (int)((first + n) % 7);
        for (int64_t i = 0; i < VALUES; i++)
            x[n][i] = value_of(first + n, i);
    }
    hid_t file = hdf5_create(temporary_path(name));
    hdf5_write(file, "x", 4, extent, shape, H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, x);
    hdf5_write(file, "y", 1, extent, shape, H5T_NATIVE_INT, H5T_NATIVE_INT, y);
    H5Fclose(file);
}

static void set_up(void)
{
    temporary_setup();
    temporary_directory("all");
    temporary_directory("parts");
    options_default(&options);
    assert_true(augment_open(&augment, &options, SIDE, SIDE, false, &error));
    device = device_cpu.open(0, 1, &error);
    assert_non_null(device);
    file_make("all/one.h5", 0, SAMPLES, CHUNK);
    file_make("parts/a.h5", 0, 310, CHUNK);
    file_make("parts/b.h5", 310, 5, 4);
    file_make("parts/c.h5", 315, SAMPLES - 315, 9);
}

static void close_all(void)
{
    device->backend->close(device);
    temporary_close();
}

static void open_data(const char *root, const char *settings)
{
    arrays_begin(root, sources, "y");
    settings_apply(&options, "data.val=none");
    split_opens(settings, SPLIT_TRAIN, -1);
}

static int64_t chunk_of(const void *context, int64_t sample)
{
    (void)context;
    return dataset.format->chunk(&dataset, dataset_record(&dataset, sample));
}

/* ---- reading ---- */

/* Read an epoch of one rank, which has each sample once; return the number of chunks that were
 * decoded. */
static int64_t epoch_read(struct sampler *sampler, uint32_t epoch, int threads)
{
    const int64_t before = array_cache_counts(dataset.chunks).decoded;
    int seen[SAMPLES] = {0};
    int64_t read = 0;
    double waited = 0;
    struct loader *loader =
        loader_open(&dataset, sampler, &augment, &crop, device, threads, 3, &error);
    assert_non_null(loader);
    loader_start(loader, epoch, 0, sampler_steps(sampler));
    for (struct batch *batch; (batch = loader_next(loader, &waited)) != NULL;) {
        for (int64_t i = 0; i < batch->count; i++, read++) {
            const int64_t record = batch->records[i];
            const float *values = (const float *)(batch->pixels + i * batch->record_bytes);
            assert_int_equal(seen[record]++, 0);
            assert_int_equal(batch->labels[i], record % 7);
            for (int64_t place = 0; place < VALUES; place++)
                assert_true(values[place] == value_of(record, place));
        }
        loader_give_back(loader, batch);
    }
    loader_close(loader);
    if (sampler->size == 1)
        assert_int_equal(read, dataset.count);
    return array_cache_counts(dataset.chunks).decoded - before;
}

static void open_sampler(struct sampler *sampler, int rank, int size)
{
    sampler_open(sampler, 5, dataset.count, BATCH, 1, options.data.shuffle != SHUFFLE_OFF, false,
                 rank, size);
    if (options.data.shuffle == SHUFFLE_CHUNKS)
        sampler_use_blocks(sampler, chunk_of, NULL);
}

/* Read three epochs as one rank of `size`, and return the largest number of decoded chunks. */
static int64_t epochs_read(int rank, int size, int threads)
{
    struct sampler sampler;
    int64_t most = 0;
    open_sampler(&sampler, rank, size);
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        const int64_t decoded = epoch_read(&sampler, epoch, threads);
        most = decoded > most ? decoded : most;
    }
    sampler_close(&sampler);
    return most;
}

/* The cache stays within its limit, up to the chunks that threads use. */
static void memory_check(int threads)
{
    const int64_t peak = array_cache_counts(dataset.chunks).peak;
    assert_in_range(peak, CHUNK_BYTES, dataset.kept_bytes + threads * CHUNK_BYTES);
}

/* Nearly no chunk was decoded twice. A chunk of one sample is not kept, so it is not counted. A
 * thread that the system suspends finds its chunks dropped, so several threads decode some twice;
 * without the cache each chunk would be decoded CHUNK times. */
static void once_check(int64_t decoded, int64_t chunks, int threads)
{
    const int64_t least = chunks * PIECES;
    assert_in_range(decoded, least, threads == 1 ? least * 11 / 10 : least * 2);
}

/* ---- tests ---- */

/* Threads that read neighbouring samples share chunks, also without shuffling. */
TEST(each_chunk_is_decoded_once)
{
    for (int threads = 1; threads <= 4; threads++)
        for (int shuffled = 0; shuffled < 2; shuffled++) {
            const int kept = shuffled ? SHUFFLE_WINDOW + SHUFFLE_WINDOW / 2 : threads + 1;
            OWNED char *settings = allocate_text("data.shuffle=%s data.workers=%d",
                                                 shuffled ? "chunks" : "off", threads);
            open_data("all/one.h5", settings);
            assert_int_equal(dataset.kept_bytes, kept * PIECES * CHUNK_BYTES);
            once_check(epochs_read(0, 1, threads), FULL_CHUNKS, threads);
            memory_check(threads);
        }
}

/* A chunk is decoded once even if a part of its samples is held out, and in each of several files.
 */
TEST(parts_of_data_have_whole_chunks)
{
    open_data("all/one.h5", "data.shuffle=chunks data.val=0.2");
    once_check(epochs_read(0, 1, 1), FULL_CHUNKS, 1);
    memory_check(1);
    const int64_t chunks = (310 + CHUNK - 1) / CHUNK + 1 + (SAMPLES - 315 + 8) / 9;
    open_data("parts", "data.shuffle=chunks");
    once_check(epochs_read(0, 1, 1), chunks, 1);
}

/* A rank decodes what its slices need: a part of the chunks, and some that another rank needs, too.
 */
TEST(ranks_share_the_chunks)
{
    enum { RANKS = 2 };
    int64_t total = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        open_data("all/one.h5", "data.shuffle=chunks");
        const int64_t decoded = epochs_read(rank, RANKS, 1);
        assert_in_range(decoded, FULL_CHUNKS * PIECES * 4 / 10, FULL_CHUNKS * PIECES * 7 / 10);
        total += decoded;
        memory_check(1);
    }
    assert_in_range(total, FULL_CHUNKS * PIECES, FULL_CHUNKS * PIECES * 13 / 10);
}

/* A data set that is named twice is decoded once. */
TEST(offsets_share_chunks)
{
    static float values[2 * VALUES];
    sources = "x@-1,x";
    open_data("all/one.h5", "data.shuffle=off");
    sources = "x";
    assert_int_equal(dataset.count, SAMPLES - 1);
    for (int64_t i = 0; i < dataset.count; i++) {
        assert_true(dataset_read(&dataset, i, values, &error));
        for (int64_t place = 0; place < VALUES; place++)
            assert_true(values[place] == value_of(i, place) &&
                        values[VALUES + place] == value_of(i + 1, place));
    }
    once_check(array_cache_counts(dataset.chunks).decoded, FULL_CHUNKS, 1);
}

static pthread_barrier_t barrier;

static void *read_one(void *argument)
{
    float values[VALUES];
    struct error reason = {0};
    pthread_barrier_wait(&barrier);
    const bool good = dataset_read(&dataset, (intptr_t)argument, values, &reason);
    ENSURE(good, "%s", reason.text);
    return NULL;
}

/* One thread decodes a chunk while others wait for it. */
TEST(one_thread_decodes_a_chunk)
{
    pthread_t thread[THREADS_MOST];
    for (int round = 0; round < 20; round++) {
        open_data("all/one.h5", "data.shuffle=chunks data.workers=8");
        pthread_barrier_init(&barrier, NULL, THREADS_MOST);
        for (intptr_t i = 0; i < THREADS_MOST; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, read_one, (void *)i), 0);
        for (int i = 0; i < THREADS_MOST; i++)
            assert_int_equal(pthread_join(thread[i], NULL), 0);
        pthread_barrier_destroy(&barrier);
        assert_int_equal(array_cache_counts(dataset.chunks).decoded, 2 * PIECES);
    }
}

TEST_MAIN(.setup = set_up, .teardown = close_all)
