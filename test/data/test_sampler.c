// SPDX-License-Identifier: BSD-3-Clause
/* The sampler: any number of ranks gets the same samples in the same order, each once. */
#include "data/sampler.h"

#include "base/allocate.h"
#include "test.h"

enum { MOST = 1000 };

/* Return the samples in the order of an epoch. */
static const uint32_t *order_at(struct sampler *sampler, uint32_t epoch)
{
    sampler_draw(sampler, epoch);
    return sampler->samples;
}

/* Walk through an epoch as all ranks do. Check that the slices of each global batch are its samples
 * in order, balanced, at the right positions. Return the number of samples. */
static int64_t walk_epoch(int64_t count, int64_t batch, int64_t accumulate, int size, bool drop,
                          int64_t group)
{
    struct sampler samplers[8];
    for (int rank = 0; rank < size; rank++) {
        sampler_open(&samplers[rank], 3, count, batch, accumulate, true, drop, rank, size);
        samplers[rank].group = group;
    }
    int64_t next = 0;
    for (int64_t step = 0; step < sampler_steps(&samplers[0]); step++) {
        int64_t batch_begin = next, smallest = MOST, largest = 0, piece_samples[8] = {0};
        for (int rank = 0; rank < size; rank++) {
            int64_t rank_begin = next, smallest_piece = MOST, largest_piece = 0;
            for (int64_t micro = 0; micro < accumulate; micro++) {
                struct sampler_slice slice = sampler_slice_at(&samplers[rank], step, micro);
                assert_int_equal(slice.begin, next);
                assert_int_equal(slice.position, next - batch_begin);
                assert_true(slice.count == 0 || slice.position % group == 0);
                next += slice.count;
                piece_samples[micro] += slice.count;
                int64_t left = count - batch_begin;
                assert_int_equal(slice.global_count, left < batch ? left : batch);
                assert_true(slice.count <= sampler_largest_slice(&samplers[rank]));
                smallest_piece = slice.count < smallest_piece ? slice.count : smallest_piece;
                largest_piece = slice.count > largest_piece ? slice.count : largest_piece;
            }
            assert_true(largest_piece - smallest_piece <= 2 * group - 1);
            int64_t share = next - rank_begin;
            smallest = share < smallest ? share : smallest;
            largest = share > largest ? share : largest;
        }
        for (int64_t micro = 0; micro < accumulate; micro++)
            assert_int_equal(sampler_piece_samples(&samplers[0], next - batch_begin, micro),
                             piece_samples[micro]);
        assert_true(largest - smallest <= 2 * group - 1); /* the last group may be short */
    }
    for (int rank = size - 1; rank >= 0; rank--) {
        assert_memory_equal(order_at(&samplers[rank], 2), order_at(&samplers[0], 2),
                            (size_t)count * 4);
        sampler_close(&samplers[rank]);
    }
    return next;
}

TEST(test_every_sample_once)
{
    static const int64_t counts[] = {1, 7, 64, 65, 100, 101}, batches[] = {1, 3, 8, 64, 200};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++)
            for (int size = 1; size <= 8; size++)
                for (int64_t accumulate = 1; accumulate <= 3; accumulate++) {
                    int64_t whole = counts[c] / batches[b] * batches[b];
                    for (int64_t group = 1; group <= 2; group++) {
                        assert_int_equal(
                            walk_epoch(counts[c], batches[b], accumulate, size, false, group),
                            counts[c]);
                        assert_int_equal(
                            walk_epoch(counts[c], batches[b], accumulate, size, true, group),
                            whole);
                    }
                }
}

TEST(test_order)
{
    struct sampler sampler;
    uint32_t seen[100] = {0}, first[100];
    sampler_open(&sampler, 5, 100, 10, 1, true, false, 0, 1);
    memcpy(first, order_at(&sampler, 0), sizeof first);
    for (int i = 0; i < 100; i++)
        seen[first[i]]++;
    for (int i = 0; i < 100; i++)
        assert_int_equal(seen[i], 1);
    assert_memory_not_equal(order_at(&sampler, 1), first, sizeof first);
    assert_memory_not_equal(order_at(&sampler, 2), first, sizeof first);
    assert_memory_equal(order_at(&sampler, 0), first, sizeof first);
    sampler_close(&sampler);
    sampler_open(&sampler, 6, 100, 10, 1, true, false, 0, 1);
    assert_memory_not_equal(order_at(&sampler, 0), first, sizeof first);
    sampler_close(&sampler);
    sampler_open(&sampler, 5, 100, 10, 1, false, false, 0, 1);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(order_at(&sampler, 0)[i], i);
    sampler_close(&sampler);
}

