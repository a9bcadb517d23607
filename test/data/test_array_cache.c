// SPDX-License-Identifier: BSD-3-Clause
/* data.shuffle=chunks and the cache of decoded chunks: the order of the samples, the values, how
 * often chunks are decoded, and the memory, with one and several ranks, threads and files. */
#include <hdf5.h>
#include <pthread.h>

#include "config/options.h"
#include "data/array_cache.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "temporary.h"
#include "test.h"

enum { SAMPLES = 1003, CHUNK = 6, CHANNELS = 2, SIDE = 4, PLANE = SIDE * SIDE };
enum { VALUES = CHANNELS * PLANE, CHUNKS = (SAMPLES + CHUNK - 1) / CHUNK, PIECES = 2 };
enum { CHUNK_BYTES = CHUNK * CHANNELS * SIDE * SIDE / PIECES * (int)sizeof(float), BATCH = 24 };
enum { FULL_CHUNKS = SAMPLES / CHUNK, THREADS_MOST = 8, CLAIM = 8 };

static struct options options;
static struct dataset dataset;
static struct error error;
static const char *sources = "x"; /* data.x */

static float value_of(int64_t sample, int64_t place)
{
    return (float)(sample * VALUES + place);
}

static void dataset_write(hid_t file, const char *name, int dimensions, const hsize_t *extent,
                          const hsize_t *chunk, hid_t type, const void *data)
{
    hid_t space = H5Screate_simple(dimensions, extent, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, dimensions, chunk);
    H5Pset_deflate(creation, 1);
    hid_t made = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(made);
    H5Pclose(creation);
    H5Sclose(space);
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
    hid_t file = H5Fcreate(temporary_path(name), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    dataset_write(file, "x", 4, extent, shape, H5T_NATIVE_FLOAT, x);
    dataset_write(file, "y", 1, extent, shape, H5T_NATIVE_INT, y);
    H5Fclose(file);
}

static int set_up(void **state)
{
    temporary_setup(state);
    temporary_directory("all");
    temporary_directory("parts");
    file_make("all/one.h5", 0, SAMPLES, CHUNK);
    file_make("parts/a.h5", 0, 310, CHUNK);
    file_make("parts/b.h5", 310, 5, 4);
    file_make("parts/c.h5", 315, SAMPLES - 315, 9);
    return 0;
}

static void open_data(const char *root, enum shuffle_choice shuffle, const char *val, int workers)
{
    options_default(&options);
    snprintf(options.data.format, sizeof options.data.format, "arrays");
    snprintf(options.data.root, sizeof options.data.root, "%s", temporary_path(root));
    snprintf(options.data.x, sizeof options.data.x, "%s", sources);
    snprintf(options.data.y, sizeof options.data.y, "y");
    options.data.shuffle = shuffle;
    options.data.workers = workers;
    options.data.val = val != NULL ? VALIDATION_FRACTION : VALIDATION_NONE;
    options.data.val_fraction = val != NULL ? strtod(val, NULL) : 0;
    assert_ok(dataset_open(&dataset, &options, SPLIT_TRAIN, NULL, &error), &error);
}

static int64_t chunk_of(const void *context, int64_t sample)
{
    (void)context;
    return dataset.format->chunk(&dataset, dataset_record(&dataset, sample));
}

/* ---- reading ---- */

/* Threads that read the samples of a rank in order, some at a time, as the loader's do. */
struct readers {
    const struct sampler *sampler;
    uint32_t epoch;
    pthread_mutex_t mutex;
    int64_t step, claimed;
    int64_t read;
};

static bool claim(struct readers *readers, int64_t *first, int64_t *count)
{
    bool found = false;
    pthread_mutex_lock(&readers->mutex);
    while (!found && readers->step < sampler_steps(readers->sampler)) {
        const struct sampler_slice slice = sampler_slice_at(readers->sampler, readers->step, 0);
        *first = slice.begin + readers->claimed;
        *count = slice.count - readers->claimed < CLAIM ? slice.count - readers->claimed : CLAIM;
        readers->claimed += *count;
        found = *count > 0;
        if (!found) {
            readers->step++;
            readers->claimed = 0;
        }
    }
    pthread_mutex_unlock(&readers->mutex);
    return found;
}

static void *read_samples(void *argument)
{
    struct readers *readers = argument;
    const struct sampler_order *order = sampler_order_of(readers->sampler, readers->epoch);
    int64_t first, count, read = 0;
    while (claim(readers, &first, &count))
        for (int64_t i = first; i < first + count; i++, read++) {
            float values[VALUES];
            int32_t label;
            struct error reason = {0};
            const int64_t sample = order->samples[i];
            const int64_t record = dataset_record(&dataset, sample);
            ENSURE(dataset_read(&dataset, sample, values, &label, &reason), "%s", reason.text);
            ENSURE(label == record % 7, "label %d of sample %lld", label, (long long)record);
            for (int64_t place = 0; place < VALUES; place++)
                ENSURE(values[place] == value_of(record, place), "sample %lld", (long long)record);
        }
    pthread_mutex_lock(&readers->mutex);
    readers->read += read;
    pthread_mutex_unlock(&readers->mutex);
    return NULL;
}

/* Read an epoch of one rank; return the number of chunks that were decoded. */
static int64_t epoch_read(struct sampler *sampler, uint32_t epoch, int threads)
{
    struct readers readers = {.sampler = sampler, .epoch = epoch};
    pthread_t thread[THREADS_MOST];
    const int64_t before = array_cache_counts(dataset.chunks).decoded;
    sampler_draw(sampler, epoch);
    pthread_mutex_init(&readers.mutex, NULL);
    for (int i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_samples, &readers), 0);
    for (int i = 0; i < threads; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    pthread_mutex_destroy(&readers.mutex);
    if (sampler->size == 1)
        assert_int_equal(readers.read, dataset.count);
    return array_cache_counts(dataset.chunks).decoded - before;
}

static void open_sampler(struct sampler *sampler, int rank, int size)
{
    sampler_open(sampler, 5, dataset.count, BATCH, 1, options.data.shuffle != SHUFFLE_OFF, false,
                 rank, size);
    if (options.data.shuffle == SHUFFLE_CHUNKS)
        sampler_use_blocks_of(sampler, chunk_of, NULL);
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

/* Each sample comes once, and 16 chunks are used completely before the next 16. */
TEST(chunks_are_shuffled)
{
    struct sampler sampler;
    static const char *const val[] = {NULL, "0.2"};
    for (int n = 0; n < 2; n++) {
        static int place[SAMPLES], seen[SAMPLES];
        int64_t window_end = 0, moved = 0;
        open_data("all/one.h5", SHUFFLE_CHUNKS, val[n], 1);
        open_sampler(&sampler, 0, 1);
        sampler_draw(&sampler, 0);
        const struct sampler_order *order = sampler_order_of(&sampler, 0);
        assert_int_equal(sampler.block_count, CHUNKS);
        for (int64_t i = 0; i < CHUNKS; i++)
            place[order->blocks[i]] = (int)i;
        memset(seen, 0, sizeof seen);
        for (int64_t i = 0; i < dataset.count; i++) {
            const int64_t sample = order->samples[i];
            const int64_t window = place[chunk_of(NULL, sample)] / SHUFFLE_WINDOW;
            const int64_t last = (window + 1) * SHUFFLE_WINDOW;
            window_end = order->begin[last < CHUNKS ? last : CHUNKS];
            assert_in_range(i / BATCH * BATCH, 0, window_end - 1);
            assert_in_range(i / BATCH * BATCH + BATCH, order->begin[window * SHUFFLE_WINDOW] + 1,
                            SAMPLES + BATCH);
            moved += sample != i;
            seen[sample]++;
        }
        for (int64_t i = 0; i < dataset.count; i++)
            assert_int_equal(seen[i], 1);
        assert_true(moved > dataset.count / 2);
        sampler_close(&sampler);
        dataset_close(&dataset);
    }
}

TEST(each_chunk_is_decoded_once)
{
    for (int threads = 1; threads <= 4; threads++) {
        open_data("all/one.h5", SHUFFLE_CHUNKS, NULL, threads);
        assert_int_equal(dataset.kept_bytes,
                         (SHUFFLE_WINDOW + SHUFFLE_WINDOW / 2) * PIECES * CHUNK_BYTES);
        once_check(epochs_read(0, 1, threads), FULL_CHUNKS, threads);
        memory_check(threads);
        dataset_close(&dataset);
    }
}

/* A chunk is decoded once even if a part of its samples is held out. */
TEST(held_out_samples_cost_nothing)
{
    open_data("all/one.h5", SHUFFLE_CHUNKS, "0.2", 1);
    once_check(epochs_read(0, 1, 1), FULL_CHUNKS, 1);
    memory_check(1);
    dataset_close(&dataset);
}

/* Borders of chunks are those of each file. */
TEST(files_have_chunks_of_their_own)
{
    const int64_t chunks = (310 + CHUNK - 1) / CHUNK + 1 + (SAMPLES - 315 + 8) / 9;
    open_data("parts", SHUFFLE_CHUNKS, NULL, 1);
    once_check(epochs_read(0, 1, 1), chunks, 1);
    dataset_close(&dataset);
}

/* A rank decodes what its slices need: a part of the chunks, and some that another rank needs, too.
 */
TEST(ranks_share_the_chunks)
{
    enum { RANKS = 2 };
    int64_t total = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        open_data("all/one.h5", SHUFFLE_CHUNKS, NULL, 1);
        const int64_t decoded = epochs_read(rank, RANKS, 1);
        assert_in_range(decoded, FULL_CHUNKS * PIECES * 4 / 10, FULL_CHUNKS * PIECES * 7 / 10);
        total += decoded;
        memory_check(1);
        dataset_close(&dataset);
    }
    assert_in_range(total, FULL_CHUNKS * PIECES, FULL_CHUNKS * PIECES * 13 / 10);
}

/* Without shuffling, threads that read neighbouring samples share chunks, too. */
TEST(threads_share_chunks_in_order)
{
    for (int threads = 1; threads <= 3; threads++) {
        open_data("all/one.h5", SHUFFLE_OFF, NULL, threads);
        assert_int_equal(dataset.kept_bytes, (threads + 1) * PIECES * CHUNK_BYTES);
        once_check(epochs_read(0, 1, threads), FULL_CHUNKS, threads);
        memory_check(threads);
        dataset_close(&dataset);
    }
}

/* A data set that is named twice is decoded once. */
TEST(offsets_share_chunks)
{
    static float values[2 * VALUES];
    int32_t label;
    sources = "x@-1,x";
    open_data("all/one.h5", SHUFFLE_OFF, NULL, 1);
    sources = "x";
    assert_int_equal(dataset.count, SAMPLES - 1);
    for (int64_t i = 0; i < dataset.count; i++) {
        assert_true(dataset_read(&dataset, i, values, &label, &error));
        for (int64_t place = 0; place < VALUES; place++)
            assert_true(values[place] == value_of(i, place) &&
                        values[VALUES + place] == value_of(i + 1, place));
    }
    once_check(array_cache_counts(dataset.chunks).decoded, FULL_CHUNKS, 1);
    dataset_close(&dataset);
}

static pthread_barrier_t barrier;

static void *read_one(void *argument)
{
    float values[VALUES];
    int32_t label;
    struct error reason = {0};
    pthread_barrier_wait(&barrier);
    const bool good = dataset_read(&dataset, (intptr_t)argument, values, &label, &reason);
    ENSURE(good, "%s", reason.text);
    return NULL;
}

/* One thread decodes a chunk while others wait for it. */
TEST(one_thread_decodes_a_chunk)
{
    pthread_t thread[THREADS_MOST];
    for (int round = 0; round < 20; round++) {
        open_data("all/one.h5", SHUFFLE_CHUNKS, NULL, THREADS_MOST);
        pthread_barrier_init(&barrier, NULL, THREADS_MOST);
        for (intptr_t i = 0; i < THREADS_MOST; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, read_one, (void *)i), 0);
        for (int i = 0; i < THREADS_MOST; i++)
            assert_int_equal(pthread_join(thread[i], NULL), 0);
        pthread_barrier_destroy(&barrier);
        assert_int_equal(array_cache_counts(dataset.chunks).decoded, 2 * PIECES);
        dataset_close(&dataset);
    }
}

int main(void)
{
    return TESTS_RUN(.setup = set_up, .teardown = temporary_teardown);
}