TEST(test_limit)
{
    struct sampler sampler;
    sampler_open(&sampler, 5, 100, 30, 1, true, false, 0, 1);
    assert_int_equal(sampler_steps(&sampler), 4);
    sampler.limit = 2;
    assert_int_equal(sampler_steps(&sampler), 2);
    sampler.limit = 9;
    assert_int_equal(sampler_steps(&sampler), 4);
    sampler.limit = 0;
    sampler.drop_last = true;
    assert_int_equal(sampler_steps(&sampler), 3);
    sampler_close(&sampler);
}

/* Each global batch has a third as many samples, each as copies 0, 1, 2; none is in two batches. */
TEST(test_repeated)
{
    enum { COUNT = 100, BATCH = 14, DIFFERENT = 5 };
    struct sampler sampler;
    int batch_of[COUNT], copies[COUNT] = {0};
    sampler_open(&sampler, 5, COUNT, BATCH, 1, true, false, 0, 1);
    sampler.repeat = 3;
    const uint32_t *samples = order_at(&sampler, 1);
    for (int i = 0; i < COUNT; i++) {
        uint32_t sample = samples[i];
        assert_in_range(sample, 0, COUNT - 1);
        assert_int_equal(sampler_copy_at(&sampler, i), copies[sample]);
        assert_int_equal(copies[sample], i % BATCH / DIFFERENT);
        if (copies[sample]++ > 0)
            assert_int_equal(batch_of[sample], i / BATCH);
        batch_of[sample] = i / BATCH;
    }
    sampler_close(&sampler);
    sampler_open(&sampler, 5, COUNT, BATCH, 1, true, false, 0, 1);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(sampler_copy_at(&sampler, i), 0);
    sampler_close(&sampler);
}

/* ---- balanced classes ---- */

enum {
    UNEVEN = 103,
    CLASSES = 5,
    DRAWN_EPOCHS = 6,
    MIXING = 37 /* sample i is in place 37 i mod 103 */
};
static const size_t class_end[CLASSES + 1] = {0, 50, 51, 51, 91, 103};

static int class_of(uint32_t sample)
{
    int class = 0;
    while (sample * MIXING % UNEVEN >= class_end[class + 1])
        class ++;
    return class;
}

static void open_balanced(struct sampler *sampler, uint64_t seed, int rank, int size)
{
    uint32_t *by_class = allocate(UNEVEN, sizeof *by_class);
    size_t *begin = allocate(CLASSES + 1, sizeof *begin);
    for (uint32_t i = 0; i < UNEVEN; i++)
        by_class[i * MIXING % UNEVEN] = i;
    memcpy(begin, class_end, sizeof class_end);
    sampler_open(sampler, seed, UNEVEN, 10, 1, true, false, rank, size);
    sampler_use_classes(sampler, by_class, begin, CLASSES);
}

/* Each class that has samples is drawn 25 or 26 times in an epoch of 103, and no sample of a class
 * is drawn twice more than another one, in all epochs. Copies of a sample have different numbers.
 */
TEST(test_balanced)
{
    struct sampler sampler, other;
    int drawn[UNEVEN] = {0};
    uint32_t before[UNEVEN] = {0};
    open_balanced(&sampler, 5, 0, 1);
    for (uint32_t epoch = 0; epoch < DRAWN_EPOCHS; epoch++) {
        int in_class[CLASSES] = {0}, least[CLASSES], most[CLASSES] = {0};
        bool seen[UNEVEN][UNEVEN] = {{false}};
        const uint32_t *samples = order_at(&sampler, epoch);
        assert_memory_not_equal(samples, before, sizeof before);
        memcpy(before, samples, sizeof before);
        for (int i = 0; i < UNEVEN; i++) {
            const int64_t copy = sampler_copy_at(&sampler, i);
            in_class[class_of(samples[i])]++;
            drawn[samples[i]]++;
            assert_in_range(copy, 0, 25);
            assert_false(seen[samples[i]][copy]);
            seen[samples[i]][copy] = true;
        }
        for (int c = 0; c < CLASSES; c++) {
            least[c] = INT32_MAX;
            assert_true(c == 2 ? in_class[c] == 0 : in_class[c] == 25 || in_class[c] == 26);
        }
        for (uint32_t i = 0; i < UNEVEN; i++) {
            const int c = class_of(i);
            least[c] = drawn[i] < least[c] ? drawn[i] : least[c];
            most[c] = drawn[i] > most[c] ? drawn[i] : most[c];
        }
        for (int c = 0; c < CLASSES; c++)
            assert_true(c == 2 || most[c] - least[c] <= 1);
    }
    /* Another rank, which starts with this epoch. */
    open_balanced(&other, 5, 2, 3);
    assert_memory_equal(order_at(&other, 3), order_at(&sampler, 3), sizeof before);
    assert_memory_equal(other.copies, sampler.copies, UNEVEN);
    sampler_close(&other);
    open_balanced(&other, 6, 0, 1);
    assert_memory_not_equal(order_at(&other, 3), sampler.samples, sizeof before);
    sampler_close(&other);
    sampler_close(&sampler);
}

/* ---- blocks ---- */

enum { BLOCK = 7, WINDOW = SHUFFLE_WINDOW * BLOCK, SAMPLES = 9 * WINDOW, BATCH = 24 };

static int64_t block_of(const void *unused, int64_t sample)
{
    assert_null(unused);
    return sample / BLOCK;
}

static void open_blocks(struct sampler *sampler, int rank, int size)
{
    sampler_open(sampler, 5, SAMPLES, BATCH, 2, true, false, rank, size);
    sampler_use_blocks(sampler, block_of, NULL);
}

/* Each sample occurs once; 16 blocks are used completely before the next 16; a batch is in file
 * order. A batch may contain the end of one window and the beginning of the next. */
TEST(test_blocks)
{
    struct sampler sampler;
    uint32_t first[SAMPLES];
    open_blocks(&sampler, 0, 1);
    for (uint32_t epoch = 0; epoch < 20; epoch++) {
        int seen[SAMPLES] = {0}, window_of[SAMPLES / BLOCK] = {0}; /* from 1; 0: not known */
        int blocks[SAMPLES / WINDOW + 1] = {0};
        const uint32_t *samples = order_at(&sampler, epoch);
        for (int i = 0; i < SAMPLES; i++) {
            const int window = 1 + i / WINDOW, batch = i / BATCH * BATCH;
            int *of_block = &window_of[samples[i] / BLOCK];
            seen[samples[i]]++;
            assert_int_equal(seen[samples[i]], 1);
            assert_true(i % BATCH == 0 || samples[i] > samples[i - 1]);
            if (batch / WINDOW != (batch + BATCH - 1) / WINDOW)
                continue;
            blocks[window - 1] += *of_block == 0;
            assert_true(*of_block == 0 || *of_block == window);
            *of_block = window;
        }
        for (int window = 0; window < SAMPLES / WINDOW; window++)
            assert_in_range(blocks[window], 1, SHUFFLE_WINDOW);
    }
    memcpy(first, order_at(&sampler, 19), sizeof first);
    assert_memory_not_equal(first, order_at(&sampler, 20), sizeof first);
    sampler_close(&sampler);
    open_blocks(&sampler, 4, 7);
    assert_memory_equal(first, order_at(&sampler, 19), sizeof first);
    sampler_close(&sampler);
}

/* Inside its window a sample can be anywhere. Over many epochs, the distance of a block's samples
 * from its start is uniformly distributed, and blocks occur everywhere. */
TEST(test_spread)
{
    enum { EPOCHS = 200, EVEN = 8 * WINDOW };
    struct sampler sampler;
    double turn = 0, place = 0;
    sampler_open(&sampler, 9, EVEN, 1, 1, true, false, 0, 1); /* batches of one are not sorted */
    sampler_use_blocks(&sampler, block_of, NULL);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++)
        for (int i = 0; i < EVEN; i++)
            if (order_at(&sampler, epoch)[i] < BLOCK) { /* a sample of the file's first block */
                place += i % WINDOW;
                turn += i;
            }
    assert_true(fabs(place / (EPOCHS * BLOCK) - (WINDOW - 1) / 2.0) < WINDOW / 20.0);
    assert_true(fabs(turn / (EPOCHS * BLOCK) - (EVEN - 1) / 2.0) < EVEN / 12.0);
    sampler_close(&sampler);
}

TEST_MAIN()
